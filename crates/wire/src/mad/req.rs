//! REQ: one side asks the other for a connection.

use core::fmt;

use super::{
    BODY_LEN, CommId, IpCmHeader, Opaque, ReqPath, ServiceId, Timeout, TransportService, bits, ip, place,
};
use crate::bytes::{field, put, put_u24, u24};
use crate::describe::{Describe, Value, Visitor};
use crate::{PKey, PathMtu, Psn, QKey, Qpn};

/// Connection request (IBA 12.6.5). "Local" is the side that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Req {
    /// The requester's name for the connection.
    pub local_comm_id: CommId,
    /// The vendor whose additions the private data follow, 24 bits; zero for none.
    pub vendor_id: u32,
    /// What the requester wants to be connected to.
    pub service_id: ServiceId,
    /// GUID of the requester's adapter.
    pub local_ca_guid: u64,
    /// Q_Key of the requester's queue pair; only reliable datagrams use it.
    pub local_qkey: QKey,
    /// The requester's queue pair.
    pub local_qpn: Qpn,
    /// How many READs and atomics of the peer the requester can serve at a time.
    pub responder_resources: u8,
    /// End-to-end context of the requester, 24 bits; only reliable datagrams use it.
    pub local_eecn: u32,
    /// How many READs and atomics the requester wants to have in flight.
    pub initiator_depth: u8,
    /// End-to-end context of the replier, 24 bits; only reliable datagrams use it.
    pub remote_eecn: u32,
    /// How long the replier may take to answer.
    pub remote_cm_response_timeout: Timeout,
    /// Kind of queue pair.
    pub transport_service: TransportService,
    /// Whether the requester's ACKs carry credits.
    pub end_to_end_flow_control: bool,
    /// PSN with which the *replier* shall begin to send: what the requester expects first (IBA 12.7).
    pub starting_psn: Psn,
    /// How long the requester may take to answer.
    pub local_cm_response_timeout: Timeout,
    /// How often the replier shall retry a packet, 3 bits.
    pub retry_count: u8,
    /// Partition of the connection.
    pub pkey: PKey,
    /// Code of the path MTU, 4 bits, see [`mtu`](Self::mtu). Kept as a code,
    /// because a request with an undefined one is to be answered with
    /// [`RejectReason::INVALID_PATH_MTU`](super::RejectReason::INVALID_PATH_MTU).
    pub path_mtu: u8,
    /// Whether the reliable datagram channel already exists.
    pub rdc_exists: bool,
    /// How often the replier shall retry when the requester is not ready, 3 bits; 7 is for ever.
    pub rnr_retry_count: u8,
    /// How often either side may repeat a connection-management message, 4 bits.
    pub max_cm_retries: u8,
    /// Whether the requester's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// With [`TransportService::Extended`], which one, 3 bits; 1 is XRC (IBA A14).
    pub extended_transport: u8,
    /// The path to use.
    pub primary: ReqPath,
    /// The path to change over to; zero if there is none.
    pub alternate: ReqPath,
    /// What the consumer adds. For an IP service it begins with an [`IpCmHeader`].
    pub private_data: Opaque<92>,
}

impl Req {
    /// The attribute ID of this message.
    pub const ATTRIBUTE_ID: u16 = 0x10;

    /// Reads the message.
    #[must_use]
    pub const fn parse(body: &[u8; BODY_LEN]) -> Self {
        let [responder_resources] = field::<35, 1, _>(body);
        let [initiator_depth] = field::<39, 1, _>(body);
        let [remote_timeout] = field::<43, 1, _>(body);
        let [local_timeout] = field::<47, 1, _>(body);
        let [mtu, retries] = field::<50, 2, _>(body);
        Self {
            local_comm_id: CommId(u32::from_be_bytes(field::<0, 4, _>(body))),
            vendor_id: u24::<5, _>(body),
            service_id: ServiceId(u64::from_be_bytes(field::<8, 8, _>(body))),
            local_ca_guid: u64::from_be_bytes(field::<16, 8, _>(body)),
            local_qkey: QKey(u32::from_be_bytes(field::<28, 4, _>(body))),
            local_qpn: Qpn::new(u24::<32, _>(body)),
            responder_resources,
            local_eecn: u24::<36, _>(body),
            initiator_depth,
            remote_eecn: u24::<40, _>(body),
            remote_cm_response_timeout: Timeout::new(bits::<3, 5>(remote_timeout)),
            transport_service: TransportService::new(bits::<1, 2>(remote_timeout)),
            end_to_end_flow_control: bits::<0, 1>(remote_timeout) != 0,
            starting_psn: Psn::new(u24::<44, _>(body)),
            local_cm_response_timeout: Timeout::new(bits::<3, 5>(local_timeout)),
            retry_count: bits::<0, 3>(local_timeout),
            pkey: PKey(u16::from_be_bytes(field::<48, 2, _>(body))),
            path_mtu: bits::<4, 4>(mtu),
            rdc_exists: bits::<3, 1>(mtu) != 0,
            rnr_retry_count: bits::<0, 3>(mtu),
            max_cm_retries: bits::<4, 4>(retries),
            srq: bits::<3, 1>(retries) != 0,
            extended_transport: bits::<0, 3>(retries),
            primary: ReqPath::parse(&field::<52, { ReqPath::LEN }, _>(body)),
            alternate: ReqPath::parse(&field::<96, { ReqPath::LEN }, _>(body)),
            private_data: Opaque(field::<140, 92, _>(body)),
        }
    }

    /// Writes the message.
    pub const fn emit(&self, body: &mut [u8; BODY_LEN]) {
        *body = [0; BODY_LEN];
        put::<0, 4, _>(body, self.local_comm_id.0.to_be_bytes());
        put_u24::<5, _>(body, self.vendor_id);
        put::<8, 8, _>(body, self.service_id.0.to_be_bytes());
        put::<16, 8, _>(body, self.local_ca_guid.to_be_bytes());
        put::<28, 4, _>(body, self.local_qkey.0.to_be_bytes());
        put_u24::<32, _>(body, self.local_qpn.get());
        put::<35, 1, _>(body, [self.responder_resources]);
        put_u24::<36, _>(body, self.local_eecn);
        put::<39, 1, _>(body, [self.initiator_depth]);
        put_u24::<40, _>(body, self.remote_eecn);
        let remote_timeout = place::<3, 5>(self.remote_cm_response_timeout.code())
            | place::<1, 2>(self.transport_service.code())
            | place::<0, 1>(self.end_to_end_flow_control as u8);
        put::<43, 1, _>(body, [remote_timeout]);
        put_u24::<44, _>(body, self.starting_psn.get());
        let local_timeout =
            place::<3, 5>(self.local_cm_response_timeout.code()) | place::<0, 3>(self.retry_count);
        put::<47, 1, _>(body, [local_timeout]);
        put::<48, 2, _>(body, self.pkey.0.to_be_bytes());
        let mtu = place::<4, 4>(self.path_mtu)
            | place::<3, 1>(self.rdc_exists as u8)
            | place::<0, 3>(self.rnr_retry_count);
        let retries = place::<4, 4>(self.max_cm_retries)
            | place::<3, 1>(self.srq as u8)
            | place::<0, 3>(self.extended_transport);
        put::<50, 2, _>(body, [mtu, retries]);
        let mut path = [0; ReqPath::LEN];
        self.primary.emit(&mut path);
        put::<52, { ReqPath::LEN }, _>(body, path);
        self.alternate.emit(&mut path);
        put::<96, { ReqPath::LEN }, _>(body, path);
        put::<140, 92, _>(body, self.private_data.0);
    }

    /// The path MTU, if its code is defined.
    #[must_use]
    pub const fn mtu(&self) -> Option<PathMtu> {
        PathMtu::from_code(bits::<0, 4>(self.path_mtu))
    }

    /// The IP CM header and the consumer's own private data behind it, if an IP
    /// service is asked for and the header can be read.
    #[must_use]
    pub fn ip(&self) -> Option<(IpCmHeader, &[u8])> {
        IpCmHeader::split(self.service_id, &self.private_data.0)
    }
}

impl Describe for Req {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header("cm.req", "CM ConnectRequest", 52)?;
        visitor.field("local_comm_id", "Local Communication ID", Value::hex(self.local_comm_id.0, 32))?;
        visitor.field("vendor_id", "Vendor ID", Value::hex(self.vendor_id, 24))?;
        visitor.field("service_id", "Service ID", Value::hex(self.service_id.0, 64))?;
        visitor.field("local_ca_guid", "Local CA GUID", Value::hex(self.local_ca_guid, 64))?;
        visitor.field("local_qkey", "Local Q_Key", Value::hex(self.local_qkey.0, 32))?;
        visitor.field("local_qpn", "Local QPN", Value::hex(self.local_qpn.get(), 24))?;
        visitor.field(
            "responder_resources",
            "Responder Resources",
            Value::decimal(self.responder_resources),
        )?;
        visitor.field("local_eecn", "Local EECN", Value::hex(self.local_eecn, 24))?;
        visitor.field("initiator_depth", "Initiator Depth", Value::decimal(self.initiator_depth))?;
        visitor.field("remote_eecn", "Remote EECN", Value::hex(self.remote_eecn, 24))?;
        visitor.field(
            "remote_cm_response_timeout",
            "Remote CM Response Timeout",
            Value::decimal(self.remote_cm_response_timeout.code()),
        )?;
        visitor.field("transport_service", "Transport Service Type", self.transport_service.value())?;
        visitor.field(
            "end_to_end_flow_control",
            "End-to-End Flow Control",
            Value::Flag(self.end_to_end_flow_control),
        )?;
        visitor.field("starting_psn", "Starting PSN", Value::hex(self.starting_psn.get(), 24))?;
        visitor.field(
            "local_cm_response_timeout",
            "Local CM Response Timeout",
            Value::decimal(self.local_cm_response_timeout.code()),
        )?;
        visitor.field("retry_count", "Retry Count", Value::decimal(self.retry_count))?;
        visitor.field("pkey", "Partition Key", Value::hex(self.pkey.0, 16))?;
        visitor.field("path_mtu", "Path Packet Payload MTU", mtu_value(self.path_mtu))?;
        visitor.field("rdc_exists", "RDC Exists", Value::Flag(self.rdc_exists))?;
        visitor.field("rnr_retry_count", "RNR Retry Count", Value::decimal(self.rnr_retry_count))?;
        visitor.field("max_cm_retries", "Max CM Retries", Value::decimal(self.max_cm_retries))?;
        visitor.field("srq", "SRQ", Value::Flag(self.srq))?;
        visitor.field("extended_transport", "Extended Transport", Value::decimal(self.extended_transport))?;
        self.primary.describe_as("cm.req.primary", "CM Primary Path", visitor)?;
        self.alternate.describe_as("cm.req.alternate", "CM Alternate Path", visitor)?;
        let keys = ["cm.req.ip", "cm.req.private"];
        ip::describe_private_data(keys, self.service_id, &self.private_data.0, visitor)
    }
}

fn mtu_value(code: u8) -> Value<'static> {
    let bytes = match PathMtu::from_code(code) {
        Some(PathMtu::B256) => "256",
        Some(PathMtu::B512) => "512",
        Some(PathMtu::B1024) => "1024",
        Some(PathMtu::B2048) => "2048",
        Some(PathMtu::B4096) => "4096",
        None => return Value::hex(code, 4),
    };
    Value::named(bytes, code, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_field_distinct() -> Req {
        Req {
            local_comm_id: CommId(0x0102_0304),
            vendor_id: 0x05_0607,
            service_id: ServiceId(0x1112_1314_1516_1718),
            local_ca_guid: 0x2122_2324_2526_2728,
            local_qkey: QKey(0x3132_3334),
            local_qpn: Qpn::new(0x41_4243),
            responder_resources: 0x44,
            local_eecn: 0x51_5253,
            initiator_depth: 0x54,
            remote_eecn: 0x61_6263,
            remote_cm_response_timeout: Timeout::new(0b10110),
            transport_service: TransportService::Rd,
            end_to_end_flow_control: true,
            starting_psn: Psn::new(0x71_7273),
            local_cm_response_timeout: Timeout::new(0b01101),
            retry_count: 0b110,
            pkey: PKey(0x8182),
            path_mtu: 0b0101,
            rdc_exists: true,
            rnr_retry_count: 0b011,
            max_cm_retries: 0b1001,
            srq: true,
            extended_transport: 0b001,
            primary: ReqPath { local_lid: 0x9192, hop_limit: 0x93, ..ReqPath::default() },
            alternate: ReqPath { local_lid: 0xa1a2, hop_limit: 0xa3, ..ReqPath::default() },
            private_data: Opaque([0xb1; 92]),
        }
    }

    #[test]
    fn every_field_has_its_place() {
        let mut body = [0xee; BODY_LEN];
        every_field_distinct().emit(&mut body);
        let start = [
            [0x01, 0x02, 0x03, 0x04],
            [0x00, 0x05, 0x06, 0x07],
            [0x11, 0x12, 0x13, 0x14],
            [0x15, 0x16, 0x17, 0x18],
            [0x21, 0x22, 0x23, 0x24],
            [0x25, 0x26, 0x27, 0x28],
            [0x00, 0x00, 0x00, 0x00],
            [0x31, 0x32, 0x33, 0x34],
            [0x41, 0x42, 0x43, 0x44],
            [0x51, 0x52, 0x53, 0x54],
            [0x61, 0x62, 0x63, 0b1011_0101],
            [0x71, 0x72, 0x73, 0b0110_1110],
            [0x81, 0x82, 0b0101_1011, 0b1001_1001],
        ];
        assert_eq!(body[..52], *start.as_flattened());
        assert_eq!((body[52], body[53], body[93]), (0x91, 0x92, 0x93));
        assert_eq!((body[96], body[97], body[137]), (0xa1, 0xa2, 0xa3));
        assert_eq!(body[140..], [0xb1; 92]);
        assert_eq!(Req::parse(&body), every_field_distinct());
    }

    #[test]
    fn wide_values_cannot_spill_into_their_neighbours() {
        let wide = Req {
            vendor_id: u32::MAX,
            local_eecn: u32::MAX,
            retry_count: 0xff,
            path_mtu: 0xff,
            rnr_retry_count: 0xff,
            max_cm_retries: 0xff,
            extended_transport: 0xff,
            pkey: PKey(0),
            ..Req::default()
        };
        let mut body = [0; BODY_LEN];
        wide.emit(&mut body);
        assert_eq!(body[4..8], [0, 0xff, 0xff, 0xff]);
        assert_eq!(body[36..40], [0xff, 0xff, 0xff, 0]);
        assert_eq!(body[47..52], [0b0000_0111, 0, 0, 0b1111_0111, 0b1111_0111]);
    }
}
