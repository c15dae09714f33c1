//! Connection management: by hand, against the Linux kernel's own messages, and by chance.

mod by_hand;
mod chance;
mod common;
mod flood;
mod kernel;
mod ledger;
mod life;
mod resolving;
mod watching;
mod world;
