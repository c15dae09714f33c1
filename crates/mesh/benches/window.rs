//! A placeholder that is replaced before it is committed.
fn main() {}
