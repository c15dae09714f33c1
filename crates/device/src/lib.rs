//! The soft NIC: a RoCEv2 network card in userspace.
#![allow(unsafe_code, reason = "the device is a home of unsafe code: raw memory and system calls")]

pub mod discovery;
pub mod fabric;
pub mod memory;
pub mod sync;
