//! The binary as people and scripts use it: help, devices, demo, perf and ping, alone and between processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../decode/golden.rs"]
mod golden;

mod demo;
mod devices;
mod doctor;
mod help;
mod mesh_perf;
mod perf;
mod ping;
mod run;
mod secret;
mod selftest;
mod two_processes;
mod wrong;
