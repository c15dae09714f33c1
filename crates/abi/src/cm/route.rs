//! The path record of an id: there is one way between two addresses, and this says which.

use std::net::SocketAddr;

use ferroce_cabi::cm::ibv_sa_path_rec;
use ferroce_cabi::ibv_gid;
use ferroce_wire::Gid;

use super::attr::ACK_TIMEOUT;
use super::id::Id;

/// "Exactly this", in a field that says how the next one is meant.
const EXACTLY: u8 = 2;

/// Writes the way from one address to the other into an id.
pub(crate) fn write(id: &Id, source: SocketAddr, destination: SocketAddr, tos: u8) {
    let ports = u32::from(source.port()).wrapping_mul(31).wrapping_add(destination.port().into());
    let device = id.mtu_code();
    let record = ibv_sa_path_rec {
        dgid: ibv_gid { raw: Gid::from(destination.ip()).0 },
        sgid: ibv_gid { raw: Gid::from(source.ip()).0 },
        dlid: 0,
        slid: 0,
        raw_traffic: 0,
        flow_label: (ports & 0xf_ffff).to_be(),
        hop_limit: 64,
        traffic_class: tos,
        reversible: 1,
        numb_path: 1,
        pkey: 0xffff_u16.to_be(),
        sl: 0,
        mtu_selector: EXACTLY,
        mtu: device,
        rate_selector: EXACTLY,
        rate: 0,
        packet_life_time_selector: EXACTLY,
        packet_life_time: ACK_TIMEOUT - 1,
        preference: 27,
    };
    free(id.path_rec());
    id.set_path_rec(Box::into_raw(Box::new(record)));
    id.set_num_paths(1);
}

/// Gives a path record back.
pub(crate) fn free(record: *mut ibv_sa_path_rec) {
    if !record.is_null() {
        // SAFETY: it came from `write`, and its id forgets it.
        drop(unsafe { Box::from_raw(record) });
    }
}
