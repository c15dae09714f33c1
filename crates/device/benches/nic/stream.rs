//! Many messages under way from one end to the other.

use std::sync::atomic::Ordering;

use ferroce_testkit::process::{Parent, Peer};
use ferroce_transport::{Completion, Data, Remote, SendFlags, SendOp, SendRequest};

use crate::ends::{End, Shape, WIDE, check, receives};
use crate::samples::{Sample, Span, Statistic};
use crate::{Outcome, Settings, neighbour, peer};

/// Roles of the other process.
pub(crate) const BUSY: &str = "target-busy";
pub(crate) const ASLEEP: &str = "target-asleep";
pub(crate) const RECEIVER: &str = "target-receives";

/// The operation of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Write,
    Read,
    /// With a receive posted for each message before it comes.
    Send,
}

/// What is posted, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) verb: Verb,
    /// Bytes of a message.
    pub(crate) len: u32,
    /// Messages posted by one call; the last of them gives a completion.
    pub(crate) list: u32,
    /// Messages under way at most, of each queue pair.
    pub(crate) depth: u32,
    /// What the target does meanwhile: [`BUSY`] polls, [`ASLEEP`] leaves everything to the driver,
    /// [`RECEIVER`] polls and posts receives.
    pub(crate) target: &'static str,
    /// Queue pairs between the two processes.
    pub(crate) pairs: usize,
    /// Bytes of receive buffer that both devices ask for.
    pub(crate) receive_buffer: usize,
    /// Share of packets that each device loses.
    pub(crate) loss: f64,
    /// What is made of the slices of its time.
    pub(crate) statistic: Statistic,
    /// The port that a hostile neighbour sends to meanwhile, if there is one.
    pub(crate) neighbour: Option<u16>,
}

impl Stream {
    /// WRITEs over one queue pair to a target that polls.
    pub(crate) const fn writes(len: u32, list: u32, depth: u32) -> Self {
        let (verb, receive_buffer) = (Verb::Write, WIDE);
        Self {
            verb,
            len,
            list,
            depth,
            target: BUSY,
            pairs: 1,
            receive_buffer,
            loss: 0.0,
            statistic: Statistic::Best,
            neighbour: None,
        }
    }
}

impl Stream {
    /// Gigabytes per second between two processes.
    pub(crate) fn bandwidth(self, settings: &Settings) -> Outcome<Sample> {
        let Sample { value, note } = self.between_processes(settings)?;
        Ok(Sample { value: value * f64::from(self.len) / 1e9, note })
    }

    /// Millions of messages per second between two processes.
    pub(crate) fn rate(self, settings: &Settings) -> Outcome<Sample> {
        let Sample { value, note } = self.between_processes(settings)?;
        Ok(Sample { value: value / 1e6, note })
    }

    /// The first moments of the connection over its steady rate.
    pub(crate) fn first(self, settings: &Settings) -> Outcome<Sample> {
        Self { statistic: Statistic::First, ..self }.between_processes(settings)
    }

    /// Packets of ten thousand that were sent again.
    pub(crate) fn sent_again(self, settings: &Settings) -> Outcome<Sample> {
        let mut counts = None;
        let Sample { note, .. } = self.with_peer(settings, |end| {
            counts = Some(end.qp.query()?.counters);
            Ok(())
        })?;
        let counts = counts.ok_or("nothing was counted")?;
        let (again, all) = match self.verb {
            // What comes twice was sent twice.
            Verb::Read => {
                (counts.duplicate_responses, counts.duplicate_responses + counts.responses_received)
            }
            Verb::Write | Verb::Send => (counts.retransmitted, counts.requests_sent),
        };
        Ok(Sample::new(again as f64 * 1e4 / (all as f64).max(1.0))
            .with_note(format!("{again} of {all}; {note}")))
    }

    fn between_processes(self, settings: &Settings) -> Outcome<Sample> {
        self.with_peer(settings, |_| Ok(()))
    }

    /// A run between two processes; `after` sees the first end afterwards.
    fn with_peer(self, settings: &Settings, after: impl FnOnce(&End) -> Outcome<()>) -> Outcome<Sample> {
        let Self { len, depth, pairs, receive_buffer, loss, .. } = self;
        let mut peer = peer::start(self.target, settings)?;
        let shared = settings.shared;
        let shape = Shape { depth, bytes: len as usize, message: len, pairs, receive_buffer, loss, shared };
        let ends = End::with_peer(&mut peer, &shape)?;
        let all: Vec<_> = ends.iter().map(|(end, card)| (end, card.remote)).collect();
        let (first, card) = &ends[0];
        let start = |port| neighbour::start(settings, [first.card(), *card], port);
        let neighbour = self.neighbour.map(start).transpose()?;
        let Sample { value, note } = self.run_all(settings, &all)?;
        let beside = neighbour.map(Peer::stop).transpose()?.unwrap_or_default();
        let counters = first.note()?;
        after(first)?;
        let said = peer.stop()?;
        Ok(Sample { value, note: format!("{note} {counters} | target: {} | {}", said.trim(), beside.trim()) })
    }

    /// Messages per second from this end to there.
    pub(crate) fn run(self, settings: &Settings, end: &End, to: Remote) -> Outcome<Sample> {
        self.run_all(settings, &[(end, to)])
    }

    /// Messages per second from all of these, which complete into one queue.
    fn run_all(self, settings: &Settings, ends: &[(&End, Remote)]) -> Outcome<Sample> {
        let Self { len, list, depth, .. } = self;
        let pieces: Vec<_> = ends.iter().map(|(end, _)| [end.piece(0, len)]).collect();
        let requests = |(index, &(_, to)): (usize, &(&End, Remote))| {
            let op = match self.verb {
                Verb::Write => SendOp::Write(to),
                Verb::Read => SendOp::Read(to),
                Verb::Send => SendOp::Send,
            };
            let data = Data::Gather(&pieces[index]);
            let request = |at| {
                let flags = if at + 1 == list { SendFlags::SIGNALED } else { SendFlags::empty() };
                SendRequest { id: index as u64, op, data, flags, dest: None }
            };
            (0..list).map(request).collect::<Vec<_>>()
        };
        let requests: Vec<_> = ends.iter().enumerate().map(requests).collect();
        let first = ends.first().ok_or("there is no queue pair")?.0;
        let mut found = [Completion::EMPTY; 32];
        let mut under_way = vec![0; ends.len()];
        let (mut done, mut looks) = (0_u64, 0_u32);
        let mut span = Span::begin(settings, self.statistic);
        let mut result = None;
        while result.is_none() || under_way.iter().any(|count| *count > 0) {
            if result.is_none() {
                for ((requests, under_way), (end, _)) in requests.iter().zip(&mut under_way).zip(ends) {
                    while *under_way + list <= depth {
                        end.qp.post_send(requests).map_err(|refused| refused.error)?;
                        *under_way += list;
                    }
                }
            }
            let count = first.cq.poll(&mut found);
            for one in &found[..count] {
                check(one)?;
                under_way[usize::try_from(one.id)?] -= list;
            }
            done += u64::from(list) * count as u64;
            looks = looks.wrapping_add(1);
            // The clock is read now and then only: it costs as much as a part of a short message.
            if result.is_none() && looks.is_multiple_of(16) {
                result = span.done(done);
            }
            if looks.is_multiple_of(4096) && span.is_stuck() {
                let left: u32 = under_way.iter().sum();
                return Err(format!("{left} of {done} messages stay under way; {}", first.note()?).into());
            }
        }
        result.ok_or_else(|| "the time was never over".into())
    }
}

/// The end that is written to or read from.
pub(crate) fn target(parent: Parent, _: &Settings, busy: bool) -> Outcome<()> {
    let (ends, _) = End::with_parent(parent, |_, _| Ok(()))?;
    let (end, _) = ends.first().ok_or("there is no queue pair")?;
    if busy {
        let stop = parent.watch();
        let mut found = [Completion::EMPTY];
        while !stop.load(Ordering::Relaxed) {
            end.cq.poll(&mut found);
        }
    } else {
        parent.wait();
    }
    Ok(parent.say(end.note()?)?)
}

/// The end that is sent to: a receive is posted for each that was taken.
pub(crate) fn receiver(parent: Parent) -> Outcome<()> {
    let prepare = |end: &End, shape: &Shape| end.post_receives_of(receives(shape.depth), shape.message);
    let (end, _, shape) = End::alone_with_parent(parent, prepare)?;
    let stop = parent.watch();
    let mut found = [Completion::EMPTY; 16];
    while !stop.load(Ordering::Relaxed) {
        let count = end.cq.poll(&mut found);
        found[..count].iter().try_for_each(check)?;
        end.post_receives_of(u32::try_from(count)?, shape.message)?;
    }
    Ok(parent.say(end.note()?)?)
}
