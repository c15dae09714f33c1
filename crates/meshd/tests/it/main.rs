//! The tests of the services, in one program: what they share is compiled once.

#![allow(clippy::unwrap_used, reason = "tests")]

mod waiting;
