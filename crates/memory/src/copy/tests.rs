use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::*;

fn pattern(len: usize) -> Vec<u8> {
    (1..=251).cycle().take(len).collect()
}

/// Memory that starts at a multiple of 8, so that offsets are alignments.
fn aligned(words: usize) -> Vec<u64> {
    vec![0; words]
}

fn seen(memory: &[u64]) -> Vec<u8> {
    memory.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Runs `copy` for all sizes and alignments and looks at every byte, also around the target.
fn everywhere(copy: impl Fn(*mut u8, *const u8, usize)) {
    let source = pattern(4096);
    let (small, large) = if cfg!(miri) { (0..40, 64..65) } else { (0..700, 1400..1700) };
    for len in small.chain(large) {
        for (skew_to, skew_from) in [(0, 0), (1, 0), (0, 3), (4, 4), (6, 1), (7, 7)] {
            let mut memory = aligned(256);
            copy(
                memory.as_mut_ptr().cast::<u8>().wrapping_add(8 + skew_to),
                source.as_ptr().wrapping_add(skew_from),
                len,
            );
            let memory = seen(&memory);
            let (before, rest) = memory.split_at(8 + skew_to);
            let (inside, after) = rest.split_at(len);
            assert_eq!(inside, &source[skew_from..skew_from + len], "{len} bytes, {skew_to} {skew_from}");
            assert!(before.iter().chain(after).all(|&byte| byte == 0), "{len} bytes, {skew_to} {skew_from}");
        }
    }
}

fn slice<'a>(from: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: `everywhere` gives a source of more bytes, which nothing writes.
    unsafe { std::slice::from_raw_parts(from, len) }
}

fn slice_mut<'a>(to: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: `everywhere` gives a target of more bytes, which nothing else uses.
    unsafe { std::slice::from_raw_parts_mut(to, len) }
}

#[test]
fn bytes_are_placed_where_they_belong_and_nowhere_else() {
    // SAFETY: `everywhere` gives a target with room.
    everywhere(|to, from, len| unsafe { copy_out(to, slice(from, len)) });
    // SAFETY: as above.
    everywhere(|to, from, len| unsafe { portable::out(to, slice(from, len)) });
}

#[test]
fn a_word_is_read_at_any_address() {
    let mut memory = aligned(4);
    let first = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: the memory has as many bytes.
    unsafe { copy_out(first, &pattern(32)) };
    for skew in 0..24 {
        let expected = u64::from_ne_bytes(pattern(32)[skew..skew + 8].try_into().unwrap());
        let at = first.wrapping_add(skew);
        // SAFETY: eight bytes at 24 are still inside.
        let word = unsafe { bulk::word(at) };
        // SAFETY: as above.
        let portable = unsafe { portable::word(at) };
        assert_eq!((word, portable), (expected, expected), "{skew}");
    }
}

#[test]
fn bytes_are_read_whole() {
    // The portable form reads by atomics, which Miri wants in memory that may be written.
    fn from_writable(read: impl Fn(&mut [u8], *const u8)) {
        everywhere(|to, from, len| {
            let mut source = slice(from.wrapping_sub(from.addr() % 8), len + 8).to_vec();
            read(slice_mut(to, len), source.as_mut_ptr().wrapping_add(from.addr() % 8));
        });
    }
    // SAFETY: source and target have the length.
    from_writable(|to, from| unsafe { copy_in(from, to) });
    // SAFETY: as above.
    from_writable(|to, from| unsafe { portable::into(to, from) });
}

#[test]
fn registered_memory_is_copied_to_registered_memory() {
    fn from_writable(copy: impl Fn(*mut u8, *const u8, usize)) {
        everywhere(|to, from, len| {
            let mut source = slice(from, len).to_vec();
            copy(to, source.as_mut_ptr(), len);
        });
    }
    // SAFETY: source and target have the length.
    from_writable(|to, from, len| unsafe { copy_between(to, from, len) });
    // SAFETY: as above.
    from_writable(|to, from, len| unsafe { portable::between(to, from, len) });
}

#[test]
fn an_overlapping_copy_brings_what_was_there_before() {
    fn moves(copy: impl Fn(*mut u8, *const u8, usize)) {
        for len in [1, 2, 7, 8, 9, 31, 64, 100] {
            for (to, from) in [(0, 0), (0, 1), (1, 0), (0, 8), (8, 0), (3, 17), (17, 3), (40, 41)] {
                let mut memory = pattern(160);
                let mut wanted = memory.clone();
                wanted.copy_within(from..from + len, to);
                let start = memory.as_mut_ptr();
                copy(start.wrapping_add(to), start.wrapping_add(from), len);
                assert_eq!(memory, wanted, "{len} bytes from {from} to {to}");
            }
        }
    }
    // SAFETY: both ranges are inside the memory.
    moves(|to, from, len| unsafe { copy_between(to, from, len) });
    // SAFETY: as above.
    moves(|to, from, len| unsafe { portable::overlapping(to, from, len) });
}

#[test]
fn pieces_are_aligned_and_rise() {
    assert_eq!(piece(0, 8), 8);
    assert_eq!(piece(0, 7), 4);
    assert_eq!(piece(4, 9), 4);
    assert_eq!(piece(6, 9), 2);
    assert_eq!(piece(7, 9), 1);
    let at = |address| std::ptr::without_provenance_mut(address);
    assert_eq!(end_len(at(64), 64), 8, "a whole aligned word is stored at once");
    assert_eq!(end_len(at(64), 68), 4);
    assert_eq!(end_len(at(65), 3), 3);
    assert_eq!(end_len(at(65), 0), 0);
}

#[test]
fn atomics_return_what_was_there() {
    let mut word = 5_u64;
    let at = (&raw mut word).cast();
    // SAFETY: `word` is aligned, alive and used through `at` alone.
    let added = unsafe { atomic_u64(at, AtomicOp::FetchAdd(u64::MAX)) };
    // SAFETY: as above.
    let kept = unsafe { atomic_u64(at, AtomicOp::CompareSwap { compare: 5, swap: 9 }) };
    // SAFETY: as above.
    let swapped = unsafe { atomic_u64(at, AtomicOp::CompareSwap { compare: 4, swap: 9 }) };
    // SAFETY: as above.
    let stored = unsafe { atomic_u64(at, AtomicOp::Store([1, 2, 3, 4, 5, 6, 7, 8])) };
    assert_eq!((added, kept, swapped, stored), (5, 4, 4, 9));
    assert_eq!(word.to_ne_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn numbers_are_the_same_in_both_forms() {
    let mut word = 0_u64;
    let at = (&raw mut word).cast::<u8>();
    // SAFETY: `word` is aligned, alive and used through `at` alone, here and below.
    unsafe { bulk::store_8(at, 0x0807_0605_0403_0201) };
    // SAFETY: as above.
    assert_eq!(unsafe { portable::load_8(at) }, 0x0807_0605_0403_0201);
    // SAFETY: as above.
    unsafe { portable::store_8(at, 5) };
    // SAFETY: as above.
    assert_eq!(unsafe { bulk::load_8(at) }, 5);
    // SAFETY: as above.
    assert_eq!(unsafe { bulk::fetch_add(at, u64::MAX) }, 5);
    // SAFETY: as above.
    assert_eq!(unsafe { portable::fetch_add(at, 2) }, 4);
    // SAFETY: as above.
    assert_eq!(unsafe { bulk::swap(at, 7) }, 6);
    // SAFETY: as above.
    assert_eq!(unsafe { portable::swap(at, 8) }, 7);
    // SAFETY: as above.
    assert_eq!(unsafe { bulk::compare_swap(at, 7, 1) }, 8);
    // SAFETY: as above.
    assert_eq!(unsafe { portable::compare_swap(at, 7, 1) }, 8);
    // SAFETY: as above.
    assert_eq!(unsafe { bulk::compare_swap(at, 8, 9) }, 8);
    // SAFETY: as above.
    assert_eq!(unsafe { portable::compare_swap(at, 9, 10) }, 9);
    for (index, byte) in 10_u64.to_ne_bytes().into_iter().enumerate() {
        // SAFETY: one of the eight bytes of `word`.
        assert_eq!(unsafe { bulk::load_1(at.wrapping_add(index)) }, byte);
        // SAFETY: as above.
        assert_eq!(unsafe { portable::load_1(at.wrapping_add(index)) }, byte);
    }
}

#[test]
fn pieces_of_all_sizes_are_stored_in_both_forms() {
    let mut word = 0_u64;
    let at = (&raw mut word).cast::<u8>();
    let stored = |bytes: [u8; 8], zero: &dyn Fn()| {
        // SAFETY: `word` is aligned, alive and used through `at` alone, here and below.
        let seen = unsafe { load_u64(at) };
        assert_eq!(seen.to_ne_bytes(), bytes);
        zero();
    };
    // SAFETY: as above.
    let zero = || unsafe { store_u64(at, 0) };
    // SAFETY: as above.
    unsafe { bulk::store_4(at.wrapping_add(4), u32::from_ne_bytes([1, 2, 3, 4])) };
    stored([0, 0, 0, 0, 1, 2, 3, 4], &zero);
    // SAFETY: as above.
    unsafe { portable::store_4(at.wrapping_add(4), u32::from_ne_bytes([1, 2, 3, 4])) };
    stored([0, 0, 0, 0, 1, 2, 3, 4], &zero);
    // SAFETY: as above.
    unsafe { bulk::store_2(at.wrapping_add(2), u16::from_ne_bytes([1, 2])) };
    stored([0, 0, 1, 2, 0, 0, 0, 0], &zero);
    // SAFETY: as above.
    unsafe { portable::store_2(at.wrapping_add(2), u16::from_ne_bytes([1, 2])) };
    stored([0, 0, 1, 2, 0, 0, 0, 0], &zero);
    // SAFETY: as above.
    unsafe { bulk::store_1(at.wrapping_add(7), 9) };
    stored([0, 0, 0, 0, 0, 0, 0, 9], &zero);
    // SAFETY: as above.
    unsafe { portable::store_1(at.wrapping_add(7), 9) };
    stored([0, 0, 0, 0, 0, 0, 0, 9], &zero);
}

/// Words whose bytes are all the same are stored, added to, swapped and copied by some threads, and read
/// whole and by the byte by others: a word with different bytes was never there.
#[test]
fn a_word_that_all_sizes_race_for_is_never_torn() {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let rounds = if cfg!(miri) { 20 } else { 200_000_u64 };
    let word = AtomicU64::new(0);
    let at = word.as_ptr().addr();
    let left = AtomicU8::new(3);
    // The threads know the word by its address only, as they would know registered memory.
    let place = move || std::ptr::with_exposed_provenance_mut::<u8>(at);
    let _ = word.as_ptr().expose_provenance();
    let writers: [&(dyn Fn(u64) + Sync); 3] = [
        // SAFETY: the word is aligned and lives longer than the threads, which use it through this module
        // alone.
        &|round| unsafe { store_u64(place(), (round & 0xff) * ONES) },
        // SAFETY: as above.
        &|round| unsafe { copy_out(place(), &[round.to_ne_bytes()[0]; 8]) },
        &|round| {
            let op = match round % 3 {
                0 => AtomicOp::Store([round.to_ne_bytes()[0]; 8]),
                1 => AtomicOp::CompareSwap { compare: ONES, swap: 2 * ONES },
                _ => AtomicOp::FetchAdd(0),
            };
            // SAFETY: as above.
            let before = unsafe { atomic_u64(place(), op) };
            assert_eq!(before, (before & 0xff) * ONES);
        },
    ];
    std::thread::scope(|scope| {
        for write in writers {
            let left = &left;
            scope.spawn(move || {
                (0..rounds).for_each(write);
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        scope.spawn(|| {
            let mut seen = 0;
            while left.load(Ordering::SeqCst) > 0 || seen == 0 {
                // SAFETY: as above.
                let whole = unsafe { load_u64(place()) };
                assert_eq!(whole, (whole & 0xff) * ONES, "torn");
                let mut copied = [0; 8];
                // SAFETY: as above. A copy may mix, but every byte of it was there.
                unsafe { copy_in(place(), &mut copied) };
                // SAFETY: as above.
                seen += u64::from(unsafe { load_u8(place().wrapping_add(5)) } == copied[0]) + 1;
            }
        });
    });
}

/// A file that reaches around this module brings back a race that the language does not bear.
#[cfg(not(miri))]
#[test]
fn registered_memory_is_touched_in_this_module_only() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    assert!(files.len() > 6, "{files:?}");
    let forbidden =
        ["::from_ptr(", "ptr::read", "ptr::write", "ptr::copy", "copy_nonoverlapping", "_volatile("];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let found = forbidden.iter().find(|word| text.contains(**word));
        assert_eq!(found, None, "in {}", file.display());
    }
}

/// One thread places messages, the other waits for the last byte and then wants all of it.
#[test]
fn a_thread_that_sees_the_last_byte_sees_the_message() {
    let (rounds, turns, step) = if cfg!(miri) { (1, 3, 7) } else { (20, 200, 41) };
    for round in 0..rounds {
        exchange((1..=turns).map(|turn| (turn, usize::from(turn) * step + round, usize::from(turn % 8))));
    }
}

/// Messages as what they are filled with, bytes and offset, in memory that holds zeros before.
fn exchange(messages: impl Iterator<Item = (u8, usize, usize)> + Clone + Send) {
    let longest = messages.clone().map(|(_, len, skew)| len + skew).max().unwrap_or(0);
    let memory: Vec<AtomicU8> = (0..longest).map(|_| AtomicU8::new(0)).collect();
    let seen = AtomicU8::new(0);
    let failed = AtomicBool::new(false);
    let expected = messages.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (fill, len, skew) in expected {
                let message = &memory[skew..skew + len];
                wait(|| seen_at(&message[len - 1]) == fill);
                // Backwards: what is nearest to the end is the most likely to be late.
                let late = message.iter().rposition(|byte| seen_at(byte) != fill);
                failed.fetch_or(late.is_some(), Ordering::SeqCst);
                seen.store(fill, Ordering::SeqCst);
                assert_eq!(late, None, "a byte of {len} at {skew} came after the last one");
            }
        });
        for (fill, len, skew) in messages {
            let bytes = vec![fill; len];
            // SAFETY: the memory is made of atomics and has room.
            unsafe { copy_out(memory[skew].as_ptr(), &bytes) };
            wait(|| seen.load(Ordering::SeqCst) == fill || failed.load(Ordering::SeqCst));
        }
    });
}

/// A byte as programs see it.
fn seen_at(byte: &AtomicU8) -> u8 {
    // SAFETY: it is alive, and reached as a raw byte only.
    unsafe { load_u8(byte.as_ptr()) }
}

/// Spins to be quick, and yields so that the other thread can run where cores are few.
fn wait(done: impl Fn() -> bool) {
    while !(0..200).any(|_| done()) {
        std::thread::yield_now();
    }
}

/// CRC-32 by its definition, from one register to the next.
fn register_after(register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |register, byte| {
        (0..8)
            .fold(register ^ u32::from(*byte), |now, _| now >> 1 ^ if now & 1 != 0 { 0xedb8_8320 } else { 0 })
    })
}

#[test]
fn what_is_folded_gives_the_register_of_all_that_was_copied() {
    let source = pattern(4200);
    let lens = if cfg!(miri) { vec![1024, 1155] } else { (1024..1300).chain([2048, 4095, 4096]).collect() };
    type Folds = unsafe fn(&mut [u8], *const u8, u32) -> Fold;
    let mut ways: Vec<Folds> = vec![portable::into_folding];
    if bulk::can_fold() {
        ways.push(bulk::into_folding);
    }
    for len in lens {
        for (skew, register) in [(0, 0), (1, !0), (13, 0x1234_5678), (16, 0x8000_0001)] {
            for folds in &ways {
                let mut from = source[skew..skew + len].to_vec();
                let mut copied = vec![0; len + 1];
                // SAFETY: both have the length, and this machine can fold.
                let fold = unsafe { folds(&mut copied[..len], from.as_mut_ptr(), register) };
                assert_eq!((&copied[..len], copied[len]), (&from[..], 0), "{len} bytes");
                assert!(fold.len > 0 && fold.len <= len && fold.len.is_multiple_of(FOLD), "{}", fold.len);
                let folded = register_after(0, &fold.block);
                assert_eq!(folded, register_after(register, &from[..fold.len]), "{len} bytes, {skew}");
            }
        }
    }
}

#[test]
fn few_bytes_are_not_folded_and_not_copied() {
    let (from, mut to) = (pattern(WORTH_FOLDING), pattern(WORTH_FOLDING - 1));
    to.fill(0);
    for (passes, len) in [(Passes::one(), WORTH_FOLDING - 1), (Passes::TWO, WORTH_FOLDING - 1)] {
        // SAFETY: both have the length.
        let fold = unsafe { copy_in_folding(from.as_ptr(), &mut to[..len], 0, passes) };
        assert!(fold.is_none() && to.iter().all(|byte| *byte == 0));
    }
    assert!(!Passes::TWO.folds(4096));
    assert_eq!((portable::can_fold(), portable::is_wide()), (cfg!(miri), false));
}
