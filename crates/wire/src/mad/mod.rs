//! Management datagrams: the common header, and the messages by which two nodes
//! set up, refuse and end a connection (IBA 12.6) or look up a datagram service
//! (IBA 12.11).
//!
//! [`CmMad`] is a whole datagram. Below it every message is a struct with the same
//! verbs: `parse` reads the fixed-size body, `emit` writes it, [`Describe`] tells
//! it. A body cannot be malformed: fields that hold an undefined code keep it, so
//! that the side that answers can say what was wrong with it. Reserved bits are written
//! as zero and not looked at.
//!
//! Fields narrower than their Rust type say their width; `emit` cuts to it.
//!
//! [`Describe`]: crate::describe::Describe

mod code;
mod comm_id;
mod confirm;
mod dreq;
mod header;
mod ip;
mod message;
mod mra;
mod opaque;
mod path;
mod rej;
mod rep;
mod req;
mod service_id;
mod sidr_rep;
mod sidr_req;
mod timeout;

pub use code::{AnswerTo, Failover, RejectReason, SidrStatus, TransportService};
pub use comm_id::CommId;
pub use confirm::{Drep, Rtu};
pub use dreq::Dreq;
pub use header::MadHeader;
pub use ip::{IpCmHeader, IpPair};
pub use message::{CmMad, CmMessage};
pub use mra::Mra;
pub use opaque::Opaque;
pub use path::ReqPath;
pub use rej::Rej;
pub use rep::Rep;
pub use req::Req;
pub use service_id::{PortSpace, ServiceId};
pub use sidr_rep::SidrRep;
pub use sidr_req::SidrReq;
pub use timeout::Timeout;

/// Length of every management datagram (IBA 13.4.2).
pub const MAD_LEN: usize = 256;

/// Length of a connection-management message: what the common header leaves.
pub const BODY_LEN: usize = MAD_LEN - MadHeader::LEN;

/// The `WIDTH` bits of an octet that begin `SHIFT` bits above its lowest.
const fn bits<const SHIFT: u32, const WIDTH: u32>(octet: u8) -> u8 {
    const { assert!(WIDTH > 0 && SHIFT + WIDTH <= 8) };
    (octet >> SHIFT) & (u8::MAX >> (8 - WIDTH))
}

/// `value` cut to `WIDTH` bits and moved to where [`bits`] finds it.
const fn place<const SHIFT: u32, const WIDTH: u32>(value: u8) -> u8 {
    bits::<0, WIDTH>(value) << SHIFT
}

#[cfg(test)]
mod tests {
    use super::{bits, place};

    #[test]
    fn bits_are_counted_from_the_lowest() {
        assert_eq!(bits::<3, 5>(0b1010_1111), 0b10101);
        assert_eq!(bits::<0, 8>(0xa5), 0xa5);
        assert_eq!(place::<3, 5>(0b1111_0101), 0b1010_1000);
        assert_eq!(place::<1, 2>(0xff), 0b110);
    }
}
