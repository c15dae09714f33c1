//! Tests that wait for most of their time: `cargo xtask test` runs many of them at once.

mod crash;
mod demo;
mod page;
mod parts;
mod store;
mod units;
