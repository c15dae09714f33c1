//! What all processes have done together, also those that have ended since the first look.

use std::collections::BTreeMap;

use ferroce::Time;
use ferroce_device::switchboard::{Group, ProcessStats, Refusals, WorkStats};

use super::Look;

/// What was counted by processes that a ledger has seen, so that sums over all of them never get less.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Processes that were there in the last look, by number and where they are.
    pub(super) live: BTreeMap<Place, Account>,
    /// What processes had counted when they were last seen, and are gone, by where they were.
    pub(super) ended: BTreeMap<(String, String), Sums>,
    /// How many are gone.
    pub(super) ended_count: u64,
}

/// A process, the interface and the address.
pub(super) type Place = (u32, String, String);

/// A process that is there.
#[derive(Debug)]
pub(super) struct Account {
    since: Time,
    pub(super) program: String,
    pub(super) sums: Sums,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) totals: WorkStats,
    pub(super) refused: Refusals,
    pub(super) queue_pairs_made: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        self.refused.add(&other.refused);
        self.queue_pairs_made = self.queue_pairs_made.saturating_add(other.queue_pairs_made);
    }
}

impl Ledger {
    /// Takes in what a look has seen. Of a process that did not answer, or not for all its engines, what is
    /// known stands; what one had that is gone is added to that of the others.
    pub(super) fn enter(&mut self, look: &Look) {
        let mut before = std::mem::take(&mut self.live);
        for process in &look.all {
            let known = before.remove(&place(process));
            let (same, other) = match known {
                Some(account) if account.since == process.since => (Some(account), None),
                other => (None, other),
            };
            // The process has closed its device and opened it anew, or its number is another's now.
            if let Some(account) = other {
                self.end(&place(process), &account);
            }
            let sums = match same {
                Some(account) if process.busy > 0 => account.sums,
                _ => Sums {
                    totals: process.report.totals,
                    refused: process.report.refused,
                    queue_pairs_made: process.report.queue_pairs_made,
                },
            };
            let account = Account { since: process.since, program: process.program.clone(), sums };
            self.live.insert(place(process), account);
        }
        for (place, account) in before {
            if look.silent.iter().any(|(pid, _)| *pid == place.0) {
                self.live.insert(place, account);
            } else {
                self.end(&place, &account);
            }
        }
    }

    fn end(&mut self, (_, interface, address): &Place, account: &Account) {
        self.ended.entry((interface.clone(), address.clone())).or_default().add(&account.sums);
        self.ended_count += 1;
    }
}

pub(super) fn place(process: &ProcessStats) -> Place {
    let Group { interface, address } = &process.group;
    (process.pid, interface.clone(), address.map(|address| address.to_string()).unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    use ferroce_device::switchboard::{Report, SwitchError};

    use super::*;

    pub(in crate::stat) fn process(pid: u32, since: u64, sends: u64) -> ProcessStats {
        let mut report = Report { queue_pairs_made: 1, ..Report::default() };
        (report.totals.sends_posted, report.refused.strays) = (sends, 2 * sends);
        ProcessStats {
            pid,
            program: "a \"program\"".to_owned(),
            service: "a service".to_owned(),
            group: Group { interface: "lo".to_owned(), address: Some([127, 0, 0, 1].into()) },
            since: Time::from_nanos(since),
            engines: 1,
            busy: 0,
            time: Time::from_nanos(since + 1),
            report,
        }
    }

    pub(in crate::stat) fn look(all: Vec<ProcessStats>) -> Look {
        Look { all, silent: Vec::new() }
    }

    fn sum(ledger: &Ledger) -> (u64, u64, u64) {
        let mut sum = Sums::default();
        ledger
            .live
            .values()
            .map(|account| &account.sums)
            .chain(ledger.ended.values())
            .for_each(|one| sum.add(one));
        (sum.totals.sends_posted, sum.refused.strays, sum.queue_pairs_made)
    }

    #[test]
    fn sums_never_get_less_when_processes_end() {
        let mut ledger = Ledger::default();
        ledger.enter(&look(vec![process(1, 0, 10), process(2, 0, 100)]));
        assert_eq!((sum(&ledger), ledger.ended_count), ((110, 220, 2), 0));
        ledger.enter(&look(vec![process(2, 0, 200)]));
        assert_eq!((sum(&ledger), ledger.ended_count), ((210, 420, 2), 1));
        ledger.enter(&look(Vec::new()));
        assert_eq!((sum(&ledger), ledger.live.len(), ledger.ended_count), ((210, 420, 2), 0, 2));
        ledger.enter(&look(vec![process(1, 5, 1)]));
        assert_eq!(sum(&ledger), (211, 422, 3), "another process may have an old number");
    }

    #[test]
    fn a_device_that_is_opened_anew_counts_from_nothing_and_nothing_is_lost() {
        let mut ledger = Ledger::default();
        ledger.enter(&look(vec![process(1, 0, 10)]));
        ledger.enter(&look(vec![process(1, 9, 3)]));
        assert_eq!((sum(&ledger), ledger.ended_count), ((13, 26, 2), 1));
    }

    #[test]
    fn of_a_process_that_does_not_answer_what_is_known_stands() {
        let mut ledger = Ledger::default();
        ledger.enter(&look(vec![process(1, 0, 10)]));
        let busy = ProcessStats { busy: 1, ..process(1, 0, 4) };
        ledger.enter(&look(vec![busy]));
        assert_eq!((sum(&ledger), ledger.ended_count), ((10, 20, 1), 0), "an engine did not tell");
        let silent = SwitchError::ProcessSilent { pid: 1, seconds: 5 };
        ledger.enter(&Look { all: Vec::new(), silent: vec![(1, silent)] });
        assert_eq!((sum(&ledger), ledger.ended_count, ledger.live.len()), ((10, 20, 1), 0, 1));
        ledger.enter(&look(vec![process(1, 0, 11)]));
        assert_eq!(sum(&ledger), (11, 22, 1));
    }
}
