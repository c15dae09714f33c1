//! Tests that wait for most of their time: `cargo xtask test` runs many of them at once.

mod database;
mod mesh;
mod metrics;
mod outlet_support;
mod outlets;
mod outlets_trouble;
mod page;
mod page_board;
mod page_browser;
mod page_mesh;
mod page_support;
mod strangers;
mod tls;
