//! `ferroce mesh` as processes, in one program: what these tests share is compiled once, and those that wait do so at
//! once.

mod crash;
mod demo;
#[path = "../mesh_support/mod.rs"]
mod mesh_support;
mod page;
mod parts;
mod store;
mod units;
