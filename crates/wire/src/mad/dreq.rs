//! DREQ: one side ends the connection.

use core::fmt;

use super::{BODY_LEN, CommId, Opaque, comm_id};
use crate::Qpn;
use crate::bytes::{field, put, put_u24, u24};
use crate::describe::{Describe, Value, Visitor};

/// Disconnect request (IBA 12.6.10). "Local" is the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Dreq {
    /// The sender's name for the connection.
    pub local_comm_id: CommId,
    /// The receiver's name for the connection.
    pub remote_comm_id: CommId,
    /// The receiver's queue pair; for reliable datagrams its end-to-end context.
    pub remote_qpn: Qpn,
    /// What the consumer adds.
    pub private_data: Opaque<220>,
}

impl Dreq {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x15;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        Self {
            local_comm_id: CommId(u32::from_be_bytes(field::<0, 4, _>(body))),
            remote_comm_id: CommId(u32::from_be_bytes(field::<4, 4, _>(body))),
            remote_qpn: Qpn::new(u24::<8, _>(body)),
            private_data: Opaque(field::<12, 220, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        put::<0, 4, _>(body, self.local_comm_id.0.to_be_bytes());
        put::<4, 4, _>(body, self.remote_comm_id.0.to_be_bytes());
        put_u24::<8, _>(body, self.remote_qpn.get());
        put::<11, 1, _>(body, [0]);
        put::<12, 220, _>(body, self.private_data.0);
    }
}

impl Describe for Dreq {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.dreq", "CM DisconnectRequest", BODY_LEN)?;
        comm_id::describe_pair(self.local_comm_id, self.remote_comm_id, visitor)?;
        visitor.field("remote_qpn", "Remote QPN/EECN", Value::hex(self.remote_qpn.get(), 24))?;
        visitor.field("private_data", "Private Data", Value::Bytes(self.private_data.trimmed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let dreq = Dreq {
            local_comm_id: CommId(0x0102_0304),
            remote_comm_id: CommId(0x1112_1314),
            remote_qpn: Qpn::new(0x21_2223),
            private_data: Opaque([0x31; 220]),
        };
        let mut body = [0xee; BODY_LEN];
        dreq.emit(&mut body);
        assert_eq!(body[..8], [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14]);
        assert_eq!(body[8..12], [0x21, 0x22, 0x23, 0]);
        assert_eq!(body[12..], [0x31; 220]);
        assert_eq!(Dreq::parse(&body), dreq);
    }
}
