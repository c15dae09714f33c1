//! The rules of nftables, as `nft -j list ruleset` prints them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rules::{Answer, Chains, Fate, Packet, Rule, Verdict, fate};

/// A table: its family and its name.
type Table<'a> = (&'a str, &'a str);

/// All that the program has printed.
#[derive(Debug)]
pub(super) struct Ruleset(Vec<Value>);

/// What becomes of a packet, and the table of the rule that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub(super) fate: Fate,
    /// Family, table and chain: where a rule that lets the packet pass belongs.
    pub(super) chain: String,
}

impl Ruleset {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut all: Value =
            serde_json::from_str(text).map_err(|error| format!("nft printed no JSON: {error}"))?;
        match all["nftables"].take() {
            Value::Array(objects) => Ok(Self(objects)),
            _ => Err("nft printed no list of rules".to_owned()),
        }
    }

    /// Whether there are no rules at all.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.iter().any(|object| object.get("chain").is_some())
    }

    /// What becomes of a packet in all base chains that it meets: the first that drops it, else the first that
    /// may drop it.
    pub(super) fn judge(&self, packet: &Packet<'_>) -> Option<Sentence> {
        let mut worst = None;
        for base in self.0.iter().filter_map(|object| object.get("chain")) {
            let Some(hook) = base["hook"].as_str() else { continue };
            let (family, table, name) = (text(base, "family"), text(base, "table"), text(base, "name"));
            let is_met = match family {
                "inet" => true,
                "ip" => !packet.v6,
                "ip6" => packet.v6,
                "netdev" => base["dev"] == packet.interface || has(&base["dev"], packet.interface),
                _ => false,
            };
            if !is_met || !packet.meets(hook) {
                continue;
            }
            let drops = text(base, "policy") == "drop";
            let chain = format!("{family} {table} {name}");
            match fate(&self.chains((family, table), packet), name, drops) {
                Fate::Passes => {}
                fate @ Fate::Dropped(_) => return Some(Sentence { fate, chain }),
                fate @ Fate::Unsure(_) => {
                    worst.get_or_insert(Sentence { fate, chain });
                }
            }
        }
        worst
    }

    /// The chains of a table, with each rule asked about the packet.
    fn chains(&self, table: Table<'_>, packet: &Packet<'_>) -> Chains {
        let sets = self.sets(table);
        let of_table = |object: &&Value| (text(object, "family"), text(object, "table")) == table;
        let mut chains = Chains::default();
        for rule in self.0.iter().filter_map(|object| object.get("rule")).filter(of_table) {
            let rules = chains.0.entry(text(rule, "chain").to_owned()).or_default();
            let place = format!(
                "rule {} of chain {} in table {} {}",
                rule["handle"],
                text(rule, "chain"),
                table.0,
                table.1
            );
            add(rules, rule["expr"].as_array().map_or(&[], Vec::as_slice), &place, packet, &sets);
        }
        chains
    }

    /// The named sets and maps of a table.
    fn sets(&self, table: Table<'_>) -> BTreeMap<&str, &Value> {
        let all = self.0.iter().filter_map(|object| object.get("set").or_else(|| object.get("map")));
        let of_table = all.filter(|set| (text(set, "family"), text(set, "table")) == table);
        of_table.map(|set| (text(set, "name"), &set["elem"])).collect()
    }
}

/// Adds what a rule says: its matches hold for all that follows them in it.
fn add(
    rules: &mut Vec<Rule>,
    all: &[Value],
    place: &str,
    packet: &Packet<'_>,
    sets: &BTreeMap<&str, &Value>,
) {
    let mut applies = Answer::Yes;
    let mut push = |applies, verdict| rules.push(Rule { applies, verdict, place: place.to_owned() });
    for part in all.iter().filter_map(Value::as_object).filter_map(|part| part.iter().next()) {
        match (part.0.as_str(), part.1) {
            ("match", of) => applies = applies.and(matches(of, packet, sets)),
            // These change nothing.
            ("counter" | "log" | "comment" | "mangle" | "notrack" | "meter_stmt", _) => {}
            ("vmap", of) => {
                for (key, then) in pairs(&of["data"], sets) {
                    let answer = compare(&of["key"], key, packet, sets);
                    if let Some(verdict) = verdict(then) {
                        push(applies.and(answer), verdict);
                    }
                }
                // What no key fits goes on.
            }
            // Packets leave the rules by these, and not as dropped ones.
            ("dnat" | "snat" | "masquerade" | "redirect" | "queue" | "tproxy", _) => {
                push(applies, Verdict::Accept);
            }
            ("reject", _) => push(applies, Verdict::Drop),
            (word, of) => match verdict_of(word, of) {
                Some(Some(verdict)) => push(applies, verdict),
                Some(None) => {}
                // A limit, a quota, an extension of iptables: it may apply or not.
                None => applies = applies.and(Answer::Maybe),
            },
        }
    }
}

/// The verdict in an object such as `{"drop": null}`.
fn verdict(then: &Value) -> Option<Verdict> {
    let (word, of) = then.as_object()?.iter().next()?;
    verdict_of(word, of).flatten()
}

/// What a word says, if it is a verdict; nothing in it if that is to go on.
fn verdict_of(word: &str, of: &Value) -> Option<Option<Verdict>> {
    let target = || text(of, "target").to_owned();
    match word {
        "accept" => Some(Some(Verdict::Accept)),
        "drop" => Some(Some(Verdict::Drop)),
        "return" => Some(Some(Verdict::Return)),
        "jump" => Some(Some(Verdict::Jump(target()))),
        "goto" => Some(Some(Verdict::Goto(target()))),
        "continue" => Some(None),
        _ => None,
    }
}

/// The keys of a map, with what each leads to.
fn pairs<'a>(
    data: &'a Value,
    sets: &BTreeMap<&str, &'a Value>,
) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    let named = data.as_str().and_then(|name| sets.get(name.trim_start_matches('@')).copied());
    let pairs = named.unwrap_or_else(|| data.get("set").unwrap_or(data)).as_array();
    pairs.into_iter().flatten().filter_map(|pair| Some((pair.get(0)?, pair.get(1)?)))
}

/// Whether a match holds.
fn matches(of: &Value, packet: &Packet<'_>, sets: &BTreeMap<&str, &Value>) -> Answer {
    let answer = match text(of, "op") {
        "==" | "in" | "" | "!=" => compare(&of["left"], &of["right"], packet, sets),
        op => ordered(&of["left"], op, &of["right"]),
    };
    if text(of, "op") == "!=" && !is_absent(&of["left"], packet) { answer.not() } else { answer }
}

/// Whether what stands on the left, of this packet, is what stands on the right.
fn compare(left: &Value, right: &Value, packet: &Packet<'_>, sets: &BTreeMap<&str, &Value>) -> Answer {
    if is_absent(left, packet) {
        return Answer::No;
    }
    if let Some(name) = right.as_str().and_then(|name| name.strip_prefix('@')) {
        return sets.get(name).map_or(Answer::Maybe, |elements| compare(left, elements, packet, sets));
    }
    let elements = right.get("set").unwrap_or(right);
    if let Some(elements) = elements.as_array() {
        let each = elements.iter().map(|element| compare(left, element, packet, sets));
        return each.fold(Answer::No, Answer::or);
    }
    if let Some(element) = right.get("elem").and_then(|element| element.get("val")) {
        return compare(left, element, packet, sets);
    }
    one(left, right, packet)
}

/// Whether a field of the packet has one value.
fn one(left: &Value, right: &Value, packet: &Packet<'_>) -> Answer {
    match field(left) {
        ("meta", "l4proto") | ("ip", "protocol") | ("ip6", "nexthdr") => {
            Answer::of(right == "udp" || right.as_u64() == Some(17))
        }
        ("meta", "nfproto") => {
            let family = if packet.v6 { ["ipv6", "10"] } else { ["ipv4", "2"] };
            Answer::of(right.as_str().is_some_and(|name| family.contains(&name)))
        }
        ("meta", "protocol") => Answer::of(right == if packet.v6 { "ip6" } else { "ip" }),
        ("meta", "iif" | "iifname") => Answer::of(!packet.leaves && is_named(right, packet.interface)),
        ("meta", "oif" | "oifname") => Answer::of(packet.leaves && is_named(right, packet.interface)),
        ("udp" | "th", "dport") => port(right),
        ("ct", "state") => match right.as_str() {
            Some("new") => Answer::Yes,
            Some("untracked") | None => Answer::Maybe,
            Some(_) => Answer::No,
        },
        _ => Answer::Maybe,
    }
}

/// Whether the packet lacks what stands on the left: a rule that looks at it does not apply, whatever it wants.
fn is_absent(left: &Value, packet: &Packet<'_>) -> bool {
    match field(left).0 {
        "tcp" | "icmp" | "icmpv6" | "sctp" | "dccp" | "esp" | "ah" | "udplite" | "arp" => true,
        "ip" => packet.v6,
        "ip6" => !packet.v6,
        _ => false,
    }
}

/// The kind of a field, and its name.
fn field(left: &Value) -> (&str, &str) {
    let payload = &left["payload"];
    match (left.get("meta"), left.get("ct")) {
        (Some(meta), _) => ("meta", text(meta, "key")),
        (_, Some(ct)) => ("ct", text(ct, "key")),
        _ => (text(payload, "protocol"), text(payload, "field")),
    }
}

/// Whether these ports have ours.
fn port(right: &Value) -> Answer {
    if let Some(number) = right.as_u64() {
        return Answer::of(number == Packet::PORT);
    }
    match right["range"].as_array().map(Vec::as_slice) {
        Some([first, last]) => match (first.as_u64(), last.as_u64()) {
            (Some(first), Some(last)) => Answer::of((first..=last).contains(&Packet::PORT)),
            _ => Answer::Maybe,
        },
        // Names of services: none is called so.
        _ if right.is_string() => Answer::No,
        _ => Answer::Maybe,
    }
}

/// Whether a port is less or more than another.
fn ordered(left: &Value, op: &str, right: &Value) -> Answer {
    match (field(left), right.as_u64()) {
        (("udp" | "th", "dport"), Some(limit)) => match op {
            "<" => Answer::of(Packet::PORT < limit),
            ">" => Answer::of(Packet::PORT > limit),
            "<=" => Answer::of(Packet::PORT <= limit),
            ">=" => Answer::of(Packet::PORT >= limit),
            _ => Answer::Maybe,
        },
        _ => Answer::Maybe,
    }
}

/// Whether an interface has a name, which may end in a star.
fn is_named(right: &Value, interface: &str) -> bool {
    right.as_str().is_some_and(|name| match name.strip_suffix('*') {
        Some(start) => interface.starts_with(start),
        None => name == interface,
    })
}

fn has(list: &Value, word: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|item| item == word))
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IN: Packet<'_> = Packet { interface: "eth0", leaves: false, v6: false };

    fn ruleset(policy: &str, rules: &[Value]) -> Ruleset {
        let mut all = vec![
            json!({ "metainfo": {} }),
            json!({ "table": { "family": "inet", "name": "f" } }),
            json!({ "set": { "family": "inet", "table": "f", "name": "ports", "elem": [22, { "range": [4000, 5000] }] } }),
            json!({ "chain": { "family": "inet", "table": "f", "name": "input", "hook": "input", "policy": policy } }),
            json!({ "chain": { "family": "inet", "table": "f", "name": "sub" } }),
            json!({ "rule": { "family": "inet", "table": "f", "chain": "sub", "handle": 1, "expr": [{ "drop": null }] } }),
        ];
        for (handle, expr) in (10..).zip(rules) {
            all.push(json!({ "rule": { "family": "inet", "table": "f", "chain": "input", "handle": handle, "expr": expr } }));
        }
        Ruleset::parse(&json!({ "nftables": all }).to_string()).unwrap()
    }

    fn dport(op: &str, right: Value) -> Value {
        json!({ "match": { "op": op, "left": { "payload": { "protocol": "udp", "field": "dport" } }, "right": right } })
    }

    fn meta(key: &str, op: &str, right: &str) -> Value {
        json!({ "match": { "op": op, "left": { "meta": { "key": key } }, "right": right } })
    }

    fn word(policy: &str, expr: &Value, packet: &Packet<'_>) -> &'static str {
        match ruleset(policy, std::slice::from_ref(expr)).judge(packet).map(|said| said.fate) {
            None => "passes",
            Some(Fate::Dropped(_)) => "dropped",
            Some(_) => "unsure",
        }
    }

    #[test]
    fn rules_about_the_port_are_understood() {
        let drop = json!({ "drop": null });
        for (of, expected) in [
            (dport("==", json!(4791)), "dropped"),
            (dport("==", json!(53)), "passes"),
            (dport("!=", json!(53)), "dropped"),
            (dport("==", json!({ "range": [4000, 5000] })), "dropped"),
            (dport("!=", json!({ "range": [4000, 5000] })), "passes"),
            (dport("==", json!({ "set": [53, { "range": [4789, 4799] }] })), "dropped"),
            (dport("==", json!("@ports")), "dropped"),
            (dport("!=", json!("@ports")), "passes"),
            (dport("==", json!("@others")), "unsure"),
            (dport(">", json!(1024)), "dropped"),
            (dport("<=", json!(1024)), "passes"),
        ] {
            assert_eq!(word("accept", &json!([of, drop]), &IN), expected, "{of}");
        }
    }

    #[test]
    fn rules_about_other_things_are_understood_or_in_doubt() {
        let drop = json!({ "drop": null });
        let left = |left: Value, op: &str, right: &str| json!({ "match": { "op": op, "left": left, "right": right } });
        let payload =
            |protocol: &str, field: &str| json!({ "payload": { "protocol": protocol, "field": field } });
        for (of, expected) in [
            (meta("iif", "==", "lo"), "passes"),
            (meta("iifname", "!=", "lo"), "dropped"),
            (meta("iifname", "==", "eth*"), "dropped"),
            (meta("oifname", "==", "eth0"), "passes"),
            (meta("l4proto", "==", "udp"), "dropped"),
            (meta("nfproto", "==", "ipv6"), "passes"),
            (left(payload("ip", "protocol"), "==", "tcp"), "passes"),
            (left(payload("tcp", "dport"), "!=", "22"), "passes"),
            (left(payload("ip6", "saddr"), "!=", "::1"), "passes"),
            (left(payload("ip", "saddr"), "==", "192.0.2.9"), "unsure"),
            (left(json!({ "ct": { "key": "state" } }), "in", "new"), "dropped"),
            (left(json!({ "ct": { "key": "state" } }), "in", "established"), "passes"),
            (left(json!({ "meta": { "key": "mark" } }), "==", "7"), "unsure"),
            (json!({ "limit": { "rate": 1 } }), "unsure"),
            (json!({ "xt": null }), "unsure"),
            (json!({ "counter": null }), "dropped"),
        ] {
            assert_eq!(word("accept", &json!([of, drop]), &IN), expected, "{of}");
        }
    }

    #[test]
    fn verdicts_maps_and_policies_are_understood() {
        let ours = dport("==", json!(4791));
        let map = |data: Value| json!({ "vmap": { "key": { "payload": { "protocol": "udp", "field": "dport" } }, "data": data } });
        for (expr, policy, expected) in [
            (json!([ours, { "accept": null }]), "drop", "passes"),
            (json!([]), "drop", "dropped"),
            (json!([ours, { "reject": { "type": "icmpx" } }]), "accept", "dropped"),
            (json!([ours, { "jump": { "target": "sub" } }]), "accept", "dropped"),
            (json!([ours, { "return": null }]), "accept", "passes"),
            (
                json!([map(json!({ "set": [[53, { "accept": null }], [4791, { "drop": null }]] }))]),
                "accept",
                "dropped",
            ),
            (json!([map(json!({ "set": [[53, { "drop": null }]] }))]), "accept", "passes"),
            (json!([map(json!({ "set": [[4791, { "accept": null }]] }))]), "drop", "passes"),
        ] {
            assert_eq!(word(policy, &expr, &IN), expected, "{expr}");
        }
    }

    #[test]
    fn only_chains_that_the_packet_meets_count() {
        let drop = json!([{ "drop": null }]);
        assert_eq!(word("accept", &drop, &IN), "dropped");
        assert_eq!(word("accept", &drop, &Packet { leaves: true, ..IN }), "passes");
        let said = ruleset("accept", &[drop]).judge(&Packet { v6: true, ..IN }).unwrap();
        assert_eq!(said.chain, "inet f input");
        assert_eq!(said.fate, Fate::Dropped("rule 10 of chain input in table inet f".to_owned()));
    }

    #[test]
    fn what_is_no_list_of_rules_is_said() {
        assert!(Ruleset::parse("x").unwrap_err().contains("no JSON"));
        assert!(Ruleset::parse("{}").unwrap_err().contains("no list"));
        assert!(Ruleset::parse("{\"nftables\": []}").unwrap().is_empty());
    }
}
