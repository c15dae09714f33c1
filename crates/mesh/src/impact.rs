//! Which services suffer from a finding: those whose packets cross what is bad.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::localise::{Trouble, each_place};
use crate::observation::{Outcomes, Tuple};
use crate::paths::Paths;
use crate::suspect::Suspect;

/// A flow of a service in a window: packets of one of its queue pairs, and probes that took the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFlow {
    /// What the service is called.
    pub service: String,
    /// Where its packets leave from, where they go, and the port that they leave from.
    pub tuple: Tuple,
    /// The port that packets come back from, if that is known: a service suffers as much where answers are lost.
    pub back: Option<u16>,
    /// Packets that it sent.
    pub sent: u64,
    /// Times that it sent packets again, or waited for an answer in vain.
    pub again: u64,
    /// How probes from the same port to the same card ended.
    pub probes: Outcomes,
}

/// How bad a finding is for services. The first one is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Packets of a service, or probes on its very way, are lost or slow.
    P0,
    /// A service crosses what is bad, and has not met it so far.
    P1,
    /// No service crosses it.
    P2,
}

/// What a finding means for services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impact {
    /// The worst of all.
    pub priority: Priority,
    /// The services that cross what is bad, the worst first, and then by name.
    pub services: Vec<Affected>,
}

/// A service that crosses what is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affected {
    /// What it is called.
    pub service: String,
    /// How bad it is for this one.
    pub priority: Priority,
    /// Its flows that cross what is bad.
    pub flows: u32,
    /// Some of them: those in trouble first.
    pub examples: Vec<Tuple>,
}

/// Less trouble than this says nothing: packets are lost now and then.
const TROUBLED: u64 = 3;

/// No more flows of a service are named.
const EXAMPLES: usize = 8;

impl Paths {
    /// Which services suffer from this finding.
    ///
    /// A flow whose way is not known for sure counts if it is as likely as not that it crosses what is bad.
    pub fn impact<'a>(
        &mut self,
        finding: &Finding,
        flows: impl IntoIterator<Item = &'a ServiceFlow>,
    ) -> Impact {
        let mut services: BTreeMap<&str, Vec<(Priority, Tuple)>> = BTreeMap::new();
        for flow in flows {
            let back = flow.back.map(|port| Tuple { from: flow.tuple.to, to: flow.tuple.from, port });
            let mut ways = std::iter::once(flow.tuple).chain(back);
            if ways.any(|way| self.crosses(way, &finding.suspects)) {
                let priority = if flow.is_troubled(finding.trouble) { Priority::P0 } else { Priority::P1 };
                services.entry(&flow.service).or_default().push((priority, flow.tuple));
            }
        }
        let mut services: Vec<Affected> = services
            .into_iter()
            .map(|(service, mut flows)| {
                flows.sort_unstable();
                Affected {
                    service: service.to_owned(),
                    priority: flows.first().map_or(Priority::P2, |(priority, _)| *priority),
                    flows: u32::try_from(flows.len()).unwrap_or(u32::MAX),
                    examples: flows.iter().take(EXAMPLES).map(|(_, tuple)| *tuple).collect(),
                }
            })
            .collect();
        services.sort_by_key(|affected| affected.priority);
        Impact { priority: services.first().map_or(Priority::P2, |worst| worst.priority), services }
    }

    /// Whether packets of the tuple cross one of the suspects.
    fn crosses(&mut self, tuple: Tuple, suspects: &[Suspect]) -> bool {
        let cards = u32::try_from(self.topology().rnics().len()).unwrap_or(u32::MAX);
        if tuple.from == tuple.to || tuple.from.0 >= cards || tuple.to.0 >= cards {
            return false;
        }
        let host = self.topology().rnic(tuple.to).host;
        if suspects.contains(&Suspect::Host(host)) {
            return true;
        }
        // Ways that are not traced are alike: one stands for all ports, so that services with ever new ones fill no memory.
        let way = self.way(if self.knows(tuple) { tuple } else { Tuple { port: 0, ..tuple } });
        let row = *self.row();
        let mut most = 0.0_f32;
        each_place(self, way, |place, weight| {
            if suspects.contains(&row.suspect(place)) {
                most = most.max(weight);
            }
        });
        most >= 0.5
    }
}

impl ServiceFlow {
    fn is_troubled(&self, trouble: Trouble) -> bool {
        let of_probes = match trouble {
            Trouble::Loss => self.probes.lossy(),
            Trouble::Delay => self.probes.slow,
        };
        let own = if trouble == Trouble::Loss { self.again } else { 0 };
        own.saturating_add(of_probes.into()) >= TROUBLED
    }
}

#[cfg(test)]
mod tests {
    use ferroce_probe::paths::Path;

    use super::*;
    use crate::finding::{Evidence, FindingId, Severity, State};
    use crate::localise::Guilt;
    use crate::topology::{LinkId, Node, RnicId, SwitchId, Topology, TopologyBuilder};

    /// Two ToRs below two aggregations, and two cards below each ToR.
    fn paths() -> Paths {
        let switch = |name: &str, tier: &str, address: u8, above: &str| {
            format!(
                "[[switch]]\nname = \"{name}\"\ntier = \"{tier}\"\naddresses = [\"10.9.0.{address}\"]\nabove = [{above}]\n"
            )
        };
        let both = "\"a1\", \"a2\"";
        let text = switch("t1", "tor", 1, both)
            + &switch("t2", "tor", 2, both)
            + &switch("a1", "aggregation", 3, "")
            + &switch("a2", "aggregation", 4, "");
        let mut builder = TopologyBuilder::read(&text).unwrap();
        for (number, tor) in [(1_u8, "t1"), (2, "t1"), (3, "t2"), (4, "t2")] {
            let name = format!("h{number}");
            builder.rnic(&name, [10, 0, 0, number].into(), &name, tor).unwrap();
        }
        let mut paths = Paths::new(builder.build());
        for (port, by) in [(50_000, 3), (50_001, 4)] {
            let routers = [1_u8, by, 2].map(|last| Some([10, 9, 0, last].into())).to_vec();
            paths.trace(tuple(0, 2, port), &Path { routers, reaches: true });
        }
        paths
    }

    const fn tuple(from: u32, to: u32, port: u16) -> Tuple {
        Tuple { from: RnicId(from), to: RnicId(to), port }
    }

    fn link(topology: &Topology, from: u32, to: u32) -> LinkId {
        topology.link(Node::Switch(SwitchId(from)), Node::Switch(SwitchId(to))).unwrap()
    }

    fn finding(trouble: Trouble, suspect: Suspect) -> Finding {
        let guilt = Guilt { rate: 0.1, share: 0.0 };
        let (gain, crossings, losses, expected) = (50.0, 1000.0, 100.0, 0.1);
        let evidence =
            Evidence { guilt, gain, crossings, losses, expected, runner_up: None, top: Vec::new() };
        let (id, state, severity) = (FindingId(1), State::Open, Severity::Major);
        Finding {
            id,
            trouble,
            suspects: vec![suspect],
            state,
            severity,
            since: 0,
            evidence,
            seen: 2,
            clean: 0.0,
            explained: 0,
            known_as: vec![suspect],
            renamed: 0,
        }
    }

    fn flow(service: &str, tuple: Tuple, again: u64) -> ServiceFlow {
        let (sent, probes) = (1000, Outcomes::default());
        ServiceFlow { service: service.to_owned(), tuple, back: None, sent, again, probes }
    }

    #[test]
    fn only_services_that_cross_the_suspect_are_affected() {
        let mut paths = paths();
        let bad = link(paths.topology(), 0, 2);
        let finding = finding(Trouble::Loss, Suspect::Link(bad));
        let flows = [
            flow("train", tuple(0, 2, 50_000), 40),
            flow("train", tuple(0, 2, 50_001), 0),
            flow("store", tuple(0, 2, 50_001), 40),
            flow("backup", tuple(0, 2, 50_000), 1),
            flow("other", tuple(2, 3, 50_000), 90),
            flow("strange", tuple(0, 99, 50_000), 90),
        ];
        let impact = paths.impact(&finding, &flows);
        let of = |service: &str, priority| Affected {
            service: service.to_owned(),
            priority,
            flows: 1,
            examples: vec![tuple(0, 2, 50_000)],
        };
        assert_eq!(impact.priority, Priority::P0);
        assert_eq!(impact.services, [of("train", Priority::P0), of("backup", Priority::P1)]);
        let other = paths.impact(&finding, &flows[4..]);
        assert_eq!(other, Impact { priority: Priority::P2, services: Vec::new() });
    }

    #[test]
    fn a_way_that_is_not_known_counts_as_likely_as_it_is() {
        let mut paths = paths();
        let flows = [flow("train", tuple(1, 3, 50_007), 0)];
        let both = paths.impact(&finding(Trouble::Loss, Suspect::Switch(SwitchId(2))), &flows);
        assert_eq!(both.priority, Priority::P1, "one of two aggregations");
        let tor = paths.impact(&finding(Trouble::Loss, Suspect::Switch(SwitchId(1))), &flows);
        assert_eq!(tor.priority, Priority::P1, "its last ToR for sure");
        let host = paths.topology().rnic(RnicId(3)).host;
        assert_eq!(paths.impact(&finding(Trouble::Loss, Suspect::Host(host)), &flows).priority, Priority::P1);
        let rnic = paths.impact(&finding(Trouble::Loss, Suspect::Rnic(RnicId(0))), &flows);
        assert_eq!(rnic.priority, Priority::P2);
    }

    #[test]
    fn ever_new_ports_fill_no_memory() {
        let mut paths = paths();
        let flows: Vec<ServiceFlow> = (1..=9999).map(|port| flow("train", tuple(1, 3, port), 0)).collect();
        let finding = finding(Trouble::Loss, Suspect::Switch(SwitchId(2)));
        assert_eq!(paths.impact(&finding, &flows).services[0].flows, 9999);
        assert_eq!(paths.len(), 3, "the two that are traced, and one for all others");
    }

    #[test]
    fn a_service_whose_answers_are_lost_suffers() {
        let mut paths = paths();
        let back = link(paths.topology(), 1, 2);
        let routers = [2_u8, 3, 1].map(|last| Some([10, 9, 0, last].into())).to_vec();
        paths.trace(tuple(2, 0, 51_000), &Path { routers, reaches: true });
        let finding = finding(Trouble::Loss, Suspect::Link(back));
        let alone = flow("train", tuple(0, 2, 50_001), 40);
        assert_eq!(paths.impact(&finding, [&alone]).priority, Priority::P2);
        let both = ServiceFlow { back: Some(51_000), ..alone };
        assert_eq!(paths.impact(&finding, [&both]).priority, Priority::P0);
    }

    #[test]
    fn delay_is_seen_by_probes_alone() {
        let mut paths = paths();
        let finding = finding(Trouble::Delay, Suspect::Switch(SwitchId(2)));
        let lossy = flow("train", tuple(0, 2, 50_000), 90);
        let slow = ServiceFlow { probes: Outcomes { slow: 3, ..Outcomes::default() }, ..lossy.clone() };
        assert_eq!(paths.impact(&finding, [&lossy]).priority, Priority::P1);
        assert_eq!(paths.impact(&finding, [&slow]).priority, Priority::P0);
    }
}
