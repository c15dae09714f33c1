//! The soft NIC: a RoCEv2 network card in userspace.
//!
//! [`Nic::open`] opens a device on a network interface; its objects are made from it:
//! [`CompletionQueue`], [`SharedQueue`], [`Qp`], [`AddressHandle`], and regions of registered memory
//! ([`Nic::register`]). Everything that happens, happens in a turn of the engine, run by whichever
//! thread posts work or looks for completions, and by a driver thread while none does.
//!
//! This is the engine room: the safe API for programs is the crate `ferroce-verbs`.
#![forbid(unsafe_code)]

mod address;
mod chain;
pub mod cm;
mod completion;
mod config;
mod counters;
mod cq;
mod cqe;
pub mod discovery;
mod driver;
mod engine;
mod engines;
mod error;
mod event;
mod exit;
mod gate;
mod groups;
mod limits;
mod lookout;
mod mail;
mod management;
mod meeting;
mod neighbours;
mod nic;
mod owners;
mod ports;
mod posting;
mod qp;
mod record;
mod sleeper;
mod srq;
mod trace;
mod visit;
mod waiters;
mod waiting;

pub use address::{AddressHandle, AddressVector, SourcePort, connection_label, source_port};
pub use chain::Chain;
pub use completion::{Channel, CqId, Notify};
pub use config::Config;
pub use counters::{DeviceCounters, DeviceReport, QpReport};
pub use cq::CompletionQueue;
pub use engine::path_report::PathReport;
pub use error::{NicCreateError, NicOpenError, NicQpError, RouteError, SettingError};
pub use event::{AsyncEvent, EventQueue};
pub use limits::Limits;
pub use nic::Nic;
pub use qp::{Qp, QpSpec, QpState};
pub use srq::SharedQueue;
pub use trace::TraceSetting;

pub use ferroce_fabric as fabric;
pub use ferroce_fabric::{
    Path, PathChoice, PathError, PathErrorKind, PathPolicy, PathReason, PortRefusal, UnknownPolicy,
};
pub use ferroce_memory as memory;
pub use ferroce_progress::Spin;
pub use ferroce_switchboard as switchboard;
pub use ferroce_sys::Uncancelled;
pub use ferroce_sys::clock::{ClockReading, now, park, until};
pub use ferroce_sys::descriptor::{EventFd, signal, wait_readable};
pub use ferroce_sys::epoll::{Epoll, Watch};
pub use ferroce_sys::fork::PerProcess;
pub use ferroce_sys::sync::this_thread;
