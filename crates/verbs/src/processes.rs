//! What the processes of this user do with their devices: which queue pairs they have, where these are connected to, and
//! how much they did. Each process is asked itself ([`stats`]); nothing of it needs rights of an administrator.
//!
//! A process is part of a service, which has a name: that of `FERROCE_SERVICE` in its environment when it opened the
//! device, or else that of the file of its program.

pub use ferroce_device::switchboard::{
    Group, MOST_SERVICE, ProcessStats, QpStats, Report, ServiceNameError, SwitchError, Told, WorkStats,
    check_service_name, stats,
};
