//! Attributes of queue pairs, in our words and in those of the library.

use ferroce_cabi::{IBV_QP_AV, ibv_qp_attr, ibv_qp_cap};
use ferroce_transport::{Access, AttributeMask, Attributes, Caps, State};
use ferroce_wire::{PathMtu, Psn, QKey, Qpn};
use libc::c_int;

use crate::address::Address;
use crate::handle::Zero;

/// Everything that is known of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairState {
    /// Its attributes.
    pub attributes: Attributes,
    /// Where its peer is, if it is connected.
    pub address: Option<Address>,
    /// How large its queues are.
    pub caps: Caps,
}

/// The largest number of tries that the kernel's soft device ever gives up after: it takes 7, which is for ever there, for
/// the 7 tries that it is on cards.
const SOFT_RETRIES: u8 = 6;

/// The attributes and the mask that the library gets.
pub(crate) fn to_c(given: &Attributes, address: Option<&Address>) -> (ibv_qp_attr, c_int) {
    let mut attr = ibv_qp_attr::zero();
    attr.qp_state = c_int::from(given.state.code());
    attr.cur_qp_state = c_int::from(given.current_state.code());
    attr.path_mtu = c_int::from(given.path_mtu.code());
    attr.qkey = given.qkey.0;
    attr.rq_psn = given.rq_psn.get();
    attr.sq_psn = given.sq_psn.get();
    attr.dest_qp_num = given.dest_qpn.get();
    attr.qp_access_flags = given.access.bits();
    attr.pkey_index = given.pkey_index;
    attr.en_sqd_async_notify = u8::from(given.notify_drained);
    attr.max_rd_atomic = given.max_rd_atomic;
    attr.max_dest_rd_atomic = given.max_dest_rd_atomic;
    attr.min_rnr_timer = given.min_rnr_timer;
    attr.port_num = given.port;
    attr.timeout = given.timeout;
    attr.retry_cnt = given.retry_count;
    attr.rnr_retry = given.rnr_retry;
    attr.rate_limit = given.rate_limit;
    let mut mask = given.mask.bits();
    if let Some(address) = address {
        attr.ah_attr = address.to_c();
        mask |= IBV_QP_AV;
    }
    (attr, mask.cast_signed())
}

/// Has a queue pair of the kernel's soft device give up after some tries, and have no more READs under way than the program
/// said: it takes the next power of two, which the peer may not have room for.
pub(crate) fn for_soft(attr: &mut ibv_qp_attr, is_soft: bool) {
    if is_soft {
        attr.retry_cnt = attr.retry_cnt.min(SOFT_RETRIES);
        attr.max_rd_atomic = attr.max_rd_atomic.checked_ilog2().map_or(0, |power| 1 << power);
    }
}

/// All that the library is asked for.
pub(crate) fn all() -> c_int {
    AttributeMask::all().difference(AttributeMask::RATE_LIMIT).bits().cast_signed()
}

/// What it has answered.
pub(crate) fn of_c(attr: &ibv_qp_attr) -> QueuePairState {
    let mut known = Attributes::new();
    known.state = u8::try_from(attr.qp_state).ok().and_then(State::from_code).unwrap_or(State::Err);
    known.current_state = known.state;
    known.access = Access::from_bits_truncate(attr.qp_access_flags);
    known.path_mtu = u8::try_from(attr.path_mtu).ok().and_then(PathMtu::from_code).unwrap_or(PathMtu::B256);
    known.qkey = QKey(attr.qkey);
    known.rq_psn = Psn::new(attr.rq_psn);
    known.sq_psn = Psn::new(attr.sq_psn);
    known.dest_qpn = Qpn::new(attr.dest_qp_num);
    known.pkey_index = attr.pkey_index;
    known.notify_drained = attr.en_sqd_async_notify != 0;
    known.max_rd_atomic = attr.max_rd_atomic;
    known.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    known.min_rnr_timer = attr.min_rnr_timer;
    known.port = attr.port_num;
    known.timeout = attr.timeout;
    known.retry_count = attr.retry_cnt;
    known.rnr_retry = attr.rnr_retry;
    known.rate_limit = attr.rate_limit;
    known.draining = attr.sq_draining != 0;
    let address = (attr.ah_attr.is_global != 0).then(|| Address::of(&attr.ah_attr));
    QueuePairState { attributes: known, address, caps: caps_of(&attr.cap) }
}

pub(crate) const fn caps_of(cap: &ibv_qp_cap) -> Caps {
    Caps {
        max_send: cap.max_send_wr,
        max_receive: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_receive_sge: cap.max_recv_sge,
        max_inline: cap.max_inline_data,
    }
}

pub(crate) const fn cap_of(caps: &Caps) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: caps.max_send,
        max_recv_wr: caps.max_receive,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: caps.max_receive_sge,
        max_inline_data: caps.max_inline,
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::Gid;

    use super::*;

    #[test]
    fn attributes_go_to_the_library_and_come_back() {
        let given = Attributes::to(State::Rtr)
            .with_path_mtu(PathMtu::B4096)
            .with_dest_qpn(Qpn::new(0x1234))
            .with_rq_psn(Psn::new(9))
            .with_max_dest_rd_atomic(3)
            .with_min_rnr_timer(12);
        let address = Address { flow_label: 5, service_level: 2, ..Address::new(Gid([7; 16]), 3) };
        let (attr, mask) = to_c(&given, Some(&address));
        assert_eq!(mask.cast_unsigned(), (given.mask | AttributeMask::AV).bits());
        let back = of_c(&attr);
        assert_eq!(back.address, Some(address));
        assert_eq!(Attributes { mask: given.mask, current_state: State::Reset, ..back.attributes }, given);
    }

    #[test]
    fn the_kernels_soft_device_is_never_asked_to_try_for_ever() {
        for (given, soft, tries) in [(7, true, 6), (7, false, 7), (3, true, 3)] {
            let (mut attr, _) = to_c(&Attributes::new().with_retry_count(given), None);
            for_soft(&mut attr, soft);
            assert_eq!(attr.retry_cnt, tries);
        }
    }

    #[test]
    fn the_kernels_soft_device_has_no_more_reads_under_way_than_were_asked_for() {
        for (given, soft, reads) in
            [(3, true, 2), (3, false, 3), (4, true, 4), (0, true, 0), (255, true, 128)]
        {
            let (mut attr, _) = to_c(&Attributes::new().with_max_rd_atomic(given), None);
            for_soft(&mut attr, soft);
            assert_eq!(attr.max_rd_atomic, reads);
        }
    }
}
