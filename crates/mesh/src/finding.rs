//! Findings: what is bad, since when, and why it is believed. They open and close slowly, so that one odd window
//! changes nothing.

use crate::localise::{Guilt, Named, Trouble};
use crate::observation::FlowKey;
use crate::suspect::Suspect;

/// A finding, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FindingId(pub u64);

/// Something that is bad.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its number.
    pub id: FindingId,
    /// Loss or delay.
    pub trouble: Trouble,
    /// What is bad. More than one if no flow tells them apart.
    pub suspects: Vec<Suspect>,
    /// Whether it is told.
    pub state: State,
    /// How bad it is.
    pub severity: Severity,
    /// The window in which it was seen first.
    pub since: u64,
    /// Why it is believed.
    pub evidence: Evidence,
    /// Windows in a row in which it was seen.
    pub(crate) seen: u32,
    /// Windows in a row in which nothing was seen of it, by how much each of them says that.
    pub(crate) clean: f64,
    /// Windows in a row in which others were named for what it explained.
    pub(crate) explained: u32,
    /// What it is known as. A window that names a neighbour instead does not change that, and several in a row do.
    pub(crate) known_as: Vec<Suspect>,
    /// Windows in a row that named something else.
    pub(crate) renamed: u32,
}

/// Why a finding is believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// What the suspect does.
    pub guilt: Guilt,
    /// By how much the logarithm of the likelihood would fall without it.
    pub gain: f64,
    /// Packets that crossed it.
    pub crossings: f64,
    /// Packets that crossed it and met trouble.
    pub losses: f64,
    /// How many of them would have met trouble without it.
    pub expected: f64,
    /// The best neighbour in its place: by how much less it explains.
    pub runner_up: Option<(Suspect, f64)>,
    /// The flows with the most trouble, and packets.
    pub top: Vec<(FlowKey, f64)>,
}

/// Whether a finding is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet: it was seen in too few windows.
    Pending,
    /// It is told.
    Open,
    /// It is over.
    Closed,
    /// It was a mistake: others explain what it explained.
    Withdrawn,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Less than one packet in a hundred meets trouble.
    Minor,
    /// Less than one in ten.
    Major,
    /// More.
    Critical,
}

impl Finding {
    /// A finding that is open, from elsewhere: it goes on if anything is seen of it, and else closes.
    #[must_use]
    pub fn open(
        id: FindingId,
        trouble: Trouble,
        severity: Severity,
        suspects: Vec<Suspect>,
        evidence: Evidence,
    ) -> Self {
        Self {
            id,
            trouble,
            known_as: suspects.clone(),
            suspects,
            state: State::Open,
            severity,
            since: 0,
            evidence,
            seen: 0,
            clean: 0.0,
            explained: 0,
            renamed: 0,
        }
    }

    /// Whether the network is at fault, and not a host.
    #[must_use]
    pub fn is_network(&self) -> bool {
        !self.suspects.iter().all(|suspect| matches!(suspect, Suspect::Host(_)))
    }
}

/// How slowly findings open and close, in windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) opens_after: u32,
    pub(crate) closes_after: u32,
}

/// All findings that are not over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
    next: u64,
}

/// A suspect that was named, and what the newest window alone says of it.
pub(crate) struct Sighting {
    pub(crate) trouble: Trouble,
    pub(crate) suspects: Vec<Suspect>,
    pub(crate) evidence: Evidence,
    pub(crate) newest: Newest,
}

/// What the newest window alone says of a suspect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Newest {
    /// It is bad.
    Speaks,
    /// It is not, by so much: the logarithm of how much likelier that is. 0 if nothing crossed it.
    Denies(f64),
}

/// A window that makes it so much likelier that nothing is bad any more counts whole, as its logarithm: e^2 is 7 times.
const WHOLE: f64 = 2.0;

/// Any window counts as much, also one in which nothing crossed the suspect: it may be gone.
const LEAST: f64 = 0.1;

impl Newest {
    /// By how much a window says that nothing is bad any more, from 0 to 1.
    const fn clean(self) -> f64 {
        match self {
            Self::Speaks => LEAST,
            Self::Denies(doubt) => (doubt / WHOLE).clamp(LEAST, 1.0),
        }
    }
}

impl Findings {
    pub(crate) fn all(&self) -> &[Finding] {
        &self.all
    }

    /// Whether a finding is open that suspects one of these.
    pub(crate) fn has_open(&self, trouble: Trouble, suspects: &[Suspect]) -> bool {
        self.all.iter().any(|finding| {
            finding.state == State::Open
                && finding.trouble == trouble
                && finding.suspects.iter().any(|suspect| suspects.contains(suspect))
        })
    }

    /// Goes on with a finding.
    pub(crate) fn reopen(&mut self, finding: Finding) {
        self.number_from(FindingId(finding.id.0.saturating_add(1)));
        self.all.push(finding);
    }

    /// Later findings have this number, or larger ones.
    pub(crate) fn number_from(&mut self, next: FindingId) {
        self.next = self.next.max(next.0);
    }

    /// Things have other numbers now, or none. Returns the findings whose suspects are all gone.
    pub(crate) fn rename(
        &mut self,
        mut suspect: impl FnMut(Suspect) -> Option<Suspect>,
        flow: impl Fn(FlowKey) -> Option<FlowKey>,
    ) -> Vec<FindingId> {
        let mut gone = Vec::new();
        self.all.retain_mut(|finding| {
            finding.suspects = finding.suspects.iter().filter_map(|one| suspect(*one)).collect();
            finding.known_as = finding.known_as.iter().filter_map(|one| suspect(*one)).collect();
            let evidence = &mut finding.evidence;
            evidence.runner_up = evidence.runner_up.and_then(|(one, less)| Some((suspect(one)?, less)));
            evidence.top = evidence.top.iter().filter_map(|(one, bad)| Some((flow(*one)?, *bad))).collect();
            if finding.suspects.is_empty() {
                gone.push(finding.id);
            }
            !finding.suspects.is_empty()
        });
        gone
    }

    /// What was named after a window. Returns the findings that ended with it.
    ///
    /// `newest` tells what the newest window alone says of a finding that was not named. `is_near` says of two suspects
    /// that one may be taken for the other where few flows tell them apart, such as a card and its link: a finding goes
    /// on under the name that fits better.
    pub(crate) fn window(
        &mut self,
        number: u64,
        sightings: Vec<Sighting>,
        newest: impl Fn(&Finding) -> Newest,
        is_near: impl Fn(Suspect, Suspect) -> bool,
        pace: Pace,
    ) -> Vec<Finding> {
        let mut named = vec![false; self.all.len()];
        let speaking: Vec<Trouble> = sightings
            .iter()
            .filter(|sighting| sighting.newest == Newest::Speaks)
            .map(|sighting| sighting.trouble)
            .collect();
        let is_one_of = |suspects: &[Suspect], finding: &Finding, sighting: &Sighting| {
            finding.trouble == sighting.trouble
                && suspects.iter().any(|suspect| sighting.suspects.contains(suspect))
        };
        let known = |finding: &Finding, sighting: &Sighting| is_one_of(&finding.known_as, finding, sighting);
        let own = |finding: &Finding, sighting: &Sighting| is_one_of(&finding.suspects, finding, sighting);
        // Those that are known first, and then those that are named as in the window before, so that none of them is taken by a
        // neighbour.
        let mut sightings = sightings;
        sightings.sort_by_key(|sighting| {
            let any = |like: &dyn Fn(&Finding, &Sighting) -> bool| {
                self.all.iter().any(|finding| like(finding, sighting))
            };
            if any(&known) { 0 } else { 2 - u8::from(any(&own)) }
        });
        for sighting in sightings {
            let is_beside = |finding: &Finding| {
                let near = |one: &Suspect| sighting.suspects.iter().any(|other| is_near(*one, *other));
                finding.state == State::Open
                    && finding.trouble == sighting.trouble
                    // Not of what it was taken for last, or it would wander from neighbour to neighbour.
                    && finding.known_as.iter().any(near)
                    && newest(finding) == Newest::Speaks
            };
            let mut free = (0..self.all.len()).filter(|place| !named[*place]);
            let place = free
                .clone()
                .find(|place| known(&self.all[*place], &sighting))
                .or_else(|| free.clone().find(|place| own(&self.all[*place], &sighting)))
                .or_else(|| free.find(|place| is_beside(&self.all[*place])));
            let place = place.unwrap_or_else(|| {
                self.all.push(Finding {
                    id: FindingId(self.next),
                    trouble: sighting.trouble,
                    suspects: Vec::new(),
                    state: State::Pending,
                    severity: Severity::Minor,
                    since: number,
                    evidence: sighting.evidence.clone(),
                    seen: 0,
                    clean: 0.0,
                    explained: 0,
                    known_as: sighting.suspects.clone(),
                    renamed: 0,
                });
                named.push(false);
                self.next += 1;
                self.all.len() - 1
            });
            named[place] = true;
            let finding = &mut self.all[place];
            finding.explained = 0;
            finding.renamed = if known(finding, &sighting) { 0 } else { finding.renamed + 1 };
            if finding.renamed >= pace.opens_after {
                finding.known_as.clone_from(&sighting.suspects);
                finding.renamed = 0;
            }
            if sighting.newest == Newest::Speaks {
                (finding.seen, finding.clean) = (finding.seen + 1, 0.0);
                finding.severity = severity(sighting.evidence.guilt);
                (finding.suspects, finding.evidence) = (sighting.suspects, sighting.evidence);
            } else {
                (finding.seen, finding.clean) = (0, finding.clean + sighting.newest.clean());
                if finding.suspects.is_empty() {
                    finding.suspects = sighting.suspects;
                }
            }
            if finding.seen >= pace.opens_after {
                finding.state = State::Open;
            }
        }
        let mut was_told = Vec::new();
        for (finding, was_named) in self.all.iter_mut().zip(&named) {
            if !was_named {
                finding.seen = 0;
                let newest = newest(finding);
                // Something is still lost there. Only what others explain is a mistake: where none is named, too
                // little was seen, as in the first window of an analyzer that has taken over, or a host that stood
                // still has to answer for this window.
                let is_explained = newest == Newest::Speaks && speaking.contains(&finding.trouble);
                finding.explained = if is_explained { finding.explained + 1 } else { 0 };
                if finding.state == State::Open && finding.explained >= pace.opens_after {
                    finding.state = State::Withdrawn;
                } else {
                    finding.clean += newest.clean();
                }
            }
            let is_over = match finding.state {
                State::Pending => finding.clean > 0.0,
                State::Open => finding.clean >= f64::from(pace.closes_after),
                State::Closed | State::Withdrawn => false,
            };
            if is_over {
                was_told.extend((finding.state == State::Open).then_some(finding.id));
                finding.state = State::Closed;
            }
        }
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(|finding| matches!(finding.state, State::Closed | State::Withdrawn));
        self.all = left;
        // What was never told is not told to be over.
        let is_told = |finding: &Finding| finding.state == State::Withdrawn || was_told.contains(&finding.id);
        over.into_iter().filter(is_told).collect()
    }
}

/// The evidence of what was named, with the flows themselves.
pub(crate) fn evidence(named: &Named, key: impl Fn(u32) -> FlowKey) -> Evidence {
    Evidence {
        guilt: named.guilt,
        gain: named.gain,
        crossings: named.crossings,
        losses: named.losses,
        expected: named.expected,
        runner_up: named.runner_up,
        top: named.top.iter().map(|(flow, packets)| (key(*flow), *packets)).collect(),
    }
}

fn severity(guilt: Guilt) -> Severity {
    match guilt.rate + guilt.share {
        all if all < 0.01 => Severity::Minor,
        all if all < 0.1 => Severity::Major,
        _ => Severity::Critical,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::RnicId;

    /// A window that much crossed, and nothing was lost.
    const DENIES: Newest = Newest::Denies(9.0);

    const PACE: Pace = Pace { opens_after: 2, closes_after: 3 };

    fn sighting(rnic: u32, is_fresh: bool) -> Sighting {
        let newest = if is_fresh { Newest::Speaks } else { DENIES };
        let evidence = Evidence {
            guilt: Guilt { rate: 0.05, share: 0.0 },
            gain: 20.0,
            crossings: 100.0,
            losses: 5.0,
            expected: 0.0,
            runner_up: None,
            top: Vec::new(),
        };
        Sighting { trouble: Trouble::Loss, suspects: vec![Suspect::Rnic(RnicId(rnic))], evidence, newest }
    }

    #[test]
    fn a_finding_opens_after_two_windows_and_closes_after_three() {
        let mut findings = Findings::default();
        let mut states = Vec::new();
        // The bad stretch is remembered for two windows more; what is new says that it is over.
        for (number, fresh) in
            [Some(true), Some(true), Some(false), Some(true), Some(false), Some(false), None]
                .iter()
                .enumerate()
        {
            let seen = fresh.map(|fresh| sighting(7, fresh)).into_iter().collect();
            let over = findings.window(number as u64, seen, |_| DENIES, |_, _| false, PACE);
            states.push((findings.all().first().map(|finding| finding.state), over.len()));
        }
        let open = (Some(State::Open), 0);
        assert_eq!(states, [(Some(State::Pending), 0), open, open, open, open, open, (None, 1)]);
    }

    /// As after another analyzer has taken over, and not all agents have come to it yet.
    #[test]
    fn windows_that_hardly_anything_crossed_hardly_count() {
        let open = || {
            let mut findings = Findings::default();
            for number in 0..2 {
                findings.window(number, vec![sighting(7, true)], |_| DENIES, |_, _| false, PACE);
            }
            findings
        };
        let lasts = |newest: Newest| {
            let mut findings = open();
            let ended = (1..100).find(|number| {
                !findings.window(*number, Vec::new(), |_| newest, |_, _| false, PACE).is_empty()
            });
            ended.unwrap()
        };
        assert_eq!(
            [lasts(DENIES), lasts(Newest::Denies(WHOLE)), lasts(Newest::Denies(WHOLE / 2.0))],
            [3, 3, 6]
        );
        assert!((30..32).contains(&lasts(Newest::Denies(0.0))));
        // What is seen again is not nearly over.
        let mut findings = open();
        for number in 0..60 {
            let seen = if number % 20 == 19 { vec![sighting(7, true)] } else { Vec::new() };
            assert!(findings.window(number, seen, |_| Newest::Denies(0.0), |_, _| false, PACE).is_empty());
        }
    }

    #[test]
    fn one_odd_window_is_never_told() {
        let mut findings = Findings::default();
        assert!(findings.window(0, vec![sighting(7, true)], |_| DENIES, |_, _| false, PACE).is_empty());
        assert_eq!(findings.all()[0].state, State::Pending);
        assert!(findings.window(1, vec![sighting(7, false)], |_| DENIES, |_, _| false, PACE).is_empty());
        assert!(findings.all().is_empty());
    }

    #[test]
    fn what_others_explain_is_withdrawn() {
        let mut findings = Findings::default();
        for number in 0..2 {
            findings.window(number, vec![sighting(7, true)], |_| DENIES, |_, _| false, PACE);
        }
        let mut eighth =
            || findings.window(2, vec![sighting(8, true)], |_| Newest::Speaks, |_, _| false, PACE);
        assert!(eighth().is_empty(), "one odd window changes nothing");
        let over = eighth();
        assert_eq!((over.len(), over[0].state, over[0].severity), (1, State::Withdrawn, Severity::Major));
        assert_eq!(findings.all().len(), 1);
    }

    /// It was: on a machine without processor time a window named the host of a link instead of the link, and the finding of
    /// the link went on as that of the host, when both were named; so the link was found anew under another number.
    #[test]
    fn a_finding_that_was_taken_for_a_neighbour_is_itself_again() {
        let mut findings = Findings::default();
        let near = |_, _| true;
        let mut window = |number, rnics: &[u32]| {
            let seen = rnics.iter().map(|rnic| sighting(*rnic, true)).collect();
            assert!(findings.window(number, seen, |_| Newest::Speaks, near, PACE).is_empty());
            let names = findings.all().iter().map(|one| (one.id.0, one.suspects[0], one.state));
            names.map(|(id, name, state)| (id, name == Suspect::Rnic(RnicId(7)), state)).collect::<Vec<_>>()
        };
        window(0, &[7]);
        assert_eq!(window(1, &[7]), [(0, true, State::Open)]);
        assert_eq!(window(2, &[8]), [(0, false, State::Open)], "it is taken for a neighbour");
        let both = [(0, true, State::Open), (1, false, State::Pending)];
        assert_eq!(window(3, &[8, 7]), both, "and is itself again");
        // What goes on to be named is another.
        let mut findings = Findings::default();
        for (number, rnic) in (0..).zip([7, 7, 8, 8]) {
            findings.window(number, vec![sighting(rnic, true)], |_| Newest::Speaks, near, PACE);
        }
        findings.window(4, vec![sighting(7, true), sighting(8, true)], |_| Newest::Speaks, near, PACE);
        let ids: Vec<_> = findings.all().iter().map(|one| (one.id.0, one.suspects[0])).collect();
        assert_eq!(ids, [(0, Suspect::Rnic(RnicId(8))), (1, Suspect::Rnic(RnicId(7)))]);
    }

    /// After another analyzer has taken over, its first window says too little to name anything.
    #[test]
    fn what_nothing_else_explains_is_not_withdrawn() {
        let mut findings = Findings::default();
        for number in 0..2 {
            findings.window(number, vec![sighting(7, true)], |_| DENIES, |_, _| false, PACE);
        }
        for number in 2..6 {
            let over = findings.window(number, Vec::new(), |_| Newest::Speaks, |_, _| false, PACE);
            assert!(over.is_empty(), "{over:?}");
        }
        assert!(findings.window(6, vec![sighting(7, true)], |_| DENIES, |_, _| false, PACE).is_empty());
        let [one] = findings.all() else { panic!("{:?}", findings.all()) };
        assert_eq!((one.id, one.state, one.since), (FindingId(0), State::Open, 0));
    }

    #[test]
    fn a_finding_goes_on_under_the_name_of_a_neighbour_and_is_not_taken_by_another_finding() {
        let near = |one: Suspect, other: Suspect| {
            let number = |suspect| if let Suspect::Rnic(id) = suspect { id.0 } else { 99 };
            number(one).abs_diff(number(other)) == 1
        };
        let mut findings = Findings::default();
        for number in 0..2 {
            findings.window(number, vec![sighting(7, true)], |_| DENIES, near, PACE);
        }
        let speaks = |_: &Finding| Newest::Speaks;
        assert!(findings.window(2, vec![sighting(8, true)], speaks, near, PACE).is_empty());
        let [one] = findings.all() else { panic!("{:?}", findings.all()) };
        assert_eq!((one.id, one.state, one.since), (FindingId(0), State::Open, 0));
        assert_eq!(one.suspects, [Suspect::Rnic(RnicId(8))]);
        // If it goes on to be named so, and then nothing speaks for it any more, the neighbour is something else.
        findings.window(3, vec![sighting(8, true)], speaks, near, PACE);
        findings.window(4, vec![sighting(7, true)], |_| DENIES, near, PACE);
        assert_eq!(findings.all().len(), 2);
        // Both are named: each goes on as itself, in whatever order they come.
        findings.window(5, vec![sighting(8, true), sighting(7, true)], speaks, near, PACE);
        let names: Vec<_> = findings.all().iter().map(|one| (one.id.0, one.suspects[0])).collect();
        assert_eq!(names, [(0, Suspect::Rnic(RnicId(8))), (1, Suspect::Rnic(RnicId(7)))]);
    }
}
