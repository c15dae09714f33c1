//! Whether packets to UDP port 4791 pass this machine's packet filter: tried on loopback, and read from its rules.

mod legacy;
mod nft;
mod rules;

use std::net::IpAddr;

use ferroce_sys::interfaces::Interface;

use self::nft::Ruleset;
use self::rules::{Fate, Packet};
use super::facts::{Facts, Passage, Unread, Uses, joined};
use super::finding::{Finding, Level};

/// Where rules of the older iptables are, and the programs that show them.
const LEGACY: [(&str, &[&str], bool); 2] = [
    ("/proc/net/ip_tables_names", &["iptables-legacy", "iptables"], false),
    ("/proc/net/ip6_tables_names", &["ip6tables-legacy", "ip6tables"], true),
];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let passage = facts.live.datagram();
    let arrived = passage == Passage::Arrived;
    let mut findings: Vec<Finding> = tried(facts, passage).into_iter().collect();
    findings.extend(by_nft(facts, arrived));
    for (names, programs, v6) in LEGACY {
        match facts.text(names) {
            // A table that was never used is not there.
            Ok(text) if text.lines().any(|name| name == "filter") => {
                findings.extend(by_legacy(facts, arrived, programs, v6));
            }
            Err(Unread::Refused(why)) => {
                let text = format!("whether the older {} has rules", programs.last().unwrap_or(&"iptables"));
                let finding = Finding::unknown(text).seen(format!("{names}: {why}"));
                findings.push(finding.remedy("look as root:").command(format!("sudo cat {names}")));
            }
            _ => {}
        }
    }
    findings
}

/// What became of a datagram on loopback.
fn tried(facts: &Facts, passage: Passage) -> Option<Finding> {
    let dropped = |what: &str| {
        Finding::fault(format!("a datagram to UDP port {} on loopback {what}", Packet::PORT))
            .about("lo")
            .remedy("find the rule that drops it, and let the port pass:")
            .command("nft list ruleset")
    };
    match passage {
        Passage::Arrived => {
            let text = format!("a datagram to UDP port {} on loopback arrived", Packet::PORT);
            Some(
                Finding::ok(text)
                    .about("lo")
                    .seen("sent and received just now, by two sockets of this process"),
            )
        }
        Passage::Lost => Some(dropped("did not arrive").seen("sent just now, and waited for")),
        Passage::Refused(why) => Some(dropped("was refused").seen(format!("sent just now: {why}"))),
        // A kernel's soft-RoCE or a switchboard has the port: rules tell, and the check of the port says which.
        Passage::Untried(why) => {
            let text = format!("whether a datagram to UDP port {} passes on loopback", Packet::PORT);
            let is_taken = facts.has_soft_roce();
            (!is_taken)
                .then(|| Finding::unknown(text).about("lo").seen(format!("a socket for the try: {why}")))
        }
    }
}

/// What the rules of nftables say.
fn by_nft(facts: &Facts, arrived: bool) -> Vec<Finding> {
    // There are none then, and to ask for them as root would load the module.
    if facts.has_module("nf_tables") == Some(false) {
        return vec![Finding::ok("the kernel has not loaded nftables, so it has no rules")];
    }
    let line = ["nft", "-j", "list", "ruleset"];
    let ruleset = facts.live.run(&line).and_then(|text| Ruleset::parse(&text));
    match ruleset {
        Ok(rules) if rules.is_empty() => vec![Finding::ok("nftables has no rules")],
        Ok(rules) => by_rules(facts, arrived, "nftables", &[false, true], |packet| {
            let said = rules.judge(packet)?;
            Some((said.fate, format!("nft insert rule {} udp dport {} accept", said.chain, Packet::PORT)))
        }),
        Err(why) => vec![
            Finding::unknown("the rules of nftables")
                .seen(format!("`{}`: {why}", line.join(" ")))
                .remedy("look as root, with the program `nft`:")
                .command("sudo nft list ruleset"),
        ],
    }
}

/// What the rules of the older iptables say.
fn by_legacy(facts: &Facts, arrived: bool, programs: &[&str], v6: bool) -> Vec<Finding> {
    let answers = programs.iter().map(|program| (program, facts.live.run(&[program, "-S"])));
    let mut why = String::new();
    for (program, answer) in answers {
        match answer {
            Ok(list) => {
                return by_rules(facts, arrived, program, &[v6], |packet| {
                    match legacy::judge(&list, packet) {
                        Fate::Passes => None,
                        fate => {
                            let chain = if packet.leaves { "OUTPUT" } else { "INPUT" };
                            Some((
                                fate,
                                format!("{program} -I {chain} -p udp --dport {} -j ACCEPT", Packet::PORT),
                            ))
                        }
                    }
                });
            }
            Err(error) => why = error,
        }
    }
    let text = format!("the rules of {}", programs.last().unwrap_or(&"iptables"));
    let command = format!("sudo {} -S", programs.first().unwrap_or(&"iptables"));
    vec![Finding::unknown(text).seen(why).remedy("look as root:").command(command)]
}

/// What rules do with packets of each interface that could carry RDMA.
fn by_rules(
    facts: &Facts,
    arrived: bool,
    whose: &str,
    families: &[bool],
    judge: impl Fn(&Packet<'_>) -> Option<(Fate, String)>,
) -> Vec<Finding> {
    let interfaces = match facts.interfaces() {
        Ok(interfaces) => interfaces,
        Err(why) => {
            return vec![Finding::unknown(format!("for which interfaces rules of {whose} hold")).seen(why)];
        }
    };
    // What is said of several interfaces is said once.
    let mut all: Vec<Said> = Vec::new();
    for interface in interfaces.iter().filter(|interface| !interface.addresses.is_empty()) {
        for (v6, leaves) in families.iter().flat_map(|v6| [(*v6, false), (*v6, true)]) {
            let packet = Packet { interface: &interface.name, leaves, v6 };
            let judged = has_family(interface, v6).then(|| judge(&packet)).flatten();
            let Some((fate, command)) = judged else { continue };
            // What was tried needs no guess.
            if interface.loopback && arrived && matches!(fate, Fate::Unsure(_)) {
                continue;
            }
            let level = level(facts, interface, &fate);
            match all.iter_mut().find(|said| said.fate == fate && said.level == level) {
                Some(said) => said.add(interface, leaves, command),
                None => {
                    let mut said =
                        Said { fate, level, names: Vec::new(), ways: Vec::new(), commands: Vec::new() };
                    said.add(interface, leaves, command);
                    all.push(said);
                }
            }
        }
    }
    if all.is_empty() {
        return vec![Finding::ok(format!("no rule of {whose} drops packets to UDP port {}", Packet::PORT))];
    }
    all.into_iter().map(|said| said.finding(whose)).collect()
}

/// What rules say of packets of one or more interfaces.
struct Said {
    fate: Fate,
    level: Level,
    names: Vec<String>,
    ways: Vec<&'static str>,
    commands: Vec<String>,
}

impl Said {
    fn add(&mut self, interface: &Interface, leaves: bool, command: String) {
        self.names.push(interface.name.clone());
        self.ways.push(if leaves { "leave" } else { "come" });
        if !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }

    fn finding(self, whose: &str) -> Finding {
        let ways = match self.ways.as_slice() {
            [first, rest @ ..] if rest.iter().all(|way| way == first) => first,
            _ => "come or leave",
        };
        let (are, place) = match self.fate {
            Fate::Dropped(place) => ("are", place),
            Fate::Unsure(place) => ("may be", place),
            Fate::Passes => ("are not", String::new()),
        };
        let names = joined(self.names);
        let bypass = match self.level {
            Level::Note => "; cards carry RDMA past it, Ferroce's card and soft-RoCE do not",
            _ => "",
        };
        let port = Packet::PORT;
        let text =
            format!("packets to UDP port {port} that {ways} by {names} {are} dropped by {whose}{bypass}");
        let finding = Finding::new(self.level, text).about(names).seen(place).remedy("let them pass:");
        Finding { commands: self.commands, ..finding }
    }
}

fn has_family(interface: &Interface, v6: bool) -> bool {
    interface.addresses.iter().any(|address| match address {
        IpAddr::V4(_) => !v6,
        IpAddr::V6(address) => v6 && !address.is_unicast_link_local(),
    })
}

/// How bad it is if packets of an interface are dropped.
fn level(facts: &Facts, interface: &Interface, fate: &Fate) -> Level {
    let uses = if interface.loopback { Uses::Software } else { facts.uses(&interface.name) };
    match (uses, fate) {
        (Uses::Software, Fate::Dropped(_)) => Level::Fault,
        (Uses::Software, _) => Level::Unknown,
        _ => Level::Note,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::planted::Planted;
    use super::*;

    fn ruleset(expr: &serde_json::Value) -> String {
        json!({ "nftables": [
            { "chain": { "family": "inet", "table": "f", "name": "input", "hook": "input", "policy": "accept" } },
            { "rule": { "family": "inet", "table": "f", "chain": "input", "handle": 4, "expr": expr } },
        ] })
        .to_string()
    }

    fn drop_on(interface: &str) -> String {
        let of = json!({ "op": "==", "left": { "meta": { "key": "iifname" } }, "right": interface });
        ruleset(&json!([{ "match": of }, { "drop": null }]))
    }

    #[test]
    fn what_is_lost_or_refused_on_loopback_is_a_fault() {
        let mut planted = Planted::bare();
        for (passage, level) in [
            (Passage::Arrived, Level::Ok),
            (Passage::Lost, Level::Fault),
            (Passage::Refused("not permitted".to_owned()), Level::Fault),
            (Passage::Untried("in use".to_owned()), Level::Unknown),
        ] {
            planted.answers.passage = passage;
            assert_eq!(check(&planted.facts())[0].level, level);
        }
    }

    #[test]
    fn a_rule_that_drops_is_named_with_its_remedy() {
        let mut planted = Planted::rxe();
        planted.answers.say("nft -j list ruleset", &drop_on("eth0"));
        let said = check(&planted.facts());
        let fault = said.iter().find(|finding| finding.level == Level::Fault).unwrap();
        assert_eq!(fault.what, "packets to UDP port 4791 that come by eth0 are dropped by nftables");
        assert_eq!(fault.seen, ["rule 4 of chain input in table inet f"]);
        assert_eq!(fault.commands, ["nft insert rule inet f input udp dport 4791 accept"]);
        planted.answers.say("nft -j list ruleset", &drop_on("eth7"));
        assert!(check(&planted.facts()).iter().all(|finding| finding.level == Level::Ok));
    }

    #[test]
    fn what_hardware_bypasses_is_a_note() {
        let mut planted = Planted::bare();
        planted.card("mlx5_0", "eth0", "mlx5_core");
        planted.answers.say("nft -j list ruleset", &drop_on("eth0"));
        let said = check(&planted.facts());
        assert!(said.iter().any(|finding| finding.level == Level::Note && finding.what.contains("past it")));
    }

    #[test]
    fn a_rule_in_doubt_is_not_known() {
        let mut planted = Planted::rxe();
        planted.answers.say("nft -j list ruleset", &ruleset(&json!([{ "limit": {} }, { "drop": null }])));
        let said = check(&planted.facts());
        let doubt = said.iter().find(|finding| finding.what.contains("may be dropped")).unwrap();
        assert_eq!((doubt.level, doubt.about.as_deref()), (Level::Unknown, Some("eth0")));
    }

    #[test]
    fn without_the_program_rules_are_not_known() {
        let mut planted = Planted::rxe();
        planted.answers.ran.clear();
        let said = check(&planted.facts()).pop().unwrap();
        assert_eq!((said.level, said.what.as_str()), (Level::Unknown, "the rules of nftables"));
    }

    #[test]
    fn nft_is_not_asked_where_that_would_load_its_module() {
        let mut planted = Planted::rxe();
        planted.answers.say("nft -j list ruleset", &drop_on("eth0"));
        planted.remove("/sys/module/nf_tables");
        let said = check(&planted.facts()).pop().unwrap();
        assert_eq!(
            (said.level, said.what.as_str()),
            (Level::Ok, "the kernel has not loaded nftables, so it has no rules")
        );
    }

    #[test]
    fn rules_of_the_older_iptables_count_too() {
        let mut planted = Planted::rxe();
        planted.file("/proc/net/ip_tables_names", "filter\n");
        let last = |planted: &Planted| check(&planted.facts()).pop().unwrap();
        assert_eq!(last(&planted).level, Level::Unknown, "no program shows them");
        planted.answers.say("iptables -S", "-A INPUT -i eth0 -p udp -m udp --dport 4791 -j DROP\n");
        assert_eq!(last(&planted).level, Level::Fault);
        assert_eq!(last(&planted).commands, ["iptables -I INPUT -p udp --dport 4791 -j ACCEPT"]);
        planted.answers.say("iptables-legacy -S", "-P INPUT ACCEPT\n");
        assert_eq!(last(&planted).level, Level::Ok);
    }
}
