//! Datagrams as they came.

use std::net::{IpAddr, Ipv4Addr};

/// Room for datagrams, and what is known about each.
#[derive(Debug)]
pub struct Inbox {
    bytes: Box<[u8]>,
    slot: usize,
    received: Vec<Received>,
    full: bool,
}

/// One datagram, or several of one sender that the network stack put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes.
    pub len: usize,
    /// Bytes of each packet but the last; at least 1.
    pub segment: usize,
    /// The sender's address and port.
    pub source: (IpAddr, u16),
    /// Which of our addresses it came to.
    pub local: IpAddr,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Time to live or hop limit, 0 if the stack did not tell.
    pub hop_limit: u8,
    /// The flow label of IPv6, 0 over IPv4 or if the stack did not tell.
    pub flow_label: u32,
    /// When the kernel got it, in nanoseconds since 1970; 0 if it was not asked to say so.
    pub stamp: u64,
}

impl Received {
    /// Nothing from nowhere: what a slot holds before it is filled.
    pub const EMPTY: Self = Self {
        len: 0,
        segment: 1,
        source: (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        local: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        stamp: 0,
    };

    /// How many packets there are.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.len.div_ceil(if self.segment == 0 { 1 } else { self.segment }) as u64
    }
}

impl Inbox {
    /// Bytes of the largest datagram that UDP can bring, rounded up.
    pub const SLOT: usize = 65_536;

    /// Room for this many datagrams of the largest size.
    #[must_use]
    pub fn new(datagrams: usize) -> Self {
        Self {
            bytes: vec![0; datagrams * Self::SLOT].into(),
            slot: Self::SLOT,
            received: Vec::with_capacity(datagrams),
            full: false,
        }
    }

    /// How many datagrams it takes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len() / self.slot
    }

    /// Whether it was filled to the brim, so that more may be waiting.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Says whether more may be waiting.
    pub const fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.received.clear();
        self.full = false;
    }

    /// The slots, to be filled from the first on.
    pub fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.slot)
    }

    /// The next slot was filled.
    pub fn push(&mut self, received: Received) {
        debug_assert!(self.received.len() < self.capacity(), "more datagrams than slots");
        self.received.push(received);
    }

    /// What has come.
    pub fn iter(&self) -> impl Iterator<Item = (&Received, &[u8])> {
        let slots = self.bytes.chunks_exact(self.slot);
        self.received.iter().zip(slots).map(|(received, slot)| (received, &slot[..received.len]))
    }

    /// What has come, if that is one datagram: so it mostly is.
    #[must_use]
    #[inline]
    pub fn only(&self) -> Option<(&Received, &[u8])> {
        let [received] = &self.received[..] else { return None };
        Some((received, self.bytes.get(..received.len)?))
    }

    /// How many have come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.received.len()
    }

    /// Whether none has come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }
}
