//! What a post and a poll cost beside the calls of the library: on a card that does nothing, written in C, and there beside a
//! C program that does the same.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]
#![allow(
    unsafe_code,
    reason = "it calls a function that is none of verbs, and asks for the time of a thread"
)]

use std::ffi::CString;
use std::path::Path;
use std::process::Command;

use ferroce_memory::Allocation;
use ferroce_system::{Bytes, CardCompletion, Library, Operation, Paths, QueuePairOptions, SendWork};
use ferroce_transport::{Access, Completion, Remote};
use ferroce_wire::{Rkey, Service};

/// Posts that are timed; the first number of the command line is another.
const ROUNDS: u32 = 2_000_000;

fn main() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/card");
    let library = folder.join("card-bench.so");
    let status = Command::new("cc")
        .args(["-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source.with_extension("c"))
        .arg(format!("-Wl,--version-script={}", source.with_extension("map").display()))
        .status()
        .unwrap();
    assert!(status.success());
    let loaded = Library::load_from(&Paths { verbs: library.clone(), cm: library.clone() }).unwrap();
    let context = loaded.cards().unwrap()[0].open().unwrap();
    let domain = context.protection_domain().unwrap();
    let completions = context.completion_queue(64).unwrap();
    let qp = domain.queue_pair(&QueuePairOptions::new(Service::Rc, &completions)).unwrap();
    let region = domain.register(&Allocation::zeroed(4096).unwrap(), Access::empty()).unwrap();
    let pieces = [region.piece(0..8)];

    for _ in 0..3 {
        let ours = time(|round| {
            let to = Remote { address: round, rkey: Rkey(1) };
            let work = SendWork::new(round, Operation::Write(to), Bytes::Pieces(&pieces));
            qp.post_send(&[work]).unwrap();
            let mut done = [Completion::EMPTY];
            assert_eq!(completions.poll(&mut done), Ok(1));
            assert_eq!(done[0].id, round);
        });
        let inline = time(|round| {
            let to = Remote { address: round, rkey: Rkey(1) };
            qp.post_send(&[SendWork::new(round, Operation::Write(to), Bytes::Inline(b"inline b"))]).unwrap();
            assert_eq!(completions.poll(&mut [CardCompletion::EMPTY]), Ok(1));
        });
        let empty = time(|_| {
            assert_eq!(completions.poll(&mut [CardCompletion::EMPTY]), Ok(0));
        });
        let c = c_time(&library);
        println!(
            "post and poll: {ours:.1} ns, inline {inline:.1} ns, in C {c:.1} ns; an empty poll {empty:.1} ns"
        );
    }
}

fn rounds() -> u32 {
    std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS)
}

fn time(mut once: impl FnMut(u64)) -> f64 {
    let start = used();
    for round in 0..u64::from(rounds()) {
        once(round);
    }
    (used() - start) / f64::from(rounds())
}

/// Nanoseconds of a processor that this thread has used.
fn used() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a place that lives during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    std::time::Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap()).as_secs_f64()
        * 1e9
}

/// The same by the C program that is in the library.
fn c_time(library: &Path) -> f64 {
    let name = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library is loaded already.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    // SAFETY: it is loaded, and the name ends with a zero byte.
    let at = unsafe { libc::dlsym(handle, c"card_time".as_ptr()) };
    assert!(!at.is_null());
    // SAFETY: the function has this type.
    let run =
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(libc::c_long) -> libc::c_long>(at) };
    f64::from(u32::try_from(run(rounds().into())).unwrap()) / f64::from(rounds())
}
