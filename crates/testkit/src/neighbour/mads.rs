//! Lies of connection management.

use ferroce_wire::PathMtu;
use ferroce_wire::Qpn;
use ferroce_wire::mad::{
    CmMad, CmMessage, CommId, Drep, Dreq, IpCmHeader, IpPair, Mra, PortSpace, Rej, RejectReason, Rep, Req,
    ReqPath, Rtu, ServiceId, SidrRep, SidrReq, Timeout,
};
use rand_core::Rng;

use super::{Lie, Target};

/// The datagram of a lie; nothing for one that is not of connection management.
pub(super) fn build(lie: Lie, target: &Target, random: &mut impl Rng) -> Option<[u8; CmMad::LEN]> {
    // As the peer names them, and as the target does.
    let (local_comm_id, remote_comm_id) = (target.peer_name, target.name);
    let message: CmMessage = match lie {
        Lie::Request => Req { local_comm_id: CommId(random.next_u32()), ..request(target) }.into(),
        Lie::RequestAgain => request(target).into(),
        Lie::RequestFlood => {
            let local_qpn = Qpn::new(random.next_u32() & 0xff_ffff | 0x100);
            Req { local_comm_id: CommId(random.next_u32()), local_qpn, ..request(target) }.into()
        }
        Lie::Reply => Rep {
            local_comm_id,
            remote_comm_id,
            local_qpn: target.peer_qpn,
            starting_psn: target.expects,
            ..Rep::default()
        }
        .into(),
        Lie::Ready => Rtu { local_comm_id, remote_comm_id, ..Rtu::default() }.into(),
        Lie::Reject => {
            let reason = RejectReason::STALE_CONNECTION;
            Rej { local_comm_id, remote_comm_id, reason, ..Rej::default() }.into()
        }
        Lie::RejectUnnamed => {
            let (remote_comm_id, reason) = (CommId(0), RejectReason::STALE_CONNECTION);
            Rej { local_comm_id, remote_comm_id, reason, ..Rej::default() }.into()
        }
        Lie::Wait => {
            let service_timeout = Timeout::new(31);
            Mra { local_comm_id, remote_comm_id, service_timeout, ..Mra::default() }.into()
        }
        Lie::Disconnect => {
            Dreq { local_comm_id, remote_comm_id, remote_qpn: target.qpn, ..Dreq::default() }.into()
        }
        Lie::Disconnected => Drep { local_comm_id, remote_comm_id, ..Drep::default() }.into(),
        Lie::Resolve => SidrReq {
            request_id: random.next_u32(),
            service_id: ServiceId::rdma_ip(PortSpace::Udp, target.listens),
            private_data: header(target).private_data(b"").ok()?,
            ..SidrReq::default()
        }
        .into(),
        Lie::Resolved => {
            SidrRep { request_id: target.name.0, qpn: target.peer_qpn, ..SidrRep::default() }.into()
        }
        _ => return None,
    };
    let mut bytes = [0; CmMad::LEN];
    CmMad::new(random.next_u64(), message).emit(&mut bytes);
    Some(bytes)
}

/// A request that nothing is wrong with, from the peer's queue pair to the target's process.
fn request(target: &Target) -> Req {
    Req {
        local_comm_id: target.peer_name,
        service_id: ServiceId::rdma_ip(PortSpace::Tcp, target.listens),
        local_qpn: target.peer_qpn,
        path_mtu: PathMtu::B4096.code(),
        max_cm_retries: 15,
        primary: ReqPath {
            local_gid: target.peer.into(),
            remote_gid: target.address.into(),
            ..ReqPath::default()
        },
        private_data: header(target).private_data(b"").unwrap_or_default(),
        ..Req::default()
    }
}

fn header(target: &Target) -> IpCmHeader {
    let pair = IpPair::new(target.peer, target.address);
    IpCmHeader::new(1, pair.expect("addresses of one family"))
}
