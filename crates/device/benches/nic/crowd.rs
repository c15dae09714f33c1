//! One queue pair among many: what those cost that do nothing, in time and in memory.
//!
//! A process of its own makes two devices, connects them by many queue pairs over the wire, registers many
//! regions on each, and measures as [`crate::alone`] does: one thread is both ends, and its processor time is
//! counted. The baseline is the same process with nothing else in it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ferroce_device::{CompletionQueue, Nic};
use ferroce_testkit::process::Parent;
use ferroce_transport::{Caps, Completion, Data, Remote, SendFlags, SendOp, SendRequest};

use crate::alone::each;
use crate::ends::{End, Site, check, device};
use crate::samples::Sample;
use crate::{Outcome, Settings, peer, system};

/// Role of the other process.
pub(crate) const CROWD: &str = "crowd";

/// Where the devices are: not where those of other figures are.
const SITES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 4), Ipv4Addr::new(127, 0, 0, 5)];

/// Messages of a list, the last of which is signaled.
const LIST: u32 = 16;

/// Bytes of a message.
const LEN: u32 = 64;

/// Messages under way at most.
const DEPTH: u32 = 128;

/// Queue pairs of which the memory is counted, on each of two devices.
const COUNTED: usize = 1000;

/// What is there beside the queue pair that works.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Queue pairs of each device, connected to one of the other device each.
    pairs: usize,
    /// Regions of each device.
    regions: usize,
}

impl Size {
    const NONE: Self = Self { pairs: 0, regions: 0 };
    const ALL: Self = Self { pairs: 10_000, regions: 100_000 };
}

/// Lists of local WRITEs by one queue pair: nanoseconds for each WRITE.
pub(crate) fn local(settings: &Settings, crowded: bool) -> Outcome<Sample> {
    ask(settings, "local", crowded)
}

/// Lists of WRITEs over the wire by one queue pair: microseconds for each list.
pub(crate) fn wire(settings: &Settings, crowded: bool) -> Outcome<Sample> {
    ask(settings, "wire", crowded)
}

/// The same by all queue pairs in turn.
pub(crate) fn rotation(settings: &Settings) -> Outcome<Sample> {
    ask(settings, "rotation", true)
}

/// What a connected queue pair that does nothing keeps: KiB.
pub(crate) fn memory(settings: &Settings) -> Outcome<Sample> {
    ask(settings, "memory", false)
}

/// Has another process measure it.
fn ask(settings: &Settings, what: &str, crowded: bool) -> Outcome<Sample> {
    let Size { pairs, regions } = if crowded { Size::ALL } else { Size::NONE };
    let mut peer = peer::start(CROWD, settings)?;
    peer.say(format_args!("{what} {pairs} {regions}"))?;
    let value = peer.hear()?.parse()?;
    let note = peer.hear()?;
    peer.stop()?;
    Ok(Sample::new(value).with_note(note))
}

/// Is that process.
pub(crate) fn play(parent: Parent, settings: &Settings) -> Outcome<()> {
    let wanted = parent.hear()?;
    let parts: Vec<&str> = wanted.split(' ').collect();
    let [what, pairs, regions] = parts[..] else { return Err("the first process said too little".into()) };
    let crowd = Crowd::gather(Size { pairs: pairs.parse()?, regions: regions.parse()? })?;
    let Sample { value, note } = match what {
        "local" => crowd.local(settings)?,
        "wire" => crowd.wire(settings)?,
        "rotation" => crowd.rotation(settings)?,
        "memory" => crowd.memory()?,
        other => return Err(format!("nothing is called {other:?}").into()),
    };
    parent.say(value)?;
    parent.say(note)?;
    parent.wait();
    Ok(())
}

/// Two devices and all that is on them.
struct Crowd {
    nics: [Nic; 2],
    /// Connected by packets, and without.
    wire: [End; 2],
    local: [End; 2],
    idle: Vec<[End; 2]>,
    sites: [Site; 2],
    regions: usize,
    took: Duration,
}

impl Crowd {
    fn gather(size: Size) -> Outcome<Self> {
        let begin = Instant::now();
        let nics = [device(Some(SITES[0]))?, device(Some(SITES[1]))?];
        let site = |at: usize| {
            let cq = CompletionQueue::new(&nics[at], 4096, None)?;
            Site::new(&nics[at], &cq, SITES[at], 4096)
        };
        let sites = [site(0)?, site(1)?];
        let idle = (0..size.pairs).map(|_| connected(&sites[0], &sites[1], LIST));
        let idle = idle.collect::<Outcome<Vec<_>>>()?;
        for _ in 0..size.regions {
            sites.iter().try_for_each(Site::register_again)?;
        }
        // Those that work come last: they have no better place than others.
        let mut own = [site(0)?, site(1)?];
        let wire = connected(&own[0], &own[1], DEPTH)?;
        own[1] = site(0)?;
        let local = connected(&own[0], &own[1], DEPTH)?;
        let regions = size.regions;
        Ok(Self { nics, wire, local, idle, sites, regions, took: begin.elapsed() })
    }

    fn local(&self, settings: &Settings) -> Outcome<Sample> {
        let Sample { value, note } = self.lists(settings, std::slice::from_ref(&self.local))?;
        Ok(Sample { value: value * 1e3 / f64::from(LIST), note })
    }

    fn wire(&self, settings: &Settings) -> Outcome<Sample> {
        self.lists(settings, std::slice::from_ref(&self.wire))
    }

    fn rotation(&self, settings: &Settings) -> Outcome<Sample> {
        self.lists(settings, &self.idle)
    }

    /// A list by each of these in turn: microseconds for each list.
    fn lists(&self, settings: &Settings, pairs: &[[End; 2]]) -> Outcome<Sample> {
        let [first, there] = pairs.first().ok_or("there are no queue pairs to take turns")?;
        let piece = [first.piece(0, LEN)];
        let lists: Vec<_> = pairs.iter().map(|[_, to]| list(&piece, to.card().remote)).collect();
        let mut found = [Completion::EMPTY; 32];
        let (mut under_way, mut turn) = (0, 0);
        let cost = each(settings, || {
            while under_way + LIST > DEPTH {
                there.cq.poll(&mut found);
                let count = first.cq.poll(&mut found);
                found[..count].iter().try_for_each(check)?;
                under_way -= LIST * u32::try_from(count)?;
            }
            pairs[turn][0].qp.post_send(&lists[turn]).map_err(|refused| refused.error)?;
            under_way += LIST;
            turn = (turn + 1) % pairs.len();
            Ok(())
        })?;
        let counters = first.note()?;
        let note = format!("{} {counters}", self.note());
        Ok(Sample::new(cost / 1e3).with_note(note))
    }

    /// By what the process has touched: before and after so many more are connected.
    fn memory(&self) -> Outcome<Sample> {
        // The first ones make tables and thread-local memory that the others share.
        let [here, there] = &self.sites;
        let made = |count: usize| (0..count).map(|_| connected_by(here, there, caps(64, 64)));
        let _first = made(16).collect::<Outcome<Vec<_>>>()?;
        let before = system::resident()?;
        let pairs = made(COUNTED).collect::<Outcome<Vec<_>>>()?;
        let bytes = system::resident()?.saturating_sub(before);
        let count = 2 * pairs.len();
        let value = bytes as f64 / 1024.0 / count as f64;
        Ok(Sample::new(value).with_note(format!("by resident memory, {count} queue pairs")))
    }

    fn note(&self) -> String {
        let (pairs, regions, took) = (self.idle.len(), self.regions, self.took.as_secs_f64());
        let devices = self.nics.len();
        format!("{devices} devices with {pairs} queue pairs and {regions} regions each, made in {took:.2} s")
    }
}

fn list<'a>(piece: &'a [ferroce_transport::Sge], to: Remote) -> Vec<SendRequest<'a>> {
    let request = |at| {
        let flags = if at + 1 == LIST { SendFlags::SIGNALED } else { SendFlags::empty() };
        SendRequest { id: 1, op: SendOp::Write(to), data: Data::Gather(piece), flags, dest: None }
    };
    (0..LIST).map(request).collect()
}

const fn caps(sends: u32, receives: u32) -> Caps {
    Caps { max_send: sends, max_receive: receives, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 }
}

/// Two that are connected to each other.
fn connected(here: &Site, there: &Site, depth: u32) -> Outcome<[End; 2]> {
    connected_by(here, there, caps(depth, LIST))
}

fn connected_by(here: &Site, there: &Site, caps: Caps) -> Outcome<[End; 2]> {
    let ends = [here.end(caps)?, there.end(caps)?];
    ends[0].connect(&ends[1].card())?;
    ends[1].connect(&ends[0].card())?;
    Ok(ends)
}
