//! A row of the table of services: which process listens for which service, and on which addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

/// The addresses on which a process listens for a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All.
    All,
    /// All of IPv4.
    AllV4,
    /// All of IPv6.
    AllV6,
    /// One.
    One(IpAddr),
}

impl Scope {
    /// The addresses that a program means by one. The wildcard of IPv6 is for both families, unless it says otherwise.
    #[must_use]
    pub const fn new(address: IpAddr, family_only: bool) -> Self {
        match address {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Self::AllV4,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) if family_only => Self::AllV6,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Self::All,
            _ => Self::One(address.to_canonical()),
        }
    }

    /// How well it fits an address, the least being the best; `None` if it does not.
    pub(super) fn rank(self, local: IpAddr) -> Option<u8> {
        let local = local.to_canonical();
        match self {
            Self::One(one) => (one.to_canonical() == local).then_some(0),
            Self::AllV4 => local.is_ipv4().then_some(1),
            Self::AllV6 => local.is_ipv6().then_some(1),
            Self::All => Some(2),
        }
    }

    /// Whether two have addresses in common, and then whether both are for the same one address.
    pub(super) fn overlap(self, other: Self) -> Option<bool> {
        match (self, other) {
            (Self::One(one), Self::One(two)) => (one.to_canonical() == two.to_canonical()).then_some(true),
            (Self::One(one), wide) | (wide, Self::One(one)) => wide.rank(one).map(|_| false),
            (Self::AllV4, Self::AllV6) | (Self::AllV6, Self::AllV4) => None,
            _ => Some(false),
        }
    }

    /// In the words of the shared file: zero is for all, the wildcard of IPv4 in the dress of IPv6 for all of IPv4, and
    /// what is no address of a host for all of IPv6.
    fn words(self) -> [u64; 2] {
        let bits = match self {
            Self::All => 0,
            Self::AllV4 => Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits(),
            Self::AllV6 => u128::MAX,
            Self::One(IpAddr::V4(v4)) => v4.to_ipv6_mapped().to_bits(),
            Self::One(IpAddr::V6(v6)) => v6.to_bits(),
        };
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        [half(bits >> 64), half(bits)]
    }

    fn of_words([high, low]: [u64; 2]) -> Self {
        let bits = u128::from(high) << 64 | u128::from(low);
        if bits == u128::MAX {
            Self::AllV6
        } else {
            Self::new(Ipv6Addr::from_bits(bits).to_canonical(), false)
        }
    }
}

/// A service that a process listens for.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Claim {
    /// What tells this claim from all others that were ever made; 0 while the place is free, or is being written.
    number: AtomicU64,
    /// The slot and the low bits of its incarnation.
    owner: AtomicU64,
    service: AtomicU64,
    scope: [AtomicU64; 2],
    /// The number of the claim, once its owner has no use for it any more: others may have the service.
    lingers: AtomicU64,
}

/// What a row says, read in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) number: u64,
    pub(super) owner: u64,
    pub(super) service: u64,
    pub(super) scope: Scope,
    pub(super) lingers: bool,
}

impl Claim {
    /// What it says; `None` if the place is free, or changes just now.
    pub(super) fn read(&self) -> Option<Row> {
        let number = self.number.load(Ordering::SeqCst);
        let row = Row {
            number,
            owner: self.owner.load(Ordering::SeqCst),
            service: self.service.load(Ordering::SeqCst),
            scope: Scope::of_words([0, 1].map(|at: usize| self.scope[at].load(Ordering::SeqCst))),
            lingers: self.lingers.load(Ordering::SeqCst) == number,
        };
        (number != 0 && self.number.load(Ordering::SeqCst) == number).then_some(row)
    }

    /// Writes a claim into a place that is free; the table is locked.
    pub(super) fn write(&self, row: &Row) {
        self.clear();
        self.owner.store(row.owner, Ordering::SeqCst);
        self.service.store(row.service, Ordering::SeqCst);
        for (word, value) in self.scope.iter().zip(row.scope.words()) {
            word.store(value, Ordering::SeqCst);
        }
        self.number.store(row.number, Ordering::SeqCst);
    }

    /// Frees the place; the table is locked.
    pub(super) fn clear(&self) {
        self.number.store(0, Ordering::SeqCst);
    }

    /// Frees the place if it still has this claim.
    pub(super) fn end(&self, number: u64) {
        // Others may have the place by now.
        let _ = self.number.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Lets others have the service of this claim.
    pub(super) fn linger(&self, number: u64) {
        self.lingers.store(number, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes() -> [Scope; 7] {
        let one = |text: &str| Scope::new(text.parse().unwrap(), false);
        let only = Scope::new(Ipv6Addr::UNSPECIFIED.into(), true);
        let [all, v4, local4, other4, local6, other6] =
            ["::", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::1", "fd00::1"].map(one);
        [all, v4, local4, other4, local6, other6, only]
    }

    #[test]
    fn scopes_come_back_from_the_file_as_they_went() {
        for scope in scopes() {
            assert_eq!(Scope::of_words(scope.words()), scope);
        }
        let mapped = Scope::new("::ffff:127.0.0.1".parse().unwrap(), false);
        assert_eq!(mapped, Scope::One([127, 0, 0, 1].into()));
    }

    #[test]
    fn an_address_fits_itself_best_and_then_its_family() {
        let [all, v4, local4, other4, local6, other6, v6] = scopes();
        let ranks = |text: &str| {
            let local = text.parse().unwrap();
            [all, v4, v6, local4, other4, local6, other6].map(|scope| scope.rank(local))
        };
        assert_eq!(ranks("127.0.0.1"), [Some(2), Some(1), None, Some(0), None, None, None]);
        assert_eq!(ranks("::ffff:127.0.0.1"), ranks("127.0.0.1"));
        assert_eq!(ranks("fd00::1"), [Some(2), None, Some(1), None, None, None, Some(0)]);
    }

    #[test]
    fn scopes_overlap_if_an_address_is_of_both() {
        let [all, v4, local4, other4, local6, _, v6] = scopes();
        for scope in scopes() {
            assert_eq!(all.overlap(scope), Some(false));
            assert!(scope.overlap(scope).is_some(), "with itself");
            for other in scopes() {
                assert_eq!(scope.overlap(other), other.overlap(scope));
            }
        }
        assert_eq!([v4, v6].map(|wide| wide.overlap(local4)), [Some(false), None]);
        assert_eq!([v4, v6].map(|wide| wide.overlap(local6)), [None, Some(false)]);
        assert_eq!(
            (v4.overlap(v6), local4.overlap(other4), local4.overlap(local4)),
            (None, None, Some(true))
        );
    }
}
