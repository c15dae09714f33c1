//! The header that all management datagrams share.

use core::fmt;

use super::CmMessage;
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};

/// The common header of a management datagram (IBA 13.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MadHeader {
    /// Version of this header.
    pub base_version: u8,
    /// Which manager the datagram is for.
    pub class: u8,
    /// Version of that class's messages.
    pub class_version: u8,
    /// What to do; the top bit marks a response.
    pub method: u8,
    /// Outcome, in responses.
    pub status: u16,
    /// Left to the class.
    pub class_specific: u16,
    /// Ties an answer to its question.
    pub transaction_id: u64,
    /// What the method is applied to: for connection management, the kind of message.
    pub attribute_id: u16,
    /// Narrows the attribute down.
    pub attribute_modifier: u32,
}

impl MadHeader {
    /// Length on the wire.
    pub const LEN: usize = 24;

    /// The only base version.
    pub const BASE_VERSION: u8 = 1;

    /// The class of connection management (IBA 13.4.4).
    pub const CLASS_CM: u8 = 7;

    /// The version of connection-management messages that we speak.
    pub const CM_VERSION: u8 = 2;

    /// The method of every connection-management message: it expects no answer
    /// of the MAD layer (IBA 13.4.5).
    pub const METHOD_SEND: u8 = 3;

    /// The bit of the method that marks a response.
    pub const RESPONSE_BIT: u8 = 0x80;

    /// Whether the method is a response.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        self.method & Self::RESPONSE_BIT != 0
    }

    /// Reads the header.
    #[must_use]
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [base_version, class, class_version, method] = field::<0, 4, _>(bytes);
        Self {
            base_version,
            class,
            class_version,
            method,
            status: u16::from_be_bytes(field::<4, 2, _>(bytes)),
            class_specific: u16::from_be_bytes(field::<6, 2, _>(bytes)),
            transaction_id: u64::from_be_bytes(field::<8, 8, _>(bytes)),
            attribute_id: u16::from_be_bytes(field::<16, 2, _>(bytes)),
            attribute_modifier: u32::from_be_bytes(field::<20, 4, _>(bytes)),
        }
    }

    /// Writes the header.
    pub const fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        put::<0, 4, _>(bytes, [self.base_version, self.class, self.class_version, self.method]);
        put::<4, 2, _>(bytes, self.status.to_be_bytes());
        put::<6, 2, _>(bytes, self.class_specific.to_be_bytes());
        put::<8, 8, _>(bytes, self.transaction_id.to_be_bytes());
        put::<16, 2, _>(bytes, self.attribute_id.to_be_bytes());
        put::<18, 2, _>(bytes, [0; 2]);
        put::<20, 4, _>(bytes, self.attribute_modifier.to_be_bytes());
    }
}

impl Describe for MadHeader {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        let is_cm = self.class == Self::CLASS_CM;
        let class = match is_cm {
            true => Value::named("Communication Management", self.class, 8),
            false => Value::hex(self.class, 8),
        };
        let method = match method_name(self.method) {
            Some(name) => Value::named(name, self.method, 8),
            None => Value::hex(self.method, 8),
        };
        // Attribute numbers mean something only within their class.
        let attribute = match CmMessage::attribute_name(self.attribute_id) {
            Some(name) if is_cm => Value::named(name, self.attribute_id, 16),
            _ => Value::hex(self.attribute_id, 16),
        };
        visitor.header("mad", "MAD Common Header", Self::LEN)?;
        visitor.field("base_version", "Base Version", Value::decimal(self.base_version))?;
        visitor.field("class", "Management Class", class)?;
        visitor.field("class_version", "Class Version", Value::decimal(self.class_version))?;
        visitor.field("method", "Method", method)?;
        visitor.field("status", "Status", Value::hex(self.status, 16))?;
        visitor.field("class_specific", "Class Specific", Value::hex(self.class_specific, 16))?;
        visitor.field("transaction_id", "Transaction ID", Value::hex(self.transaction_id, 64))?;
        visitor.field("attribute_id", "Attribute ID", attribute)?;
        visitor.field("attribute_modifier", "Attribute Modifier", Value::hex(self.attribute_modifier, 32))
    }
}

/// The methods that every class has (IBA 13.4.5).
const fn method_name(method: u8) -> Option<&'static str> {
    Some(match method {
        0x01 => "Get",
        0x02 => "Set",
        0x03 => "Send",
        0x05 => "Trap",
        0x06 => "Report",
        0x07 => "TrapRepress",
        0x81 => "GetResp",
        0x86 => "ReportResp",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{MadHeader, method_name};

    #[test]
    fn methods_have_the_names_of_the_specification() {
        let named = [(0x01, "Get"), (0x02, "Set"), (0x03, "Send"), (0x05, "Trap"), (0x06, "Report")];
        let answers = [(0x07, "TrapRepress"), (0x81, "GetResp"), (0x86, "ReportResp")];
        let all = (0..=u8::MAX).filter_map(|method| Some((method, method_name(method)?)));
        assert!(all.eq(named.into_iter().chain(answers)));
    }

    #[test]
    fn every_field_has_its_place() {
        let header = MadHeader {
            base_version: 1,
            class: 7,
            class_version: 2,
            method: 0x83,
            status: 0x1112,
            class_specific: 0x1314,
            transaction_id: 0x2122_2324_2526_2728,
            attribute_id: 0x3132,
            attribute_modifier: 0x4142_4344,
        };
        let expected = [
            1, 7, 2, 0x83, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31,
            0x32, 0, 0, 0x41, 0x42, 0x43, 0x44,
        ];
        let mut bytes = [0xee; MadHeader::LEN];
        header.emit(&mut bytes);
        assert_eq!(bytes, expected);
        assert_eq!(MadHeader::parse(&bytes), header);
        assert!(header.is_response());
    }
}
