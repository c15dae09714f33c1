//! A preload library for programs that look for the kernel's files of RDMA devices: `/dev/infiniband`,
//! `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and `/sys/class/net/<interface>/device/infiniband`.
//!
//! `ferroce run` writes these files for our devices into a folder of the user's, loads this library into the program and
//! names the folder in `FERROCE_FILES`. The functions here are those of the C library that take a path: a path that is
//! one of ours is replaced by the one below the folder, and then, as for all others, the C library's own function is
//! called. So directories are read, and files are opened and mapped, as any others.
//!
//! It is inert for all other paths, and without the variable. Nothing happens when it is loaded, it has no state but the
//! addresses of the functions behind it, and it allocates nothing.
#![allow(
    unsafe_code,
    reason = "the C interface is a home of unsafe code: every pointer comes from a C program"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of an exported function is its manual page: paths end with a zero byte or are null"
)]
#![cfg_attr(test, allow(dead_code, reason = "a test must not have functions of these names in it"))]

mod next;
mod paths;
mod resolved;
mod table;
