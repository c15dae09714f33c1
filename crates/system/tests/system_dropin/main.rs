//! The objects of this crate over our own drop-in library, which is a card like any other to them; and over a card that fails.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod child;
mod connected;
mod connections;
mod datagrams;
mod faults;
mod forks;
mod listed;
mod lists;
mod messages;
mod regions;
mod shared;
mod told;
mod windows;
