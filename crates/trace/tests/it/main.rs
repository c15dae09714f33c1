//! Exports, and what other programs say of them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod chromium;
mod damaged;
mod golden;
mod joining;
mod made;
mod page;
mod perfetto;
mod wireshark;
