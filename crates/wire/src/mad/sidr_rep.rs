//! SIDR_REP: this queue pair serves it, or none and why.

use core::fmt;

use super::{BODY_LEN, Opaque, ServiceId, SidrStatus};
use crate::bytes::{field, put, put_u24, u24};
use crate::describe::{Describe, Value, Visitor};
use crate::{QKey, Qpn};

/// Service ID resolution reply (IBA 12.11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SidrRep {
    /// The requester's name for its question.
    pub request_id: u32,
    /// Whether the rest is an answer.
    pub status: SidrStatus,
    /// How many bytes of [`info`](Self::info) count.
    pub info_len: u8,
    /// The vendor whose additions the private data follow, 24 bits; zero for none.
    ///
    /// It lies around the QPN, in what older texts reserve.
    pub vendor_id: u32,
    /// The queue pair to send to.
    pub qpn: Qpn,
    /// The service.
    pub service_id: ServiceId,
    /// The key that datagrams to this queue pair must show.
    pub qkey: QKey,
    /// Details whose form depends on the status.
    pub info: Opaque<72>,
    /// What the consumer adds.
    pub private_data: Opaque<136>,
}

impl SidrRep {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x18;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        let [status, info_len, vendor_high, vendor_middle] = field::<4, 4, _>(body);
        let [vendor_low] = field::<11, 1, _>(body);
        Self {
            request_id: u32::from_be_bytes(field::<0, 4, _>(body)),
            status: SidrStatus(status),
            info_len,
            vendor_id: u32::from_be_bytes([0, vendor_high, vendor_middle, vendor_low]),
            qpn: Qpn::new(u24::<8, _>(body)),
            service_id: ServiceId(u64::from_be_bytes(field::<12, 8, _>(body))),
            qkey: QKey(u32::from_be_bytes(field::<20, 4, _>(body))),
            info: Opaque(field::<24, 72, _>(body)),
            private_data: Opaque(field::<96, 136, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        let [_, vendor_high, vendor_middle, vendor_low] = self.vendor_id.to_be_bytes();
        put::<0, 4, _>(body, self.request_id.to_be_bytes());
        put::<4, 4, _>(body, [self.status.0, self.info_len, vendor_high, vendor_middle]);
        put_u24::<8, _>(body, self.qpn.get());
        put::<11, 1, _>(body, [vendor_low]);
        put::<12, 8, _>(body, self.service_id.0.to_be_bytes());
        put::<20, 4, _>(body, self.qkey.0.to_be_bytes());
        put::<24, 72, _>(body, self.info.0);
        put::<96, 136, _>(body, self.private_data.0);
    }
}

impl Describe for SidrRep {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.sidr_rep", "CM ServiceIDResReqResp", BODY_LEN)?;
        visitor.field("request_id", "Request ID", Value::hex(self.request_id, 32))?;
        visitor.field("status", "Status", self.status.value())?;
        visitor.field("info_len", "Additional Information Length", Value::decimal(self.info_len))?;
        visitor.field("vendor_id", "Vendor ID", Value::hex(self.vendor_id, 24))?;
        visitor.field("qpn", "QPN", Value::hex(self.qpn.get(), 24))?;
        visitor.field("service_id", "Service ID", Value::hex(self.service_id.0, 64))?;
        visitor.field("qkey", "Q_Key", Value::hex(self.qkey.0, 32))?;
        visitor.field("info", "Additional Information", Value::Bytes(self.info.trimmed()))?;
        visitor.field("private_data", "Private Data", Value::Bytes(self.private_data.trimmed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let reply = SidrRep {
            request_id: 0x0102_0304,
            status: SidrStatus(0x11),
            info_len: 0x12,
            vendor_id: 0x13_1424,
            qpn: Qpn::new(0x21_2223),
            service_id: ServiceId(0x3132_3334_3536_3738),
            qkey: QKey(0x4142_4344),
            info: Opaque([0x51; 72]),
            private_data: Opaque([0x61; 136]),
        };
        let start = [
            [0x01, 0x02, 0x03, 0x04],
            [0x11, 0x12, 0x13, 0x14],
            [0x21, 0x22, 0x23, 0x24],
            [0x31, 0x32, 0x33, 0x34],
            [0x35, 0x36, 0x37, 0x38],
            [0x41, 0x42, 0x43, 0x44],
        ];
        let mut body = [0xee; BODY_LEN];
        reply.emit(&mut body);
        assert_eq!(body[..24], *start.as_flattened());
        assert_eq!(body[24..96], [0x51; 72]);
        assert_eq!(body[96..], [0x61; 136]);
        assert_eq!(SidrRep::parse(&body), reply);
    }
}
