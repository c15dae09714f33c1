//! A flow of a window of an agent, as it is written.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_mesh::Outcomes;

use crate::histogram;
use crate::window::{Flow, WindowReport};

/// The agent that tells a window.
pub(crate) struct Teller<'a> {
    pub(crate) agent: &'a str,
    pub(crate) host: &'a str,
    /// The ToR of an RNIC, if it is known; of those that probes come from, only if it is one of this agent.
    pub(crate) tor: &'a dyn Fn(IpAddr, bool) -> Option<Arc<str>>,
}

/// A flow of a window.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) agent: Arc<str>,
    pub(super) host: Arc<str>,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) from_tor: Option<Arc<str>>,
    pub(super) to_tor: Option<Arc<str>>,
    pub(super) port: u16,
    pub(super) reply_port: u16,
    pub(super) outcomes: Outcomes,
    /// How many round trips there are, and their sum, each as the longest time of its bucket.
    pub(super) trips: u64,
    pub(super) sum: u64,
    pub(super) p50: Option<u64>,
    pub(super) p99: Option<u64>,
}

/// A row for each flow of a window.
pub(super) fn rows<'a>(teller: &'a Teller<'_>, window: &'a WindowReport) -> impl Iterator<Item = Row> + 'a {
    let [agent, host] = [teller.agent, teller.host].map(Arc::<str>::from);
    window.flows.iter().map(move |flow| {
        let Flow { from, to, port, reply_port, outcomes, round_trips } = flow;
        let time = |part| {
            let time = round_trips.percentile(part)?;
            Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let of_bucket = |(bucket, count): (u32, u32)| histogram::end(bucket).saturating_mul(u64::from(count));
        Row {
            start: window.start,
            end: window.end,
            agent: Arc::clone(&agent),
            host: Arc::clone(&host),
            from: *from,
            to: *to,
            from_tor: (teller.tor)(*from, true),
            to_tor: (teller.tor)(*to, false),
            port: *port,
            reply_port: *reply_port,
            outcomes: *outcomes,
            trips: round_trips.count(),
            sum: round_trips.iter().map(of_bucket).fold(0, u64::saturating_add),
            p50: time(0.5),
            p99: time(0.99),
        }
    })
}
