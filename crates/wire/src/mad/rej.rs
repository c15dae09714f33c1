//! REJ: no connection, and why.

use core::fmt;

use super::{AnswerTo, BODY_LEN, CommId, Opaque, RejectReason, bits, comm_id, place};
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};

/// Connection rejection (IBA 12.6.7). "Local" is the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Rej {
    /// The rejecting side's name for the connection; zero if it never had one.
    pub local_comm_id: CommId,
    /// The rejected side's name for the connection; zero if it is not known.
    pub remote_comm_id: CommId,
    /// Which message is rejected.
    pub message: AnswerTo,
    /// How many bytes of [`info`](Self::info) count, 7 bits.
    pub info_len: u8,
    /// Why.
    pub reason: RejectReason,
    /// Details whose form depends on the reason, such as a value that would have been acceptable.
    pub info: Opaque<72>,
    /// What the consumer adds.
    pub private_data: Opaque<148>,
}

impl Rej {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x12;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        let [message, info_len] = field::<8, 2, _>(body);
        Self {
            local_comm_id: CommId(u32::from_be_bytes(field::<0, 4, _>(body))),
            remote_comm_id: CommId(u32::from_be_bytes(field::<4, 4, _>(body))),
            message: AnswerTo::new(bits::<6, 2>(message)),
            info_len: bits::<1, 7>(info_len),
            reason: RejectReason(u16::from_be_bytes(field::<10, 2, _>(body))),
            info: Opaque(field::<12, 72, _>(body)),
            private_data: Opaque(field::<84, 148, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        put::<0, 4, _>(body, self.local_comm_id.0.to_be_bytes());
        put::<4, 4, _>(body, self.remote_comm_id.0.to_be_bytes());
        put::<8, 2, _>(body, [place::<6, 2>(self.message.code()), place::<1, 7>(self.info_len)]);
        put::<10, 2, _>(body, self.reason.0.to_be_bytes());
        put::<12, 72, _>(body, self.info.0);
        put::<84, 148, _>(body, self.private_data.0);
    }
}

impl Describe for Rej {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.rej", "CM ConnectReject", BODY_LEN)?;
        comm_id::describe_pair(self.local_comm_id, self.remote_comm_id, visitor)?;
        visitor.field("message", "Message Rejected", self.message.value("No Message"))?;
        visitor.field("info_len", "Reject Info Length", Value::decimal(self.info_len))?;
        visitor.field("reason", "Reason", self.reason.value())?;
        visitor.field("info", "Additional Reject Information", Value::Bytes(self.info.trimmed()))?;
        visitor.field("private_data", "Private Data", Value::Bytes(self.private_data.trimmed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let rej = Rej {
            local_comm_id: CommId(0x0102_0304),
            remote_comm_id: CommId(0x1112_1314),
            message: AnswerTo::Other,
            info_len: 0b100_1000,
            reason: RejectReason(0x2122),
            info: Opaque([0x31; 72]),
            private_data: Opaque([0x41; 148]),
        };
        let mut body = [0xee; BODY_LEN];
        rej.emit(&mut body);
        assert_eq!(body[..8], [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14]);
        assert_eq!(body[8..12], [0b1000_0000, 0b1001_0000, 0x21, 0x22]);
        assert_eq!(body[12..84], [0x31; 72]);
        assert_eq!(body[84..], [0x41; 148]);
        assert_eq!(Rej::parse(&body), rej);
    }
}
