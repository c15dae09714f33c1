//! The ports that ids are bound to, and how requests find the id that listens.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};

use ferroce_cabi::cm::{RDMA_PS_TCP, RDMA_PS_UDP};
use ferroce_device::PerProcess;
use ferroce_device::cm::{Acceptor, Asked, ConnectionManager, Hearer, ListeningTo, Watcher};
use ferroce_device::switchboard::{Scope, ServiceClaim, SwitchError};
use ferroce_transport::cm::Request;
use ferroce_wire::Service;
use ferroce_wire::mad::{RejectReason, ServiceId};

use super::channel::{Pending, Raw};
use super::devices::CmDevice;
use super::id::Id;
use super::watch::{Deaf, Watch};
use crate::object::lock;
use crate::refusal::{Answer, Refused};

/// The most requests that wait for the program, whatever backlog it asks for.
pub(crate) const MOST_WAITING: u32 = 1024;

/// How an id is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) space: c_int,
    pub(crate) address: SocketAddr,
    pub(crate) reuse: bool,
    pub(crate) family_only: bool,
}

/// An id that is bound, or was a moment ago.
struct Bound {
    key: u64,
    wish: Wish,
    listener: Option<Weak<Id>>,
}

/// A service of a device that this process has claimed for its ids, on some addresses.
struct Claimed {
    claim: Arc<ServiceClaim>,
    users: usize,
}

/// A service of a device that ids of this process listen for.
struct Listened {
    listeners: usize,
    /// Held to be dropped with the last of them.
    listening: ListeningTo,
}

/// A service of a device.
type Place = (usize, ServiceId);

#[derive(Default)]
struct Ports {
    bound: HashMap<(c_int, u16), Vec<Bound>>,
    claims: HashMap<(Place, Scope), Claimed>,
    listened: HashMap<Place, Listened>,
    keys: u64,
}

static PORTS: PerProcess<Mutex<Ports>> = PerProcess::new();

/// A place among the ports, until it is dropped.
pub(crate) struct Binding {
    space: c_int,
    port: u16,
    key: u64,
    scope: Scope,
    devices: Vec<&'static CmDevice>,
    listens: bool,
}

/// The service of a port.
pub(crate) fn service(space: c_int, port: u16) -> ServiceId {
    ServiceId(u64::from(space.cast_unsigned()) << 16 | u64::from(port))
}

fn place(device: &'static CmDevice, space: c_int, port: u16) -> Place {
    (std::ptr::from_ref(device).addr(), service(space, port))
}

/// What speaks against an id beside another one on the same port.
fn conflict(new: &Wish, old: &Bound) -> Option<c_int> {
    let (ours, theirs) = (new.address.ip(), old.wish.address.ip());
    if new.reuse && old.wish.reuse && old.listener.is_none()
        || new.family_only && old.wish.family_only && ours.is_ipv4() != theirs.is_ipv4()
    {
        None
    } else if ours.is_unspecified() || theirs.is_unspecified() {
        Some(libc::EADDRNOTAVAIL)
    } else {
        (ours == theirs).then_some(libc::EADDRINUSE)
    }
}

/// Binds an id to a port, or to any if it asks for 0.
///
/// # Errors
/// Another id of this process, or another process, has the port.
pub(crate) fn bind(wish: Wish, devices: &[&'static CmDevice]) -> Answer<(Binding, u16)> {
    let wanted = wish.address.port();
    if wanted != 0 {
        return Ok((bind_to(wish, wanted, devices)?, wanted));
    }
    for _ in 0..1000 {
        let port = any_port(devices);
        match bind_to(wish, port, devices) {
            Err(refused) if [libc::EADDRINUSE, libc::EADDRNOTAVAIL].contains(&refused.code) => {}
            answer => return answer.map(|binding| (binding, port)),
        }
    }
    Err(Refused::new(libc::EADDRNOTAVAIL, "no port is free"))
}

/// A port of the range that the kernel gives to programs which ask for none in particular.
pub(crate) fn any_port(devices: &[&'static CmDevice]) -> u16 {
    const FIRST: u16 = 32_768;
    const COUNT: u32 = 28_232;
    let chance = devices.first().map_or(0, |device| device.context.nic.random_u32());
    FIRST + u16::try_from(chance % COUNT).unwrap_or(0)
}

fn bind_to(wish: Wish, port: u16, devices: &[&'static CmDevice]) -> Answer<Binding> {
    let space = wish.space;
    let mut ports = lock(PORTS.get());
    let others = ports.bound.get(&(space, port)).into_iter().flatten();
    if let Some(code) = others.filter_map(|other| conflict(&wish, other)).next() {
        return Err(Refused::new(code, format_args!("port {port}: another id of this process has it")));
    }
    let scope = Scope::new(wish.address.ip(), wish.family_only);
    let mut claims = Vec::new();
    for device in devices {
        let key = (place(device, space, port), scope);
        if !ports.claims.contains_key(&key) {
            let claim = device.context.nic.listen_on(service(space, port), scope);
            let claim = claim.map_err(|error| Refused::because(code_of(&error), &error))?;
            claims.push((key, Arc::new(claim)));
        }
    }
    for (key, claim) in claims {
        ports.claims.insert(key, Claimed { claim, users: 0 });
    }
    for device in devices {
        if let Some(claimed) = ports.claims.get_mut(&(place(device, space, port), scope)) {
            claimed.users += 1;
        }
    }
    ports.keys += 1;
    let key = ports.keys;
    ports.bound.entry((space, port)).or_default().push(Bound { key, wish, listener: None });
    Ok(Binding { space, port, key, scope, devices: devices.to_vec(), listens: false })
}

/// What the kernel says to a program that cannot have a port.
const fn code_of(error: &SwitchError) -> c_int {
    match error {
        SwitchError::ServiceClaimed { exact: true, .. } => libc::EADDRINUSE,
        SwitchError::ServiceClaimed { .. } | SwitchError::TooManyServices { .. } => libc::EADDRNOTAVAIL,
        _ => libc::ENOMEM,
    }
}

impl Binding {
    /// From now on requests for the port reach this id.
    pub(crate) fn listen(&mut self, id: &Arc<Id>) -> Answer<()> {
        let (space, port) = (self.space, self.port);
        let mut ports = lock(PORTS.get());
        let bound = ports.bound.get(&(space, port)).map_or(&[][..], |bound| &bound[..]);
        if let Some(own) = bound.iter().find(|bound| bound.key == self.key) {
            // Ids may share a port, but one that listens has it for itself from then on.
            let alone = Wish { reuse: false, ..own.wish };
            let mut others = bound.iter().filter(|other| other.key != self.key);
            if let Some(code) = others.find_map(|other| conflict(&alone, other)) {
                return Err(Refused::new(code, "another id has the port"));
            }
        }
        for (count, device) in self.devices.iter().enumerate() {
            if let Err(refused) = ports.listened(device, space, port, id.is_datagram(), self.scope) {
                // Those before it are not listened for by this one either.
                let gone: Vec<_> = self.devices[..count]
                    .iter()
                    .filter_map(|it| ports.left(place(it, space, port)))
                    .collect();
                drop((ports, gone));
                return Err(refused);
            }
        }
        self.listens = true;
        let bound = ports.bound.get_mut(&(space, port)).into_iter().flatten();
        for bound in bound.filter(|bound| bound.key == self.key) {
            bound.wish.reuse = false;
            bound.listener = Some(Arc::downgrade(id));
        }
        Ok(())
    }

    /// Options of the id have changed since it was bound. That it is for one family only says nothing about what was
    /// claimed: other processes are kept off by how it was bound.
    pub(crate) fn has_options(&self, reuse: bool, family_only: bool) {
        let mut ports = lock(PORTS.get());
        let bound = ports.bound.get_mut(&(self.space, self.port)).into_iter().flatten();
        for bound in bound.filter(|bound| bound.key == self.key) {
            bound.wish.reuse = reuse && bound.listener.is_none();
            bound.wish.family_only = family_only;
        }
    }
}

impl Ports {
    /// One id more listens for the port of a device.
    fn listened(
        &mut self,
        device: &'static CmDevice,
        space: c_int,
        port: u16,
        is_datagram: bool,
        scope: Scope,
    ) -> Answer<()> {
        let place = place(device, space, port);
        if let Some(listened) = self.listened.get_mut(&place) {
            listened.listeners += 1;
            return Ok(());
        }
        let claimed = self.claims.get(&(place, scope));
        let claim = claimed.map(|claimed| Arc::clone(&claimed.claim));
        let claim = claim.ok_or_else(|| Refused::invalid("the id has no port"))?;
        let (door, service, manager) =
            (Arc::new(Door { device, space, port }), service(space, port), &device.manager);
        let listening = if is_datagram {
            manager.hear_claimed(service, door, claim)
        } else {
            let most = usize::try_from(MOST_WAITING).unwrap_or(usize::MAX);
            let listening = manager.listen_claimed(service, most, door, claim);
            listening.map_err(|error| Refused::because(libc::EADDRINUSE, &error))?
        };
        self.listened.insert(place, Listened { listeners: 1, listening });
        Ok(())
    }

    /// One id less does. What is to be dropped when the ports are not locked any more.
    fn left(&mut self, place: Place) -> Option<ListeningTo> {
        let listened = self.listened.get_mut(&place)?;
        listened.listeners -= 1;
        if listened.listeners > 0 {
            return None;
        }
        self.listened.remove(&place).map(|listened| listened.listening)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        let mut ports = lock(PORTS.get());
        let at = (self.space, self.port);
        if let Some(bound) = ports.bound.get_mut(&at) {
            bound.retain(|bound| bound.key != self.key);
            if bound.is_empty() {
                ports.bound.remove(&at);
            }
        }
        let mut gone = Vec::new();
        for device in &self.devices {
            let place = place(device, self.space, self.port);
            if self.listens {
                gone.extend(ports.left(place));
            }
            let key = (place, self.scope);
            let Some(claimed) = ports.claims.get_mut(&key) else { continue };
            claimed.users -= 1;
            if claimed.users == 0
                && let Some(claimed) = ports.claims.remove(&key)
                && self.listens
            {
                device.manager.linger(service(self.space, self.port), claimed.claim);
                // perftest goes on to datagrams on the same port, and its client may be faster than its server.
                let twin =
                    service(if self.space == RDMA_PS_UDP { RDMA_PS_TCP } else { RDMA_PS_UDP }, self.port);
                if let Ok(claim) = device.context.nic.listen_on(twin, self.scope) {
                    device.manager.linger(twin, Arc::new(claim));
                }
            }
        }
        // The manager's lock comes after ours.
        drop(gone);
    }
}

/// Hears of requests for a port of a device.
struct Door {
    device: &'static CmDevice,
    space: c_int,
    port: u16,
}

impl Door {
    /// The id that listens on an address: one that is bound to it comes before one that is bound to any.
    fn listener(&self, local: IpAddr) -> Option<Arc<Id>> {
        let ports = lock(PORTS.get());
        let bound = ports.bound.get(&(self.space, self.port)).into_iter().flatten();
        let listening = bound.filter(|bound| bound.listener.is_some());
        let rank = |bound: &&Bound| {
            let ours = bound.wish.address.ip();
            if ours.to_canonical() == local.to_canonical() {
                Some(0)
            } else if !ours.is_unspecified() {
                None
            } else if ours.is_ipv4() == local.is_ipv4() {
                Some(1)
            } else {
                // The wildcard of IPv6 hears of IPv4 too, unless the program says otherwise.
                (ours.is_ipv6() && !bound.wish.family_only).then_some(2)
            }
        };
        let best = listening.filter(|bound| rank(bound).is_some()).min_by_key(rank)?;
        best.listener.as_ref()?.upgrade()
    }
}

impl Acceptor for Door {
    fn requested(&self, manager: &ConnectionManager, request: Box<Request>) -> Arc<dyn Watcher> {
        let listener = self.listener(request.ends.local);
        let fitting = listener.filter(|_| request.transport() == Service::Rc);
        let Some(listener) = fitting else {
            // If the peer has given up meanwhile, all the better.
            let _ = manager.reject(request.id, RejectReason::CONSUMER, &[]);
            return Arc::new(Deaf);
        };
        if !listener.one_waits_more() {
            manager.forget(request.id);
            return Arc::new(Deaf);
        }
        let id = Id::requested(&listener, self.device, &request);
        let watch = Watch::of(&id);
        listener.tell_of(Pending { id, listener: Some(Arc::clone(&listener)), raw: Raw::Request(request) });
        watch
    }
}

impl Hearer for Door {
    fn asked(&self, question: Box<Asked>) -> bool {
        let Some(listener) = self.listener(question.ends.local) else { return false };
        if listener.questions.answers_again(self.device, &question) {
            return true;
        }
        if !listener.one_waits_more() {
            return false;
        }
        let id = Id::asked(&listener, self.device, &question);
        listener.questions.heard(&question, &id);
        listener.tell_of(Pending { id, listener: Some(Arc::clone(&listener)), raw: Raw::Question(question) });
        true
    }
}
