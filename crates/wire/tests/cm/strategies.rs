//! Connection-management messages by chance: every field takes every value it can have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_wire::mad::{
    AnswerTo, CmMad, CmMessage, CommId, Drep, Dreq, Failover, IpCmHeader, IpPair, Mra, Opaque, PortSpace,
    Rej, RejectReason, Rep, Req, ReqPath, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus, Timeout,
    TransportService,
};
use ferroce_wire::{Gid, PKey, Psn, QKey, Qpn};
use proptest::prelude::*;

pub(crate) fn any_bytes() -> impl Strategy<Value = [u8; CmMad::LEN]> {
    proptest::array::uniform(any::<u8>())
}

fn opaque<const N: usize>() -> impl Strategy<Value = Opaque<N>> {
    prop_oneof![Just(Opaque::default()), proptest::array::uniform(any::<u8>()).prop_map(Opaque)]
}

fn u24() -> impl Strategy<Value = u32> {
    0..1_u32 << 24
}

fn timeout() -> impl Strategy<Value = Timeout> {
    any::<u8>().prop_map(Timeout::new)
}

fn comm_id() -> impl Strategy<Value = CommId> {
    any::<u32>().prop_map(CommId)
}

fn service_id() -> impl Strategy<Value = ServiceId> {
    let ip_port = any::<u16>().prop_map(|port| ServiceId::rdma_ip(PortSpace::Tcp, port));
    prop_oneof![ip_port, any::<u64>().prop_map(ServiceId)]
}

prop_compose! {
    pub(crate) fn ip_cm_header()(
        minor_version in 0..16_u8,
        source_port: u16,
        source: IpAddr,
        destination: [u8; 16],
    ) -> IpCmHeader {
        let addresses = match source {
            IpAddr::V4(source) => {
                let [a, b, c, d, ..] = destination;
                IpPair::V4 { source, destination: Ipv4Addr::new(a, b, c, d) }
            }
            IpAddr::V6(source) => IpPair::V6 { source, destination: Ipv6Addr::from(destination) },
        };
        IpCmHeader { minor_version, source_port, addresses }
    }
}

prop_compose! {
    fn path()(
        lids: [u16; 2],
        gids: [[u8; 16]; 2],
        flow_label in 0..1_u32 << 20,
        packet_rate in 0..64_u8,
        traffic_class: u8,
        hop_limit: u8,
        service_level in 0..16_u8,
        subnet_local: bool,
        local_ack_timeout in timeout(),
    ) -> ReqPath {
        let ([local_lid, remote_lid], [local_gid, remote_gid]) = (lids, gids.map(Gid));
        ReqPath {
            local_lid, remote_lid, local_gid, remote_gid, flow_label, packet_rate, traffic_class, hop_limit,
            service_level, subnet_local, local_ack_timeout,
        }
    }
}

prop_compose! {
    fn req()(
        local_comm_id in comm_id(),
        vendor_id in u24(),
        service_id in service_id(),
        local_ca_guid: u64,
        keys: (u32, u16),
        numbers: [u32; 2],
        counts: [u8; 2],
        eecns in [u24(), u24()],
        timeouts in [timeout(), timeout()],
        service: u8,
        flags: [bool; 3],
        three_bits in [0..8_u8, 0..8, 0..8],
        four_bits in [0..16_u8, 0..16],
        paths in [path(), path()],
        private_data in opaque(),
    ) -> Req {
        let [primary, alternate] = paths;
        Req {
            local_comm_id, vendor_id, service_id, local_ca_guid,
            local_qkey: QKey(keys.0),
            local_qpn: Qpn::new(numbers[0]),
            responder_resources: counts[0],
            local_eecn: eecns[0],
            initiator_depth: counts[1],
            remote_eecn: eecns[1],
            remote_cm_response_timeout: timeouts[0],
            transport_service: TransportService::new(service),
            end_to_end_flow_control: flags[0],
            starting_psn: Psn::new(numbers[1]),
            local_cm_response_timeout: timeouts[1],
            retry_count: three_bits[0],
            pkey: PKey(keys.1),
            path_mtu: four_bits[0],
            rdc_exists: flags[1],
            rnr_retry_count: three_bits[1],
            max_cm_retries: four_bits[1],
            srq: flags[2],
            extended_transport: three_bits[2],
            primary, alternate, private_data,
        }
    }
}

prop_compose! {
    fn rep()(
        ids in [comm_id(), comm_id()],
        qkey: u32,
        numbers: [u32; 2],
        twenty_four_bits in [u24(), u24()],
        counts: [u8; 2],
        target_ack_delay in timeout(),
        failover: u8,
        flags: [bool; 2],
        rnr_retry_count in 0..8_u8,
        local_ca_guid: u64,
        private_data in opaque(),
    ) -> Rep {
        Rep {
            local_comm_id: ids[0],
            remote_comm_id: ids[1],
            local_qkey: QKey(qkey),
            local_qpn: Qpn::new(numbers[0]),
            local_eecn: twenty_four_bits[0],
            starting_psn: Psn::new(numbers[1]),
            vendor_id: twenty_four_bits[1],
            responder_resources: counts[0],
            initiator_depth: counts[1],
            target_ack_delay,
            failover: Failover::new(failover),
            end_to_end_flow_control: flags[0],
            rnr_retry_count,
            srq: flags[1],
            local_ca_guid, private_data,
        }
    }
}

prop_compose! {
    fn rej()(
        ids in [comm_id(), comm_id()],
        message: u8,
        info_len in 0..128_u8,
        reason: u16,
        info in opaque(),
        private_data in opaque(),
    ) -> Rej {
        let ([local_comm_id, remote_comm_id], message) = (ids, AnswerTo::new(message));
        let reason = RejectReason(reason);
        Rej { local_comm_id, remote_comm_id, message, info_len, reason, info, private_data }
    }
}

prop_compose! {
    fn mra()(
        ids in [comm_id(), comm_id()],
        message: u8,
        service_timeout in timeout(),
        private_data in opaque(),
    ) -> Mra {
        let ([local_comm_id, remote_comm_id], message) = (ids, AnswerTo::new(message));
        Mra { local_comm_id, remote_comm_id, message, service_timeout, private_data }
    }
}

prop_compose! {
    fn sidr_rep()(
        request_id: u32,
        status: u8,
        info_len: u8,
        vendor_id in u24(),
        qpn: u32,
        service_id in service_id(),
        qkey: u32,
        info in opaque(),
        private_data in opaque(),
    ) -> SidrRep {
        let (status, qpn, qkey) = (SidrStatus(status), Qpn::new(qpn), QKey(qkey));
        SidrRep { request_id, status, info_len, vendor_id, qpn, service_id, qkey, info, private_data }
    }
}

fn message() -> impl Strategy<Value = CmMessage> {
    let ids = || (comm_id(), comm_id());
    let rtu = (ids(), opaque()).prop_map(|((local_comm_id, remote_comm_id), private_data)| Rtu {
        local_comm_id,
        remote_comm_id,
        private_data,
    });
    let dreq =
        (ids(), any::<u32>(), opaque()).prop_map(|((local_comm_id, remote_comm_id), qpn, private_data)| {
            Dreq { local_comm_id, remote_comm_id, remote_qpn: Qpn::new(qpn), private_data }
        });
    let drep = (ids(), opaque()).prop_map(|((local_comm_id, remote_comm_id), private_data)| Drep {
        local_comm_id,
        remote_comm_id,
        private_data,
    });
    let sidr_req = (any::<u32>(), any::<u16>(), service_id(), opaque()).prop_map(
        |(request_id, pkey, service_id, private_data)| SidrReq {
            request_id,
            pkey: PKey(pkey),
            service_id,
            private_data,
        },
    );
    prop_oneof![
        req().prop_map(CmMessage::Req),
        rep().prop_map(CmMessage::Rep),
        rtu.prop_map(CmMessage::Rtu),
        rej().prop_map(CmMessage::Rej),
        mra().prop_map(CmMessage::Mra),
        dreq.prop_map(CmMessage::Dreq),
        drep.prop_map(CmMessage::Drep),
        sidr_req.prop_map(CmMessage::SidrReq),
        sidr_rep().prop_map(CmMessage::SidrRep),
    ]
}

prop_compose! {
    pub(crate) fn mad()(
        transaction_id: u64,
        status: u16,
        class_specific: u16,
        attribute_modifier: u32,
        message in message(),
    ) -> CmMad {
        CmMad { transaction_id, status, class_specific, attribute_modifier, message }
    }
}
