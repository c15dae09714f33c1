//! The invariant CRC: what protects a packet from end to end (IBA 7.8.1, annex A17).
//!
//! It covers everything that no switch may change: eight bytes of ones where
//! InfiniBand has its local route header, the IP and UDP headers with their
//! variant fields as ones, and the transport packet with the byte that holds FECN
//! and BECN as ones.
//!
//! | header | taken as ones |
//! |---|---|
//! | IPv4 | type of service, time to live, header checksum |
//! | IPv6 | traffic class, flow label, hop limit |
//! | UDP | checksum |
//! | BTH | byte 4 |
//!
//! A CRC is affine: a field adds its share by XOR, whatever the other fields
//! hold. So a [`Flow`] hashes the addresses once, [`Flow::seed`] adds the lengths
//! and the IPv4 identification from tables, a constant stands for the masked byte
//! of the BTH, and one pass over the untouched packet remains.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crc32fast::Hasher;

use crate::crc::{before_bytes, effect_of_byte};
use crate::error::{BufferTooSmall, ParseError};
use crate::header::Bth;
use crate::net::{Ip, Ipv4, Ipv6, Udp};

/// Length of the ICRC at the end of every packet.
pub const ICRC_LEN: usize = 4;

/// Eight bytes of ones in the place of the local route header.
const LRH_LEN: usize = 8;

/// Covered bytes before the transport packet.
const V4_LEN: usize = LRH_LEN + Ipv4::LEN + Udp::LEN;
const V6_LEN: usize = LRH_LEN + Ipv6::LEN + Udp::LEN;

/// Where the identification lies in them.
const V4_ID: usize = LRH_LEN + 4;

/// Effects of a two-byte field that begins `from_end` bytes before the transport packet.
struct Field([u32; 256], [u32; 256]);

impl Field {
    const fn new(from_end: usize) -> Self {
        Self(effect_of_byte(from_end - 1), effect_of_byte(from_end - 2))
    }

    fn effect(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.0[usize::from(high)] ^ self.1[usize::from(low)]
    }
}

static V4_TOTAL_LENGTH: Field = Field::new(V4_LEN - LRH_LEN - 2);
static V4_IDENTIFICATION: Field = Field::new(V4_LEN - V4_ID);
static V6_PAYLOAD_LENGTH: Field = Field::new(V6_LEN - LRH_LEN - 4);
static UDP_LENGTH: Field = Field::new(Udp::LEN - 4);

/// What to add to the seed so that the variant byte of the BTH counts as ones,
/// for every value that it may have: the change that has become `!value` in the
/// register by the time the CRC reaches that byte.
static VARIANT_BYTE_AS_ONES: [u32; 256] = {
    let mut changes = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        changes[byte as usize] = before_bytes(byte ^ 0xff, Bth::VARIANT_BYTE);
        byte += 1;
    }
    changes
};

/// Covered bytes of the shortest packets, an acknowledgement above all.
const SHORT: usize = 16;

/// What each byte of so short a packet changes in the register: there is one look for each, where setting up a way that is
/// faster for long ones would take longer.
static SHORT_EFFECTS: [[u32; 256]; SHORT] = {
    let mut effects = [[0; 256]; SHORT];
    let mut at = 0;
    while at < SHORT {
        effects[at] = effect_of_byte(SHORT - 1 - at);
        at += 1;
    }
    effects
};

/// The addresses and ports of packets, hashed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// CRC of the masked headers with all lengths and the identification as zero.
    base: u32,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// The CRC of everything before the transport packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u32);

/// The seeds that were asked for last, one for each of the first places in a run: packets to and from a peer are mostly as long as
/// those before them.
#[derive(Clone, Copy, Debug)]
pub struct Seeds([Known; 2]);

/// A seed, and what it is for.
#[derive(Clone, Copy, Debug)]
struct Known {
    flow: Flow,
    packet_len: usize,
    seed: Seed,
}

impl Seeds {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        let flow = Flow { base: 0, family: Family::V6 };
        // No packet is as long.
        Self([Known { flow, packet_len: usize::MAX, seed: Seed(0) }; 2])
    }

    /// What [`Flow::seed`] says of a packet of this length with this place in its run as its identification.
    #[inline(always)]
    pub fn of(&mut self, flow: &Flow, packet_len: usize, place: u16) -> Seed {
        match self.0.get_mut(usize::from(place)) {
            Some(known) if known.packet_len == packet_len && known.flow == *flow => known.seed,
            Some(known) => {
                *known = Known { flow: *flow, packet_len, seed: flow.seed(packet_len, place) };
                known.seed
            }
            None => flow.seed(packet_len, place),
        }
    }
}

impl Default for Seeds {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow {
    /// Packets between these addresses and ports that may not be fragmented (as
    /// devices send RoCEv2), or `None` if one is IPv4 and the other IPv6.
    #[must_use]
    pub fn new(source: SocketAddr, dest: SocketAddr) -> Option<Self> {
        match (source.ip(), dest.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Some(Self::v4((from, source.port()), (to, dest.port()), true))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => Some(Self::v6((from, source.port()), (to, dest.port()))),
            _ => None,
        }
    }

    /// Packets over IPv4.
    #[must_use]
    pub fn v4(source: (Ipv4Addr, u16), dest: (Ipv4Addr, u16), dont_fragment: bool) -> Self {
        let mut covered = [0xff; V4_LEN];
        let ip = Ipv4 { tos: 0xff, id: 0, dont_fragment, ttl: 0xff, source: source.0, dest: dest.0 };
        if let Some(header) = covered[LRH_LEN..].first_chunk_mut() {
            ip.emit(0, header);
            header[2..4].fill(0);
            header[10..12].fill(0xff);
        }
        emit_ports(&mut covered, source.1, dest.1);
        Self { base: crc32fast::hash(&covered), family: Family::V4 }
    }

    /// Packets over IPv6.
    #[must_use]
    pub fn v6(source: (Ipv6Addr, u16), dest: (Ipv6Addr, u16)) -> Self {
        let mut covered = [0xff; V6_LEN];
        let ones = Ipv6 {
            traffic_class: 0xff,
            flow_label: 0xf_ffff,
            hop_limit: 0xff,
            source: source.0,
            dest: dest.0,
        };
        if let Some(header) = covered[LRH_LEN..].first_chunk_mut() {
            ones.emit(0, header);
        }
        emit_ports(&mut covered, source.1, dest.1);
        Self { base: crc32fast::hash(&covered), family: Family::V6 }
    }

    /// The flow of a packet with these headers.
    #[must_use]
    pub fn of(ip: &Ip, udp: &Udp) -> Self {
        match ip {
            Ip::V4(ip) => Self::v4((ip.source, udp.source_port), (ip.dest, udp.dest_port), ip.dont_fragment),
            Ip::V6(ip) => Self::v6((ip.source, udp.source_port), (ip.dest, udp.dest_port)),
        }
    }

    /// The seed of a packet of `packet_len` bytes, BTH to ICRC, with this IPv4
    /// identification (without meaning over IPv6).
    ///
    /// Lengths beyond 65,507 do not fit UDP: they give a seed that fits no packet.
    #[inline]
    #[must_use]
    pub fn seed(&self, packet_len: usize, ip_id: u16) -> Seed {
        #[expect(clippy::cast_possible_truncation, reason = "longer packets cannot exist")]
        let udp_len = packet_len.wrapping_add(Udp::LEN) as u16;
        let lengths = UDP_LENGTH.effect(udp_len);
        Seed(match self.family {
            Family::V4 => {
                let total_len = udp_len.wrapping_add(20);
                self.base ^ lengths ^ V4_TOTAL_LENGTH.effect(total_len) ^ V4_IDENTIFICATION.effect(ip_id)
            }
            Family::V6 => self.base ^ lengths ^ V6_PAYLOAD_LENGTH.effect(udp_len),
        })
    }

    /// Writes the ICRC into the last four bytes of `packet`, which runs from the BTH to there.
    ///
    /// # Errors
    /// There is no room for a BTH and an ICRC; nothing is written.
    #[inline(always)]
    pub fn seal(&self, packet: &mut [u8], ip_id: u16) -> Result<(), BufferTooSmall> {
        let have = packet.len();
        match packet.split_last_chunk_mut() {
            Some((covered, icrc)) if covered.len() >= Bth::LEN => {
                *icrc = self.seed(have, ip_id).icrc(covered).to_le_bytes();
                Ok(())
            }
            _ => Err(BufferTooSmall { need: Bth::LEN + ICRC_LEN, have }),
        }
    }

    /// Checks the ICRC in the last four bytes of `packet` against this IPv4 identification.
    ///
    /// # Errors
    /// [`ParseError::BadIcrc`] if it does not fit, [`ParseError::TooShort`] if there is none.
    #[inline]
    pub fn verify(&self, packet: &[u8], ip_id: u16) -> Result<(), ParseError> {
        let (seen, computed) = self.both(packet, ip_id)?;
        if seen == computed { Ok(()) } else { Err(ParseError::BadIcrc { seen, computed }) }
    }

    /// The ICRC that `packet` carries and the one that its bytes give.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] if the packet has no room for a BTH and an ICRC.
    #[inline]
    pub fn both(&self, packet: &[u8], ip_id: u16) -> Result<(u32, u32), ParseError> {
        match packet.split_last_chunk() {
            Some((covered, icrc)) if covered.len() >= Bth::LEN => {
                let computed = self.seed(packet.len(), ip_id).icrc(covered);
                Ok((u32::from_le_bytes(*icrc), computed))
            }
            _ => Err(ParseError::TooShort { what: "ICRC", need: Bth::LEN + ICRC_LEN, have: packet.len() }),
        }
    }

    /// Finds the IPv4 identification with which the ICRC of `packet` is right.
    ///
    /// A UDP socket does not show the identification of what it receives, but the
    /// ICRC covers it, and the Linux kernel counts it up. The CRC is run backwards
    /// from its mismatch to the place of the field: if the result fits the sixteen
    /// bits there, that is the identification. This leaves sixteen bits of check; no
    /// single flipped bit passes, be it of a packet up to [`MAX_PACKET_LEN`](crate::MAX_PACKET_LEN),
    /// of its ICRC, or of the addresses and ports of the flow.
    ///
    /// Over IPv6 there is nothing to find: `Some(0)` if the ICRC is right.
    #[must_use]
    pub fn solve_ip_id(&self, packet: &[u8]) -> Option<u16> {
        let (seen, computed) = self.both(packet, 0).ok()?;
        let mismatch = seen ^ computed;
        match self.family {
            Family::V6 => (mismatch == 0).then_some(0),
            Family::V4 => {
                let following = V4_LEN - V4_ID + packet.len() - ICRC_LEN;
                let field = before_bytes(mismatch, following);
                u16::try_from(field).ok().map(u16::swap_bytes)
            }
        }
    }
}

fn emit_ports(covered: &mut [u8], source: u16, dest: u16) {
    if let Some(udp) = covered.last_chunk_mut::<{ Udp::LEN }>() {
        udp[..2].copy_from_slice(&source.to_be_bytes());
        udp[2..4].copy_from_slice(&dest.to_be_bytes());
        udp[4..6].fill(0);
    }
}

impl Seed {
    /// The ICRC of a packet whose bytes from the BTH to the last pad byte are `covered`.
    #[inline]
    #[must_use]
    pub fn icrc(self, covered: &[u8]) -> u32 {
        if let Ok(short) = covered.try_into() {
            return self.icrc_of_short(short);
        }
        let mut digest = self.digest(covered.get(Bth::VARIANT_BYTE).copied().unwrap_or(0));
        digest.update(covered);
        digest.finish()
    }

    /// Writes the ICRC into the last four bytes of a packet that this is the seed of, as [`Flow::seal`] does, with another way to the
    /// CRC. That is asked first: it gets the register that the first byte meets, and the bytes, and may leave them to the usual
    /// way.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn seal_by(
        self,
        packet: &mut [u8],
        crc: impl FnOnce(u32, &[u8]) -> Option<u32>,
    ) -> Result<(), BufferTooSmall> {
        let have = packet.len();
        match packet.split_last_chunk_mut() {
            Some((covered, icrc)) if covered.len() >= Bth::LEN => {
                *icrc = self.icrc_by(covered, crc).to_le_bytes();
                Ok(())
            }
            _ => Err(BufferTooSmall { need: Bth::LEN + ICRC_LEN, have }),
        }
    }

    /// Whether the ICRC of a packet that this is the seed of is right, as [`Flow::verify`] has it; with another way to the CRC, as
    /// [`seal_by`](Self::seal_by) has it.
    #[inline(always)]
    #[must_use]
    pub fn is_right_by(self, packet: &[u8], crc: impl FnOnce(u32, &[u8]) -> Option<u32>) -> bool {
        match packet.split_last_chunk() {
            Some((covered, icrc)) if covered.len() >= Bth::LEN => {
                self.icrc_by(covered, crc) == u32::from_le_bytes(*icrc)
            }
            _ => false,
        }
    }

    /// As [`icrc`](Self::icrc), by another way if that takes it.
    #[inline(always)]
    fn icrc_by(self, covered: &[u8], crc: impl FnOnce(u32, &[u8]) -> Option<u32>) -> u32 {
        let register = self.register(covered.get(Bth::VARIANT_BYTE).copied().unwrap_or(0));
        crc(register, covered).unwrap_or_else(|| self.icrc(covered))
    }

    /// The register that the first byte of the packet meets.
    #[inline(always)]
    fn register(self, variant_byte: u8) -> u32 {
        !(self.0 ^ VARIANT_BYTE_AS_ONES[usize::from(variant_byte)])
    }

    #[inline]
    fn icrc_of_short(self, covered: &[u8; SHORT]) -> u32 {
        let register = self.register(covered[Bth::VARIANT_BYTE]);
        let mut first = [0; SHORT];
        first[..4].copy_from_slice(&register.to_le_bytes());
        let bytes = covered.iter().zip(first).zip(&SHORT_EFFECTS);
        !bytes.fold(0, |sum, ((byte, before), effects)| sum ^ effects[usize::from(byte ^ before)])
    }

    /// Begins the ICRC of a packet that is fed in pieces; `variant_byte` is the
    /// byte of the BTH with FECN and BECN.
    #[inline]
    #[must_use]
    pub fn digest(self, variant_byte: u8) -> Digest {
        Digest(Hasher::new_with_initial(self.0 ^ VARIANT_BYTE_AS_ONES[usize::from(variant_byte)]))
    }
}

/// An ICRC that grows piece by piece, for packets whose payload lies elsewhere.
#[derive(Clone, Debug)]
pub struct Digest(Hasher);

impl Digest {
    /// A digest whose register is zero: it takes bytes that stand for all that were taken before, that register included,
    /// as a copy that folds leaves them.
    #[inline]
    #[must_use]
    pub fn from_zero() -> Self {
        Self(Hasher::new_with_initial(!0))
    }

    /// The register that the next byte will meet.
    #[inline]
    #[must_use]
    pub fn register(&self) -> u32 {
        !self.0.clone().finalize()
    }

    /// Takes the next bytes of the packet, from the BTH on.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ICRC; on the wire its least significant byte comes first.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule as the IBA has it, spelled out on copied headers.
    fn by_the_book(ip: &Ip, udp: &Udp, packet: &[u8]) -> u32 {
        let covered = &packet[..packet.len() - ICRC_LEN];
        let mut bth = [0; Bth::LEN];
        bth.copy_from_slice(&covered[..Bth::LEN]);
        bth[4] = 0xff;
        let udp_len = u16::try_from(packet.len() + 8).unwrap();
        let mut hasher = Hasher::new();
        hasher.update(&[0xff; 8]);
        match *ip {
            Ip::V4(ip) => {
                let mut header = [0; 20];
                Ipv4 { tos: 0xff, ttl: 0xff, ..ip }.emit(udp_len, &mut header);
                header[10] = 0xff;
                header[11] = 0xff;
                hasher.update(&header);
            }
            Ip::V6(ip) => {
                let mut header = [0; 40];
                Ipv6 { traffic_class: 0xff, flow_label: 0xfffff, hop_limit: 0xff, ..ip }
                    .emit(udp_len, &mut header);
                hasher.update(&header);
            }
        }
        let mut header = [0; 8];
        Udp { checksum: 0xffff, ..*udp }.emit(udp_len - 8, &mut header);
        hasher.update(&header);
        hasher.update(&bth);
        hasher.update(&covered[Bth::LEN..]);
        hasher.finalize()
    }

    const UDP: Udp = Udp { source_port: 0xc123, dest_port: 4791, checksum: 0 };

    fn v4(id: u16, dont_fragment: bool) -> Ip {
        let (source, dest) = (Ipv4Addr::new(10, 77, 0, 3), Ipv4Addr::new(10, 77, 0, 2));
        Ip::V4(Ipv4 { tos: 2, id, dont_fragment, ttl: 64, source, dest })
    }

    fn v6() -> Ip {
        let (source, dest) = ("fd77::3".parse().unwrap(), "fd77::2".parse().unwrap());
        Ip::V6(Ipv6 { traffic_class: 1, flow_label: 2, hop_limit: 64, source, dest })
    }

    #[test]
    fn tables_agree_with_the_book() {
        let mut packet = [0_u8; 4140];
        for (i, byte) in packet.iter_mut().enumerate() {
            *byte = u8::try_from(i * 7 % 251).unwrap();
        }
        for len in [16, 20, 36, 300, 1052, 4140] {
            for variant in [0, 0x40, 0x80, 0xc0, 0x3f, 0xff] {
                packet[4] = variant;
                for (ip, id) in [(v4(0, true), 0), (v4(0xbeef, true), 0xbeef), (v4(7, false), 7), (v6(), 99)]
                {
                    let flow = Flow::of(&ip, &UDP);
                    let (_, computed) = flow.both(&packet[..len], id).unwrap();
                    assert_eq!(computed, by_the_book(&ip, &UDP, &packet[..len]), "{len} {variant} {ip:?}");
                }
            }
        }
    }

    #[test]
    fn another_way_to_the_crc_gets_what_it_needs_and_may_leave_it() {
        let flow = Flow::of(&v4(3, true), &UDP);
        // The register is that of CRC-32, before its end is turned round.
        let by_hasher = |register: u32, bytes: &[u8]| {
            let mut hasher = Hasher::new_with_initial(!register);
            hasher.update(bytes);
            Some(hasher.finalize())
        };
        for len in 16..80 {
            let mut expected = [0x3c; 80];
            expected[4] = 0xc0;
            let seed = flow.seed(len, 3);
            let (mut left, mut taken) = (expected, expected);
            flow.seal(&mut expected[..len], 3).unwrap();
            seed.seal_by(&mut left[..len], |_, _| None).unwrap();
            seed.seal_by(&mut taken[..len], by_hasher).unwrap();
            assert_eq!((left, taken), (expected, expected));
            assert!(seed.is_right_by(&expected[..len], by_hasher));
            assert!(seed.is_right_by(&expected[..len], |_, _| None));
            assert!(!flow.seed(len, 4).is_right_by(&expected[..len], by_hasher));
            expected[len - 5] ^= 1;
            assert!(!seed.is_right_by(&expected[..len], by_hasher));
            assert!(!seed.is_right_by(&expected[..len], |_, _| None));
        }
        assert!(!flow.seed(15, 3).is_right_by(&[0; 15], by_hasher));
        assert!(flow.seed(15, 3).seal_by(&mut [0; 15], by_hasher).is_err());
    }

    #[test]
    fn seeds_that_are_known_are_those_that_are_computed() {
        let flows = [v4(0, true), v6(), v4(0, false)].map(|ip| Flow::of(&ip, &UDP));
        let mut seeds = Seeds::new();
        for round in 0..500_usize {
            // Each of these stays for a while, and comes back.
            let (flow, len, place) = (&flows[round / 7 % 3], 16 + 4 * (round / 5 % 4), round / 3 % 4);
            let place = u16::try_from(place).unwrap();
            assert_eq!(seeds.of(flow, len, place), flow.seed(len, place), "round {round}");
        }
    }

    #[test]
    fn pieces_give_the_same_icrc_as_the_whole() {
        let packet = [0xa5; 100];
        let seed = Flow::of(&v6(), &UDP).seed(104, 0);
        let mut digest = seed.digest(packet[4]);
        digest.update(&packet[..28]);
        digest.update(&packet[28..93]);
        digest.update(&packet[93..]);
        assert_eq!(digest.finish(), seed.icrc(&packet));
    }

    #[test]
    fn a_register_of_zero_goes_on_with_bytes_that_hold_the_one_before() {
        let packet: [u8; 100] = core::array::from_fn(|at| u8::try_from(at * 5 % 251).unwrap());
        let seed = Flow::of(&v6(), &UDP).seed(104, 0);
        let mut digest = seed.digest(packet[4]);
        digest.update(&packet[..28]);
        let mut rest: [u8; 72] = packet[28..].try_into().unwrap();
        for (byte, before) in rest.iter_mut().zip(digest.register().to_le_bytes()) {
            *byte ^= before;
        }
        let mut digest = Digest::from_zero();
        digest.update(&rest);
        assert_eq!(digest.finish(), seed.icrc(&packet));
    }

    #[test]
    fn packets_without_room_for_an_icrc_are_refused() {
        let flow = Flow::of(&v4(0, true), &UDP);
        for len in 0..16 {
            assert!(matches!(flow.verify(&[0; 16][..len], 0), Err(ParseError::TooShort { .. })));
            assert_eq!(flow.solve_ip_id(&[0; 16][..len]), None);
            let mut short = [0xaa; 16];
            assert_eq!(flow.seal(&mut short[..len], 0), Err(BufferTooSmall { need: 16, have: len }));
            assert_eq!(short, [0xaa; 16]);
        }
    }
}
