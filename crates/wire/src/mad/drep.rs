//! DREP: the end of a connection is confirmed.

use core::fmt;

use super::{BODY_LEN, CommId, Opaque, comm_id};
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};

/// Disconnect reply (IBA 12.6.11). "Local" is the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Drep {
    /// The sender's name for the connection.
    pub local_comm_id: CommId,
    /// The receiver's name for the connection.
    pub remote_comm_id: CommId,
    /// What the consumer adds.
    pub private_data: Opaque<224>,
}

impl Drep {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x16;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        Self {
            local_comm_id: CommId(u32::from_be_bytes(field::<0, 4, _>(body))),
            remote_comm_id: CommId(u32::from_be_bytes(field::<4, 4, _>(body))),
            private_data: Opaque(field::<8, 224, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        put::<0, 4, _>(body, self.local_comm_id.0.to_be_bytes());
        put::<4, 4, _>(body, self.remote_comm_id.0.to_be_bytes());
        put::<8, 224, _>(body, self.private_data.0);
    }
}

impl Describe for Drep {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.drep", "CM DisconnectReply", BODY_LEN)?;
        comm_id::describe_pair(self.local_comm_id, self.remote_comm_id, visitor)?;
        visitor.field("private_data", "Private Data", Value::Bytes(self.private_data.trimmed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let message = Drep {
            local_comm_id: CommId(0x0102_0304),
            remote_comm_id: CommId(0x1112_1314),
            private_data: Opaque([0x21; 224]),
        };
        let mut body = [0xee; BODY_LEN];
        message.emit(&mut body);
        assert_eq!(body[..8], [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14]);
        assert_eq!(body[8..], [0x21; 224]);
        assert_eq!(Drep::parse(&body), message);
    }
}
