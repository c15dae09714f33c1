//! Which thread turns an engine of the soft NIC, and when.
//!
//! An engine has no thread that must run: posting and polling turn it in the program's own threads, and a
//! driver thread turns it while they do not. Which thread watches the sockets has three answers:
//!
//! | state | which thread an arriving packet wakes | left by |
//! |---|---|---|
//! | *armed* | the driver: the sockets are in its epoll set | polls that go on: it is parked |
//! | *parked* | none: programs poll, and the driver looks once a [`table::TICK`] whether they still do | a program that stopped polling, or begins to sleep: it is armed |
//! | *seated* | a thread of the program that waits for a completion, and sleeps on the sockets itself | that thread wakes: it is parked |
//!
//! [`State`] is all of that in one word with the evidence beside it, and a pure policy: what was seen goes in
//! ([`Event`]), the next state comes out. [`Duty`] keeps the word where threads meet, and sees to it that the
//! epoll set follows it. [`Program`] is what a driver knows of the program, and [`Plan`] what it does about
//! it. [`Spin`] says whether to look for a moment before a thread sleeps, [`AckDelay`] how long the driver
//! keeps an acknowledgement back, [`Gather`] whether posted work waits for company, [`Courtesy`] whether a
//! thread that polls in vain lets others run. Every constant stands in [`table`].
//!
//! Nothing here makes a system call. `tests/loom.rs` runs [`Duty`] under every order of threads, and
//! `tests/policy.rs` runs whole programs against it in simulated time.
#![forbid(unsafe_code)]

mod ack_delay;
mod courtesy;
mod duty;
mod gather;
mod program;
mod spin;
mod state;
pub mod table;

pub use ack_delay::AckDelay;
pub use courtesy::Courtesy;
pub use duty::{Duty, Sleepers, Sockets};
pub use gather::{Departure, Gather, Posting};
pub use program::{Plan, Program, Seen, due};
pub use spin::Spin;
pub use state::{Event, State};
