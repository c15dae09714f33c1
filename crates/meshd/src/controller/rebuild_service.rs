//! The protocol of the public rebuild of R-Pingmesh: its agents register, ask for pinglists, and report.
//!
//! Its pinglists have one line for each port. Its reports merge all ports of a pair, so nothing can be localised
//! by them: they are checked and summed up, and that is all.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ferroce_mesh::controller::{Registration, Rnic, Target};
use ferroce_probe::paths::FIRST_PORT;
use tonic::{Request, Response, Status};

use super::Shared;
use super::mesh_service::{no_lease, parse, short};
use crate::clock;
use crate::proto::rebuild as proto;
use crate::tls::Peer;

/// Lines of a pinglist or a report at most.
const LINES: usize = 65_536;

/// A path on which more than one probe in so many fails is worse than it should be.
const TOLERATED: u64 = 100;

#[derive(Debug)]
pub(super) struct RebuildService {
    pub(super) shared: Arc<Shared>,
}

#[tonic::async_trait]
impl proto::controller_service_server::ControllerService for RebuildService {
    async fn register_agent(
        &self,
        request: Request<proto::AgentRegistrationRequest>,
    ) -> Result<Response<proto::AgentRegistrationResponse>, Status> {
        self.shared.refuse_foreign(Peer::check(&request, &request.get_ref().agent_id))?;
        let request = request.into_inner();
        let most = self.shared.config.registry.rnics;
        let done = self.shared.at_desk(|desk| {
            let registration =
                registration(request, most).inspect_err(|_| desk.counters.refused_rnics += 1)?;
            desk.register_rebuild(registration, clock::now()).map_err(|refusal| refusal.to_string())
        });
        let answer = match done {
            Ok(()) => proto::AgentRegistrationResponse { success: true, message: String::new() },
            Err(message) => proto::AgentRegistrationResponse { success: false, message },
        };
        Ok(Response::new(answer))
    }

    async fn get_pinglist(
        &self,
        request: Request<proto::PinglistRequest>,
    ) -> Result<Response<proto::PinglistResponse>, Status> {
        self.shared.refuse_foreign(Peer::check(&request, &request.get_ref().agent_id))?;
        let request = request.into_inner();
        let kind = request.r#type();
        let Some(address) = parse(&request.requester_gid) else {
            let text = format!("{:?} is no GID", short(&request.requester_gid));
            return Err(Status::invalid_argument(text));
        };
        let hour = clock::unix_nanos() / 3_600_000_000_000;
        let list = self.shared.at_desk(|desk| {
            desk.hear_rebuild(&request.agent_id, clock::now()).map_err(|lost| no_lease(&lost))?;
            let is_own = desk.owner(address) == Some(&request.agent_id);
            let list = is_own.then(|| desk.list(address, clock::now(), hour)).flatten();
            desk.counters.rebuild_pinglists += u64::from(list.is_some());
            list.ok_or_else(|| Status::permission_denied(format!("{address} is not an RNIC of the agent")))
        })?;
        let half = if kind == proto::PinglistType::TorMesh { &list.below } else { &list.between };
        let targets = half.iter().flat_map(lines).take(LINES).collect();
        Ok(Response::new(proto::PinglistResponse { targets, r#type: kind.into() }))
    }

    async fn report_probe_analysis(
        &self,
        request: Request<proto::ProbeAnalysisReport>,
    ) -> Result<Response<proto::ProbeAnalysisAck>, Status> {
        self.shared.refuse_foreign(Peer::check(&request, &request.get_ref().agent_id))?;
        let proto::ProbeAnalysisReport { agent_id, summaries } = request.into_inner();
        self.shared.at_desk(|desk| {
            desk.hear_rebuild(&agent_id, clock::now()).map_err(|lost| no_lease(&lost))?;
            let is_own = |line: &proto::PathSummary| {
                parse(&line.source_gid).is_some_and(|from| desk.owner(from) == Some(&agent_id))
            };
            let refused = summaries.iter().filter(|line| !is_own(line) || !is_true(line)).count();
            if refused > 0 || summaries.len() > LINES {
                desk.counters.rebuild_refused += summaries.len() as u64;
                let answer = proto::ProbeAnalysisAck { accepted: false, sla_violations: 0 };
                return Ok(Response::new(answer));
            }
            let sum = |of: fn(&proto::PathSummary) -> u32| {
                summaries.iter().map(|line| u64::from(of(line))).sum::<u64>()
            };
            desk.counters.rebuild_summaries += summaries.len() as u64;
            desk.counters.rebuild_probes += sum(|line| line.probe_total);
            desk.counters.rebuild_failed += sum(|line| line.probe_failed);
            let is_bad = |line: &&proto::PathSummary| {
                u64::from(line.probe_failed) * TOLERATED > u64::from(line.probe_total)
            };
            let bad = summaries.iter().filter(is_bad).count();
            let sla_violations = u32::try_from(bad).unwrap_or(u32::MAX);
            Ok(Response::new(proto::ProbeAnalysisAck { accepted: true, sla_violations }))
        })
    }
}

/// Whether the numbers of a line fit each other.
fn is_true(line: &proto::PathSummary) -> bool {
    let told = u64::from(line.probe_success) + u64::from(line.probe_failed);
    told <= u64::from(line.probe_total)
        && line.invalid_rtt_count <= line.probe_total
        && line.network_rtt_min_ns <= line.network_rtt_max_ns
}

fn registration(request: proto::AgentRegistrationRequest, most: usize) -> Result<Registration, String> {
    let proto::AgentRegistrationRequest { agent_id, hostname, tor_id, rnics, .. } = request;
    let rnics = rnics.into_iter().take(most + 1).map(|rnic| {
        let proto::RnicInfo { gid, qpn, ip_address, host_name, tor_id: tor, device_name } = rnic;
        let address = parse(&gid).ok_or_else(|| format!("{:?} is no GID", short(&gid)))?;
        if !ip_address.is_empty() && parse(&ip_address) != Some(address) {
            return Err(format!("{:?} is not the address of GID {gid}", short(&ip_address)));
        }
        let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
        let (host, tor) = (or(host_name, &hostname), or(tor, &tor_id));
        Ok(Rnic { address, qpn, host, tor, device: or(device_name, "rnic") })
    });
    Ok(Registration { agent: agent_id, rnics: rnics.collect::<Result<_, _>>()? })
}

/// A line for each port of a target.
fn lines(target: &Target) -> impl Iterator<Item = proto::PingTarget> {
    let Target { rnic, ports, .. } = target;
    ports.iter().map(|port| proto::PingTarget {
        target_gid: gid(rnic.address).to_string(),
        target_qpn: rnic.qpn,
        target_ip: rnic.address.to_string(),
        target_hostname: rnic.host.clone(),
        target_tor_id: rnic.tor.clone(),
        target_device_name: rnic.device.clone(),
        source_port: u32::from(*port),
        flow_label: label(*port),
        priority: 0,
        flow_label_count: 1,
        flow_label_seed: 0,
    })
}

fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The flow label of which Linux makes this port: it folds the upper six bits into the lower fourteen. Label 0
/// means none, so the first port has another one.
fn label(port: u16) -> u32 {
    match port.saturating_sub(FIRST_PORT) {
        0 => 0x4001,
        low => low.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_makes_each_port_of_its_label() {
        for port in FIRST_PORT..=u16::MAX {
            let label = label(port);
            let folded = (label & 0x3fff) ^ (label >> 14);
            assert_eq!(0xC000 | folded, u32::from(port));
            assert!(label > 0 && label < 1 << 20);
        }
    }

    #[test]
    fn numbers_that_contradict_each_other_are_not_true() {
        let line =
            proto::PathSummary { probe_total: 5, probe_success: 3, probe_failed: 2, ..Default::default() };
        assert!(is_true(&line));
        let with = |change: fn(&mut proto::PathSummary)| {
            let mut other = line.clone();
            change(&mut other);
            is_true(&other)
        };
        assert!(!with(|line| line.probe_failed = 3));
        assert!(!with(|line| line.probe_success = u32::MAX));
        assert!(!with(|line| line.invalid_rtt_count = 6));
        assert!(!with(|line| line.network_rtt_min_ns = 1));
    }
}
