//! A program that forbids itself `membarrier` once a lock has a habitual thread: it ends, and no two threads have the lock.
#![cfg(not(loom))]
#![allow(unsafe_code, reason = "it forbids itself a system call")]

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use ferroce_sys::sync::Biased;

const ROLE: &str = "FERROCE_TEST_ROLE";

/// What the other process does; nothing in the first one.
#[test]
fn the_other_process() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let lock = Biased::new(0_u64);
    for _ in 0..1000 {
        *lock.lock() += 1;
    }
    forbid_membarrier();
    let _held = lock.lock();
    std::thread::scope(|scope| {
        // It inherits what this thread forbade itself.
        scope.spawn(|| *lock.lock() += 1).join().expect("the process has ended");
    });
}

/// Has the kernel answer `membarrier` with "not permitted" from now on.
fn forbid_membarrier() {
    let allow = libc::SECCOMP_RET_ALLOW;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let number = u32::try_from(libc::SYS_membarrier).expect("a number");
    let step =
        |code: u32, jf, k| libc::sock_filter { code: u16::try_from(code).expect("a code"), jt: 0, jf, k };
    let mut steps = [
        // The number of the call is what a filter finds first.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, refuse),
        step(libc::BPF_RET | libc::BPF_K, 0, allow),
    ];
    let filter = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the call takes numbers, and touches no memory.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the filter and its steps live during the call, which copies them.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) }, 0);
}

/// It was: the thread that wanted the lock ended by a panic, and the next one took it while the habitual thread had it.
#[test]
fn a_barrier_that_is_refused_later_ends_the_process() {
    let mut command = Command::new(env::current_exe().expect("a program"));
    let output = command.args(["--exact", "the_other_process", "--nocapture"]).env(ROLE, "1").output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("refuses membarrier"), "{said}");
}
