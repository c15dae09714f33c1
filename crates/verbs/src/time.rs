//! Time, and waiting by it, for what is built on verbs.
//!
//! All times are of one clock: the one on which completions are timed
//! ([`Completion::time`](crate::Completion::time)). It counts nanoseconds since the process first asked, only
//! goes forward, and means nothing in another process.
//!
//! ```
//! use std::time::Duration;
//! use ferroce_verbs::time::{Notice, now, until};
//!
//! let end = now() + Duration::from_secs(5);
//! let ready = Notice::new(false);
//! std::thread::scope(|scope| {
//!     scope.spawn(|| ready.change(|ready| *ready = true));
//!     let seen = ready.wait(Some(until(end)), |ready| ready.then_some(()));
//!     assert_eq!(seen, Some(()), "it is told well before the time is over");
//! });
//! ```
//!
//! | what | for |
//! |---|---|
//! | [`now`], [`until`] | deadlines: `now() + limit`, and how long is left |
//! | [`park`], [`this_thread`] | a thread that other threads unpark; the waker that does |
//! | [`wait_readable`] | a descriptor, such as that of a [`CompletionChannel`](crate::CompletionChannel) |
//! | [`Notice`] | a value that changes, for threads that sleep and tasks that await |
//! | [`Spin`] | whether to look for a moment before a thread sleeps |
//! | [`ClockReading`] | what a time is on the wall's clock |
//!
//! To sleep for completions, see [`CompletionQueue`](crate::CompletionQueue).

pub use ferroce_device::cm::Notice;
pub use ferroce_device::{ClockReading, Spin, now, park, this_thread, until, wait_readable};
pub use ferroce_transport::Time;
