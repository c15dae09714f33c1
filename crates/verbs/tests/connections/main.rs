//! Connections by address and port, over real sockets: how they begin, fail, end and are attacked; between
//! devices of one process, and between processes that share an address.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../processes/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;

mod awaited;
mod begin;
mod datagrams;
mod end;
mod failures;
mod hostile;
mod parties;
mod processes;
mod tshark;
