//! What a list of rules does with one packet: three answers, because a rule may look at what nothing here knows.

use std::collections::BTreeMap;

/// A packet of RoCEv2 on its way.
///
/// Each side sends to port 4791, from a port that the other one does not answer to. So to the kernel's tracking of
/// connections every packet is a new one, in both directions, and a rule for established connections never applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// The interface that it comes in by, or leaves by.
    pub(super) interface: &'a str,
    pub(super) leaves: bool,
    pub(super) v6: bool,
}

impl Packet<'_> {
    pub(super) const PORT: u64 = 4791;

    /// Whether it meets the chains of this hook.
    pub(super) fn meets(&self, hook: &str) -> bool {
        match hook {
            "ingress" | "prerouting" | "input" => !self.leaves,
            "output" | "postrouting" | "egress" => self.leaves,
            _ => false,
        }
    }
}

/// Whether something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    No,
    Maybe,
    Yes,
}

impl Answer {
    pub(super) const fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    pub(super) const fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Maybe => Self::Maybe,
            Self::Yes => Self::No,
        }
    }

    /// Whether both hold.
    pub(super) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Maybe,
        }
    }

    /// Whether one of them holds.
    pub(super) const fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }
}

/// What a rule does with packets that it applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

/// A rule, asked about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) applies: Answer,
    pub(super) verdict: Verdict,
    /// Where it stands, for people.
    pub(super) place: String,
}

/// The chains of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chains(pub(super) BTreeMap<String, Vec<Rule>>);

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Passes,
    /// Dropped, by what stands here.
    Dropped(String),
    /// Perhaps dropped, by what stands here.
    Unsure(String),
}

/// How deep chains may call each other: as deep as the kernel lets them.
const DEEPEST: usize = 16;

/// How many rules are followed for a packet.
const MOST_STEPS: usize = 1_000_000;

/// What was learnt on the way through the rules.
#[derive(Debug, Default)]
struct Walk {
    steps: usize,
    /// A rule has perhaps accepted it: it may never have come to here.
    accepted: bool,
    /// A rule has perhaps dropped it.
    dropped: Option<String>,
}

/// How a chain was left.
enum Left {
    AtTheEnd,
    Accepted,
    Dropped(String),
}

/// What becomes of a packet in a base chain; at its end, if nothing else has been said, by its policy.
pub(super) fn fate(chains: &Chains, base: &str, drops_at_the_end: bool) -> Fate {
    let mut walk = Walk::default();
    let left = match chains.walk(base, Answer::Yes, &mut walk, 0) {
        Left::AtTheEnd if drops_at_the_end => Left::Dropped(format!("the policy of chain {base}")),
        left => left,
    };
    match (left, walk) {
        (Left::Dropped(place), Walk { accepted: false, .. }) => Fate::Dropped(place),
        (Left::Dropped(place), _) | (_, Walk { dropped: Some(place), .. }) => Fate::Unsure(place),
        _ => Fate::Passes,
    }
}

impl Chains {
    /// Goes through a chain that is entered for certain or perhaps.
    fn walk(&self, name: &str, entered: Answer, walk: &mut Walk, depth: usize) -> Left {
        let mut here = entered;
        for rule in self.0.get(name).into_iter().flatten() {
            let applies = rule.applies.and(here);
            walk.steps += 1;
            if applies == Answer::No {
                continue;
            }
            if walk.steps > MOST_STEPS {
                walk.dropped.get_or_insert_with(|| "more rules than are followed".to_owned());
                break;
            }
            let is_certain = applies == Answer::Yes;
            match &rule.verdict {
                Verdict::Accept if is_certain => return Left::Accepted,
                Verdict::Accept => walk.accepted = true,
                Verdict::Drop if is_certain => return Left::Dropped(rule.place.clone()),
                Verdict::Drop => {
                    walk.dropped.get_or_insert_with(|| rule.place.clone());
                }
                Verdict::Return if is_certain => return Left::AtTheEnd,
                // From here on it may be elsewhere.
                Verdict::Return => here = Answer::Maybe,
                Verdict::Jump(to) | Verdict::Goto(to) => {
                    if depth == DEEPEST {
                        continue;
                    }
                    match self.walk(to, applies, walk, depth + 1) {
                        Left::AtTheEnd if !matches!(rule.verdict, Verdict::Goto(_)) => {}
                        Left::AtTheEnd if is_certain => return Left::AtTheEnd,
                        Left::AtTheEnd => here = Answer::Maybe,
                        left => return left,
                    }
                }
            }
        }
        Left::AtTheEnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(applies: Answer, verdict: Verdict) -> Rule {
        Rule { applies, place: format!("{applies:?} {verdict:?}"), verdict }
    }

    fn chains(all: &[(&str, &[(Answer, Verdict)])]) -> Chains {
        let rules = |rules: &[(Answer, Verdict)]| rules.iter().map(|(a, v)| rule(*a, v.clone())).collect();
        Chains(all.iter().map(|(name, of)| ((*name).to_owned(), rules(of))).collect())
    }

    #[test]
    fn the_first_rule_that_applies_decides_and_a_doubt_stays_one() {
        use Answer::{Maybe, No, Yes};
        use Verdict::{Accept, Drop};
        for (rules, policy_drops, expected) in [
            (&[][..], false, "passes"),
            (&[], true, "dropped"),
            (&[(No, Drop)], false, "passes"),
            (&[(Yes, Drop)], false, "dropped"),
            (&[(Yes, Accept), (Yes, Drop)], true, "passes"),
            (&[(Maybe, Accept), (Yes, Drop)], false, "unsure"),
            (&[(Maybe, Accept)], true, "unsure"),
            (&[(Maybe, Accept)], false, "passes"),
            (&[(Maybe, Drop)], false, "unsure"),
            (&[(Maybe, Drop), (Yes, Accept)], false, "unsure"),
            (&[(Maybe, Drop), (Yes, Drop)], false, "dropped"),
        ] {
            let seen = match fate(&chains(&[("input", rules)]), "input", policy_drops) {
                Fate::Passes => "passes",
                Fate::Dropped(_) => "dropped",
                Fate::Unsure(_) => "unsure",
            };
            assert_eq!(seen, expected, "{rules:?} {policy_drops}");
        }
    }

    #[test]
    fn chains_call_each_other() {
        use Answer::{Maybe, Yes};
        use Verdict::{Accept, Drop, Goto, Jump, Return};
        let jump = |to: &str| Jump(to.to_owned());
        let goto = Goto("sub".to_owned());
        for (base, sub, expected) in [
            (vec![(Yes, jump("sub"))], vec![(Yes, Drop)], "dropped"),
            (vec![(Maybe, jump("sub"))], vec![(Yes, Drop)], "unsure"),
            (vec![(Yes, jump("sub")), (Yes, Drop)], vec![(Yes, Return), (Yes, Accept)], "dropped"),
            (vec![(Yes, jump("sub")), (Yes, Drop)], vec![(Maybe, Return), (Yes, Accept)], "unsure"),
            (vec![(Yes, goto.clone()), (Yes, Drop)], vec![], "passes"),
            (vec![(Maybe, goto), (Yes, Drop)], vec![], "unsure"),
            (vec![(Yes, jump("input"))], vec![], "passes"),
            (vec![(Yes, jump("nowhere"))], vec![], "passes"),
        ] {
            let seen = match fate(&chains(&[("input", &base), ("sub", &sub)]), "input", false) {
                Fate::Passes => "passes",
                Fate::Dropped(_) => "dropped",
                Fate::Unsure(_) => "unsure",
            };
            assert_eq!(seen, expected, "{base:?} {sub:?}");
        }
    }

    #[test]
    fn answers_follow_the_logic_of_three_values() {
        use Answer::{Maybe, No, Yes};
        assert_eq!([No.not(), Maybe.not(), Yes.not()], [Yes, Maybe, No]);
        assert_eq!([Maybe.and(No), Maybe.and(Yes), Yes.and(Yes)], [No, Maybe, Yes]);
        assert_eq!([Maybe.or(No), Maybe.or(Yes), No.or(No)], [Maybe, Yes, No]);
    }
}
