//! SIDR_REQ: which queue pair serves this?

use core::fmt;

use super::{BODY_LEN, IpCmHeader, Opaque, ServiceId, ip};
use crate::PKey;
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};

/// Service ID resolution request: the way to the queue pair of a datagram service (IBA 12.11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SidrReq {
    /// The requester's name for this question.
    pub request_id: u32,
    /// Partition in which the service is wanted.
    pub pkey: PKey,
    /// The service.
    pub service_id: ServiceId,
    /// What the consumer adds. For an IP service it begins with an [`IpCmHeader`].
    pub private_data: Opaque<216>,
}

impl SidrReq {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x17;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        Self {
            request_id: u32::from_be_bytes(field::<0, 4, _>(body)),
            pkey: PKey(u16::from_be_bytes(field::<4, 2, _>(body))),
            service_id: ServiceId(u64::from_be_bytes(field::<8, 8, _>(body))),
            private_data: Opaque(field::<16, 216, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        put::<0, 4, _>(body, self.request_id.to_be_bytes());
        put::<4, 2, _>(body, self.pkey.0.to_be_bytes());
        put::<6, 2, _>(body, [0; 2]);
        put::<8, 8, _>(body, self.service_id.0.to_be_bytes());
        put::<16, 216, _>(body, self.private_data.0);
    }

    /// The IP CM header and the consumer's own private data behind it, if an IP
    /// service is asked for and the header can be read.
    #[must_use]
    pub fn ip(&self) -> Option<(IpCmHeader, &[u8])> {
        IpCmHeader::split(self.service_id, &self.private_data.0)
    }
}

impl Describe for SidrReq {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.sidr_req", "CM ServiceIDResReq", 16)?;
        visitor.field("request_id", "Request ID", Value::hex(self.request_id, 32))?;
        visitor.field("pkey", "Partition Key", Value::hex(self.pkey.0, 16))?;
        visitor.field("service_id", "Service ID", Value::hex(self.service_id.0, 64))?;
        let keys = ["cm.sidr_req.ip", "cm.sidr_req.private"];
        ip::describe_private_data(keys, self.service_id, &self.private_data.0, visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let request = SidrReq {
            request_id: 0x0102_0304,
            pkey: PKey(0x1112),
            service_id: ServiceId(0x2122_2324_2526_2728),
            private_data: Opaque([0x31; 216]),
        };
        let mut body = [0xee; BODY_LEN];
        request.emit(&mut body);
        assert_eq!(body[..8], [1, 2, 3, 4, 0x11, 0x12, 0, 0]);
        assert_eq!(body[8..16], [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
        assert_eq!(body[16..], [0x31; 216]);
        assert_eq!(SidrReq::parse(&body), request);
    }
}
