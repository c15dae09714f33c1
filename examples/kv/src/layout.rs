//! What lies in the memory of a node: buckets, and the directory that says where they are.

use anyhow::{Context as _, bail, ensure};

/// Entries of a bucket.
pub(crate) const SLOTS: usize = 4;
/// Bytes of the longest key.
pub(crate) const LONGEST_KEY: usize = 30;
/// Bytes of the longest value.
pub(crate) const LONGEST_VALUE: usize = 96;

/// A slot: two lengths, a key and a value.
const SLOT: usize = 2 + LONGEST_KEY + LONGEST_VALUE;

/// A bucket begins with the word that clients lock it by.
pub(crate) const LOCK: usize = 8;
/// What is read and written at once: version, checksum, slots, and the version again.
pub(crate) const BODY: usize = 8 + 8 + SLOTS * SLOT + 8;
/// All of a bucket.
pub(crate) const BUCKET: usize = LOCK + BODY;

/// The number of the region that nodes expose.
pub(crate) const REGION: u32 = 1;

/// What is in a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Counts the puts.
    pub(crate) version: u64,
    pub(crate) entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Bucket {
    /// The bytes of the body. Keys and values must have been checked by [`set`](Self::set).
    pub(crate) fn to_bytes(&self) -> [u8; BODY] {
        let mut body = [0; BODY];
        body[..8].copy_from_slice(&self.version.to_le_bytes());
        body[BODY - 8..].copy_from_slice(&self.version.to_le_bytes());
        for ((key, value), slot) in self.entries.iter().zip(body[16..BODY - 8].chunks_exact_mut(SLOT)) {
            // They are at most 255: `set` has seen to it.
            slot[0] = u8::try_from(key.len()).unwrap_or(0);
            slot[1] = u8::try_from(value.len()).unwrap_or(0);
            slot[2..2 + key.len()].copy_from_slice(key);
            slot[2 + LONGEST_KEY..][..value.len()].copy_from_slice(value);
        }
        let sum = checksum(&body);
        body[8..16].copy_from_slice(&sum.to_le_bytes());
        body
    }

    /// What was read, unless it was read while a client wrote it: then the versions or the checksum are
    /// wrong.
    pub(crate) fn from_bytes(body: &[u8; BODY]) -> Option<Self> {
        let version = word(body, 0);
        if version != word(body, BODY - 8) || word(body, 8) != checksum(body) {
            return None;
        }
        let mut entries = Vec::new();
        for slot in body[16..BODY - 8].chunks_exact(SLOT) {
            let (key, value) = (usize::from(slot[0]), usize::from(slot[1]));
            if key > LONGEST_KEY || value > LONGEST_VALUE {
                return None;
            }
            if key > 0 {
                entries.push((slot[2..2 + key].to_vec(), slot[2 + LONGEST_KEY..][..value].to_vec()));
            }
        }
        Some(Self { version, entries })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_slice())
    }

    /// Puts a value in, as the next version.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        ensure!(
            (1..=LONGEST_KEY).contains(&key.len()),
            "a key has 1 to {LONGEST_KEY} bytes, not {}",
            key.len()
        );
        ensure!(
            value.len() <= LONGEST_VALUE,
            "a value has at most {LONGEST_VALUE} bytes, not {}",
            value.len()
        );
        let is_full = self.entries.len() == SLOTS;
        match self.entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value.to_vec(),
            None if is_full => {
                let key = key.escape_ascii();
                bail!("the bucket of \"{key}\" is full: it has {SLOTS} keys; use more buckets");
            }
            None => self.entries.push((key.to_vec(), value.to_vec())),
        }
        self.version += 1;
        Ok(())
    }
}

/// Of all but the checksum itself.
fn checksum(body: &[u8; BODY]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&body[..8]);
    hasher.update(&body[16..]);
    u64::from(hasher.finalize())
}

/// Where a key lives: the node that has it, the node that has its replica, and the bucket in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) primary: u32,
    pub(crate) replica: u32,
    pub(crate) bucket: usize,
}

impl Home {
    #[expect(clippy::cast_possible_truncation, reason = "it is less than the number of nodes or buckets")]
    pub(crate) fn of(key: &[u8], nodes: u32, buckets: usize) -> Self {
        // FNV-1a: every client must come to the same place, in any version of the program.
        let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        // Its low bits alone are poor.
        let hash = hash ^ hash >> 32;
        let primary = (hash % u64::from(nodes)) as u32;
        let bucket = (hash / u64::from(nodes) % buckets as u64) as usize;
        Self { primary, replica: (primary + 1) % nodes, bucket }
    }
}

/// Where things lie in the region of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    /// Two counters: how often application code was called, and how many replicas were found damaged.
    pub(crate) counters: u64,
    /// The buckets that the node is the primary of.
    pub(crate) primary: Vec<u64>,
    /// The replicas of the node before it.
    pub(crate) replica: Vec<u64>,
}

const MAGIC: u64 = u64::from_le_bytes(*b"ferrocKV");

impl Directory {
    /// Bytes of a directory of so many buckets.
    pub(crate) const fn len(buckets: usize) -> usize {
        8 * (3 + 2 * buckets)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let head = [MAGIC, self.primary.len() as u64, self.counters];
        head.iter().chain(&self.primary).chain(&self.replica).flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        let words: Vec<u64> = bytes.chunks_exact(8).map(|chunk| word(chunk, 0)).collect();
        let [MAGIC, buckets, counters, offsets @ ..] = words.as_slice() else {
            bail!("what the node sent is no directory");
        };
        let buckets = usize::try_from(*buckets).context("no directory has so many buckets")?;
        ensure!(
            buckets.checked_mul(2) == Some(offsets.len()),
            "a directory of {buckets} buckets has {} offsets",
            offsets.len()
        );
        let (primary, replica) = offsets.split_at(buckets);
        Ok(Self { counters: *counters, primary: primary.to_vec(), replica: replica.to_vec() })
    }
}

/// A number in the middle of bytes; they must be there.
fn word(bytes: &[u8], at: usize) -> u64 {
    (0..8).rev().fold(0, |value, i| value << 8 | u64::from(bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn buckets() -> impl Strategy<Value = Bucket> {
        let entry = (1..=LONGEST_KEY, 0..=LONGEST_VALUE, any::<u8>());
        (any::<u32>(), prop::collection::vec(entry, 0..=SLOTS)).prop_map(|(version, entries)| {
            let entries = entries.into_iter().map(|(key, value, byte)| (vec![byte; key], vec![byte; value]));
            Bucket { version: version.into(), entries: entries.collect() }
        })
    }

    proptest! {
        #[test]
        fn buckets_survive_the_way(bucket in buckets()) {
            prop_assert_eq!(Bucket::from_bytes(&bucket.to_bytes()), Some(bucket));
        }

        /// What is read while it is written is a beginning of the new with an end of the old, or the other way round.
        #[test]
        fn torn_reads_are_seen(old in buckets(), set in (1..=LONGEST_KEY, 0..=LONGEST_VALUE), cut in 0..=BODY) {
            let mut new = old.clone();
            let _ = new.set(&vec![b'k'; set.0], &vec![b'v'; set.1]);
            let (old, new) = (old.to_bytes(), new.to_bytes());
            for (first, second) in [(&old, &new), (&new, &old)] {
                let mut mixed = *first;
                mixed[cut..].copy_from_slice(&second[cut..]);
                let read = Bucket::from_bytes(&mixed);
                prop_assert!(read.is_none() || mixed == old || mixed == new);
            }
        }

        #[test]
        fn anything_may_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Directory::from_bytes(&bytes);
        }
    }

    #[test]
    fn a_bucket_takes_so_many_keys_and_no_more() {
        let mut bucket = Bucket::default();
        for key in 0..4 {
            bucket.set(&[key + 1], b"value").unwrap();
        }
        assert!(bucket.set(b"fifth", b"").unwrap_err().to_string().contains("full"));
        bucket.set(&[2], b"other").unwrap();
        assert_eq!((bucket.version, bucket.get(&[2])), (5, Some(&b"other"[..])));
        assert!(bucket.set(b"", b"").is_err());
        assert!(bucket.set(&[1; 31], b"").is_err());
        assert!(bucket.set(&[1], &[0; 97]).is_err());
        assert_eq!(bucket.version, 5);
    }

    #[test]
    fn keys_are_spread_and_replicas_are_elsewhere() {
        let homes: Vec<Home> = (0..3000).map(|i| Home::of(format!("key-{i}").as_bytes(), 3, 100)).collect();
        for node in 0..3 {
            let here = homes.iter().filter(|home| home.primary == node).count();
            assert!((800..1200).contains(&here), "{here}");
        }
        let fullest = (0..3).flat_map(|node| (0..100).map(move |bucket| (node, bucket)));
        let fullest = fullest
            .map(|(node, bucket)| {
                homes.iter().filter(|home| home.primary == node && home.bucket == bucket).count()
            })
            .max();
        assert!(fullest < Some(30), "{fullest:?}");
        assert!(homes.iter().all(|home| home.primary != home.replica && home.bucket < 100));
    }

    #[test]
    fn a_directory_survives_the_way() {
        let directory = Directory { counters: 5, primary: vec![1, 2], replica: vec![3, 4] };
        let bytes = directory.to_bytes();
        assert_eq!(bytes.len(), Directory::len(2));
        assert_eq!(Directory::from_bytes(&bytes).unwrap(), directory);
        assert!(Directory::from_bytes(&bytes[..bytes.len() - 8]).is_err());
    }
}
