//! What is made, what is accepted from another process, and what is not.
#![allow(unsafe_code, reason = "system calls that no safe function makes")]

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use ferroce_lane::{LaneError, LaneFile, LineFile};

use crate::{RING, file_of, lane, pop, push, write};

/// A file in memory of so many bytes, with these seals, which begins with these words.
fn memory_file(len: u64, seals: libc::c_int, words: &[u64]) -> OwnedFd {
    // SAFETY: the pointer is to a text with its zero, which is static.
    let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    assert!(fd >= 0);
    // SAFETY: the kernel gave it to this test just now.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len).unwrap();
    for (at, word) in (0..).step_by(8).zip(words) {
        write(&file, at, *word);
    }
    // SAFETY: takes and gives plain numbers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }, 0);
    file.into()
}

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
const LEN: u64 = 4096 + LaneFile::RING as u64;
const MAGIC: u64 = u64::from_be_bytes(*b"FERRLANE");

#[test]
fn records_go_through_a_lane_that_was_accepted() {
    let made = LaneFile::create().unwrap();
    let sent = file_of(&made).into();
    let accepted = LaneFile::accept(sent).unwrap();
    assert_eq!(made.id().unwrap(), accepted.id().unwrap());
    assert_ne!(made.id().unwrap(), LaneFile::create().unwrap().id().unwrap());
    let (mut producer, mut consumer) = (made.into_producer(), accepted.into_consumer());
    assert_eq!(producer.longest(), ferroce_lane::LONGEST);
    assert!(push(&mut producer, 7, b"over there"));
    assert!(!consumer.look(), "not before it is published");
    assert!(producer.publish());
    assert!(consumer.look());
    assert_eq!(pop(&mut consumer), Some((7, b"over there".to_vec())));
    assert!(!producer.is_empty(), "its room was not given back yet");
    consumer.release();
    assert!(producer.is_empty());
}

#[test]
fn a_file_as_another_process_makes_it_is_accepted() {
    assert!(LaneFile::accept(memory_file(LEN, SEALS, &[MAGIC, 2])).is_ok());
    let line = file_of(&LineFile::create().unwrap());
    assert!(LineFile::accept(line.into()).is_ok());
}

#[test]
fn a_plain_file_is_refused() {
    let file = File::open("/proc/self/exe").unwrap();
    let error = LaneFile::accept(file.into()).unwrap_err();
    // Files of a tmpfs know of seals, and have none that help.
    assert!(matches!(error, LaneError::NotMemory(_) | LaneError::NotSealed { .. }), "{error}");
}

#[test]
fn a_file_without_all_seals_is_refused() {
    let missing = [libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_SEAL];
    for seals in missing.map(|missing| SEALS & !missing).into_iter().chain([0]) {
        let error = LaneFile::accept(memory_file(LEN, seals, &[MAGIC, 2])).unwrap_err();
        let LaneError::NotSealed { found, .. } = error else { panic!("{error}") };
        assert_eq!(found.cast_signed() & SEALS, seals);
    }
}

#[test]
fn a_file_of_another_length_is_refused() {
    for len in [0, 4096, LEN - 4096, LEN - 1, LEN + 1, 2 * LEN] {
        let error = LaneFile::accept(memory_file(len, SEALS, &[])).unwrap_err();
        assert!(matches!(error, LaneError::WrongSize { found, needed: LEN } if found == len), "{error}");
    }
    let error = LaneFile::accept_with(memory_file(LEN, SEALS, &[MAGIC, 2]), 4096).unwrap_err();
    assert!(matches!(error, LaneError::WrongSize { .. }), "{error}");
}

#[test]
fn a_file_of_another_kind_or_version_is_refused() {
    let error = LaneFile::accept(memory_file(LEN, SEALS, &[MAGIC + 1, 2])).unwrap_err();
    assert!(matches!(error, LaneError::OtherKind { needed: MAGIC, .. }), "{error}");
    for version in [0, 1, 3, u64::MAX] {
        let error = LaneFile::accept(memory_file(LEN, SEALS, &[MAGIC, version])).unwrap_err();
        assert!(matches!(error, LaneError::OtherVersion { found, needed: 2 } if found == version), "{error}");
    }
    let error = LineFile::accept(memory_file(4096, SEALS, &[MAGIC, 2])).unwrap_err();
    assert!(matches!(error, LaneError::OtherKind { .. }), "a lane is no line: {error}");
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let error = LaneFile::accept(memory_file(LEN, SEALS | libc::F_SEAL_WRITE, &[MAGIC, 2])).unwrap_err();
    assert!(matches!(error, LaneError::System { call: "mmap", .. }), "{error}");
}

#[test]
fn rings_of_odd_lengths_are_not_made() {
    for ring in [0, 2048, 4095, 5000, LaneFile::MOST_RING * 2, usize::MAX] {
        let error = LaneFile::create_with(ring).unwrap_err();
        assert!(matches!(error, LaneError::RingSize { given, .. } if given == ring), "{error}");
    }
}

#[test]
fn nothing_changes_the_length_of_a_lane() {
    let file = file_of(&LaneFile::create().unwrap());
    assert!(file.set_len(0).is_err());
    assert!(file.set_len(LEN + 4096).is_err());
    assert_eq!(file.metadata().unwrap().len(), LEN);
}

/// Bytes that the kernel keeps for a file.
fn kept(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn pages_come_when_they_are_written_and_go_when_the_lane_is_idle() {
    let lane = LaneFile::create().unwrap();
    let file = file_of(&lane);
    let (mut producer, mut consumer) = lane.split();
    let page = kept(&file);
    assert!(page < LEN / 4, "a new lane has one page, and not {page} bytes");
    let long = vec![0x5a; producer.longest()];
    while push(&mut producer, 0, &long) {}
    producer.publish();
    assert!(kept(&file) > LEN / 2);
    assert!(!producer.give_pages_back().unwrap(), "the consumer has not read them");
    while consumer.look() {
        consumer.next().unwrap();
    }
    assert!(!producer.give_pages_back().unwrap(), "nor given them back");
    consumer.release();
    assert!(push(&mut producer, 0, b"not published"));
    assert!(!producer.give_pages_back().unwrap());
    producer.publish();
    assert!(consumer.look());
    assert_eq!(pop(&mut consumer).unwrap().1, b"not published");
    consumer.release();
    assert!(producer.give_pages_back().unwrap());
    assert_eq!(kept(&file), page);
    assert!(push(&mut producer, 3, b"afterwards"));
    assert!(producer.publish() && consumer.look());
    assert_eq!(pop(&mut consumer), Some((3, b"afterwards".to_vec())));
}

#[test]
fn the_words_of_both_sides_are_where_both_versions_look() {
    let (mut producer, mut consumer, file) = lane();
    assert_eq!((RING, file.metadata().unwrap().len()), (4096, 8192));
    push(&mut producer, 9, b"abc");
    producer.publish();
    let mut page = vec![0; 4096 + 16];
    file.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(page[128], 16, "the head");
    assert_eq!(page[4096..4096 + 11], [3, 0, 0, 0, 9, 0, 0, 0, b'a', b'b', b'c']);
    assert!(consumer.look());
    pop(&mut consumer);
    consumer.release();
    file.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(page[256], 16, "the tail");
}
