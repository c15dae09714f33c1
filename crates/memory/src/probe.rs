//! Whether memory that a program brings is really there.
//!
//! A program may hand us any address. Reading it to see would be a crash, so the kernel is asked.
//! Both questions bring the pages in, as pinning by a network card would; neither changes a byte.

use std::io;

/// Whether all of these bytes can be read.
#[must_use]
pub fn is_readable(first: *const u8, len: usize) -> bool {
    allows(first.addr(), len, libc::MADV_POPULATE_READ)
}

/// Whether all of these bytes can be written. A kernel before 5.14 cannot tell without writing:
/// there this says whether they can be read.
#[must_use]
pub fn is_writable(first: *mut u8, len: usize) -> bool {
    allows(first.addr(), len, libc::MADV_POPULATE_WRITE)
}

/// Whether all pages of a range bear what this advice does to them.
fn allows(first: usize, len: usize, advice: libc::c_int) -> bool {
    let Some((start, len)) = pages(first, len) else { return false };
    if populate(start, len, advice).is_ok() {
        return true;
    }
    // The same error number means a page without the right and a kernel without the advice. For
    // no page at all there is only the second.
    populate(start, 0, advice).is_err() && every_page_reads(start, len)
}

/// The whole pages around a range: where they begin, and bytes. None if there is no such range.
fn pages(address: usize, len: usize) -> Option<(usize, usize)> {
    let page = page_size();
    let start = address - address % page;
    let end = address.checked_add(len)?.checked_next_multiple_of(page)?;
    Some((start, end - start))
}

fn page_size() -> usize {
    // SAFETY: it only asks for a number.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(answer).ok().filter(|&size| size > 0).unwrap_or(4096)
}

/// Brings pages in, if all of them can be.
fn populate(start: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
    loop {
        // SAFETY: this advice brings pages in and changes no content, whatever the address; the
        // kernel judges it.
        if unsafe { libc::madvise(std::ptr::without_provenance_mut(start), len, advice) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
            return Err(error);
        }
    }
}

/// Whether the first byte of every page can be read, by a system call that fails where we would crash.
/// Where that call is forbidden nothing is known, and the program is believed.
fn every_page_reads(start: usize, len: usize) -> bool {
    (start..start.saturating_add(len)).step_by(page_size()).all(reads)
}

fn reads(address: usize) -> bool {
    let mut byte = 0_u8;
    let ours = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: 1 };
    // SAFETY: it asks for a number.
    let process = unsafe { libc::getpid() };
    // SAFETY: the kernel writes one byte to `byte`, and judges the other address itself.
    let result = unsafe { libc::process_vm_readv(process, &raw const ours, 1, &raw const theirs, 1, 0) };
    result == 1 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::Allocation;
    use super::*;

    /// Both ways to know must agree.
    fn readable(first: *const u8, len: usize) -> bool {
        let answer = is_readable(first, len);
        let (start, whole) = pages(first.addr(), len).expect("a range that exists");
        assert_eq!(every_page_reads(start, whole), answer, "the two ways disagree about {first:?}");
        answer
    }

    fn protect(memory: &Allocation, offset: usize, len: usize, rights: libc::c_int) {
        // SAFETY: the range is inside a mapping of this test, which does not touch it meanwhile.
        let result = unsafe { libc::mprotect(memory.as_ptr().wrapping_add(offset).cast(), len, rights) };
        assert_eq!(result, 0);
    }

    #[test]
    fn rights_of_pages_are_seen_and_contents_stay() {
        let page = page_size();
        let memory = Allocation::zeroed(3 * page).unwrap();
        memory.fill(0, 3 * page, 7).unwrap();
        let first = memory.as_ptr();
        assert!(readable(first, 3 * page));
        assert!(is_writable(first, 3 * page));

        protect(&memory, page, page, libc::PROT_READ);
        assert!(readable(first.wrapping_add(1), 3 * page - 1));
        assert!(!is_writable(first, 3 * page));
        assert!(is_writable(first, page));
        assert!(is_writable(first.wrapping_add(page), 0), "no byte");
        assert!(!is_writable(first.wrapping_add(page - 1), 2), "one byte of the next page");

        protect(&memory, page, page, libc::PROT_NONE);
        assert!(!readable(first, page + 1));
        assert!(readable(first, page));
        assert!(!is_writable(first.wrapping_add(page), 1));

        protect(&memory, page, page, libc::PROT_READ | libc::PROT_WRITE);
        let mut bytes = vec![0; 3 * page];
        memory.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn addresses_of_nothing_are_neither_readable_nor_writable() {
        for address in [0, 1, 4096, 1 << 60, usize::MAX - 4095, usize::MAX] {
            let first = std::ptr::without_provenance_mut(address);
            assert!(!is_readable(first, 1), "0x{address:x}");
            assert!(!is_writable(first, 1), "0x{address:x}");
            assert!(!is_writable(first, usize::MAX), "0x{address:x}");
        }
    }

    #[test]
    fn constants_are_readable_only() {
        static WORDS: [u64; 4] = [1; 4];
        assert!(readable(WORDS.as_ptr().cast(), 32));
        assert!(!is_writable(WORDS.as_ptr().cast_mut().cast(), 32));
    }
}
