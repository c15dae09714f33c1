//! REP: the other side accepts.

use core::fmt;

use super::{BODY_LEN, CommId, Failover, Opaque, Timeout, bits, comm_id, place};
use crate::bytes::{field, put, put_u24, u24};
use crate::describe::{Describe, Value, Visitor};
use crate::{Psn, QKey, Qpn};

/// Connection reply (IBA 12.6.8). "Local" is the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Rep {
    /// The replier's name for the connection.
    pub local_comm_id: CommId,
    /// The requester's name for the connection.
    pub remote_comm_id: CommId,
    /// Q_Key of the replier's queue pair; only reliable datagrams use it.
    pub local_qkey: QKey,
    /// The replier's queue pair.
    pub local_qpn: Qpn,
    /// End-to-end context of the replier, 24 bits; only reliable datagrams use it.
    pub local_eecn: u32,
    /// PSN with which the *requester* shall begin to send: what the replier expects first (IBA 12.7).
    pub starting_psn: Psn,
    /// The vendor whose additions the private data follow, 24 bits; zero for none.
    ///
    /// Its three bytes are scattered over what older texts reserve beside the
    /// three 24-bit fields above.
    pub vendor_id: u32,
    /// How many READs and atomics of the requester the replier can serve at a time.
    pub responder_resources: u8,
    /// How many READs and atomics the replier wants to have in flight.
    pub initiator_depth: u8,
    /// How long the replier may take to acknowledge a packet.
    pub target_ack_delay: Timeout,
    /// Whether the alternate path was taken.
    pub failover: Failover,
    /// Whether the replier's ACKs carry credits.
    pub end_to_end_flow_control: bool,
    /// How often the requester shall retry when the replier is not ready, 3 bits; 7 is for ever.
    pub rnr_retry_count: u8,
    /// Whether the replier's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// GUID of the replier's adapter.
    pub local_ca_guid: u64,
    /// What the consumer adds.
    pub private_data: Opaque<196>,
}

impl Rep {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x13;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        let [[vendor_high], [vendor_middle], [vendor_low]] =
            [field::<15, 1, _>(body), field::<19, 1, _>(body), field::<23, 1, _>(body)];
        let [responder_resources, initiator_depth, delay, rnr] = field::<24, 4, _>(body);
        Self {
            local_comm_id: CommId(u32::from_be_bytes(field::<0, 4, _>(body))),
            remote_comm_id: CommId(u32::from_be_bytes(field::<4, 4, _>(body))),
            local_qkey: QKey(u32::from_be_bytes(field::<8, 4, _>(body))),
            local_qpn: Qpn::new(u24::<12, _>(body)),
            local_eecn: u24::<16, _>(body),
            starting_psn: Psn::new(u24::<20, _>(body)),
            vendor_id: u32::from_be_bytes([0, vendor_high, vendor_middle, vendor_low]),
            responder_resources,
            initiator_depth,
            target_ack_delay: Timeout::new(bits::<3, 5>(delay)),
            failover: Failover::new(bits::<1, 2>(delay)),
            end_to_end_flow_control: bits::<0, 1>(delay) != 0,
            rnr_retry_count: bits::<5, 3>(rnr),
            srq: bits::<4, 1>(rnr) != 0,
            local_ca_guid: u64::from_be_bytes(field::<28, 8, _>(body)),
            private_data: Opaque(field::<36, 196, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        let [_, vendor_high, vendor_middle, vendor_low] = self.vendor_id.to_be_bytes();
        put::<0, 4, _>(body, self.local_comm_id.0.to_be_bytes());
        put::<4, 4, _>(body, self.remote_comm_id.0.to_be_bytes());
        put::<8, 4, _>(body, self.local_qkey.0.to_be_bytes());
        put_u24::<12, _>(body, self.local_qpn.get());
        put::<15, 1, _>(body, [vendor_high]);
        put_u24::<16, _>(body, self.local_eecn);
        put::<19, 1, _>(body, [vendor_middle]);
        put_u24::<20, _>(body, self.starting_psn.get());
        put::<23, 1, _>(body, [vendor_low]);
        let delay = place::<3, 5>(self.target_ack_delay.code())
            | place::<1, 2>(self.failover.code())
            | place::<0, 1>(self.end_to_end_flow_control as u8);
        let rnr = place::<5, 3>(self.rnr_retry_count) | place::<4, 1>(self.srq as u8);
        put::<24, 4, _>(body, [self.responder_resources, self.initiator_depth, delay, rnr]);
        put::<28, 8, _>(body, self.local_ca_guid.to_be_bytes());
        put::<36, 196, _>(body, self.private_data.0);
    }
}

impl Describe for Rep {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.rep", "CM ConnectReply", BODY_LEN)?;
        comm_id::describe_pair(self.local_comm_id, self.remote_comm_id, visitor)?;
        visitor.field("local_qkey", "Local Q_Key", Value::hex(self.local_qkey.0, 32))?;
        visitor.field("local_qpn", "Local QPN", Value::hex(self.local_qpn.get(), 24))?;
        visitor.field("local_eecn", "Local EECN", Value::hex(self.local_eecn, 24))?;
        visitor.field("starting_psn", "Starting PSN", Value::hex(self.starting_psn.get(), 24))?;
        visitor.field("vendor_id", "Vendor ID", Value::hex(self.vendor_id, 24))?;
        visitor.field(
            "responder_resources",
            "Responder Resources",
            Value::decimal(self.responder_resources),
        )?;
        visitor.field("initiator_depth", "Initiator Depth", Value::decimal(self.initiator_depth))?;
        visitor.field(
            "target_ack_delay",
            "Target ACK Delay",
            Value::decimal(self.target_ack_delay.code()),
        )?;
        visitor.field("failover", "Failover Accepted", self.failover.value())?;
        visitor.field(
            "end_to_end_flow_control",
            "End-to-End Flow Control",
            Value::Flag(self.end_to_end_flow_control),
        )?;
        visitor.field("rnr_retry_count", "RNR Retry Count", Value::decimal(self.rnr_retry_count))?;
        visitor.field("srq", "SRQ", Value::Flag(self.srq))?;
        visitor.field("local_ca_guid", "Local CA GUID", Value::hex(self.local_ca_guid, 64))?;
        visitor.field("private_data", "Private Data", Value::Bytes(self.private_data.trimmed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let rep = Rep {
            local_comm_id: CommId(0x0102_0304),
            remote_comm_id: CommId(0x1112_1314),
            local_qkey: QKey(0x2122_2324),
            local_qpn: Qpn::new(0x31_3233),
            local_eecn: 0x41_4243,
            starting_psn: Psn::new(0x51_5253),
            vendor_id: 0x34_4454,
            responder_resources: 0x61,
            initiator_depth: 0x62,
            target_ack_delay: Timeout::new(0b01111),
            failover: Failover::NotSupported,
            end_to_end_flow_control: true,
            rnr_retry_count: 0b101,
            srq: true,
            local_ca_guid: 0x7172_7374_7576_7778,
            private_data: Opaque([0x81; 196]),
        };
        let start = [
            [0x01, 0x02, 0x03, 0x04],
            [0x11, 0x12, 0x13, 0x14],
            [0x21, 0x22, 0x23, 0x24],
            [0x31, 0x32, 0x33, 0x34],
            [0x41, 0x42, 0x43, 0x44],
            [0x51, 0x52, 0x53, 0x54],
            [0x61, 0x62, 0b0111_1011, 0b1011_0000],
            [0x71, 0x72, 0x73, 0x74],
            [0x75, 0x76, 0x77, 0x78],
        ];
        let mut body = [0xee; BODY_LEN];
        rep.emit(&mut body);
        assert_eq!(body[..36], *start.as_flattened());
        assert_eq!(body[36..], [0x81; 196]);
        assert_eq!(Rep::parse(&body), rep);
    }
}
