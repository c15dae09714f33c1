//! Members of a mesh, each with a network card and a broker of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use ferroce::broker::{At, Broker, Members, Piece, Post};
use ferroce::{Access, Context, MemoryRegion, PathPolicy, Time};
use ferroce_device::{now, until};
use hdrhistogram::Histogram;

use crate::addresses::LOOPBACK;
use crate::interrupt;
use crate::perf::report::histogram;

/// Bytes of a message for the latency.
pub(super) const MESSAGE: usize = 64;

/// WRITEs under way to one member.
pub(super) const DEPTH: u32 = 16;

/// The region that members write into.
const TARGET: u32 = 1;

/// The port of all brokers: their addresses are different.
const PORT: u16 = 7471;

/// How long something that takes a moment is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Round trips that are not counted.
const WARM_UP: u32 = 20;

/// Blocks of addresses of this process's own that are tried one after the other.
const TRIES: u32 = 8;

/// All members.
pub(super) struct Mesh {
    addresses: Vec<IpAddr>,
    brokers: Vec<Broker>,
    /// What each of them writes.
    sources: Vec<Arc<MemoryRegion>>,
}

impl Mesh {
    /// Starts them, and waits until all know each other. Their addresses are 127.0.0.2 and those after it or, if another
    /// mesh has these, a block that follows from the number of this process.
    pub(super) fn start(count: u32, size: usize) -> anyhow::Result<Self> {
        let mut first = None;
        for block in blocks() {
            match Self::launch(block, count, size) {
                Ok(mesh) => {
                    for broker in &mesh.brokers {
                        broker.wait_for_all(PATIENCE)?;
                    }
                    return Ok(mesh);
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| anyhow!("no address to open")))
    }

    /// Starts them on addresses in a row.
    fn launch(block: u32, count: u32, size: usize) -> anyhow::Result<Self> {
        let addresses: Vec<IpAddr> =
            (block..block + count).map(|bits| Ipv4Addr::from_bits(bits).into()).collect();
        let places = (0..).zip(&addresses).map(|(id, address)| (id, SocketAddr::new(*address, PORT)));
        let members = Members::new(places)?;
        let (mut brokers, mut sources) = (Vec::new(), Vec::new());
        for (id, address) in (0..).zip(&addresses) {
            let builder = Context::builder(LOOPBACK).address(*address).path(PathPolicy::Forbid);
            let context = builder.open().with_context(|| format!("cannot open {address}"))?;
            let domain = context.protection_domain()?;
            sources.push(Arc::new(domain.allocate(size, Access::empty())?));
            let builder = Broker::builder(id, members.clone()).device(&context, &domain);
            let ring = u32::max(DEPTH, 32);
            let message = u32::try_from(MESSAGE)?;
            brokers.push(builder.ring(ring).max_message(message).allocate(TARGET, size).launch()?);
        }
        Ok(Self { addresses, brokers, sources })
    }

    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Half round trips of messages, in nanoseconds.
    pub(super) fn latency(&self, from: u32, to: u32, time: Duration) -> anyhow::Result<Histogram<u64>> {
        let [near, far] = [from, to].map(|id| &self.brokers[id as usize]);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let echo = scope.spawn(|| echo(far, from, &stop));
            let found = ping(near, to, time);
            stop.store(true, Ordering::Release);
            let echoed = echo.join().map_err(|_| anyhow!("the thread of member {to} panicked"))?;
            echoed.with_context(|| format!("member {to}"))?;
            found.with_context(|| format!("member {from}"))
        })
    }

    /// Bytes per second that one member writes into the memory of each of others, at the same time.
    pub(super) fn bandwidth(&self, from: u32, to: &[u32], time: Duration) -> anyhow::Result<Vec<f64>> {
        let (broker, source) = (&self.brokers[from as usize], &self.sources[from as usize]);
        let piece = Piece::from(source);
        let mut flood = Flood { under_way: vec![0; to.len()], done: vec![0; to.len()] };
        let begin = now();
        let (warm, end) = (begin + time / 10, begin + time + time / 10);
        let mut base: Option<(Time, Vec<u64>)> = None;
        loop {
            let at = now();
            if base.is_none() && at >= warm {
                base = Some((at, flood.done.clone()));
            }
            // On a busy machine nothing may have been done yet, and that is no figure.
            let has_moved =
                |(_, before): &(Time, Vec<u64>)| flood.done.iter().zip(before).all(|(now, then)| now > then);
            if at >= end && base.as_ref().is_some_and(has_moved) || interrupt::is_asked() {
                break;
            }
            ensure!(at < end + PATIENCE, "no WRITE of member {from} was done within {PATIENCE:?}");
            flood.fill(broker, to, &piece)?;
            flood.collect(broker, to)?;
        }
        // Without a warm-up it was interrupted, or the machine was elsewhere all the while.
        let (start, before) = base.unwrap_or_else(|| (begin, vec![0; to.len()]));
        let seconds = now().since(start).as_secs_f64();
        let done = flood.done.clone();
        flood.drain(broker, to)?;
        let rate = |(done, before): (u64, u64)| (done - before) as f64 * source.len() as f64 / seconds;
        Ok(done.into_iter().zip(before).map(rate).collect())
    }

    /// Says goodbye, all at the same time: each waits for the others to hear it.
    pub(super) fn end(self) {
        thread::scope(|scope| {
            for broker in &self.brokers {
                // A member that does not hear it learns it anyway.
                scope.spawn(|| broker.leave(PATIENCE));
            }
        });
    }
}

/// WRITEs to several members.
struct Flood {
    under_way: Vec<u32>,
    done: Vec<u64>,
}

impl Flood {
    /// Posts what there is room for.
    fn fill(&mut self, broker: &Broker, to: &[u32], piece: &Piece) -> anyhow::Result<()> {
        for (id, (&peer, under_way)) in to.iter().zip(&mut self.under_way).enumerate() {
            while *under_way < DEPTH {
                let post = Post::new().id(id as u64);
                match broker.post_write(peer, piece.clone(), At::offset(TARGET, 0), post) {
                    Err(error) if error.is_would_block() => break,
                    other => other?,
                }
                *under_way += 1;
            }
        }
        Ok(())
    }

    /// Takes off what is done.
    fn collect(&mut self, broker: &Broker, to: &[u32]) -> anyhow::Result<()> {
        let mut failed = None;
        broker.poll_sends(|done| {
            match usize::try_from(done.id).ok().filter(|place| to.get(*place) == Some(&done.peer)) {
                Some(place) => {
                    self.under_way[place] -= 1;
                    self.done[place] += 1;
                }
                None => failed = Some(anyhow!("work was done that was never posted")),
            }
            if let Err(failure) = done.result {
                failed = Some(anyhow!(failure).context(format!("a WRITE to member {}", done.peer)));
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Waits for the rest.
    fn drain(&mut self, broker: &Broker, to: &[u32]) -> anyhow::Result<()> {
        let end = now() + PATIENCE;
        while self.under_way.iter().any(|under_way| *under_way > 0) {
            self.collect(broker, to)?;
            ensure!(!until(end).is_zero(), "WRITEs were not done within {PATIENCE:?}");
        }
        Ok(())
    }
}

/// Sends messages back until it is over.
fn echo(broker: &Broker, to: u32, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut failed = None;
    while failed.is_none() && !stop.load(Ordering::Acquire) {
        broker.poll_receives_from(to, |message| {
            if let Err(error) = broker.wait_send(to, &message.to_vec(), Post::new(), PATIENCE) {
                failed = Some(anyhow!(error));
            }
        })?;
    }
    failed.map_or(Ok(()), Err)
}

fn ping(broker: &Broker, to: u32, time: Duration) -> anyhow::Result<Histogram<u64>> {
    let mut times = histogram();
    let (mut trips, mut end) = (0, None);
    loop {
        let begin = now();
        match end {
            None if trips == WARM_UP => end = Some(begin + time),
            Some(end) if begin >= end => return Ok(times),
            _ if interrupt::is_asked() => return Ok(times),
            _ => {}
        }
        broker.wait_send(to, &[7; MESSAGE], Post::new(), PATIENCE)?;
        let (mut answers, patience) = (0, begin + PATIENCE);
        while answers == 0 {
            broker.poll_receives_from(to, |_| answers += 1)?;
            if answers == 0 && until(patience).is_zero() {
                bail!("member {to} has not answered for {PATIENCE:?}");
            }
        }
        if end.is_some() {
            let nanos = now().since(begin).as_nanos() / 2;
            times.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
        trips += 1;
    }
}

/// Where members may begin.
fn blocks() -> impl Iterator<Item = u32> {
    let usual = Ipv4Addr::new(127, 0, 0, 2).to_bits();
    // 17 bits of the number tell processes apart; blocks have 64 addresses.
    let own = |turn: u32| 127 << 24 | 1 << 23 | (process::id().wrapping_add(turn << 12) & 0x1_ffff) << 6 | 1;
    std::iter::once(usual).chain((0..TRIES).map(own))
}
