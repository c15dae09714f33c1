//! Addresses: handles for datagrams, and multicast groups.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_cabi::{
    IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_qp, ibv_wc,
};
use ferroce_device::{AddressHandle, AddressVector, SourcePort, Uncancelled};
use ferroce_wire::Gid;
use libc::c_int;

use crate::context::{Context, object};
use crate::domain::Pd;
use crate::fork;
use crate::object::{Zero, filled, given, seen, taken};
use crate::qp::Qp;
use crate::refusal::{Answer, Refused, minus_one, number, pointer};
use crate::strings::{ibv_rate_to_mbps, mbps_to_ibv_rate};

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: ibv_ah,
    pd: &'static Pd,
    pub(crate) generation: u32,
    pub(crate) handle: Arc<AddressHandle>,
}

object!(Ah, ibv_ah, "address handle");

/// An address in the device's words. On Ethernet there is no other way than by GID.
pub(crate) fn vector_of(attr: &ibv_ah_attr) -> Answer<AddressVector> {
    if attr.is_global == 0 {
        return Err(Refused::invalid("the address has no GID; set is_global, on Ethernet LIDs lead nowhere"));
    }
    if attr.port_num > 1 {
        return Err(Refused::invalid(format_args!("port {}: the device has one, number 1", attr.port_num)));
    }
    Ok(AddressVector {
        gid: Gid(attr.grh.dgid.raw),
        sgid_index: usize::from(attr.grh.sgid_index),
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
        flow_label: attr.grh.flow_label,
        source_port: SourcePort::Any,
        static_rate: rate_of(attr.static_rate)?,
    })
}

/// The rate of a code in kilobits per second; 0 is any rate.
fn rate_of(code: u8) -> Answer<u32> {
    if code == 0 {
        return Ok(0);
    }
    let known = u32::try_from(ibv_rate_to_mbps(code.into())).ok();
    let known = known.ok_or_else(|| Refused::invalid(format_args!("{code} is the code of no static rate")));
    known.map(|rate| rate.saturating_mul(1000))
}

/// The same in C's words.
pub(crate) fn attr_of(vector: &AddressVector) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zero();
    attr.grh = ibv_global_route {
        dgid: ibv_gid { raw: vector.gid.0 },
        flow_label: vector.flow_label,
        sgid_index: u8::try_from(vector.sgid_index).unwrap_or(u8::MAX),
        hop_limit: vector.hop_limit,
        traffic_class: vector.traffic_class,
    };
    attr.static_rate = code_of(vector.static_rate);
    attr.is_global = 1;
    attr.port_num = 1;
    attr
}

/// The code of a rate; 0 if there is none.
fn code_of(rate: u32) -> u8 {
    let mbps = c_int::try_from(rate / 1000).unwrap_or(0);
    if rate == 0 { 0 } else { u8::try_from(mbps_to_ibv_rate(mbps)).unwrap_or(0) }
}

fn make(pd: &'static Pd, attr: &ibv_ah_attr) -> Answer<*mut ibv_ah> {
    let handle = AddressHandle::new(&pd.context.nic, vector_of(attr)?)?;
    pd.handles.fetch_add(1, Ordering::Relaxed);
    pd.context.made_one();
    let c = ibv_ah { context: pd.context.as_c(), pd: pd.as_c(), handle: handle.number() };
    Ok(given(Ah { c, pd, generation: fork::generation(), handle }).cast())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live domain, or null.
    let pd = unsafe { Pd::of(pd) };
    // SAFETY: the caller passes attributes of its own, or null.
    let attr = unsafe { seen(attr, "attributes") };
    pointer("ibv_create_ah", pd.and_then(|pd| make(pd, attr?)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a handle that it gives up, or null.
    number("ibv_destroy_ah", unsafe { destroy(ah) })
}

/// # Safety
/// As for [`Ah::of`], and no thread uses the handle any more.
unsafe fn destroy(ah: *mut ibv_ah) -> Answer<()> {
    // SAFETY: the caller vouches for it.
    let known = unsafe { Ah::of(ah) }?;
    known.pd.handles.fetch_sub(1, Ordering::Relaxed);
    known.pd.context.lost_one();
    // SAFETY: the caller gives it up.
    drop(unsafe { taken(ah.cast::<Ah>()) });
    Ok(())
}

/// What an IP header says beside addresses and lengths.
pub(crate) struct Marks {
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
}

/// The address that a datagram came from and the one of ours that it went to, as its prefix says: forty
/// bytes, a GRH, or an IPv4 header in the second half.
pub(crate) fn ends_of(prefix: &[u8; 40]) -> Answer<(IpAddr, IpAddr, Marks)> {
    let ip = |at: usize| {
        let mut raw = [0; 16];
        raw.copy_from_slice(&prefix[at..at + 16]);
        Gid(raw).ip()
    };
    let v4 = |at: usize| Ipv4Addr::new(prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]);
    // A GRH has 6 as its version; where an IPv4 header stands, the first half is empty.
    if prefix[0] >> 4 == 6 {
        let traffic_class = prefix[0] << 4 | prefix[1] >> 4;
        let flow_label = u32::from_be_bytes([0, prefix[1] & 0xf, prefix[2], prefix[3]]);
        Ok((ip(8), ip(24), Marks { traffic_class, hop_limit: prefix[7], flow_label }))
    } else if prefix[20] == 0x45 {
        let marks = Marks { traffic_class: prefix[21], hop_limit: prefix[28], flow_label: 0 };
        Ok((v4(32).into(), v4(36).into(), marks))
    } else {
        Err(Refused::invalid("the datagram has neither a GRH nor an IPv4 header in front of it"))
    }
}

/// # Safety
/// Pointers are null or to what the manual page says.
unsafe fn address_of_sender(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
) -> Answer<ibv_ah_attr> {
    // SAFETY: the caller vouches for it.
    let context = unsafe { Context::of(context) }?;
    // SAFETY: as above.
    let wc = unsafe { seen(wc, "completion") }?;
    if wc.wc_flags & IBV_WC_GRH == 0 || grh.is_null() {
        return Err(Refused::invalid("the completion says nothing of where the datagram came from"));
    }
    // SAFETY: the caller vouches for forty bytes in front of the datagram.
    let prefix = unsafe { grh.cast::<[u8; 40]>().read_unaligned() };
    let (sender, local, Marks { traffic_class, hop_limit, flow_label }) = ends_of(&prefix)?;
    let sgid_index = context.nic.gid_index(local);
    let sgid_index = sgid_index.ok_or_else(|| {
        Refused::new(
            libc::ENOENT,
            format_args!("the datagram was sent to {local}, which is no GID of the port"),
        )
    })?;
    let mut attr = attr_of(&AddressVector {
        traffic_class,
        hop_limit,
        flow_label,
        ..AddressVector::new(Gid::from(sender), sgid_index)
    });
    attr.port_num = port;
    Ok(attr)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a structure of its own to fill, or null.
    let attr = unsafe { filled(attr, "attributes") };
    let answer = attr.and_then(|attr| {
        // SAFETY: the caller passes what the manual page says.
        *attr = unsafe { address_of_sender(context, port, wc, grh) }?;
        Ok(())
    });
    minus_one("ibv_init_ah_from_wc", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes a live domain, or null.
    let pd = unsafe { Pd::of(pd) };
    let answer = pd.and_then(|pd| {
        // SAFETY: the caller passes what the manual page says.
        let attr = unsafe { address_of_sender(pd.context.as_c(), port, wc, grh) }?;
        make(pd, &attr)
    });
    pointer("ibv_create_ah_from_wc", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    let _whole = Uncancelled::new();
    let _ = lid;
    // SAFETY: the caller passes a live queue pair, or null.
    let qp = unsafe { Qp::of(qp) };
    // SAFETY: the caller passes a GID of its own, or null.
    let group = unsafe { group_of(gid) };
    let answer = qp.and_then(|qp| Ok(qp.qp.attach_to_group(group?)?));
    number("ibv_attach_mcast", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    let _whole = Uncancelled::new();
    let _ = lid;
    // SAFETY: the caller passes a live queue pair, or null.
    let qp = unsafe { Qp::of(qp) };
    // SAFETY: the caller passes a GID of its own, or null.
    let group = unsafe { group_of(gid) };
    let answer = qp.and_then(|qp| Ok(qp.qp.detach_from_group(group?)?));
    number("ibv_detach_mcast", answer)
}

/// # Safety
/// `gid` is null, or sixteen bytes.
unsafe fn group_of(gid: *const ibv_gid) -> Answer<Gid> {
    if gid.is_null() {
        return Err(Refused::invalid("the group is a null pointer"));
    }
    // SAFETY: the caller vouches for it; programs do not always align GIDs.
    Ok(Gid(unsafe { gid.read_unaligned() }.raw))
}

/// The kernel resolves hardware addresses for us when a datagram is sent; here none is known.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _: *mut ibv_context,
    _: *mut ibv_ah_attr,
    _: *mut u8,
    _: *mut u16,
) -> c_int {
    let _whole = Uncancelled::new();
    number("ibv_resolve_eth_l2_from_gid", Err(Refused::unsupported("hardware addresses")))
}
