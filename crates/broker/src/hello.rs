//! What two members say to each other before they work together.
//!
//! A [`Greeting`] goes with the request for a connection and with its acceptance, where little fits: which
//! member speaks to which, in which version, and a number that was never used. Then, over the new connection,
//! the side that asked sends a proof that it knows the secret; only then the other side sends a [`Hello`]
//! with all the rest; and the side that asked answers with its own, and whether it is content. Each frame
//! ends with a [proof](crate::proof).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ferroce_verbs::{Access, RemoteRegion};

use crate::error::MemberRefusal;
use crate::members::Member;

/// The version of all that follows, and of how messages are counted.
pub(crate) const VERSION: u16 = 2;

const MAGIC: [u8; 4] = *b"fbrk";

/// Regions that a member exposes at most.
pub(crate) const MOST_REGIONS: usize = 256;

/// The first words of a handshake: which member speaks to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) version: u16,
    pub(crate) has_secret: bool,
    pub(crate) lane: u8,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) incarnation: u64,
    pub(crate) nonce: [u8; 16],
}

impl Greeting {
    pub(crate) const LEN: usize = 40;

    pub(crate) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_be_bytes());
        bytes[6] = u8::from(self.has_secret);
        bytes[7] = self.lane;
        bytes[8..12].copy_from_slice(&self.from.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.to.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Only the version is certain if it is another one than ours.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MemberRefusal> {
        let mut reader = Reader(bytes);
        if reader.take::<4>() != Some(MAGIC) {
            return Err(MemberRefusal::NoBroker);
        }
        let parsed = (|| {
            Some(Self {
                version: reader.u16()?,
                has_secret: reader.u8()? != 0,
                lane: reader.u8()?,
                from: reader.u32()?,
                to: reader.u32()?,
                incarnation: reader.u64()?,
                nonce: reader.take()?,
            })
        })();
        let parsed = parsed.ok_or(MemberRefusal::NoBroker)?;
        match parsed.version {
            VERSION => Ok(parsed),
            there => Err(MemberRefusal::Version { here: VERSION, there }),
        }
    }
}

/// Why a request is refused, for the program that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    Version { here: u16 },
    Secret { here: bool },
    OtherMember { here: u32 },
    Lane { here: u8 },
    Unlisted,
    ForeignAddress { from: IpAddr },
}

impl Rejection {
    pub(crate) const LEN: usize = 28;

    pub(crate) fn emit(self) -> [u8; Self::LEN] {
        let (code, value) = match self {
            Self::Version { here } => (1, u32::from(here)),
            Self::Secret { here } => (2, u32::from(here)),
            Self::OtherMember { here } => (3, here),
            Self::Lane { here } => (4, u32::from(here)),
            Self::Unlisted => (5, 0),
            Self::ForeignAddress { .. } => (6, 0),
        };
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6] = code;
        bytes[8..12].copy_from_slice(&value.to_be_bytes());
        if let Self::ForeignAddress { from } = self {
            bytes[12..].copy_from_slice(&to_ipv6(from).octets());
        }
        bytes
    }

    /// What it means for the member that sent this greeting, as this member.
    pub(crate) fn read(bytes: &[u8], asked: &Greeting, me: Member) -> MemberRefusal {
        let mut reader = Reader(bytes);
        let fields = (|| {
            let magic: [u8; 4] = reader.take()?;
            let (version, code) = (reader.u16()?, reader.u8()?);
            let _ = reader.u8()?;
            Some((magic, version, code, reader.u32()?, Ipv6Addr::from(reader.take::<16>()?)))
        })();
        let Some((MAGIC, version, code, value, from)) = fields else { return MemberRefusal::NoBroker };
        let narrow = u16::try_from(value).unwrap_or(u16::MAX);
        match code {
            1 => MemberRefusal::Version { here: asked.version, there: narrow },
            2 => MemberRefusal::SecretMissing { here: asked.has_secret, there: value != 0 },
            3 => MemberRefusal::OtherMember { asked: asked.to, found: value },
            4 => MemberRefusal::Lane { here: asked.lane, there: u8::try_from(value).unwrap_or(u8::MAX) },
            5 => MemberRefusal::Unlisted { member: me, here: true },
            6 => MemberRefusal::ForeignAddress { member: me, from: from.to_canonical() },
            _ => MemberRefusal::Version { here: VERSION, there: version },
        }
    }
}

/// Memory of a member that others may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The number that all members know it by.
    pub id: u32,
    /// Where it is.
    pub remote: RemoteRegion,
    /// What others may do with it.
    pub access: Access,
}

/// All that a member tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) max_message: u32,
    /// Messages that it has room for.
    pub(crate) room: u32,
    /// Where it wants to be told how many messages were taken off.
    pub(crate) credit: RemoteRegion,
    /// The queue pair for datagrams, and its key.
    pub(crate) datagrams: (u32, u32),
    pub(crate) members: Vec<Member>,
    pub(crate) regions: Vec<Exposed>,
}

/// What a frame of the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing but a proof.
    Proof = 1,
    /// A hello; from the side that asked it means that the other one does not fit.
    Hello = 2,
    /// A hello of the side that asked, which is content.
    Ready = 3,
    /// The other side does not know the secret.
    WrongSecret = 4,
}

impl Kind {
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Proof),
            2 => Some(Self::Hello),
            3 => Some(Self::Ready),
            4 => Some(Self::WrongSecret),
            _ => None,
        }
    }
}

impl Hello {
    /// Bytes of the longest one, with its kind and its proof.
    pub(crate) const LONGEST: usize = 32 * 1024;

    /// Without kind and proof.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.max_message.to_be_bytes());
        bytes.extend(self.room.to_be_bytes());
        bytes.extend(self.credit.to_bytes());
        bytes.extend(self.datagrams.0.to_be_bytes());
        bytes.extend(self.datagrams.1.to_be_bytes());
        let count = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        bytes.extend(count(self.members.len()));
        for Member { id, address } in &self.members {
            bytes.extend(id.to_be_bytes());
            bytes.extend(to_ipv6(address.ip()).octets());
            bytes.extend(address.port().to_be_bytes());
        }
        bytes.extend(count(self.regions.len()));
        for Exposed { id, remote, access } in &self.regions {
            bytes.extend(id.to_be_bytes());
            bytes.extend(remote.to_bytes());
            bytes.extend(access.bits().to_be_bytes());
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MemberRefusal> {
        Self::read(Reader(bytes)).ok_or(MemberRefusal::Malformed("its length"))
    }

    fn read(mut reader: Reader<'_>) -> Option<Self> {
        let max_message = reader.u32()?;
        let room = reader.u32()?;
        let credit = reader.remote()?;
        let datagrams = (reader.u32()?, reader.u32()?);
        let mut members = Vec::new();
        for _ in 0..reader.u16()? {
            let id = reader.u32()?;
            let ip = Ipv6Addr::from(reader.take::<16>()?).to_canonical();
            members.push(Member { id, address: SocketAddr::new(ip, reader.u16()?) });
        }
        let mut regions = Vec::new();
        for _ in 0..reader.u16()? {
            let (id, remote) = (reader.u32()?, reader.remote()?);
            let access = Access::from_bits_truncate(reader.u32()?);
            regions.push(Exposed { id, remote, access });
        }
        reader.0.is_empty().then_some(Self { max_message, room, credit, datagrams, members, regions })
    }
}

/// An address of either kind in 16 bytes.
const fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn remote(&mut self) -> Option<RemoteRegion> {
        RemoteRegion::from_bytes(&self.take::<{ RemoteRegion::LEN }>()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::Members;
    use ferroce_verbs::Rkey;
    use proptest::prelude::*;

    fn greeting() -> Greeting {
        let nonce = [7; 16];
        Greeting { version: VERSION, has_secret: true, lane: 3, from: 2, to: 1, incarnation: 9, nonce }
    }

    fn hello() -> Hello {
        let remote = RemoteRegion { address: 1 << 40, length: 4096, rkey: Rkey(77) };
        let members: Members = "127.0.0.1:1,[::1]:2".parse().unwrap();
        let regions = vec![Exposed { id: 4, remote, access: Access::REMOTE_READ }];
        let members = members.iter().collect();
        Hello { max_message: 4096, room: 64, credit: remote, datagrams: (17, 18), members, regions }
    }

    #[test]
    fn what_is_said_is_heard() {
        assert_eq!(Greeting::parse(&greeting().emit()), Ok(greeting()));
        assert_eq!(Hello::parse(&hello().emit()), Ok(hello()));
    }

    #[test]
    fn another_version_is_named_whatever_follows() {
        let mut bytes = greeting().emit();
        bytes[5] = 9;
        assert_eq!(Greeting::parse(&bytes), Err(MemberRefusal::Version { here: VERSION, there: 9 }));
        bytes[0] = 0;
        assert_eq!(Greeting::parse(&bytes), Err(MemberRefusal::NoBroker));
        assert_eq!(Greeting::parse(&[]), Err(MemberRefusal::NoBroker));
    }

    #[test]
    fn a_rejection_says_what_both_sides_have() {
        let me = Member { id: 2, address: "127.0.0.2:1".parse().unwrap() };
        let read = |rejection: Rejection| Rejection::read(&rejection.emit(), &greeting(), me);
        assert_eq!(read(Rejection::Version { here: 4 }), MemberRefusal::Version { here: VERSION, there: 4 });
        assert_eq!(
            read(Rejection::Secret { here: false }),
            MemberRefusal::SecretMissing { here: true, there: false }
        );
        assert_eq!(
            read(Rejection::OtherMember { here: 5 }),
            MemberRefusal::OtherMember { asked: 1, found: 5 }
        );
        assert_eq!(read(Rejection::Lane { here: 1 }), MemberRefusal::Lane { here: 3, there: 1 });
        assert_eq!(read(Rejection::Unlisted), MemberRefusal::Unlisted { member: me, here: true });
        for from in ["127.0.0.9", "::1"].map(|from| from.parse().unwrap()) {
            let foreign = read(Rejection::ForeignAddress { from });
            assert_eq!(foreign, MemberRefusal::ForeignAddress { member: me, from });
        }
        assert_eq!(Rejection::read(&[0; 148], &greeting(), me), MemberRefusal::NoBroker);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Greeting::parse(&bytes);
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
            }
        }

        #[test]
        fn a_cut_hello_is_refused(cut in 0..100_usize) {
            let bytes = hello().emit();
            let cut = cut % bytes.len();
            prop_assert!(Hello::parse(&bytes[..cut]).is_err());
        }
    }
}
