//! A limit of file sizes, which is of a whole process: this test has one of its own.
#![cfg(not(loom))]
#![allow(unsafe_code, reason = "limits of this process")]

use ferroce_lane::{LaneError, LaneFile};

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit that lives during the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) }, 0);
    limit
}

fn set(limit: libc::rlimit) {
    // SAFETY: the pointer is to a limit that lives during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn a_limit_of_file_sizes_refuses_a_lane_and_ends_no_program() {
    let before = limit();
    let needed = 4096 + LaneFile::RING as u64;
    set(libc::rlimit { rlim_cur: needed - 1, ..before });
    let refused = LaneFile::create();
    set(libc::rlimit { rlim_cur: needed, ..before });
    let made = LaneFile::create();
    set(before);
    let error = refused.unwrap_err();
    assert!(matches!(error, LaneError::FileLimit { needed: most, .. } if most == needed), "{error}");
    assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
    assert!(made.is_ok());
}
