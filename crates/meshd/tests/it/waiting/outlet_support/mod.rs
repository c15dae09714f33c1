//! What the tests of outlets share: a Prometheus that is written to, programs in Python, and a receiver of events.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod prometheus;
pub mod python;
pub mod receiver;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// An address whose port was free a moment ago, for programs that take no port 0.
pub fn free(address: &str) -> SocketAddr {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap()
}

/// A directory of this test alone.
pub fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("ferroce-outlets-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
