//! What two ends say to each other: a header of sixteen bytes before every message, and the small bodies of control.

use ferroce_verbs::{Access, RemoteRegion};

use crate::error::Violation;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The bytes of a message follow.
    Data = 1,
    /// The bytes of a message are to be read from the sender's memory; the place follows.
    Announce = 2,
    /// Nothing but counters: those of the header, and how many messages the program has taken ([`Told`]). Only
    /// [`UPDATES`](Self::UPDATES) of them may be unanswered.
    Update = 3,
    /// Updates were taken notice of; how many follows.
    Ack = 4,
    /// Memory is open to the peer; what and under which name follows.
    Expose = 5,
    /// It closes; which follows.
    Conceal = 6,
    /// Nothing uses it any more; which follows.
    Concealed = 7,
    /// No message comes after this one. How many messages the program has taken follows.
    Goodbye = 8,
    /// The peer broke the rules, and this was the last; which rule follows.
    Fault = 9,
    /// Both have said goodbye, and the sender of this goes now; its counters say what it has, and what its program took.
    Farewell = 10,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Data,
        Self::Announce,
        Self::Update,
        Self::Ack,
        Self::Expose,
        Self::Conceal,
        Self::Concealed,
        Self::Goodbye,
        Self::Fault,
        Self::Farewell,
    ];

    /// Updates that may be unanswered.
    pub(crate) const UPDATES: u8 = 8;
    /// Places for messages that need no credit: the updates, their answers, and the farewell.
    pub(crate) const FREE: u16 = 2 * Self::UPDATES as u16 + 1;

    /// Whether it counts against the messages that the receiver has room for. Those that do not have
    /// places of their own.
    pub(crate) const fn takes_credit(self) -> bool {
        !matches!(self, Self::Update | Self::Ack | Self::Farewell)
    }

    /// Whether it is a message for the program.
    pub(crate) const fn is_message(self) -> bool {
        matches!(self, Self::Data | Self::Announce)
    }

    /// Whether it tells how many messages the program has taken.
    pub(crate) const fn tells_taken(self) -> bool {
        matches!(self, Self::Update | Self::Goodbye | Self::Farewell)
    }
}

/// The beginning of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// The sender of this message wants to hear when the program has taken it.
    pub(crate) tell: bool,
    /// What the program sent along.
    pub(crate) imm: Option<u32>,
    /// How many messages the sender of this has taken in since the beginning, modulo 2^16.
    pub(crate) returned: u16,
    /// How many announced messages it has read, modulo 2^32.
    pub(crate) pulled: u32,
    /// Bytes that follow.
    pub(crate) len: u32,
}

impl Header {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.kind as u8;
        bytes[1] = u8::from(self.imm.is_some()) | u8::from(self.tell) << 1;
        bytes[2..4].copy_from_slice(&self.returned.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.pulled.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.imm.unwrap_or(0).to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Reads the header of a message of `total` bytes.
    pub(crate) fn parse(bytes: &[u8; Self::LEN], total: usize) -> Result<Self, Violation> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if total < Self::LEN {
            return Err(Violation::Header);
        }
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[0]).ok_or(Violation::Header)?;
        let (imm, tell) = match bytes[1] {
            flags @ 0..=1 => ((flags == 1).then(|| word(8)), false),
            flags @ 2..=3 if kind.is_message() => ((flags == 3).then(|| word(8)), true),
            _ => return Err(Violation::Header),
        };
        let len = word(12);
        if usize::try_from(len).ok() != Some(total - Self::LEN) {
            return Err(Violation::Length);
        }
        Ok(Self { kind, tell, imm, returned: u16::from_be_bytes([bytes[2], bytes[3]]), pulled: word(4), len })
    }
}

/// How many messages the program of an end has taken since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) taken: u64,
}

impl Told {
    pub(crate) const fn emit(self) -> [u8; 8] {
        self.taken.to_be_bytes()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let bytes = bytes.try_into().map_err(|_| Violation::Length)?;
        Ok(Self { taken: u64::from_be_bytes(bytes) })
    }
}

/// Memory that a peer opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    pub(crate) id: u32,
    pub(crate) access: Access,
    pub(crate) region: RemoteRegion,
    pub(crate) name: String,
}

impl Exposure {
    /// Bytes of a name.
    pub(crate) const NAME: usize = 64;
    /// Bytes of the longest body.
    pub(crate) const MOST: usize = Self::BEFORE_NAME + Self::NAME;
    const BEFORE_NAME: usize = 5 + RemoteRegion::LEN;
    const ACCESS: [Access; 3] = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::MOST);
        bytes.extend(self.id.to_be_bytes());
        let bit = |(bit, access)| u8::from(self.access.contains(access)) << bit;
        bytes.push(Self::ACCESS.into_iter().enumerate().map(bit).sum());
        bytes.extend(self.region.to_bytes());
        bytes.extend(self.name.as_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let (head, name) = bytes.split_at_checked(Self::BEFORE_NAME).ok_or(Violation::Exposure)?;
        let (id, rest) = head.split_at(4);
        let region = RemoteRegion::from_bytes(&rest[1..]).map_err(|_| Violation::Exposure)?;
        if rest[0] >> Self::ACCESS.len() != 0 || name.len() > Self::NAME {
            return Err(Violation::Exposure);
        }
        region.address.checked_add(region.length).ok_or(Violation::Exposure)?;
        let granted = Self::ACCESS.into_iter().enumerate().filter(|(bit, _)| rest[0] >> bit & 1 == 1);
        let access = granted.fold(Access::empty(), |all, (_, one)| all | one);
        let name = String::from_utf8(name.to_vec()).map_err(|_| Violation::Exposure)?;
        Ok(Self { id: parse_id(id).ok_or(Violation::Exposure)?, access, region, name })
    }
}

/// Four bytes that name an exposure.
pub(crate) fn parse_id(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_verbs::Rkey;

    #[test]
    fn a_header_survives_the_way() {
        for kind in Kind::ALL {
            for imm in [None, Some(0), Some(u32::MAX)] {
                let header = Header { kind, tell: false, imm, returned: 0xabcd, pulled: 7, len: 300 };
                assert_eq!(Header::parse(&header.emit(), 316), Ok(header));
                let tell = Header { tell: true, ..header };
                let read = Header::parse(&tell.emit(), 316);
                assert_eq!(read, if kind.is_message() { Ok(tell) } else { Err(Violation::Header) });
            }
        }
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let header = Header { kind: Kind::Data, tell: false, imm: None, returned: 0, pulled: 0, len: 10 };
        assert_eq!(Header::parse(&header.emit(), 27), Err(Violation::Length));
        assert_eq!(Header::parse(&header.emit(), 15), Err(Violation::Header));
        for (at, value) in [(0, 0), (0, 11), (0, 255), (1, 4)] {
            let mut bytes = header.emit();
            bytes[at] = value;
            assert_eq!(Header::parse(&bytes, 26), Err(Violation::Header));
        }
    }

    #[test]
    fn an_exposure_survives_the_way_or_is_refused() {
        let region = RemoteRegion { address: 4096, length: 100, rkey: Rkey(77) };
        let access = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let exposure = Exposure { id: 9, access, region, name: "table".to_owned() };
        assert_eq!(Exposure::parse(&exposure.emit()), Ok(exposure.clone()));
        let around = Exposure { region: RemoteRegion { address: u64::MAX, ..region }, ..exposure.clone() };
        let long = Exposure { name: "x".repeat(65), ..exposure.clone() };
        let mut other_access = exposure.emit();
        other_access[4] = 8;
        let mut no_text = exposure.emit();
        no_text[25] = 0xff;
        for wrong in [around.emit(), long.emit(), other_access, no_text, vec![0; 24]] {
            assert_eq!(Exposure::parse(&wrong), Err(Violation::Exposure));
        }
    }
}
