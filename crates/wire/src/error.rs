//! Why bytes are not the packet they were taken for, and why a value cannot be written.

use thiserror::Error;

use crate::opcode::Opcode;

/// The reason why bytes could not be read as a RoCEv2 packet: a closed list,
/// each reason with what was seen and what would have been right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The bytes end inside a header.
    #[error("too short for {what}: {have} bytes, at least {need} needed")]
    TooShort {
        /// The header or message that did not fit.
        what: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that were there.
        have: usize,
    },
    /// No opcode of the services that we know has this value.
    #[error("unknown opcode 0x{0:02x}")]
    UnknownOpcode(u8),
    /// The transport header version is not 0.
    #[error("transport header version {0}, only 0 is defined")]
    UnknownVersion(u8),
    /// The transport packet is not a whole number of 4-byte words.
    #[error("packet of {0} bytes is not a multiple of 4")]
    NotWords(usize),
    /// More pad bytes announced than bytes after the headers.
    #[error("pad count {pad} but {have} bytes after the headers")]
    BadPad {
        /// The pad count of the base transport header.
        pad: u8,
        /// Bytes between the headers and the ICRC.
        have: usize,
    },
    /// More payload than any path MTU allows, or another length than the fixed one of
    /// this opcode ([`PayloadRule::permits`](crate::PayloadRule::permits)).
    #[error("{opcode} with {len} payload bytes, allowed: {allowed}")]
    BadLength {
        /// The opcode.
        opcode: Opcode,
        /// Payload bytes without pad.
        len: usize,
        /// What the opcode allows, in words.
        allowed: &'static str,
    },
    /// The invariant CRC does not fit the packet.
    #[error("ICRC 0x{seen:08x}, computed 0x{computed:08x}")]
    BadIcrc {
        /// As the packet carries it.
        seen: u32,
        /// As its bytes give it.
        computed: u32,
    },
    /// The link layer carries something else than IP.
    #[error("ethertype 0x{0:04x} is not IP")]
    NotIp(u16),
    /// The IP version nibble is neither 4 nor 6, or not what the link layer announces.
    #[error("IP version {0}")]
    UnknownIpVersion(u8),
    /// An IPv4 header with options: RoCEv2 forbids them.
    #[error("IPv4 header of {0} bytes: RoCEv2 allows no options")]
    IpOptions(usize),
    /// A fragment of an IP packet: RoCEv2 is never fragmented.
    #[error("IP fragment")]
    Fragment,
    /// The flag of the IPv4 header that must be zero (RFC 791) is set.
    #[error("IPv4 header with its reserved flag set")]
    ReservedIpFlag,
    /// The IPv4 header checksum is wrong.
    #[error("IPv4 header checksum 0x{seen:04x}, computed 0x{computed:04x}")]
    BadIpChecksum {
        /// As the header carries it.
        seen: u16,
        /// As its bytes give it.
        computed: u16,
    },
    /// The IP payload is not UDP.
    #[error("IP protocol {0} is not UDP")]
    NotUdp(u8),
    /// The UDP datagram is not for the RoCEv2 port.
    #[error("UDP port {0} is not RoCEv2 (4791)")]
    NotRoce(u16),
    /// The IP or UDP length field contradicts the bytes that are there.
    #[error("{what} length field says {said} bytes, {have} are there")]
    LengthMismatch {
        /// The header that the length field is in.
        what: &'static str,
        /// What the field says.
        said: usize,
        /// What is there.
        have: usize,
    },
    /// A management datagram with another base version, class or class version than ours.
    #[error("management datagram with {what} {seen}, expected {expected}")]
    NotCm {
        /// The field that differs.
        what: &'static str,
        /// Its value.
        seen: u16,
        /// The value that connection management has.
        expected: u16,
    },
    /// A connection management attribute that we do not know.
    #[error("unknown connection management attribute 0x{0:04x}")]
    UnknownAttribute(u16),
    /// A field whose value its definition does not allow.
    #[error("{field} is {value}, which is not defined")]
    BadField {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// Why a packet or a frame could not be written: a closed list. Nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EmitError {
    /// The caller's buffer is too small.
    #[error(transparent)]
    BufferTooSmall(#[from] BufferTooSmall),
    /// The payload has a length that parsing refuses
    /// ([`PayloadRule::permits`](crate::PayloadRule::permits)).
    #[error("{opcode} with {len} payload bytes, allowed: {}", .opcode.info().payload.words())]
    BadLength {
        /// The opcode.
        opcode: Opcode,
        /// Payload bytes without pad.
        len: usize,
    },
}

/// The caller's buffer cannot hold what is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("buffer of {have} bytes, {need} needed")]
pub struct BufferTooSmall {
    /// Bytes to be written.
    pub need: usize,
    /// Bytes in the buffer.
    pub have: usize,
}
