//! One of the two paths of a connection request.

use core::fmt;

use super::{Timeout, bits, place};
use crate::Gid;
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};

/// A path as a connection request proposes it (IBA 12.6.5, 12.7.11 and on).
///
/// "Local" is the side that sends the request. On RoCE the LIDs say nothing, and
/// the GIDs are the IP addresses of the two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ReqPath {
    /// LID of the requester's port; 0xffff on RoCE.
    pub local_lid: u16,
    /// LID of the replier's port; 0xffff on RoCE.
    pub remote_lid: u16,
    /// GID of the requester's port.
    pub local_gid: Gid,
    /// GID of the replier's port.
    pub remote_gid: Gid,
    /// Flow label, 20 bits; RoCE folds the UDP source port of the connection from it.
    pub flow_label: u32,
    /// Packet rate, 6 bits: a code of static rate control.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Whether both ports are in one subnet.
    pub subnet_local: bool,
    /// How long the requester waits for an acknowledgement; code 0 is for ever.
    pub local_ack_timeout: Timeout,
}

impl ReqPath {
    /// Length on the wire.
    pub const LEN: usize = 44;

    /// The LID that RoCE ports put where InfiniBand ports have theirs: the permissive one.
    pub const ROCE_LID: u16 = 0xffff;

    /// Whether there is a path: a request without an alternate one leaves its place zero.
    #[must_use]
    pub fn is_present(&self) -> bool {
        *self != Self::default()
    }

    /// Reads the path.
    #[must_use]
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let label_and_rate = u32::from_be_bytes(field::<36, 4, _>(bytes));
        let [traffic_class, hop_limit, level, timeout] = field::<40, 4, _>(bytes);
        Self {
            local_lid: u16::from_be_bytes(field::<0, 2, _>(bytes)),
            remote_lid: u16::from_be_bytes(field::<2, 2, _>(bytes)),
            local_gid: Gid(field::<4, 16, _>(bytes)),
            remote_gid: Gid(field::<20, 16, _>(bytes)),
            flow_label: label_and_rate >> 12,
            packet_rate: bits::<0, 6>(field::<39, 1, _>(bytes)[0]),
            traffic_class,
            hop_limit,
            service_level: bits::<4, 4>(level),
            subnet_local: bits::<3, 1>(level) != 0,
            local_ack_timeout: Timeout::new(bits::<3, 5>(timeout)),
        }
    }

    /// Writes the path.
    pub const fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        put::<0, 2, _>(bytes, self.local_lid.to_be_bytes());
        put::<2, 2, _>(bytes, self.remote_lid.to_be_bytes());
        put::<4, 16, _>(bytes, self.local_gid.0);
        put::<20, 16, _>(bytes, self.remote_gid.0);
        // The shift drops what is above 20 bits.
        put::<36, 4, _>(bytes, (self.flow_label << 12).to_be_bytes());
        put::<39, 1, _>(bytes, [place::<0, 6>(self.packet_rate)]);
        let level = place::<4, 4>(self.service_level) | place::<3, 1>(self.subnet_local as u8);
        let timeout = place::<3, 5>(self.local_ack_timeout.code());
        put::<40, 4, _>(bytes, [self.traffic_class, self.hop_limit, level, timeout]);
    }

    pub(super) fn describe_as(
        &self,
        key: &'static str,
        title: &'static str,
        visitor: &mut dyn Visitor,
    ) -> fmt::Result {
        visitor.header(key, title, Self::LEN)?;
        visitor.field("local_lid", "Local Port LID", Value::hex(self.local_lid, 16))?;
        visitor.field("remote_lid", "Remote Port LID", Value::hex(self.remote_lid, 16))?;
        visitor.field("local_gid", "Local Port GID", Value::Gid(self.local_gid))?;
        visitor.field("remote_gid", "Remote Port GID", Value::Gid(self.remote_gid))?;
        visitor.field("flow_label", "Flow Label", Value::hex(self.flow_label, 20))?;
        visitor.field("packet_rate", "Packet Rate", Value::decimal(self.packet_rate))?;
        visitor.field("traffic_class", "Traffic Class", Value::hex(self.traffic_class, 8))?;
        visitor.field("hop_limit", "Hop Limit", Value::decimal(self.hop_limit))?;
        visitor.field("service_level", "Service Level", Value::decimal(self.service_level))?;
        visitor.field("subnet_local", "Subnet Local", Value::Flag(self.subnet_local))?;
        visitor.field("local_ack_timeout", "Local ACK Timeout", Value::decimal(self.local_ack_timeout.code()))
    }
}

impl Describe for ReqPath {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        self.describe_as("cm.path", "CM Path", visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let path = ReqPath {
            local_lid: 0x0102,
            remote_lid: 0x0304,
            local_gid: Gid([0x11; 16]),
            remote_gid: Gid([0x22; 16]),
            flow_label: 0x6c1c3,
            packet_rate: 0x25,
            traffic_class: 0x31,
            hop_limit: 0x40,
            service_level: 0xa,
            subnet_local: true,
            local_ack_timeout: Timeout::new(0x13),
        };
        let mut bytes = [0xee; ReqPath::LEN];
        path.emit(&mut bytes);
        assert_eq!(bytes[..4], [1, 2, 3, 4]);
        assert_eq!(bytes[4..20], [0x11; 16]);
        assert_eq!(bytes[20..36], [0x22; 16]);
        assert_eq!(bytes[36..40], [0x6c, 0x1c, 0x30, 0b0010_0101]);
        assert_eq!(bytes[40..], [0x31, 0x40, 0b1010_1000, 0b1001_1000]);
        assert_eq!(ReqPath::parse(&bytes), path);
    }

    #[test]
    fn fields_are_cut_to_their_width_and_reserved_bits_ignored() {
        let wide =
            ReqPath { flow_label: 0xabc_6c1c3, packet_rate: 0xff, service_level: 0xff, ..Default::default() };
        let mut bytes = [0; ReqPath::LEN];
        wide.emit(&mut bytes);
        assert_eq!(bytes[36..40], [0x6c, 0x1c, 0x30, 0x3f]);
        assert_eq!(bytes[42], 0xf0);

        let mut reserved = [0; ReqPath::LEN];
        reserved[38..40].copy_from_slice(&[0x0f, 0xc0]);
        reserved[42..].copy_from_slice(&[0x07, 0x07]);
        assert!(!ReqPath::parse(&reserved).is_present());
    }
}
