//! The functions of `librdmacm.so.1`.

mod missing;
