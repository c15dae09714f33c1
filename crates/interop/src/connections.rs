//! Connections with programs in the guest that use `rdma_cm`: the kernel's connection management at the other end.
//!
//! Each program of `rdmacm-utils` has a counterpart here that plays its client or its server.

mod rping;
mod ucmatose;
mod udaddy;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ferroce_verbs::cm::{self, CmError, CmOptions, Disconnected, Established, Listener, RejectReason};
use ferroce_verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain, QueuePair, Service,
};

use crate::Result;
use crate::far::Far;
use crate::lab::{Family, Lab};
use crate::pair::{Asks, LIMIT, NEAR_TIMEOUT};

pub(crate) use rping::{killed, rping};
pub(crate) use ucmatose::ucmatose;
pub(crate) use udaddy::udaddy;

/// Where the programs listen.
const PORT: u16 = 7174;

/// The port where no program listens.
const UNUSED_PORT: u16 = 7999;

/// Bytes of memory of each side.
const SIZE: usize = 16 << 10;

/// The guest's address.
pub(crate) fn far_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 77, 0, 2).into(),
        Family::V6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2).into(),
    }
}

/// Our side of a connection.
struct Side {
    domain: ProtectionDomain,
    sends: CompletionQueue,
    receives: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

impl Side {
    fn new(lab: &Lab, service: Service) -> Result<Self> {
        let domain = lab.context.protection_domain()?;
        let (sends, receives) = (lab.context.completion_queue(64)?, lab.context.completion_queue(64)?);
        let qp = domain
            .queue_pair(service)
            .send_queue(&sends, 64)
            .receive_queue(&receives, 64)
            .address(lab.family.near())
            .build()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = domain.allocate(SIZE, access)?;
        Ok(Self { domain, sends, receives, qp, region })
    }

    fn receive(&self, offset: usize, len: usize) -> Result<()> {
        Ok(self.qp.receive(self.region.slice(offset..offset + len)).post()?)
    }

    fn sent(&self) -> Result<()> {
        self.sends.wait(LIMIT)?.result()?;
        Ok(())
    }

    fn received(&self) -> Result<Completion> {
        Ok(*self.receives.wait(LIMIT)?.result()?)
    }
}

/// How we set up connections with a guest that is slow.
fn options() -> CmOptions {
    let qp = ConnectOptions { timeout: NEAR_TIMEOUT, ..ConnectOptions::default() };
    CmOptions { response_timeout: Duration::from_secs(2), ..CmOptions::default().timeout(LIMIT).qp(qp) }
}

/// Connects to a program that was started just now, and may not listen yet.
fn connect(lab: &Lab, side: &Side) -> Result<Established> {
    let peer = SocketAddr::new(far_address(lab.family), PORT);
    let mut far = lab.far()?;
    for _ in 0..600 {
        match cm::connect(peer, &side.qp, &options()) {
            Err(CmError::NotListening { .. }) => far.run("usleep 100000")?,
            other => return Ok(other?),
        };
    }
    Err(format!("no program listens on {peer}").into())
}

/// The next connection that a program in the guest wants.
fn accept(listener: &Listener, side: &Side) -> Result<Established> {
    Ok(listener.accept(LIMIT)?.accept(&side.qp, &options())?)
}

fn ended(link: &Established, expected: &[Disconnected]) -> Result<()> {
    let how = link.wait_disconnected(LIMIT)?;
    if expected.contains(&how) { Ok(()) } else { Err(format!("{how:?} instead of {expected:?}").into()) }
}

/// The program in the guest ends well.
fn finish(mut far: Far) -> Result<String> {
    match far.finish()? {
        (0, output) => Ok(output),
        (status, output) => Err(format!("the tool ended with {status}: {}", output.trim()).into()),
    }
}

/// Starts a program in the guest.
fn start(lab: &Lab, command: &str) -> Result<Far> {
    let mut far = lab.far()?;
    far.be_patient(Duration::from_secs(130))?;
    far.start(&format!("timeout 120 {command} 2>&1"))?;
    Ok(far)
}

/// No program listens, or one refuses: the other side is told which of the two.
pub(crate) fn reject(lab: &mut Lab, asks: Asks) -> Result<()> {
    let (near, far) = (lab.family.near(), far_address(lab.family));
    match asks {
        Asks::We => {
            let side = Side::new(lab, Service::Rc)?;
            match cm::connect(SocketAddr::new(far, UNUSED_PORT), &side.qp, &options()) {
                Err(CmError::NotListening { .. }) => Ok(()),
                other => Err(format!("{other:?} instead of no program listening").into()),
            }
        }
        Asks::Kernel => {
            let ask = |port: u16| format!("rping -c -a {near} -p {port} -C 1; true");
            let unanswered = finish(start(lab, &ask(UNUSED_PORT))?)?;
            expect_reason(&unanswered, RejectReason::INVALID_SERVICE_ID)?;
            let listener = Listener::bind(&lab.context, PORT, 4)?;
            let asking = start(lab, &ask(PORT))?;
            listener.accept(LIMIT)?.reject(b"not today")?;
            expect_reason(&finish(asking)?, RejectReason::CONSUMER)
        }
    }
}

fn expect_reason(output: &str, reason: RejectReason) -> Result<()> {
    let words = format!("RDMA_CM_EVENT_REJECTED, error {}", reason.0);
    if output.contains(&words) { Ok(()) } else { Err(format!("no {words:?} in {output:?}").into()) }
}
