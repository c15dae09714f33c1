//! One end before it is connected.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ferroce_verbs::{Access, Context, KeepLimits, MemoryRegion, ProtectionDomain, QueuePair, Service};

use crate::connection::Connection;
use crate::core::{Core, MIN_INLINE, Parts, Ring};
use crate::error::SetupError;
use crate::frame::Kind;
use crate::hello::{Grant, Hello};
use crate::hub::Completions;
use crate::line::Line;
use crate::options::Options;
use crate::pool::{Gauge, Pool};
use crate::shared::{Shared, Surroundings};

/// One end: its queue pair takes messages already, and only has to be connected.
pub(crate) struct Half {
    parts: Parts,
    hello: Hello,
    options: Options,
    gauge: Arc<Gauge>,
}

impl Half {
    /// An end that will talk to `peer`.
    pub(crate) fn new(
        context: &Context,
        address: Option<IpAddr>,
        peer: SocketAddr,
        options: &Options,
    ) -> Result<Self, SetupError> {
        options.check()?;
        let domain = match &options.domain {
            Some(domain) => domain.clone(),
            None => {
                let own = context.protection_domain()?;
                // It goes with the connection, so nothing would use again what it keeps.
                own.keep(KeepLimits::NOTHING);
                own
            }
        };
        let (send, receive) = (options.send_depth + Options::OWN_WORK, options.receive_depth);
        let receives = u32::from(receive) + u32::from(Kind::FREE);
        let slots = receives as usize;
        let needed = send + receives;
        let queue = match &options.hub {
            Some(hub) => hub.queue().clone(),
            None => context.completion_queue(needed)?,
        };
        let mut builder = domain
            .queue_pair(Service::Rc)
            .send_queue(&queue, send)
            .receive_queue(&queue, receives)
            .max_sge(1)
            .max_inline(options.inline.max(MIN_INLINE))
            .signal_all(false);
        if let Some(address) = address {
            builder = builder.address(address);
        }
        if let Some(path) = options.path {
            builder = builder.path(path);
        }
        let qp = builder.build()?;
        let completions = match &options.hub {
            Some(hub) => {
                let inbox = hub.enter(qp.qpn(), needed)?;
                Completions::Shared { hub: hub.clone(), inbox, qpn: qp.qpn(), needed }
            }
            None => Completions::Own(queue),
        };
        let slot = options.slot() as usize;
        let gauge = Arc::<Gauge>::default();
        gauge.add((slot * (slots + options.send_depth as usize)) as u64);
        let ring = Ring { region: domain.allocate_or_reuse(slot * slots, Access::LOCAL_WRITE)?, slot };
        for slot in 0..slots as u64 {
            ring.post(&qp, slot)?;
        }
        let send_ring = domain.allocate_or_reuse(slot * options.send_depth as usize, Access::empty())?;
        let (window, grant) = open_window(&domain, peer, options)?;
        let reads = Access::LOCAL_WRITE;
        let parts = Parts {
            qp,
            completions,
            receive_ring: ring.region,
            send_ring,
            send_pool: Pool::new(domain.clone(), Access::REMOTE_READ, options.send_buffer, &gauge),
            read_pool: Pool::new(domain, reads, options.read_ahead, &gauge),
            window,
        };
        let hello =
            Hello { depth: receive, slot: options.slot(), max_message: options.max_message, window: grant };
        Ok(Self { parts, hello, options: options.clone(), gauge })
    }

    pub(crate) const fn queue_pair(&self) -> &QueuePair {
        &self.parts.qp
    }

    /// What the peer must be told.
    pub(crate) fn hello(&self) -> [u8; Hello::LEN] {
        self.hello.emit()
    }

    /// The connection, once the queue pair is connected and the peer has said hello.
    pub(crate) fn open(
        self,
        hello: &[u8],
        line: Box<dyn Line>,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Connection, SetupError> {
        let Self { parts, options, gauge, .. } = self;
        let hello = Hello::parse(hello)?;
        let around = Surroundings {
            polling: options.polling,
            linger: options.linger,
            keepalive: options.keepalive,
            name_timeout: options.name_timeout,
            priority: options.priority,
            local,
            peer,
            send_pool: Arc::clone(&parts.send_pool),
            gauge,
        };
        let core = |service| Core::new(parts, hello, line, &options, service);
        Ok(Connection::new(Shared::new(core, around)))
    }
}

/// The window for this peer, if there is one and it may.
fn open_window(
    domain: &ProtectionDomain,
    peer: SocketAddr,
    options: &Options,
) -> Result<(Option<MemoryRegion>, Grant), SetupError> {
    let Some((window, allow)) = &options.window else { return Ok((None, Grant::None)) };
    if !allow(peer) {
        return Ok((None, Grant::Refused));
    }
    let access = match window.writable {
        true => Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
        false => Access::REMOTE_READ,
    };
    let region = domain.register_at(window.memory.clone(), .., window.start, access)?;
    let grant = match window.writable {
        true => Grant::ReadWrite(region.remote()),
        false => Grant::ReadOnly(region.remote()),
    };
    Ok((Some(region), grant))
}
