//! Whether a history of gets and puts is linearizable: whether all of them could have happened one after the other,
//! each at a moment between its beginning and its end.
//!
//! In general this is hard to tell, and checkers search. Here every value is put only once, and then it is easy
//! (Gibbons and Korach, "Testing Shared Memories", 1997): all that has to do with one value happens in one stretch of time. A
//! value that was seen to end before something else of it began must have been there all the while between: a forward
//! zone. Any other value needs just one moment, somewhere in a backward zone. So no two forward zones may overlap, and no
//! backward zone may lie inside of a forward one. This takes n log n steps, so that a minute of load can be checked whole.
//! A search that is slow and plain (`wing_gong.rs`) agrees with it on random histories.

use std::collections::HashMap;
use std::fmt;

/// Something that a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) key: u32,
    pub(crate) kind: Kind,
    /// When it began, in nanoseconds; never 0.
    pub(crate) begin: u64,
    /// When it had ended, or [`NEVER`] if its end is not known.
    pub(crate) end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each value is put only once.
    Put(u64),
    Get(Option<u64>),
}

/// The end of what has none.
pub(crate) const NEVER: u64 = u64::MAX;

/// Why a history is not linearizable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A value was put twice, so nothing can be said.
    PutTwice { key: u32, value: u64 },
    /// A get returned what no client put.
    NeverPut { get: Operation },
    /// A get returned a value before it was put.
    BeforePut { get: Operation, put: Operation },
    /// Two values must have been there at the same time.
    Overlap { key: u32, first: Zone, second: Zone },
}

/// When a value was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) value: Option<u64>,
    /// The first end of anything that has to do with it.
    first_end: u64,
    /// The last beginning.
    last_begin: u64,
}

impl Zone {
    const fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
}

/// Says whether the history is linearizable, and if not, why.
pub(crate) fn check(history: &[Operation]) -> Result<(), Violation> {
    let mut by_key: HashMap<u32, Vec<&Operation>> = HashMap::new();
    for operation in history {
        by_key.entry(operation.key).or_default().push(operation);
    }
    // Keys have nothing to do with each other. The order makes the answer the same every time.
    let mut keys: Vec<_> = by_key.into_iter().collect();
    keys.sort_by_key(|(key, _)| *key);
    keys.iter().try_for_each(|(key, operations)| check_key(*key, operations))
}

fn check_key(key: u32, operations: &[&Operation]) -> Result<(), Violation> {
    let zones = zones(key, operations)?;
    let (mut forward, backward): (Vec<Zone>, Vec<Zone>) = zones.into_iter().partition(Zone::is_forward);
    forward.sort_by_key(|zone| zone.first_end);
    for pair in forward.windows(2) {
        if pair[1].first_end < pair[0].last_begin {
            return Err(Violation::Overlap { key, first: pair[0], second: pair[1] });
        }
    }
    for zone in backward {
        // The last forward zone that begins before it is the only one that it can lie in.
        let before = forward.partition_point(|other| other.first_end < zone.last_begin);
        if let Some(other) = before.checked_sub(1).map(|at| forward[at])
            && zone.first_end < other.last_begin
        {
            return Err(Violation::Overlap { key, first: other, second: zone });
        }
    }
    Ok(())
}

/// One zone for each value that was seen, and for each that was put for certain.
fn zones(key: u32, operations: &[&Operation]) -> Result<Vec<Zone>, Violation> {
    let mut puts: HashMap<u64, &Operation> = HashMap::new();
    for &operation in operations {
        if let Kind::Put(value) = operation.kind
            && puts.insert(value, operation).is_some()
        {
            return Err(Violation::PutTwice { key, value });
        }
    }
    // In the beginning there is nothing, and it was put there before everything.
    let nothing = Zone { value: None, first_end: 0, last_begin: 0 };
    let mut zones: HashMap<Option<u64>, Zone> = HashMap::from([(None, nothing)]);
    for (value, put) in &puts {
        let value = Some(*value);
        zones.insert(value, Zone { value, first_end: put.end, last_begin: put.begin });
    }
    let mut seen: HashMap<Option<u64>, ()> = HashMap::new();
    for &get in operations {
        let Kind::Get(value) = get.kind else { continue };
        if get.end == NEVER {
            continue;
        }
        let Some(zone) = zones.get_mut(&value) else { return Err(Violation::NeverPut { get: *get }) };
        if let Some(&put) = value.as_ref().and_then(|value| puts.get(value))
            && get.end < put.begin
        {
            return Err(Violation::BeforePut { get: *get, put: *put });
        }
        zone.first_end = zone.first_end.min(get.end);
        zone.last_begin = zone.last_begin.max(get.begin);
        seen.insert(value, ());
    }
    // A put whose end is not known may never have happened, unless a get saw it.
    zones.retain(|value, zone| zone.first_end != NEVER || seen.contains_key(value));
    Ok(zones.into_values().collect())
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PutTwice { key, value } => write!(f, "key {key}: value {value:#x} was put twice"),
            Self::NeverPut { get } => write!(f, "key {}: {get} got what was never put", get.key),
            Self::BeforePut { get, put } => write!(f, "key {}: {get} came before {put}", get.key),
            Self::Overlap { key, first, second } => {
                write!(f, "key {key}: {first} and {second} must have been there at the same time")
            }
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, begin, end, .. } = self;
        match kind {
            Kind::Put(value) => write!(f, "the put of {value:#x}")?,
            Kind::Get(Some(value)) => write!(f, "a get of {value:#x}")?,
            Kind::Get(None) => write!(f, "a get of nothing")?,
        }
        write!(f, " ({begin} to {end} ns)")
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "value {value:#x}")?,
            None => write!(f, "nothing")?,
        }
        let Self { first_end, last_begin, .. } = self;
        match self.is_forward() {
            true => write!(f, " (all the time from {first_end} to {last_begin} ns)"),
            false => write!(f, " (at some time from {last_begin} to {first_end} ns)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wing_gong;

    fn put(value: u64, begin: u64, end: u64) -> Operation {
        Operation { key: 0, kind: Kind::Put(value), begin, end }
    }

    fn get(value: Option<u64>, begin: u64, end: u64) -> Operation {
        Operation { key: 0, kind: Kind::Get(value), begin, end }
    }

    #[test]
    fn what_happens_at_the_same_time_may_have_any_order() {
        let history =
            [put(1, 1, 10), put(2, 2, 9), get(Some(2), 3, 4), get(Some(1), 5, 6), get(Some(1), 11, 12)];
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_stale_read_is_refused() {
        let history = [put(1, 1, 2), put(2, 3, 4), get(Some(1), 5, 6)];
        let violation = check(&history).unwrap_err();
        assert!(matches!(violation, Violation::Overlap { .. }), "{violation}");
        assert!(violation.to_string().contains("value 0x1"), "{violation}");
    }

    #[test]
    fn a_read_that_goes_back_is_refused() {
        let history = [put(1, 1, 2), put(2, 3, 20), get(Some(2), 4, 5), get(Some(1), 6, 7)];
        assert!(matches!(check(&history), Err(Violation::Overlap { .. })));
    }

    #[test]
    fn a_lost_put_is_refused() {
        assert!(check(&[put(1, 1, 2), get(None, 3, 4)]).is_err());
        assert_eq!(check(&[put(1, 1, NEVER), get(None, 3, 4)]), Ok(()));
        assert!(check(&[put(1, 1, NEVER), get(Some(1), 3, 4), get(None, 5, 6)]).is_err());
    }

    #[test]
    fn what_comes_from_nowhere_is_refused() {
        assert!(matches!(check(&[get(Some(7), 1, 2)]), Err(Violation::NeverPut { .. })));
        assert!(matches!(check(&[get(Some(7), 1, 2), put(7, 3, 4)]), Err(Violation::BeforePut { .. })));
        assert!(matches!(check(&[put(7, 1, 2), put(7, 3, 4)]), Err(Violation::PutTwice { value: 7, .. })));
    }

    #[test]
    fn keys_are_apart() {
        let mut history = vec![put(1, 1, 2), put(2, 3, 4)];
        history.push(Operation { key: 1, ..get(None, 5, 6) });
        assert_eq!(check(&history), Ok(()));
    }

    /// Histories of one key with a few operations at few moments, so that all that can happen does.
    fn histories() -> impl Strategy<Value = Vec<Operation>> {
        let times = (1..14_u64, 0..6_u64, prop::bool::weighted(0.08));
        let operation = (prop::option::of(0..5_u64), any::<bool>(), times);
        prop::collection::vec(operation, 0..9).prop_map(|operations| {
            let mut next = 0;
            let operation = |(value, puts, (begin, length, open)): (Option<u64>, bool, (u64, u64, bool))| {
                let end = if open { NEVER } else { begin + length };
                if !puts {
                    return get(value, begin, end);
                }
                next += 1;
                put(next - 1, begin, end)
            };
            operations.into_iter().map(operation).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn it_agrees_with_a_search(history in histories()) {
            prop_assert_eq!(check(&history).is_ok(), wing_gong::is_linearizable(&history));
        }
    }
}
