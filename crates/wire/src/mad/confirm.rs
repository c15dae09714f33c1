//! RTU and DREP: messages that only confirm, and have one form.

use core::fmt;

use super::{BODY_LEN, CommId, Opaque, comm_id};
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};

/// Makes a message of two communication IDs and private data.
macro_rules! confirmation {
    ($(#[$doc:meta])* $name:ident, $attribute_id:literal, $key:literal, $title:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub struct $name {
            /// The sender's name for the connection.
            pub local_comm_id: CommId,
            /// The receiver's name for the connection.
            pub remote_comm_id: CommId,
            /// What the consumer adds.
            pub private_data: Opaque<224>,
        }

        impl $name {
            /// The attribute ID of this message.
            pub const ATTRIBUTE_ID: u16 = $attribute_id;

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

        impl Describe for $name {
            fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
                visitor.header($key, $title, BODY_LEN)?;
                comm_id::describe_pair(self.local_comm_id, self.remote_comm_id, visitor)?;
                visitor.field("private_data", "Private Data", Value::Bytes(self.private_data.trimmed()))
            }
        }
    };
}

confirmation! {
    /// Ready to use (IBA 12.6.9): the requester has seen the reply, the connection stands.
    /// "Local" is the side that sends it.
    Rtu, 0x14, "cm.rtu", "CM ReadyToUse"
}

confirmation! {
    /// Disconnect reply (IBA 12.6.11): the end of the connection is confirmed.
    /// "Local" is the side that sends it.
    Drep, 0x16, "cm.drep", "CM DisconnectReply"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both as they are on the wire, written by hand.
    #[test]
    fn every_field_has_its_place() {
        let mut expected = [0x21; BODY_LEN];
        expected[..8].copy_from_slice(&[1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14]);
        let (local_comm_id, remote_comm_id) = (CommId(0x0102_0304), CommId(0x1112_1314));
        let private_data = Opaque([0x21; 224]);
        let rtu = Rtu { local_comm_id, remote_comm_id, private_data };
        let drep = Drep { local_comm_id, remote_comm_id, private_data };
        let mut body = [0xee; BODY_LEN];
        rtu.emit(&mut body);
        assert_eq!(body, expected);
        assert_eq!(Rtu::parse(&body), rtu);
        body.fill(0xee);
        drep.emit(&mut body);
        assert_eq!(body, expected);
        assert_eq!(Drep::parse(&body), drep);
    }
}
