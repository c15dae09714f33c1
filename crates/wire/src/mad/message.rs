//! A whole connection-management datagram.

use core::fmt;

use super::{BODY_LEN, Drep, Dreq, MAD_LEN, MadHeader, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use crate::bytes::{field, put, take};
use crate::describe::{Describe, Visitor};
use crate::error::ParseError;

/// A management datagram of connection management: the payload of a SEND to queue pair 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CmMad {
    /// Ties an answer to its question; Linux keeps one for the life of a connection.
    pub transaction_id: u64,
    /// Outcome; zero in every message that is sent rather than a response.
    pub status: u16,
    /// Left to the class, which makes nothing of it.
    pub class_specific: u16,
    /// Narrows the attribute down; not used here.
    pub attribute_modifier: u32,
    /// The message.
    pub message: CmMessage,
}

impl CmMad {
    /// Length on the wire.
    pub const LEN: usize = MAD_LEN;

    /// A datagram with this message, ready to be sent.
    #[must_use]
    pub fn new(transaction_id: u64, message: impl Into<CmMessage>) -> Self {
        Self { transaction_id, status: 0, class_specific: 0, attribute_modifier: 0, message: message.into() }
    }

    /// Reads a datagram; what follows its 256 bytes is not looked at.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, ParseError> {
        let mad = take::<MAD_LEN>(&mut bytes, "management datagram")?;
        let header = MadHeader::parse(&field::<0, { MadHeader::LEN }, _>(mad));
        let expected = [
            ("base version", header.base_version, MadHeader::BASE_VERSION),
            ("class", header.class, MadHeader::CLASS_CM),
            ("class version", header.class_version, MadHeader::CM_VERSION),
            ("method", header.method, MadHeader::METHOD_SEND),
        ];
        for (what, seen, expected) in expected {
            if seen != expected {
                return Err(ParseError::NotCm { what, seen: seen.into(), expected: expected.into() });
            }
        }
        let body = field::<{ MadHeader::LEN }, BODY_LEN, _>(mad);
        Ok(Self {
            transaction_id: header.transaction_id,
            status: header.status,
            class_specific: header.class_specific,
            attribute_modifier: header.attribute_modifier,
            message: CmMessage::parse(header.attribute_id, &body)?,
        })
    }

    /// Writes the datagram.
    pub const fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let mut header = [0; MadHeader::LEN];
        self.header().emit(&mut header);
        put::<0, { MadHeader::LEN }, _>(bytes, header);
        let mut body = [0; BODY_LEN];
        self.message.emit(&mut body);
        put::<{ MadHeader::LEN }, BODY_LEN, _>(bytes, body);
    }

    /// The common header of this datagram.
    #[must_use]
    pub const fn header(&self) -> MadHeader {
        MadHeader {
            base_version: MadHeader::BASE_VERSION,
            class: MadHeader::CLASS_CM,
            class_version: MadHeader::CM_VERSION,
            method: MadHeader::METHOD_SEND,
            status: self.status,
            class_specific: self.class_specific,
            transaction_id: self.transaction_id,
            attribute_id: self.message.attribute_id(),
            attribute_modifier: self.attribute_modifier,
        }
    }
}

impl Describe for CmMad {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        self.header().describe(visitor)?;
        self.message.describe(visitor)
    }
}

/// Makes the enum of all messages, and what is the same for each of them.
macro_rules! messages {
    ($($(#[$doc:meta])* $kind:ident, $name:literal;)*) => {
        /// A message of connection management. Alternate paths (LAP, APR) are not among them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CmMessage {
            $($(#[$doc])* $kind($kind),)*
        }

        impl CmMessage {
            /// Reads the message that `attribute_id` announces.
            pub const fn parse(attribute_id: u16, body: &[u8; BODY_LEN]) -> Result<Self, ParseError> {
                match attribute_id {
                    $($kind::ATTRIBUTE_ID => Ok(Self::$kind($kind::parse(body))),)*
                    unknown => Err(ParseError::UnknownAttribute(unknown)),
                }
            }

            /// Writes the message.
            pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
                match self {
                    $(Self::$kind(message) => message.emit(body),)*
                }
            }

            /// The attribute ID that announces this message.
            #[must_use]
            pub const fn attribute_id(&self) -> u16 {
                match self {
                    $(Self::$kind(_) => $kind::ATTRIBUTE_ID,)*
                }
            }

            /// The short name of this message, such as `REQ`.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $name,)*
                }
            }

            /// The short name of the message with this attribute ID.
            #[must_use]
            pub const fn attribute_name(attribute_id: u16) -> Option<&'static str> {
                match attribute_id {
                    $($kind::ATTRIBUTE_ID => Some($name),)*
                    _ => None,
                }
            }
        }

        impl Describe for CmMessage {
            fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
                match self {
                    $(Self::$kind(message) => message.describe(visitor),)*
                }
            }
        }

        $(impl From<$kind> for CmMessage {
            fn from(message: $kind) -> Self {
                Self::$kind(message)
            }
        })*
    };
}

messages! {
    /// Asks for a connection.
    Req, "REQ";
    /// Says that the answer takes time.
    Mra, "MRA";
    /// Refuses.
    Rej, "REJ";
    /// Accepts.
    Rep, "REP";
    /// Confirms that the acceptance came.
    Rtu, "RTU";
    /// Ends the connection.
    Dreq, "DREQ";
    /// Confirms the end.
    Drep, "DREP";
    /// Asks for the queue pair of a datagram service.
    SidrReq, "SIDR_REQ";
    /// Answers with that queue pair.
    SidrRep, "SIDR_REP";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::CommId;

    fn rtu() -> [u8; MAD_LEN] {
        let mut bytes = [0xee; MAD_LEN];
        CmMad::new(0x0102_0304_0506_0708, Rtu { local_comm_id: CommId(0x1112_1314), ..Rtu::default() })
            .emit(&mut bytes);
        bytes
    }

    #[test]
    fn header_comes_first_and_tells_the_message() {
        let bytes = rtu();
        assert_eq!(bytes[..8], [1, 7, 2, 3, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..24], [0, 0x14, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..28], [0x11, 0x12, 0x13, 0x14]);
        assert!(bytes[28..].iter().all(|&byte| byte == 0));
        let mad = CmMad::parse(&bytes).unwrap();
        assert_eq!(mad.message.name(), "RTU");
        assert_eq!(mad.transaction_id, 0x0102_0304_0506_0708);
    }

    #[test]
    fn what_is_not_ours_is_refused_with_the_reason() {
        let short = ParseError::TooShort { what: "management datagram", need: 256, have: 255 };
        assert_eq!(CmMad::parse(&rtu()[..255]), Err(short));
        for (at, what, expected) in
            [(0, "base version", 1), (1, "class", 7), (2, "class version", 2), (3, "method", 3)]
        {
            let mut bytes = rtu();
            bytes[at] = 0x81;
            let error = ParseError::NotCm { what, seen: 0x81, expected };
            assert_eq!(CmMad::parse(&bytes), Err(error));
        }
        let mut lap = rtu();
        lap[17] = 0x19;
        assert_eq!(CmMad::parse(&lap), Err(ParseError::UnknownAttribute(0x19)));
    }
}
