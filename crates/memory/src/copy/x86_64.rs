//! Memory that others write too, by the processor's own instructions; why is said in the module above.
//!
//! No block has the option `nomem` or `readonly`: so the compiler moves nothing across it, in neither
//! direction. What is left is the order of the processor: a load is an Acquire and a store is a Release by
//! themselves.
//!
//! Plain moves below [`STRING`] bytes, the string instruction above: measured, it starts slowly
//! and then keeps up with the C library. Pieces inside one copy may become visible in any order,
//! but stores that follow in program order do not pass them.

use std::arch::asm;

use super::{FOLD, Fold};

/// From here on the string instruction is the faster one.
const STRING: usize = 1536;

/// Copies into registered memory.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes.
#[inline]
pub(super) unsafe fn out(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller vouches for the target, the slice for the source; a shared slice and
    // memory that we may write do not overlap.
    unsafe { between(to, bytes.as_ptr(), bytes.len()) };
}

/// Copies out of registered memory.
///
/// # Safety
/// `from` is valid for reads of `bytes.len()` bytes.
#[inline]
pub(super) unsafe fn into(bytes: &mut [u8], from: *const u8) {
    // SAFETY: the caller vouches for the source, the slice for the target; a unique slice
    // overlaps nothing.
    unsafe { between(bytes.as_mut_ptr(), from, bytes.len()) };
}

/// Copies between ranges that do not overlap.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, and they do not overlap.
#[inline]
pub(super) unsafe fn between(to: *mut u8, from: *const u8, len: usize) {
    match len {
        0 => {}
        // In the next ones, pieces may cover the same bytes and then store the same twice.
        1..4 => {
            for at in [0, len / 2, len - 1] {
                // SAFETY: `at` < `len`.
                unsafe { move_1(to, from, at) };
            }
        }
        4..8 => {
            for at in [0, len - 4] {
                // SAFETY: `at` + 4 <= `len`.
                unsafe { move_4(to, from, at) };
            }
        }
        8..16 => {
            for at in [0, len - 8] {
                // SAFETY: `at` + 8 <= `len`.
                unsafe { move_8(to, from, at) };
            }
        }
        16..=32 => {
            for at in [0, len - 16] {
                // SAFETY: `at` + 16 <= `len`.
                unsafe { move_16(to, from, at) };
            }
        }
        33..=64 => {
            for at in [0, 16, len - 32, len - 16] {
                // SAFETY: `at` + 16 <= `len`.
                unsafe { move_16(to, from, at) };
            }
        }
        // SAFETY: the length fits, the rest the caller vouches for.
        65..STRING => unsafe { by_moves(to, from, len) },
        // SAFETY: the caller vouches for both ranges.
        _ => unsafe { by_string(to, from, len) },
    }
}

/// Eight bytes, at any address.
///
/// # Safety
/// `from` is valid for reads of eight bytes.
#[inline]
pub(super) unsafe fn word(from: *const u8) -> u64 {
    let value;
    // SAFETY: the caller vouches for the bytes.
    unsafe {
        asm!(
            "mov {value}, [{from}]",
            from = in(reg) from,
            value = out(reg) value,
            options(nostack, preserves_flags),
        );
    }
    value
}

/// Defines a function that loads a number.
macro_rules! load {
    ($name:ident, $type:ty, $class:ident, $load:literal) => {
        /// # Safety
        /// The number at `from` can be read, and lies at a multiple of its size.
        #[inline]
        pub(super) unsafe fn $name(from: *const u8) -> $type {
            let value;
            // SAFETY: the caller vouches for the bytes.
            unsafe {
                asm!(
                    $load,
                    from = in(reg) from,
                    value = out($class) value,
                    options(nostack, preserves_flags),
                );
            }
            value
        }
    };
}

load!(load_1, u8, reg_byte, "mov {value}, [{from}]");
load!(load_8, u64, reg, "mov {value}, [{from}]");

/// Defines a function that stores a number at once.
macro_rules! store {
    ($name:ident, $type:ty, $class:ident, $store:literal) => {
        /// # Safety
        /// The bytes at `to` can be written, and lie at a multiple of their number.
        #[inline]
        pub(super) unsafe fn $name(to: *mut u8, value: $type) {
            // SAFETY: the caller vouches for the bytes.
            unsafe {
                asm!(
                    $store,
                    to = in(reg) to,
                    value = in($class) value,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

store!(store_1, u8, reg_byte, "mov [{to}], {value}");
store!(store_2, u16, reg, "mov [{to}], {value:x}");
store!(store_4, u32, reg, "mov [{to}], {value:e}");
store!(store_8, u64, reg, "mov [{to}], {value}");

/// Adds to a word, wrapping around; what was there before.
///
/// # Safety
/// The word at `at` can be read and written, and is aligned.
#[inline]
pub(super) unsafe fn fetch_add(at: *mut u8, add: u64) -> u64 {
    let mut value = add;
    // SAFETY: the caller vouches for the word.
    unsafe {
        asm!(
            "lock xadd [{at}], {value}",
            at = in(reg) at,
            value = inout(reg) value,
            options(nostack),
        );
    }
    value
}

/// Puts a word in the place of another; what was there before.
///
/// # Safety
/// As for [`fetch_add`].
#[inline]
pub(super) unsafe fn swap(at: *mut u8, new: u64) -> u64 {
    let mut value = new;
    // SAFETY: the caller vouches for the word.
    unsafe {
        asm!(
            // Locked without being told.
            "xchg [{at}], {value}",
            at = in(reg) at,
            value = inout(reg) value,
            options(nostack, preserves_flags),
        );
    }
    value
}

/// Puts a word in the place of another if that is `compare`; what was there before.
///
/// # Safety
/// As for [`fetch_add`].
#[inline]
pub(super) unsafe fn compare_swap(at: *mut u8, compare: u64, new: u64) -> u64 {
    let mut before = compare;
    // SAFETY: the caller vouches for the word.
    unsafe {
        asm!(
            "lock cmpxchg [{at}], {new}",
            at = in(reg) at,
            new = in(reg) new,
            inout("rax") before,
            options(nostack),
        );
    }
    before
}

/// Copies between ranges that may overlap, so that what was at the source arrives.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes.
pub(super) unsafe fn overlapping(to: *mut u8, from: *const u8, len: usize) {
    if to.addr() <= from.addr() {
        // SAFETY: the caller vouches for both ranges; rising, byte after byte, a source byte is
        // read before it is overwritten.
        unsafe { by_string(to, from, len) };
        return;
    }
    let last = len.wrapping_sub(1);
    // SAFETY: the same, falling from the last byte on; the direction flag is cleared again.
    unsafe {
        asm!(
            "std",
            "rep movsb",
            "cld",
            inout("rcx") len => _,
            inout("rsi") from.wrapping_add(last) => _,
            inout("rdi") to.wrapping_add(last) => _,
            options(nostack),
        );
    }
}

/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes.
#[inline]
unsafe fn by_string(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller vouches for both ranges.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As for [`between`], and `len` is at least 65.
#[inline]
unsafe fn by_moves(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: 64 <= `len`.
    unsafe { move_64(to, from, 0) };
    // From here on stores are aligned, so that none of them touches two cache lines.
    let mut at = 64 - to.addr() % 16;
    let last = len - 64;
    while at < last {
        // SAFETY: `at` + 64 <= `len`.
        unsafe { move_64(to, from, at) };
        at += 64;
    }
    // SAFETY: `last` + 64 = `len`.
    unsafe { move_64(to, from, last) };
}

/// Defines a function that moves bytes at an offset through one register.
macro_rules! mover {
    ($name:ident, $class:ident, $load:literal, $store:literal) => {
        /// # Safety
        /// The bytes at offset `at` are inside both ranges, as for [`between`].
        #[inline]
        unsafe fn $name(to: *mut u8, from: *const u8, at: usize) {
            // SAFETY: the caller vouches for the bytes.
            unsafe {
                asm!(
                    $load,
                    $store,
                    from = in(reg) from,
                    to = in(reg) to,
                    at = in(reg) at,
                    value = out($class) _,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

mover!(move_1, reg_byte, "mov {value}, [{from} + {at}]", "mov [{to} + {at}], {value}");
mover!(move_4, reg, "mov {value:e}, [{from} + {at}]", "mov [{to} + {at}], {value:e}");
mover!(move_8, reg, "mov {value}, [{from} + {at}]", "mov [{to} + {at}], {value}");
mover!(move_16, xmm_reg, "movups {value}, [{from} + {at}]", "movups [{to} + {at}], {value}");

/// # Safety
/// The 64 bytes at offset `at` are inside both ranges, as for [`between`].
#[inline]
unsafe fn move_64(to: *mut u8, from: *const u8, at: usize) {
    // SAFETY: the caller vouches for the bytes.
    unsafe {
        asm!(
            "movups {a}, [{from} + {at}]",
            "movups {b}, [{from} + {at} + 16]",
            "movups {c}, [{from} + {at} + 32]",
            "movups {d}, [{from} + {at} + 48]",
            "movups [{to} + {at}], {a}",
            "movups [{to} + {at} + 16], {b}",
            "movups [{to} + {at} + 32], {c}",
            "movups [{to} + {at} + 48], {d}",
            from = in(reg) from,
            to = in(reg) to,
            at = in(reg) at,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// What the two halves of 16 bytes are multiplied by to move them on by [`FOLD`] bytes, modulo the generator of CRC-32:
/// x^(8 * 128 + 32) and x^(8 * 128 - 32), reflected, as carry-less products want them.
static ONWARD: [u64; 2] = [onward(8 * FOLD + 32), onward(8 * FOLD - 32)];

/// x to this power modulo the generator, its bits reversed. One more shift makes up for the bit that is missing in a
/// product of reversed numbers.
pub(crate) const fn onward(power: usize) -> u64 {
    const GENERATOR: u32 = 0x04c1_1db7;
    let mut value = 1_u32;
    let mut done = 0;
    while done < power {
        value = value << 1 ^ if value >> 31 != 0 { GENERATOR } else { 0 };
        done += 1;
    }
    (value.reverse_bits() as u64) << 1
}

/// Whether [`into_folding`] may be called.
pub(super) fn can_fold() -> bool {
    std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

/// Whether the CRC of bytes that lie in a cache is so fast here that a copy by itself and a pass over it take less time.
pub(super) fn is_wide() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
}

/// Copies out of registered memory, and folds the bytes as they pass.
///
/// # Safety
/// `from` is valid for reads of `bytes.len()` bytes, which are at least one [`FOLD`], and [`can_fold`] said yes.
pub(super) unsafe fn into_folding(bytes: &mut [u8], from: *const u8, register: u32) -> Fold {
    let mut fold = Fold { block: [0; FOLD], len: bytes.len() / FOLD * FOLD };
    // SAFETY: the caller vouches for the source, the slice for the target, both for all blocks up to `end`; the block
    // has its 128 bytes, and the table two numbers. The flags and the upper halves of the registers are as the compiler
    // expects them: it is told of the first, and VEX instructions on 128 bits clear the second.
    unsafe {
        asm!(
            "vmovd xmm8, {register:e}",
            "vmovdqu xmm9, [{onward}]",
            // The first block; the register so far belongs to its first bytes.
            "vmovdqu xmm0, [{from}]",
            "vmovdqu xmm1, [{from} + 16]",
            "vmovdqu xmm2, [{from} + 32]",
            "vmovdqu xmm3, [{from} + 48]",
            "vmovdqu xmm4, [{from} + 64]",
            "vmovdqu xmm5, [{from} + 80]",
            "vmovdqu xmm6, [{from} + 96]",
            "vmovdqu xmm7, [{from} + 112]",
            "vmovdqu [{to}], xmm0",
            "vmovdqu [{to} + 16], xmm1",
            "vmovdqu [{to} + 32], xmm2",
            "vmovdqu [{to} + 48], xmm3",
            "vmovdqu [{to} + 64], xmm4",
            "vmovdqu [{to} + 80], xmm5",
            "vmovdqu [{to} + 96], xmm6",
            "vmovdqu [{to} + 112], xmm7",
            "vpxor xmm0, xmm0, xmm8",
            "add {from}, 128",
            "add {to}, 128",
            "cmp {from}, {end}",
            "je 3f",
            // Each 16 bytes are moved on to those of the next block.
            "2:",
            "vmovdqu xmm10, [{from}]",
            "vpclmulqdq xmm12, xmm0, xmm9, 0x00",
            "vpclmulqdq xmm0, xmm0, xmm9, 0x11",
            "vmovdqu [{to}], xmm10",
            "vpxor xmm12, xmm12, xmm10",
            "vpxor xmm0, xmm0, xmm12",
            "vmovdqu xmm11, [{from} + 16]",
            "vpclmulqdq xmm13, xmm1, xmm9, 0x00",
            "vpclmulqdq xmm1, xmm1, xmm9, 0x11",
            "vmovdqu [{to} + 16], xmm11",
            "vpxor xmm13, xmm13, xmm11",
            "vpxor xmm1, xmm1, xmm13",
            "vmovdqu xmm10, [{from} + 32]",
            "vpclmulqdq xmm12, xmm2, xmm9, 0x00",
            "vpclmulqdq xmm2, xmm2, xmm9, 0x11",
            "vmovdqu [{to} + 32], xmm10",
            "vpxor xmm12, xmm12, xmm10",
            "vpxor xmm2, xmm2, xmm12",
            "vmovdqu xmm11, [{from} + 48]",
            "vpclmulqdq xmm13, xmm3, xmm9, 0x00",
            "vpclmulqdq xmm3, xmm3, xmm9, 0x11",
            "vmovdqu [{to} + 48], xmm11",
            "vpxor xmm13, xmm13, xmm11",
            "vpxor xmm3, xmm3, xmm13",
            "vmovdqu xmm10, [{from} + 64]",
            "vpclmulqdq xmm12, xmm4, xmm9, 0x00",
            "vpclmulqdq xmm4, xmm4, xmm9, 0x11",
            "vmovdqu [{to} + 64], xmm10",
            "vpxor xmm12, xmm12, xmm10",
            "vpxor xmm4, xmm4, xmm12",
            "vmovdqu xmm11, [{from} + 80]",
            "vpclmulqdq xmm13, xmm5, xmm9, 0x00",
            "vpclmulqdq xmm5, xmm5, xmm9, 0x11",
            "vmovdqu [{to} + 80], xmm11",
            "vpxor xmm13, xmm13, xmm11",
            "vpxor xmm5, xmm5, xmm13",
            "vmovdqu xmm10, [{from} + 96]",
            "vpclmulqdq xmm12, xmm6, xmm9, 0x00",
            "vpclmulqdq xmm6, xmm6, xmm9, 0x11",
            "vmovdqu [{to} + 96], xmm10",
            "vpxor xmm12, xmm12, xmm10",
            "vpxor xmm6, xmm6, xmm12",
            "vmovdqu xmm11, [{from} + 112]",
            "vpclmulqdq xmm13, xmm7, xmm9, 0x00",
            "vpclmulqdq xmm7, xmm7, xmm9, 0x11",
            "vmovdqu [{to} + 112], xmm11",
            "vpxor xmm13, xmm13, xmm11",
            "vpxor xmm7, xmm7, xmm13",
            "add {from}, 128",
            "add {to}, 128",
            "cmp {from}, {end}",
            "jne 2b",
            "3:",
            "vmovdqu [{block}], xmm0",
            "vmovdqu [{block} + 16], xmm1",
            "vmovdqu [{block} + 32], xmm2",
            "vmovdqu [{block} + 48], xmm3",
            "vmovdqu [{block} + 64], xmm4",
            "vmovdqu [{block} + 80], xmm5",
            "vmovdqu [{block} + 96], xmm6",
            "vmovdqu [{block} + 112], xmm7",
            register = in(reg) register,
            onward = in(reg) ONWARD.as_ptr(),
            from = inout(reg) from => _,
            to = inout(reg) bytes.as_mut_ptr() => _,
            end = in(reg) from.wrapping_add(fold.len),
            block = in(reg) fold.block.as_mut_ptr(),
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _,
            out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _,
            out("xmm13") _,
            options(nostack),
        );
    }
    let rest = &mut bytes[fold.len..];
    // SAFETY: the rest of the same ranges.
    unsafe { into(rest, from.wrapping_add(fold.len)) };
    fold
}
