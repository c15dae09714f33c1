//! The tests of the services, in one program: what they share is compiled once, and those that wait do so at once.

#![allow(clippy::unwrap_used, reason = "tests")]

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
