//! RoCEv2 on the wire: bytes to values and back, exactly.
//!
//! RoCEv2 carries the InfiniBand transport in UDP datagrams to port 4791:
//!
//! ```text
//! | Ethernet | IPv4 or IPv6 | UDP | BTH | extended headers | payload | pad | ICRC |
//!                                 12    by opcode          0..4096   0..3  4
//! ```
//!
//! - [`Opcode`] is the table of all operations: which headers, which position,
//!   request or response, how much payload.
//! - [`Packet`] is everything from the BTH on. [`Packet::parse`] judges bytes once;
//!   [`Packet::emit`] and [`Packet::emit_headers`] write into a caller's buffer.
//! - [`Flow`] computes, checks and solves the invariant CRC, which covers the IP header too.
//! - [`Frame`] is a packet with its IP and UDP headers; [`Captured`] is one that was read
//!   kindly, from a capture. [`Long`] prints both with one line per header field,
//!   `Display` in one line.
//! - [`mad`] holds the messages of connection management.
//! - The numbers ([`Psn`], [`Qpn`], [`Rkey`], ...) are types of their own.
//!
//! Section numbers such as "IBA 9.7.5" refer to the InfiniBand Architecture
//! Specification, volume 1; "annex A17" is its RoCEv2 annex.
//!
//! The crate is `no_std`, has no unsafe code, allocates nothing, and takes any bytes:
//! what is wrong with them is a [`ParseError`], never a panic. What cannot be written is an
//! [`EmitError`], and leaves the buffer as it was.
//!
//! ```
//! use ferroce_wire::{Body, Flow, Packet, Psn, Qpn, Request, Segment, SendTail};
//!
//! let flow = Flow::new("127.0.0.1:50000".parse()?, "127.0.0.2:4791".parse()?).ok_or("mixed families")?;
//! let send = Request::Send(Segment::Only((), SendTail::Plain), &b"hello"[..]);
//! let packet = Packet::new(Qpn::new(0x11), Psn::new(7), Body::RcRequest(send));
//!
//! let mut buffer = [0; 64];
//! let len = packet.emit(&flow, 0, &mut buffer)?;
//! assert_eq!(len, 12 + 5 + 3 + 4);
//!
//! flow.verify(&buffer[..len], 0)?;
//! assert_eq!(Packet::parse(&buffer[..len])?, packet);
//! assert_eq!(packet.to_string(), "RC SEND Only qp=0x000011 psn=0x000007 data=5");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod bytes;
mod captured;
mod crc;
mod data;
pub mod describe;
mod error;
mod frame;
pub mod header;
mod icrc;
pub mod mad;
mod mtu;
pub mod net;
mod num;
mod opcode;
mod packet;
mod payload_rule;
mod pkey_table;
mod print;
mod short;

pub use captured::{Captured, Note, Notes};
pub use data::{DataPacket, DataVerb, LoneAck, LoneSend};
pub use error::{BufferTooSmall, EmitError, ParseError};
pub use frame::{Frame, Icrc};
pub use header::{
    Aeth, AtomicAckEth, AtomicEth, AtomicMasks, Bth, CreditCode, Deth, Feth, Grh, Ieth, Imm, NakCode,
    ReservedSyndrome, Reth, RnrTimer, Syndrome, Xrceth,
};
pub use icrc::{Digest, Flow, ICRC_LEN, Seed, Seeds};
pub use mtu::PathMtu;
pub use num::{Gid, Lkey, Msn, PKey, Psn, QKey, Qpn, Rkey, Srqn};
pub use opcode::{Headers, Opcode, OpcodeInfo, Operation, Position, Role, Service};
pub use packet::{
    Body, Datagram, Kept, MAX_HEADER_LEN, MAX_PACKET_LEN, Packet, Payload, PayloadLen, ReadSegment, Request,
    Response, Segment, SendTail, UcRequest,
};
pub use payload_rule::PayloadRule;
pub use pkey_table::{PKeyTable, PKeyTableError};
pub use print::Long;
