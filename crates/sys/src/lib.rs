//! What Ferroce asks of the operating system.
//!
//! Time ([`clock`]), descriptors that threads sleep on ([`descriptor`], [`epoll`]), unix sockets that carry
//! descriptors ([`unix`]), record locks, forks, signals, and the locks and rings by which threads meet
//! ([`sync`], checked by loom). Safe functions around system calls: what stands on this crate needs no unsafe
//! code to sleep, to wake or to pass a socket on.
#![allow(unsafe_code, reason = "a home of unsafe code: system calls, and memory that threads share")]

mod cancel;
pub mod clock;
pub mod descriptor;
pub mod epoll;
mod exit;
pub mod fork;
pub mod interfaces;
pub mod limits;
pub mod lock_keeper;
mod random;
pub mod record_lock;
pub mod shared_file;
mod signals;
pub mod sync;
pub mod unix;
pub mod users;

pub use cancel::Uncancelled;
pub use exit::at_exit;
pub use random::Random;
pub use signals::SignalsBlocked;
