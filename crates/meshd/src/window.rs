//! What an agent measured in a stretch of time, checked.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_mesh::Outcomes;
use ferroce_verbs::processes::ServiceNameError;
use thiserror::Error;

use crate::clock;
use crate::histogram::{Histogram, HistogramError};
use crate::ledger::Mark;
use crate::proto::v1;
use crate::service_flow::{SERVICE_FLOWS, ServiceFlowReport};
use crate::trace::{TRACES, TraceReport};

/// Flows of one window at most.
pub(crate) const FLOWS: usize = 16_384;

/// The probes of one flow in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where they come from.
    pub from: IpAddr,
    /// Where they go.
    pub to: IpAddr,
    /// The UDP source port of probes.
    pub port: u16,
    /// The UDP source port of answers.
    pub reply_port: u16,
    /// How they ended.
    pub outcomes: Outcomes,
    /// The round trips of those that have one.
    pub round_trips: Histogram,
}

/// How a host itself was in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostState {
    /// How often it stood still.
    pub stalls: u32,
    /// How long at most.
    pub longest: Duration,
    /// Packets that it dropped since its buffers were full.
    pub receive_drops: u64,
}

/// What an agent measured in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowReport {
    /// When it began, in nanoseconds of the Unix clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// One for each flow.
    pub flows: Vec<Flow>,
    /// The host.
    pub host: HostState,
    /// Probes of flows beyond those that one window tells.
    pub untold: u64,
    /// Paths that were traced meanwhile.
    pub traces: Vec<TraceReport>,
    /// Queue pairs of services.
    pub services: Vec<ServiceFlowReport>,
    /// Queue pairs of services beyond those that one window tells.
    pub services_left_out: u64,
}

/// Why a message is no window.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// Too many flows.
    #[error("the window has {has} flows, and may have {most}")]
    Flows {
        /// How many there are.
        has: usize,
        /// How many there may be.
        most: usize,
    },
    /// Too many traces.
    #[error("the window has {has} traces, and may have {most}")]
    Traces {
        /// How many there are.
        has: usize,
        /// How many there may be.
        most: usize,
    },
    /// Too many routers.
    #[error("a path of {has} routers, and there may be {most}")]
    Routers {
        /// How many there are.
        has: usize,
        /// How many there may be.
        most: usize,
    },
    /// Too many queue pairs of services.
    #[error("the window has {has} queue pairs of services, and may have {most}")]
    Services {
        /// How many there are.
        has: usize,
        /// How many there may be.
        most: usize,
    },
    /// The name of a service is none.
    #[error("a service has no name that can be shown")]
    Service(#[from] ServiceNameError),
    /// The number of a queue pair is none.
    #[error("{qpn} is no number of a queue pair")]
    Qpn {
        /// The number.
        qpn: u32,
    },
    /// More packets than a card can send.
    #[error("{sent} packets of a queue pair, and {again} again, are more than a card can send")]
    Packets {
        /// Packets that were sent.
        sent: u64,
        /// Packets that were sent again.
        again: u64,
    },
    /// An address is none.
    #[error("an address of {bytes} bytes; it has to have 4 or 16")]
    Address {
        /// How long it is.
        bytes: usize,
    },
    /// A port is none.
    #[error("{port} is no port")]
    Port {
        /// The number.
        port: u32,
    },
    /// A flow without outcomes, or with more slow probes than good ones.
    #[error("the outcomes of a flow are missing, or {slow} of {ok} probes are slow")]
    Outcomes {
        /// Slow probes.
        slow: u32,
        /// Good probes.
        ok: u32,
    },
    /// More round trips than probes.
    #[error("{trips} round trips of {probes} probes")]
    Trips {
        /// Round trips.
        trips: u64,
        /// Probes.
        probes: u64,
    },
    /// The round trips are no histogram.
    #[error("the round trips of a flow are no histogram")]
    Histogram(#[from] HistogramError),
}

impl WindowReport {
    /// The window in a message.
    ///
    /// # Errors
    /// It is none.
    pub fn from_message(message: &v1::Window) -> Result<Self, WindowError> {
        if message.flows.len() > FLOWS {
            return Err(WindowError::Flows { has: message.flows.len(), most: FLOWS });
        }
        if message.traces.len() > TRACES {
            return Err(WindowError::Traces { has: message.traces.len(), most: TRACES });
        }
        if message.services.len() > SERVICE_FLOWS {
            return Err(WindowError::Services { has: message.services.len(), most: SERVICE_FLOWS });
        }
        let host = message.host.unwrap_or_default();
        Ok(Self {
            start: message.start_unix_ns,
            end: message.end_unix_ns,
            flows: message.flows.iter().map(flow).collect::<Result<_, _>>()?,
            host: HostState {
                stalls: host.stalls,
                longest: Duration::from_nanos(host.longest_ns),
                receive_drops: host.receive_drops,
            },
            untold: message.untold,
            traces: message.traces.iter().map(TraceReport::from_message).collect::<Result<_, _>>()?,
            services: message
                .services
                .iter()
                .map(ServiceFlowReport::from_message)
                .collect::<Result<_, _>>()?,
            services_left_out: message.services_left_out,
        })
    }

    /// The message of this window.
    #[must_use]
    pub fn to_message(&self, mark: Mark) -> v1::Window {
        let flow = |flow: &Flow| v1::Flow {
            from: bytes(flow.from),
            to: bytes(flow.to),
            port: flow.port.into(),
            reply_port: flow.reply_port.into(),
            outcomes: Some(outcomes_message(&flow.outcomes)),
            round_trips: Some(flow.round_trips.to_message()),
        };
        v1::Window {
            epoch: mark.epoch,
            number: mark.number,
            start_unix_ns: self.start,
            end_unix_ns: self.end,
            flows: self.flows.iter().map(flow).collect(),
            host: Some(v1::HostState {
                stalls: self.host.stalls,
                longest_ns: clock::nanos(self.host.longest),
                receive_drops: self.host.receive_drops,
            }),
            untold: self.untold,
            traces: self.traces.iter().take(TRACES).map(TraceReport::to_message).collect(),
            services: self.services.iter().take(SERVICE_FLOWS).map(ServiceFlowReport::to_message).collect(),
            services_left_out: self.services_left_out,
        }
    }
}

/// All outcomes, each with its name; `slow` is a part of `ok`.
pub(crate) fn named(outcomes: &Outcomes) -> [(&'static str, u64); 8] {
    let Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host } = *outcomes;
    [
        ("ok", ok),
        ("slow", slow),
        ("ack2_lost", ack2_lost),
        ("ack1_lost", ack1_lost),
        ("time_out", time_out),
        ("late", late),
        ("invalid", invalid),
        ("host", host),
    ]
    .map(|(name, count)| (name, count.into()))
}

fn outcomes_message(outcomes: &Outcomes) -> v1::Outcomes {
    let Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host } = *outcomes;
    v1::Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host }
}

fn flow(message: &v1::Flow) -> Result<Flow, WindowError> {
    let v1::Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host } =
        message.outcomes.ok_or(WindowError::Outcomes { slow: 0, ok: 0 })?;
    if slow > ok {
        return Err(WindowError::Outcomes { slow, ok });
    }
    let outcomes = Outcomes { ok, slow, ack2_lost, ack1_lost, time_out, late, invalid, host };
    let round_trips = message.round_trips.as_ref().map(Histogram::from_message).transpose()?;
    let round_trips = round_trips.unwrap_or_default();
    let (trips, probes) = (round_trips.count(), u64::from(ok) + u64::from(late));
    if trips > probes {
        return Err(WindowError::Trips { trips, probes });
    }
    let port = |port: u32| u16::try_from(port).map_err(|_| WindowError::Port { port });
    Ok(Flow {
        from: address(&message.from)?,
        to: address(&message.to)?,
        port: port(message.port)?,
        reply_port: port(message.reply_port)?,
        outcomes,
        round_trips,
    })
}

pub(crate) fn address(bytes: &[u8]) -> Result<IpAddr, WindowError> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let sixteen = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    let address = four.or_else(|_| sixteen()).map_err(|_| WindowError::Address { bytes: bytes.len() })?;
    Ok(address.to_canonical())
}

pub(crate) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> WindowReport {
        let mut round_trips = Histogram::default();
        round_trips.add(Duration::from_micros(17));
        let outcomes = Outcomes { ok: 1, slow: 1, time_out: 2, ..Outcomes::default() };
        let [from, to] = ["10.0.0.1", "fd00::2"].map(|text| text.parse().unwrap());
        WindowReport {
            start: 5,
            end: 9,
            flows: vec![Flow { from, to, port: 50_000, reply_port: 50_001, outcomes, round_trips }],
            host: HostState { stalls: 1, longest: Duration::from_millis(60), receive_drops: 3 },
            untold: 4,
            traces: Vec::new(),
            services: Vec::new(),
            services_left_out: 9,
        }
    }

    #[test]
    fn a_window_survives_its_message() {
        let message = report().to_message(Mark { epoch: 3, number: 8 });
        assert_eq!((message.epoch, message.number), (3, 8));
        assert_eq!(WindowReport::from_message(&message), Ok(report()));
    }

    #[test]
    fn what_is_no_window_is_refused_with_its_reason() {
        let with = |change: fn(&mut v1::Flow)| {
            let mut message = report().to_message(Mark::default());
            change(&mut message.flows[0]);
            WindowReport::from_message(&message).unwrap_err()
        };
        assert_eq!(with(|flow| flow.from = vec![1; 5]), WindowError::Address { bytes: 5 });
        assert_eq!(with(|flow| flow.to.clear()), WindowError::Address { bytes: 0 });
        assert_eq!(with(|flow| flow.port = 65_536), WindowError::Port { port: 65_536 });
        assert_eq!(with(|flow| flow.outcomes = None), WindowError::Outcomes { slow: 0, ok: 0 });
        assert_eq!(
            with(|flow| flow.outcomes.as_mut().unwrap().slow = 2),
            WindowError::Outcomes { slow: 2, ok: 1 }
        );
        assert_eq!(
            with(|flow| flow.round_trips.as_mut().unwrap().counts[0] = 2),
            WindowError::Trips { trips: 2, probes: 1 }
        );
        let mut message = report().to_message(Mark::default());
        message.services = vec![v1::ServiceFlow::default(); SERVICE_FLOWS + 1];
        assert_eq!(
            WindowReport::from_message(&message),
            Err(WindowError::Services { has: SERVICE_FLOWS + 1, most: SERVICE_FLOWS })
        );
        let mut message = report().to_message(Mark::default());
        message.flows = vec![v1::Flow::default(); FLOWS + 1];
        assert_eq!(
            WindowReport::from_message(&message),
            Err(WindowError::Flows { has: FLOWS + 1, most: FLOWS })
        );
    }
}
