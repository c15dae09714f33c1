//! Programs that know nothing of us, on our library: those of Debian's packages, and C programs compiled
//! here.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod copies;
mod doors;
mod ends;
mod entries;
mod library;
mod many;
mod meeting;
mod pairs;
mod perftest;
mod pingpong;
mod programs;
mod pyverbs;
mod rdmacm;
mod rsockets;
mod told;
