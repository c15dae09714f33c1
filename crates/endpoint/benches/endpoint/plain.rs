//! The verbs below: what the same costs without an endpoint.

use std::time::Duration;

use ferroce_testkit::process::Parent;
use ferroce_verbs::cm::{self, CmOptions, Established, Listener};
use ferroce_verbs::{
    Access, Completion, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, RemoteRegion,
    Service, WorkKind,
};

use crate::{MIB, Outcome, device, device_towards, each};

/// One end, with receives of 4 KiB posted.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    inbox: MemoryRegion,
    line: Option<Established>,
}

const RECEIVES: usize = 512;
const SLOT: usize = 128;

impl End {
    fn new(context: &Context) -> Outcome<Self> {
        let pd = context.protection_domain()?;
        let cq = context.completion_queue(4096)?;
        let qp = pd.queue_pair(Service::Rc).send_queue(&cq, 512).receive_queue(&cq, 512).max_inline(64);
        let qp = qp.signal_all(false).build()?;
        let inbox = pd.allocate(RECEIVES * SLOT, Access::LOCAL_WRITE)?;
        let end = Self { qp, cq, pd, inbox, line: None };
        for slot in 0..RECEIVES {
            end.receive(slot as u64)?;
        }
        Ok(end)
    }

    fn receive(&self, slot: u64) -> Outcome<()> {
        let start = usize::try_from(slot)? * SLOT;
        Ok(self.qp.receive(self.inbox.slice(start..start + SLOT)).id(slot).post()?)
    }

    fn accepted(host: u8, private_data: impl FnOnce(&Self) -> Outcome<Vec<u8>>) -> Outcome<Self> {
        let context = device(host)?;
        let mut end = Self::new(&context)?;
        let listener = Listener::bind(&context, 0, 16)?;
        Parent.say(format_args!("127.0.118.{host}:{}", listener.port()))?;
        let options = CmOptions::default().private_data(&private_data(&end)?);
        end.line = Some(listener.accept(None)?.accept(&end.qp, &options)?);
        Ok(end)
    }

    fn connected(address: &str) -> Outcome<Self> {
        let mut end = Self::new(&device_towards(address)?)?;
        end.line = Some(cm::connect(address.parse()?, &end.qp, &CmOptions::default())?);
        Ok(end)
    }

    /// The next completion of this kind, looking again and again.
    fn next(&self, kind: WorkKind) -> Outcome<Completion> {
        loop {
            if let Some(done) = self.cq.poll_one() {
                done.result()?;
                if done.kind == kind {
                    return Ok(done);
                }
            }
        }
    }
}

pub(crate) fn echo(host: u8) -> Outcome<()> {
    let end = End::accepted(host, |_| Ok(Vec::new()))?;
    loop {
        let done = end.next(WorkKind::Receive)?;
        end.qp.send_inline(&[7; 64]).signaled().post()?;
        end.receive(done.id)?;
    }
}

pub(crate) fn latency(address: &str, time: Duration) -> Outcome<f64> {
    let end = End::connected(address)?;
    let trip = each(time, || {
        end.qp.send_inline(&[7; 64]).signaled().post()?;
        let done = end.next(WorkKind::Receive)?;
        end.receive(done.id)
    })?;
    Ok(trip / 2.0)
}

/// Memory that is written and read.
pub(crate) fn target(host: u8) -> Outcome<()> {
    let mut target = None;
    let _end = End::accepted(host, |end| {
        let region =
            end.pd.allocate(4 * MIB, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)?;
        let place = region.remote().to_bytes().to_vec();
        target = Some(region);
        Ok(place)
    })?;
    // Nothing is to be done here, until we are killed.
    loop {
        std::thread::park();
    }
}

pub(crate) fn bandwidth(address: &str, time: Duration) -> Outcome<f64> {
    let end = End::connected(address)?;
    let place = end.line.as_ref().ok_or("not connected")?.private_data();
    let place = RemoteRegion::from_bytes(&place[..RemoteRegion::LEN])?;
    let source = end.pd.allocate(MIB, Access::empty())?;
    let batch = each(time, || {
        for i in 0..32 {
            let at = (i % 4) * MIB as u64;
            end.qp.write(&source, place.slice(at..at + MIB as u64)).signaled().post()?;
            if i >= 4 {
                end.next(WorkKind::Write)?;
            }
        }
        for _ in 0..4 {
            end.next(WorkKind::Write)?;
        }
        Ok(())
    })?;
    Ok((32 * MIB) as f64 / batch / 1e3)
}

pub(crate) fn read_bandwidth(address: &str, time: Duration) -> Outcome<f64> {
    let end = End::connected(address)?;
    let place = end.line.as_ref().ok_or("not connected")?.private_data();
    let place = RemoteRegion::from_bytes(&place[..RemoteRegion::LEN])?;
    let into = end.pd.allocate(MIB, Access::LOCAL_WRITE)?;
    let batch = each(time, || {
        for i in 0..32 {
            let at = (i % 4) * MIB as u64;
            end.qp.read(&into, place.slice(at..at + MIB as u64)).signaled().post()?;
            if i >= 4 {
                end.next(WorkKind::Read)?;
            }
        }
        for _ in 0..4 {
            end.next(WorkKind::Read)?;
        }
        Ok(())
    })?;
    Ok((32 * MIB) as f64 / batch / 1e3)
}

/// Takes messages, and answers the last of every thousand.
pub(crate) fn sink(host: u8) -> Outcome<()> {
    let end = End::accepted(host, |_| Ok(Vec::new()))?;
    loop {
        for _ in 0..1000 {
            let done = end.next(WorkKind::Receive)?;
            end.receive(done.id)?;
        }
        end.qp.send_inline(&[]).signaled().post()?;
    }
}

pub(crate) fn rate(address: &str, time: Duration) -> Outcome<f64> {
    let end = End::connected(address)?;
    let batch = each(time, || {
        for i in 0..1000 {
            let work = end.qp.send_inline(&[1; 64]);
            // As many under way as the peer has receives, or fewer.
            match i % 64 {
                63 => {
                    work.signaled().post()?;
                    if i > 64 {
                        end.next(WorkKind::Send)?;
                    }
                }
                _ => work.post()?,
            }
        }
        let answer = end.next(WorkKind::Receive)?;
        end.receive(answer.id)
    })?;
    Ok(1000.0 / batch)
}
