//! Binding, listening, and finding the way to a peer.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::Arc;

use ferroce_cabi::cm::{RDMA_PS_IPOIB, rdma_cm_id};
use ferroce_device::Uncancelled;
use libc::sockaddr;

use super::address::{read, scope_of, source_for};
use super::channel::Raw;
use super::devices::{self, CmDevice};
use super::handles;
use super::id::{Id, Stage, State};
use super::ports::{self, Wish};
use super::route;
use super::sync::complete;
use crate::object::lock;
use crate::refusal::{Answer, Refused, minus_one};

/// Ports below are for privileged programs.
const PRIVILEGED: u16 = 1024;

impl Id {
    /// The code of the largest path MTU of its device.
    pub(crate) fn mtu_code(&self) -> u8 {
        let state = lock(&self.state);
        state.device.map_or(1, |device| device.context.nic.active_mtu().code())
    }
}

/// Whether an address is one of this machine, device or not.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Whether an address stands for all of the machine: the wildcard, and as with the kernel a loopback address that no
/// device has. libfabric binds to the address of `localhost`, and means any.
pub(crate) fn is_any(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_loopback() && !devices::is_of_a_device(ip)
}

/// The same address with another IP; a scope stays.
fn with_ip(mut address: SocketAddr, ip: IpAddr) -> SocketAddr {
    address.set_ip(ip);
    address
}

/// The device of an address that a program wants to have.
pub(crate) fn device_of(address: SocketAddr) -> Answer<&'static CmDevice> {
    let ip = address.ip();
    let device = devices::with_address(ip, scope_of(address)).and_then(|device| {
        let foreign =
            || Refused::new(libc::ENODEV, format_args!("{ip}: the device is kept to another address"));
        if device.has(ip) { Ok(device) } else { Err(foreign()) }
    });
    device.map_err(|refused| {
        if refused.code != libc::ENODEV || is_local(ip) {
            return refused;
        }
        Refused::new(libc::EADDRNOTAVAIL, format_args!("{ip} is no address of this machine"))
    })
}

/// Gives an id an address and a port. One that is only to connect from takes no port from others.
fn bind(id: &Id, state: &mut State, address: SocketAddr, reserve: bool) -> Answer<()> {
    if !matches!(state.stage, Stage::Idle) {
        return Err(Refused::invalid("the id is bound already"));
    }
    if id.space == RDMA_PS_IPOIB {
        return Err(Refused::invalid("RDMA_PS_IPOIB: the devices here are Ethernet"));
    }
    if let SocketAddr::V6(v6) = address
        && v6.ip().is_unicast_link_local()
        && v6.scope_id() == 0
    {
        return Err(Refused::invalid(format_args!("{address}: a link-local address needs its interface")));
    }
    // SAFETY: a system call without arguments.
    let is_root = || unsafe { libc::geteuid() } == 0;
    if (1..PRIVILEGED).contains(&address.port()) && !is_root() {
        return Err(Refused::new(libc::EACCES, format_args!("port {} is a privileged one", address.port())));
    }
    let is_any = is_any(address.ip());
    let device = if is_any { None } else { Some(device_of(address)?) };
    let claimed = if is_any { super::address::unspecified(address.ip()) } else { address.ip() };
    let hosts = match device {
        Some(device) => vec![device],
        None => devices::all()?,
    };
    let port = if reserve || address.port() != 0 {
        let wish = Wish {
            space: id.space,
            address: with_ip(address, claimed),
            reuse: state.options.reuse,
            family_only: state.options.family_only.unwrap_or(address.is_ipv4()),
        };
        let (binding, port) = ports::bind(wish, &hosts)?;
        state.binding = Some(binding);
        port
    } else {
        ports::any_port(&hosts)
    };
    let mut source = address;
    source.set_port(port);
    state.source = Some(source);
    state.device = device;
    state.stage = Stage::Bound;
    id.has_source(source);
    if let Some(device) = device {
        id.has_device(device);
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut sockaddr) -> c_int {
    let _whole = Uncancelled::new();
    // SAFETY: the caller passes an address, or null.
    let address = unsafe { read(address) };
    let answer = handles::id(id).and_then(|id| bind(&id, &mut lock(&id.state), address?, true));
    minus_one("rdma_bind_addr", answer)
}

/// Where "any address" is, seen from an id: at home.
pub(crate) fn home(source: Option<SocketAddr>, destination: SocketAddr) -> SocketAddr {
    if !is_any(destination.ip()) {
        return destination;
    }
    let own = source.map(|source| source.ip()).filter(|ip| !is_any(*ip));
    let own = own.unwrap_or_else(|| {
        let localhost = match destination {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        if is_any(localhost) { first_address(destination.is_ipv4()).unwrap_or(localhost) } else { localhost }
    });
    SocketAddr::new(own, destination.port())
}

/// The first address of this family that a device has.
fn first_address(is_ipv4: bool) -> Option<IpAddr> {
    let all = devices::all().ok()?;
    let mut gids = all.iter().flat_map(|device| device.context.nic.gids());
    gids.find_map(|gid| Some(gid.ip()).filter(|ip| ip.is_ipv4() == is_ipv4))
}

/// The address that packets to a peer will come from: the kernel's choice, or for a group that it has no way to, the
/// first address of a device.
pub(crate) fn routed(destination: SocketAddr) -> Answer<IpAddr> {
    source_for(destination).or_else(|refused| {
        let first = || first_address(destination.is_ipv4());
        destination.ip().is_multicast().then(first).flatten().ok_or(refused)
    })
}

/// An address and a port, on the interface of this number if the address is of one.
fn scoped(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, port, 0, scope).into(),
        _ => SocketAddr::new(ip, port),
    }
}

/// Finds out which device leads to a peer.
pub(crate) fn resolve_address(
    id: &Arc<Id>,
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Answer<()> {
    let mut state = lock(&id.state);
    if !matches!(state.stage, Stage::Idle | Stage::Bound) {
        return Err(Refused::invalid("the id is neither new nor only bound"));
    }
    // Any address is one of either family: a program with IPv6 may want a peer of IPv4 by a mapped address.
    let any = SocketAddr::new(super::address::unspecified(destination.ip()), 0);
    let of_family = |source: SocketAddr| {
        let is_other = source.is_ipv4() != destination.is_ipv4();
        if is_other && source.ip().is_unspecified() {
            SocketAddr::new(any.ip(), source.port())
        } else {
            source
        }
    };
    let source = source.map(of_family);
    state.source = state.source.map(of_family);
    let bound = state.source.or(source);
    if bound.is_some_and(|bound| bound.is_ipv4() != destination.is_ipv4()) {
        return Err(Refused::invalid(format_args!("{destination} is of another family than the id")));
    }
    let destination = home(bound, destination);
    let own = bound.map(|bound| bound.ip()).filter(|ip| !is_any(*ip));
    let from = match own {
        Some(own) => own,
        None => routed(destination)?,
    };
    if matches!(state.stage, Stage::Idle) {
        bind(id, &mut state, source.unwrap_or(any), false)?;
    }
    let known = match state.device {
        Some(device) => Ok(device),
        None => devices::with_address(from, scope_of(destination)),
    };
    id.has_destination(destination);
    let Some((device, ip)) = known.ok().and_then(|device| Some((device, device.source(from)?))) else {
        drop(state);
        id.tell(Raw::AddressError(-libc::ENODEV));
        return Ok(());
    };
    let port = state.source.map_or(0, |source| source.port());
    let source = match own {
        // It has its scope.
        Some(_) => state.source.unwrap_or(SocketAddr::new(ip, port)),
        None => scoped(ip, port, scope_of(destination)),
    };
    state.source = Some(source);
    state.destination = Some(destination);
    state.device = Some(device);
    state.stage = Stage::Resolved;
    drop(state);
    id.has_device(device);
    id.has_source(source);
    id.tell(Raw::AddressResolved);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller passes addresses, or null.
    match unsafe { begin_resolving(id, source, destination) } {
        Ok(()) => minus_one("rdma_resolve_addr", complete(id)),
        Err(refused) => minus_one("rdma_resolve_addr", Err(refused)),
    }
}

/// # Safety
/// As for [`read`].
unsafe fn begin_resolving(
    id: *mut rdma_cm_id,
    source: *mut sockaddr,
    destination: *mut sockaddr,
) -> Answer<()> {
    let _whole = Uncancelled::new();
    let id = handles::id(id)?;
    // SAFETY: the caller vouches for it.
    let destination = unsafe { read(destination) }?;
    // SAFETY: as above.
    let source = if source.is_null() { None } else { Some(unsafe { read(source) }?) };
    resolve_address(&id, source, destination)
}

/// Finds the way to a peer whose device is known: there is one.
pub(crate) fn resolve_route(id: &Arc<Id>) -> Answer<()> {
    let mut state = lock(&id.state);
    let ends = state.source.zip(state.destination);
    let (Stage::Resolved, Some((source, destination))) = (&state.stage, ends) else {
        return Err(Refused::invalid("the address of the peer is not resolved"));
    };
    let tos = state.options.tos;
    state.stage = Stage::Routed;
    drop(state);
    route::write(id, source, destination, tos);
    id.tell(Raw::RouteResolved);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    match begin_route(id) {
        Ok(()) => minus_one("rdma_resolve_route", complete(id)),
        Err(refused) => minus_one("rdma_resolve_route", Err(refused)),
    }
}

fn begin_route(id: *mut rdma_cm_id) -> Answer<()> {
    let _whole = Uncancelled::new();
    handles::id(id).and_then(|id| resolve_route(&id))
}

/// Takes requests from now on.
pub(crate) fn listen(id: &Arc<Id>, backlog: c_int) -> Answer<()> {
    let mut state = lock(&id.state);
    if matches!(state.stage, Stage::Idle) {
        bind(id, &mut state, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), true)?;
    }
    if !matches!(state.stage, Stage::Bound) {
        return Err(Refused::invalid("the id is not one that can listen"));
    }
    id.listens(backlog);
    let binding = state.binding.as_mut();
    binding.ok_or_else(|| Refused::invalid("the id has no port"))?.listen(id)?;
    state.stage = Stage::Listening;
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let _whole = Uncancelled::new();
    minus_one("rdma_listen", handles::id(id).and_then(|id| listen(&id, backlog)))
}

/// The two ports of an id, 0 for one that it does not have.
fn ports_of(id: *mut rdma_cm_id) -> (u16, u16) {
    let Ok(id) = handles::any_id(id) else { return (0, 0) };
    let state = lock(&id.state);
    let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port());
    (port(state.source), port(state.destination))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    let _whole = Uncancelled::new();
    ports_of(id).0.to_be()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    let _whole = Uncancelled::new();
    ports_of(id).1.to_be()
}
