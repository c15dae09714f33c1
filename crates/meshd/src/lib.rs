//! The services of a mesh of probes, over gRPC: a [controller](Controller), agents and an analyzer.
//!
//! The machines behind them are pure and in other crates: which RNIC probes which, and what is bad, in
//! `ferroce-mesh`; probes in `ferroce-probe`. Here are the sockets, the threads and the clock.
//!
//! - [`Controller`]: agents register with it, and are told what to probe. It also speaks the protocol of the
//!   public rebuild of R-Pingmesh, so that agents of that make find what to probe here.
//! - [`Agent`]: answers probes, probes what it is told to, and reports windows.
//! - [`AnalyzerServer`]: takes the windows of all agents, and says what is bad.
//! - [`outlet`]: what leaves the analyzer: series, raw windows and findings.
//! - [`ledger`]: how a window is counted once and only once, whatever breaks in between.
//! - [`tls`]: certificates. Without them the services listen on loopback addresses only.
#![forbid(unsafe_code)]

mod agent;
mod analyzer;
mod backoff;
pub mod board;
mod client;
mod clock;
mod controller;
mod counters;
mod database;
mod histogram;
pub mod ledger;
mod listen;
pub mod metrics;
pub mod outlet;
pub mod page;
pub mod proto;
mod service;
mod service_flow;
mod spread;
mod store;
pub mod tls;
mod trace;
mod window;

pub use agent::{Agent, AgentConfig, AgentError, AgentRnic, AgentState};
pub use analyzer::{AnalyzerServer, AnalyzerServerConfig, AnalyzerServerError, Keeping};
pub use backoff::{Backoff, BackoffConfig};
pub use client::{Inquiry, MeshClientError, UrlError, counters, findings, tallies};
pub use controller::{Controller, ControllerConfig, ControllerError};
pub use counters::{AnalyzerCounters, ControllerCounters};
pub use database::{DatabaseConfig, DatabaseError};
pub use histogram::{Histogram, HistogramError};
pub use listen::{Listener, MeshListenError};
pub use service_flow::ServiceFlowReport;
pub use spread::report_delay;
pub use store::{StoreConfig, StoreError};
pub use trace::TraceReport;
pub use window::{Flow, HostState, WindowError, WindowReport};
