//! The newest trace of each tuple.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_probe::paths::Path;

/// Old traces are looked for no more often, in nanoseconds.
const EVERY: u64 = 1_000_000_000;

/// A path, and when it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTrace {
    /// The routers.
    pub path: Path,
    /// When it was told, in nanoseconds of the Unix clock.
    pub at: u64,
}

/// Traces of so many tuples, and no more.
#[derive(Clone, Debug)]
pub(super) struct Traces {
    newest: HashMap<(IpAddr, IpAddr, u16), KeptTrace>,
    most: usize,
    /// When old ones were last looked for: that takes a while, so it is not done for each trace.
    looked: u64,
    /// Traces that there was no room for.
    pub(super) left_out: u64,
}

impl Traces {
    pub(super) fn new(most: usize) -> Self {
        Self { newest: HashMap::new(), most, looked: 0, left_out: 0 }
    }

    pub(super) fn insert(&mut self, (from, to, port): (IpAddr, IpAddr, u16), path: Path, at: u64) {
        let key = (from, to, port);
        if self.newest.len() >= self.most && !self.newest.contains_key(&key) {
            self.forget(at);
            if self.newest.len() >= self.most {
                self.left_out += 1;
                return;
            }
        }
        self.newest.insert(key, KeptTrace { path, at });
    }

    /// Forgets the older half: ports are changed now and then, and the old ones are traced no more. If all
    /// are as old, none is forgotten.
    fn forget(&mut self, now: u64) {
        if now < self.looked.saturating_add(EVERY) || self.newest.is_empty() {
            return;
        }
        self.looked = now;
        let mut times: Vec<u64> = self.newest.values().map(|trace| trace.at).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        self.newest.retain(|_, trace| trace.at >= middle);
    }

    pub(super) fn get(&self, from: IpAddr, to: IpAddr, port: u16) -> Option<&KeptTrace> {
        self.newest.get(&(from, to, port))
    }

    pub(super) fn bytes(&self) -> usize {
        let routers: usize = self.newest.values().map(|trace| trace.path.routers.capacity()).sum();
        self.newest.capacity() * (size_of::<((IpAddr, IpAddr, u16), KeptTrace)>() + 1)
            + routers * size_of::<Option<IpAddr>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_traces_are_kept_and_old_ones_go_first() {
        let mut traces = Traces::new(10);
        let address = IpAddr::from([10, 0, 0, 1]);
        for port in 0..100 {
            traces.insert((address, address, port), Path::default(), u64::from(port + 1) * EVERY);
            assert!(traces.newest.len() <= 10, "{port}");
        }
        assert!(traces.get(address, address, 99).is_some() && traces.get(address, address, 1).is_none());
        assert_eq!(traces.left_out, 0);
        // All at once: there is no older half.
        let mut traces = Traces::new(10);
        (0..100).for_each(|port| traces.insert((address, address, port), Path::default(), EVERY));
        assert_eq!((traces.newest.len(), traces.left_out), (10, 90));
    }
}
