//! Steps of the small programs that the kernel runs for each packet, to drop it or to choose a socket for it.

use libc::sock_filter;

/// One step. Its code is said in parts, each with bits of its own, so that their sum is all of them.
pub(super) fn step<const PARTS: usize>(
    code: [u32; PARTS],
    jump_true: u8,
    jump_false: u8,
    k: u32,
) -> sock_filter {
    let code: u32 = code.iter().sum();
    sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt: jump_true, jf: jump_false, k }
}
