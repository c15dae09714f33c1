//! The rules of the older iptables, as `iptables -S` prints those of its table `filter`.

use super::rules::{Answer, Chains, Fate, Packet, Rule, Verdict, fate};

/// What becomes of a packet in the chain INPUT or OUTPUT.
pub(super) fn judge(list: &str, packet: &Packet<'_>) -> Fate {
    let base = if packet.leaves { "OUTPUT" } else { "INPUT" };
    let mut chains = Chains::default();
    let mut drops = false;
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["-P", chain, policy] if *chain == base => drops = *policy == "DROP",
            ["-A", chain, parts @ ..] => {
                if let Some(rule) = rule(line, parts, packet) {
                    chains.0.entry((*chain).to_owned()).or_default().push(rule);
                }
            }
            _ => {}
        }
    }
    fate(&chains, base, drops)
}

fn rule(line: &str, parts: &[&str], packet: &Packet<'_>) -> Option<Rule> {
    let mut applies = Answer::Yes;
    let mut verdict = None;
    let mut inverted = false;
    let mut words = parts.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().unwrap_or_default();
        let answer = match *word {
            "!" => {
                inverted = true;
                continue;
            }
            "-j" => {
                verdict = verdict_of(value());
                // The rest belongs to the target.
                break;
            }
            "-g" => {
                verdict = Some(Verdict::Goto(value().to_owned()));
                break;
            }
            "-m" if matches!(value(), "udp" | "tcp" | "multiport" | "conntrack" | "state" | "comment") => {
                Answer::Yes
            }
            "--comment" => {
                skip_text(&mut words);
                Answer::Yes
            }
            "-p" => Answer::of(matches!(value(), "udp" | "all" | "17")),
            "-i" => Answer::of(!packet.leaves && is_named(value(), packet.interface)),
            "-o" => Answer::of(packet.leaves && is_named(value(), packet.interface)),
            "--dport" | "--dports" => Answer::of(value().split(',').any(has_port)),
            "--ctstate" | "--state" => states(value()),
            // An extension, with values of its own: it may apply or not.
            _ => Answer::Maybe,
        };
        applies = applies.and(if inverted { answer.not() } else { answer });
        inverted = false;
    }
    verdict.map(|verdict| Rule { applies, verdict, place: format!("the rule `{line}`") })
}

/// Goes on behind a text, which is in quotes if it has several words.
fn skip_text<'a>(words: &mut impl Iterator<Item = &'a &'a str>) {
    let is_open = |word: &str| word.starts_with('"') && (word.len() == 1 || !word.ends_with('"'));
    if words.next().is_some_and(|word| is_open(word)) {
        let _ = words.find(|word| word.ends_with('"'));
    }
}

/// What a target does; nothing if packets go on behind it.
fn verdict_of(target: &str) -> Option<Verdict> {
    match target {
        "ACCEPT" | "NFQUEUE" | "QUEUE" => Some(Verdict::Accept),
        "DROP" | "REJECT" => Some(Verdict::Drop),
        "RETURN" => Some(Verdict::Return),
        "LOG" | "NFLOG" | "MARK" | "CONNMARK" | "CT" | "TRACE" | "AUDIT" | "SET" | "" => None,
        chain => Some(Verdict::Jump(chain.to_owned())),
    }
}

/// Whether a port, or a range such as `4000:5000`, has ours.
fn has_port(text: &str) -> bool {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str, missing: u64| if text.is_empty() { Some(missing) } else { text.parse().ok() };
    number(first, 0)
        .zip(number(last, 65_535))
        .is_some_and(|(first, last)| (first..=last).contains(&Packet::PORT))
}

fn states(list: &str) -> Answer {
    list.split(',')
        .map(|state| match state {
            "NEW" => Answer::Yes,
            "UNTRACKED" => Answer::Maybe,
            _ => Answer::No,
        })
        .fold(Answer::No, Answer::or)
}

/// Whether an interface has a name, which may end in a plus sign.
fn is_named(name: &str, interface: &str) -> bool {
    name.strip_suffix('+').map_or(name == interface, |start| interface.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN: Packet<'_> = Packet { interface: "eth0", leaves: false, v6: false };

    fn word(list: &str) -> &'static str {
        match judge(list, &IN) {
            Fate::Passes => "passes",
            Fate::Dropped(_) => "dropped",
            Fate::Unsure(_) => "unsure",
        }
    }

    #[test]
    fn rules_are_understood_or_in_doubt() {
        for (list, expected) in [
            ("-P INPUT ACCEPT\n-P OUTPUT DROP\n", "passes"),
            ("-P INPUT DROP\n", "dropped"),
            ("-P INPUT DROP\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n", "passes"),
            ("-A INPUT -p udp -m udp --dport 4791 -j DROP\n", "dropped"),
            (
                "-A INPUT -p udp -m udp --dport 4000:5000 -j REJECT --reject-with icmp-port-unreachable\n",
                "dropped",
            ),
            ("-A INPUT -p udp -m multiport --dports 53,4789:4799 -j DROP\n", "dropped"),
            ("-A INPUT -p udp -m udp ! --dport 4791 -j DROP\n", "passes"),
            ("-A INPUT -p tcp -m tcp --dport 4791 -j DROP\n", "passes"),
            ("-A INPUT -i lo -j DROP\n", "passes"),
            ("-A INPUT ! -i lo -j DROP\n", "dropped"),
            ("-A INPUT -i eth+ -j DROP\n", "dropped"),
            ("-A INPUT -s 192.0.2.0/24 -p udp -j DROP\n", "unsure"),
            ("-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j DROP\n", "passes"),
            ("-A INPUT -m state --state INVALID,NEW -j DROP\n", "dropped"),
            ("-A INPUT -m comment --comment \"no more\" -j DROP\n", "dropped"),
            ("-A INPUT -m limit --limit 1/sec -j DROP\n", "unsure"),
            ("-A INPUT -j LOG --log-prefix x\n", "passes"),
            ("-N deny\n-A INPUT -p udp -j deny\n-A deny -j DROP\n", "dropped"),
            ("-N deny\n-A INPUT -p udp -g deny\n-A INPUT -j DROP\n", "passes"),
        ] {
            assert_eq!(word(list), expected, "{list}");
        }
        let fate = judge("-A OUTPUT -p udp -m udp --dport 4791 -j DROP\n", &Packet { leaves: true, ..IN });
        assert_eq!(fate, Fate::Dropped("the rule `-A OUTPUT -p udp -m udp --dport 4791 -j DROP`".to_owned()));
    }
}
