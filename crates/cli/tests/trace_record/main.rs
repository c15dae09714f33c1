//! `ferroce trace` on programs that run: our own, and some that know nothing of us; recorded from their start, attached to,
//! killed, and in places where nothing can be recorded.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod attach;
mod killed;
mod program;
mod record;
mod stock;
mod support;
mod wrong;
