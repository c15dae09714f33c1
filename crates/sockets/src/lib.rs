//! A preload library that has a program's TCP sockets be rsockets: its streams go over RDMA, and the program does not
//! know.
//!
//! `ferroce run --sockets` loads it. A stream socket of IPv4 or IPv6 that the program makes is one of the kernel with one of
//! `librdmacm.so.1` behind it, which is looked up when the first is made (module `numbers`); the functions here send what
//! concerns such a socket there, and all else to the C library. Sets of `epoll` may hold both kinds (modules `sets` and
//! `epoll`). A connection to an address that no device leads to is one of the kernel after all.
//!
//! A child of a fork has none of the sockets of its parent: connections are the parent's.
#![allow(
    unsafe_code,
    reason = "the C interface is a home of unsafe code: every pointer comes from a C program"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of an exported function is its manual page: pointers are null or to what it says"
)]
#![cfg_attr(test, allow(dead_code, reason = "a test must not have functions of these names in it"))]

mod copies;
mod epoll;
mod next;
mod numbers;
mod polls;
mod sets;
mod streams;
mod transfers;
