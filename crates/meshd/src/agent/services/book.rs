//! Which queue pairs services have, and what they did since they were looked at before. It is pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_verbs::processes::{ProcessStats, QpStats, Told, check_service_name};
use ferroce_verbs::{Path, State};

use crate::agent::schedule::{Pair, Wanted};
use crate::service_flow::{SERVICE_FLOWS, ServiceFlowReport};

/// Tuples of services that one RNIC probes at most.
const BORROWED: usize = 64;

/// What a service is called whose process tells no name that can be shown.
const UNNAMED: &str = "?";

/// A process, by its number and when it came, and the number of one of its queue pairs.
type Place = (u32, u64, u32);

/// All that is known of queue pairs of services.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// What each queue pair had done when it was seen last.
    known: HashMap<Place, (ServiceFlowReport, u64, u64)>,
    /// Processes were looked at before: what is new since then has done all that it did since then.
    has_looked: bool,
}

/// What is seen of services at a moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Queue pairs, with what they did since they were looked at before.
    pub(super) flows: Vec<ServiceFlowReport>,
    /// Queue pairs beyond those that are told.
    pub(super) left_out: u64,
}

impl Book {
    /// Takes what processes tell. Counted are queue pairs from one of our own RNICs to RNICs of the mesh.
    pub(super) fn look(&mut self, told: &[Told], own: &[IpAddr], is_member: impl Fn(IpAddr) -> bool) -> Seen {
        let mut seen = Seen::default();
        let mut known = HashMap::new();
        let mut silent = HashSet::new();
        for process in told {
            let process = match process {
                Ok(process) => process,
                Err((pid, _)) => {
                    silent.insert(*pid);
                    continue;
                }
            };
            if process.busy > 0 {
                silent.insert(process.pid);
            }
            let tells_all = process.report.queue_pairs as usize <= process.report.rows.len();
            for (row, flow) in flows(process, own).filter(|(_, flow)| is_member(flow.to)) {
                if seen.flows.len() >= SERVICE_FLOWS {
                    seen.left_out += 1;
                    continue;
                }
                let place = (process.pid, process.since.nanos(), row.qpn.get());
                let again = row.work.retransmitted.saturating_add(row.work.timeouts);
                let sent = row.work.packets_sent;
                let before = self.known.get(&place).filter(|(before, ..)| is_same(before, &flow));
                let is_new = self.has_looked && tells_all;
                let (sent_before, again_before) = match before {
                    Some((_, sent, again)) => (*sent, *again),
                    None if is_new => (0, 0),
                    // It may have done this long ago.
                    None => (sent, again),
                };
                known.insert(place, (flow.clone(), sent, again));
                seen.flows.push(ServiceFlowReport {
                    sent: sent.saturating_sub(sent_before),
                    again: again.saturating_sub(again_before),
                    ..flow
                });
            }
        }
        // A process that is too busy to answer has its queue pairs still.
        for (place, entry) in self.known.drain() {
            if silent.contains(&place.0) && !known.contains_key(&place) && seen.flows.len() < SERVICE_FLOWS {
                seen.flows.push(entry.0.clone());
                known.insert(place, entry);
            }
        }
        self.known = known;
        self.has_looked = true;
        seen
    }
}

/// RNICs that queue pairs of services are connected to, as far as they leave from our own.
pub(super) fn peers(told: &[Told], own: &[IpAddr]) -> BTreeSet<IpAddr> {
    let processes = told.iter().filter_map(|process| process.as_ref().ok());
    processes.flat_map(|process| flows(process, own).map(|(_, flow)| flow.to)).collect()
}

/// The queue pairs of a process whose packets leave from our own RNICs into the network.
fn flows<'a>(
    process: &'a ProcessStats,
    own: &'a [IpAddr],
) -> impl Iterator<Item = (&'a QpStats, ServiceFlowReport)> {
    // A name that the analyzer would refuse must not cost a window.
    let service = if check_service_name(&process.service).is_ok() { &process.service } else { UNNAMED };
    process.report.rows.iter().filter_map(move |row| {
        let is_connected = matches!(row.state, State::Rtr | State::Rts | State::Sqd | State::Sqe);
        let (peer_qpn, to) = row.peer.filter(|_| is_connected && row.path == Some(Path::Wire))?;
        let (from, port) = row.from?;
        let (from, to) = (from.to_canonical(), to.to_canonical());
        let is_ours = own.contains(&from) && from != to;
        is_ours.then(|| {
            let flow = ServiceFlowReport {
                service: service.to_owned(),
                from,
                to,
                port,
                qpn: row.qpn.get(),
                peer_qpn: peer_qpn.get(),
                sent: 0,
                again: 0,
            };
            (row, flow)
        })
    })
}

fn is_same(one: &ServiceFlowReport, other: &ServiceFlowReport) -> bool {
    let name = |flow: &ServiceFlowReport| (flow.from, flow.to, flow.port, flow.peer_qpn);
    name(one) == name(other) && one.service == other.service
}

/// What one RNIC probes from ports of services: a tuple of each in turn, until there are enough.
pub(super) fn borrow(
    flows: &[ServiceFlowReport],
    from: IpAddr,
    responder: impl Fn(IpAddr) -> Option<u32>,
) -> Wanted {
    let mut turns: BTreeMap<&str, u32> = BTreeMap::new();
    let mut tuples: Vec<(u32, &str, IpAddr, u16)> = Vec::new();
    for flow in flows.iter().filter(|flow| flow.from == from) {
        let turn = turns.entry(&flow.service).or_default();
        tuples.push((*turn, &flow.service, flow.to, flow.port));
        *turn += 1;
    }
    tuples.sort_unstable();
    let mut wanted = Wanted::new();
    let mut borrowed = 0;
    for (_, _, to, port) in tuples {
        let Some(qpn) = responder(to).filter(|_| borrowed < BORROWED) else { continue };
        let pair = wanted.entry(to).or_insert_with(|| Pair {
            qpn,
            interval: Duration::ZERO,
            ports: Vec::new(),
            answer_ports: Vec::new(),
        });
        if !pair.ports.contains(&port) {
            pair.ports.push(port);
            borrowed += 1;
        }
    }
    wanted.values_mut().for_each(|pair| pair.ports.sort_unstable());
    wanted
}

#[cfg(test)]
mod tests;
