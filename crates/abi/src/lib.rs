//! `libibverbs.so.1` and `librdmacm.so.1` over the soft NIC: programs that were compiled against rdma-core find their
//! symbols here.
//!
//! Every function checks its pointers, calls the device and turns the answer into the error number that the
//! manual pages promise. What the device does not have is refused with `EOPNOTSUPP`. Under `FERROCE_LOG=warn`
//! each refusal is one line on standard error that says why.
//!
//! A C object is the beginning of a Rust object of this crate: the program sees the fields of the headers, we
//! see what stands behind them. Objects live on the heap from their creation to their destruction, as C
//! expects it. Nothing happens before the first call: no thread, no socket, no constructor.
//!
//! `cargo xtask link-abi` links this into one library, `libferroce.so.0`, and two doors to it with Debian's names and
//! versions of symbols (`exports.txt`, `exports-rdmacm.txt`).
#![allow(
    unsafe_code,
    reason = "the C interface is a home of unsafe code: every pointer comes from a C program"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of an exported function is its manual page, the same for all: pointers are null or \
              to live objects of the right type"
)]

mod address;
mod capture;
mod channel;
mod cm;
mod context;
mod cq;
mod cq_ex;
mod devices;
mod domain;
mod events;
mod fork;
mod library;
mod log;
mod object;
mod post;
mod private;
mod qp;
mod qp_ex;
mod query;
mod refusal;
mod region;
mod srq;
mod strings;
mod window;
