//! MRA: the message has come, the answer takes time.

use core::fmt;

use super::{AnswerTo, BODY_LEN, CommId, Opaque, Timeout, bits, comm_id, place};
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};

/// Message receipt acknowledgement (IBA 12.6.6). "Local" is the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Mra {
    /// The sender's name for the connection.
    pub local_comm_id: CommId,
    /// The receiver's name for the connection.
    pub remote_comm_id: CommId,
    /// Which message has been received.
    pub message: AnswerTo,
    /// How long the answer may still take.
    pub service_timeout: Timeout,
    /// What the consumer adds.
    pub private_data: Opaque<222>,
}

impl Mra {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x11;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        let [message, timeout] = field::<8, 2, _>(body);
        Self {
            local_comm_id: CommId(u32::from_be_bytes(field::<0, 4, _>(body))),
            remote_comm_id: CommId(u32::from_be_bytes(field::<4, 4, _>(body))),
            message: AnswerTo::new(bits::<6, 2>(message)),
            service_timeout: Timeout::new(bits::<3, 5>(timeout)),
            private_data: Opaque(field::<10, 222, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        put::<0, 4, _>(body, self.local_comm_id.0.to_be_bytes());
        put::<4, 4, _>(body, self.remote_comm_id.0.to_be_bytes());
        let timeout = place::<3, 5>(self.service_timeout.code());
        put::<8, 2, _>(body, [place::<6, 2>(self.message.code()), timeout]);
        put::<10, 222, _>(body, self.private_data.0);
    }
}

impl Describe for Mra {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.mra", "CM MsgRcptAck", BODY_LEN)?;
        comm_id::describe_pair(self.local_comm_id, self.remote_comm_id, visitor)?;
        visitor.field("message", "Message MRAed", self.message.value("LAP"))?;
        visitor.field("service_timeout", "Service Timeout", Value::decimal(self.service_timeout.code()))?;
        visitor.field("private_data", "Private Data", Value::Bytes(self.private_data.trimmed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let mra = Mra {
            local_comm_id: CommId(0x0102_0304),
            remote_comm_id: CommId(0x1112_1314),
            message: AnswerTo::Rep,
            service_timeout: Timeout::new(0b11001),
            private_data: Opaque([0x21; 222]),
        };
        let mut body = [0xee; BODY_LEN];
        mra.emit(&mut body);
        assert_eq!(body[..8], [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14]);
        assert_eq!(body[8..10], [0b0100_0000, 0b1100_1000]);
        assert_eq!(body[10..], [0x21; 222]);
        assert_eq!(Mra::parse(&body), mra);
    }
}
