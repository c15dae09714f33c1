//! A file that is mapped, as words that threads share and that outlive the process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A file of which all bytes are mapped and shared: what is stored there is in the file, also if the process is killed
/// at once.
///
/// All of its bytes have their place on the disk before anything is stored, so that a full disk is an error as it is made
/// and never a signal later. Nothing helps if another process of the same user makes the file shorter.
#[derive(Debug)]
pub struct SharedFile {
    first: NonNull<AtomicU64>,
    words: usize,
    file: File,
}

// SAFETY: the mapping belongs to no thread, and all that is done to it is atomic.
unsafe impl Send for SharedFile {}
// SAFETY: as above.
unsafe impl Sync for SharedFile {}

impl SharedFile {
    /// Makes a new file of so many words, which only this user may read, and maps it. All words are zero.
    ///
    /// # Errors
    /// The file is there already, the disk has no room for it, or it cannot be mapped. Then there is no file.
    pub fn create(path: &Path, words: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // Others see by it that the file is written, for as long as this process lives. Not all file systems have locks.
        let _ = file.try_lock();
        let made = reserve(&file, 0, words as u64 * 8).and_then(|()| Self::map(file, words));
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn map(file: File, words: usize) -> io::Result<Self> {
        let len = words.checked_mul(8).filter(|len| *len > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping wherever the kernel likes; nothing that exists is touched.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, words, file })
    }

    /// All words.
    #[must_use]
    #[inline]
    pub const fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is aligned to pages and lives as long as `self`; every bit pattern is
        // a word, and all that is done to them, here and in other processes, is atomic.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }

    /// Has the cache line of a word at hand, which is written soon; elsewhere than on x86-64 it does nothing.
    #[inline]
    pub fn prefetch(&self, word: usize) {
        debug_assert!(word < self.words, "there are {} words", self.words);
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint to the processor, which reads nothing and faults on no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.first.as_ptr().wrapping_add(word).cast()) };
        }
    }

    /// The file, to write behind the words.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length by `map`, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.words * 8) };
    }
}

/// Has a part of a file on the disk, with zeroes where there was nothing.
///
/// # Errors
/// The disk is full, or the file system refuses.
pub fn reserve(file: &File, from: u64, len: u64) -> io::Result<()> {
    let number = |value: u64| libc::off_t::try_from(value).map_err(|_| io::ErrorKind::FileTooLarge);
    let (start, length) = (number(from)?, number(len)?);
    loop {
        // SAFETY: takes and gives plain numbers.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, start, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // Some file systems know no such call: zeroes take their places as well.
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return fill(file, from, len),
            _ => return Err(error),
        }
    }
}

/// Writes zeroes behind the end of a file, up to here.
fn fill(file: &File, from: u64, len: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    const PIECE: usize = 1 << 16;
    let zeroes = [0; PIECE];
    let (mut at, end) = (from.max(file.metadata()?.len()), from + len);
    while at < end {
        let piece = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        file.write_all_at(&zeroes[..piece], at)?;
        at += piece as u64;
    }
    (&*file).flush()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("ferroce-shared-file-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn what_is_stored_is_in_the_file_at_once() {
        let path = path("stored");
        let shared = SharedFile::create(&path, 1024).unwrap();
        shared.words()[1023].store(0x0807_0605_0403_0201, Ordering::Relaxed);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[8184..]), (8192, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert!(bytes[..8184].iter().all(|byte| *byte == 0));
        assert_eq!(
            SharedFile::create(&path, 1024).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists,
            "nothing is overwritten"
        );
        drop(shared);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_made_leaves_no_file() {
        let path = path("huge");
        assert!(SharedFile::create(&path, usize::MAX >> 8).is_err());
        assert!(SharedFile::create(&path, 0).is_err());
        assert!(!path.exists());
    }

    #[test]
    fn a_file_is_filled_where_the_system_cannot_reserve() {
        let path = path("filled");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        (&file).write_all(b"abc").unwrap();
        fill(&file, 2, 200_000).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[..4]), (200_002, &b"abc\0"[..]));
        std::fs::remove_file(&path).unwrap();
    }
}
