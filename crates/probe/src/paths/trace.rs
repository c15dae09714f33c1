//! The path of one port, put together from what routers say.

use std::net::IpAddr;

/// Routers in the order in which a packet meets them; none for those that said nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The routers.
    pub routers: Vec<Option<IpAddr>>,
    /// Whether it is known that the target comes behind the last of them.
    pub reaches: bool,
}

impl Path {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.reaches && self.routers.iter().all(Option::is_some)
    }

    /// Whether both may be the same: nothing that is known of both differs.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        let (shorter, longer) =
            if self.routers.len() <= other.routers.len() { (self, other) } else { (other, self) };
        let fits = shorter.routers.len() == longer.routers.len() || !shorter.reaches;
        let agree =
            |(one, two): (&Option<IpAddr>, &Option<IpAddr>)| one.is_none() || two.is_none() || one == two;
        fits && shorter.routers.iter().zip(&longer.routers).all(agree)
    }
}

/// What is known of the path of one port. Answers come in any order, more than once or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    port: u16,
    /// By hop limit, less one.
    answers: Vec<Option<IpAddr>>,
    /// The smallest hop limit that reached the target.
    reached: Option<u8>,
    conflicts: u32,
}

impl Trace {
    /// Nothing is known yet of the path of this port, which has at most so many hops.
    #[must_use]
    pub fn new(port: u16, max_hops: u8) -> Self {
        Self { port, answers: vec![None; usize::from(max_hops)], reached: None, conflicts: 0 }
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// A packet with this hop limit ended at this router.
    pub fn router(&mut self, hop_limit: u8, address: IpAddr) {
        let place = usize::from(hop_limit).checked_sub(1);
        let Some(answer) = place.and_then(|place| self.answers.get_mut(place)) else { return };
        match answer {
            Some(known) if *known != address => self.conflicts = self.conflicts.saturating_add(1),
            Some(_) => {}
            None => *answer = Some(address),
        }
    }

    /// A packet with this hop limit reached the target.
    pub fn reached(&mut self, hop_limit: u8) {
        self.reached = Some(self.reached.map_or(hop_limit, |known| known.min(hop_limit)));
    }

    /// Answers that contradicted an earlier one: the path has changed, or a router has several addresses.
    #[must_use]
    pub const fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Whether an answer to this hop limit would tell something new.
    #[must_use]
    pub fn wants(&self, hop_limit: u8) -> bool {
        let is_behind = self.reached.is_some_and(|reached| hop_limit >= reached);
        let place = usize::from(hop_limit).checked_sub(1);
        !is_behind && place.and_then(|place| self.answers.get(place)).is_some_and(Option::is_none)
    }

    /// Whether everything is known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.reached.is_some() && self.path().is_complete()
    }

    /// The path as far as it is known.
    #[must_use]
    pub fn path(&self) -> Path {
        let known = self.answers.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let len = self.reached.map_or(known, |reached| usize::from(reached).saturating_sub(1));
        let mut routers: Vec<_> = self.answers.iter().take(len).copied().collect();
        routers.resize(len, None);
        Path { routers, reaches: self.reached.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn router(number: u8) -> IpAddr {
        IpAddr::from([10, 1, 0, number])
    }

    fn path(routers: &[u8], reaches: bool) -> Path {
        let some = |number: &u8| (*number > 0).then(|| router(*number));
        Path { routers: routers.iter().map(some).collect(), reaches }
    }

    #[test]
    fn a_trace_is_put_together_in_any_order() {
        let mut trace = Trace::new(50_000, 8);
        assert_eq!(trace.path(), path(&[], false));
        trace.router(3, router(3));
        assert_eq!(trace.path(), path(&[0, 0, 3], false));
        trace.reached(6);
        assert_eq!(trace.path(), path(&[0, 0, 3, 0, 0], true));
        trace.reached(4);
        trace.reached(5);
        assert!(trace.wants(1) && trace.wants(2) && !trace.wants(3) && !trace.wants(4) && !trace.wants(0));
        trace.router(1, router(1));
        trace.router(1, router(1));
        assert!(!trace.is_complete());
        trace.router(2, router(2));
        assert_eq!((trace.is_complete(), trace.conflicts()), (true, 0));
        trace.router(2, router(9));
        trace.router(0, router(9));
        trace.router(99, router(9));
        assert_eq!((trace.path(), trace.conflicts()), (path(&[1, 2, 3], true), 1));
    }

    #[test]
    fn a_missing_answer_is_not_a_hole() {
        let whole = path(&[1, 2, 3], true);
        for (other, may_be) in [
            (path(&[1, 2, 3], true), true),
            (path(&[1, 0, 3], true), true),
            (path(&[], false), true),
            (path(&[1, 2], false), true),
            (path(&[1, 2], true), false),
            (path(&[1, 2, 3, 4], false), false),
            (path(&[1, 4, 3], true), false),
            (path(&[0, 0, 0], true), true),
        ] {
            assert_eq!(whole.may_be(&other), may_be, "{other:?}");
            assert_eq!(other.may_be(&whole), may_be, "{other:?}");
        }
    }
}
