//! `ferroce mesh` as processes, in one program: what these tests share is compiled once.

#[path = "../mesh_support/mod.rs"]
mod mesh_support;
mod waiting;
