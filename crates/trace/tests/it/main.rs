//! Exports, and what other programs say of them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod made;
mod perfetto;
mod wireshark;
