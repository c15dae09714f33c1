//! Many messages under way from one end to the other.

use std::sync::atomic::Ordering;

use ferroce_device::WorkCompletion;
use ferroce_transport::{Data, Remote, SendFlags, SendOp, SendRequest};

use crate::ends::{End, check};
use crate::peer::{Master, Peer};
use crate::samples::{Sample, Span};
use crate::{Outcome, Settings};

/// Roles of the other process.
pub(crate) const BUSY: &str = "target-busy";
pub(crate) const ASLEEP: &str = "target-asleep";

/// What is posted, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// READs instead of WRITEs.
    pub(crate) read: bool,
    /// Bytes of a message.
    pub(crate) len: u32,
    /// Messages posted by one call; the last of them gives a completion.
    pub(crate) list: u32,
    /// Messages under way at most.
    pub(crate) depth: u32,
    /// What the target does meanwhile: [`BUSY`] polls, [`ASLEEP`] leaves everything to the driver.
    pub(crate) target: &'static str,
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

    fn between_processes(self, settings: &Settings) -> Outcome<Sample> {
        let mut peer = Peer::start(self.target, settings)?;
        let (end, card) = End::with_peer(&mut peer, self.depth, self.len as usize)?;
        let Sample { value, note } = self.run(settings, &end, card.remote)?;
        let counters = end.note()?;
        let said = peer.stop()?;
        Ok(Sample { value, note: format!("{note} {counters} | target: {}", said.trim()) })
    }

    /// Messages per second from this end to there.
    pub(crate) fn run(self, settings: &Settings, end: &End, to: Remote) -> Outcome<Sample> {
        let Self { read, len, list, depth, .. } = self;
        let op = if read { SendOp::Read(to) } else { SendOp::Write(to) };
        let piece = [end.piece(0, len)];
        let request = |at| {
            let flags = if at + 1 == list { SendFlags::SIGNALED } else { SendFlags::empty() };
            SendRequest { id: 1, op, data: Data::Gather(&piece), flags, dest: None }
        };
        let requests: Vec<_> = (0..list).map(request).collect();
        let mut found = [WorkCompletion::EMPTY; 32];
        let (mut under_way, mut done, mut looks) = (0, 0_u64, 0_u32);
        let mut span = Span::begin(settings);
        let mut result = None;
        while result.is_none() || under_way > 0 {
            while result.is_none() && under_way + list <= depth {
                end.qp.post_send(&requests).map_err(|(_, error)| error)?;
                under_way += list;
            }
            let count = end.cq.poll(&mut found);
            found[..count].iter().try_for_each(check)?;
            let completed = list * u32::try_from(count)?;
            under_way -= completed;
            done += u64::from(completed);
            looks = looks.wrapping_add(1);
            // The clock is read now and then only: it costs as much as a part of a short message.
            if result.is_none() && looks.is_multiple_of(16) {
                result = span.done(done);
            }
            if looks.is_multiple_of(4096) && span.is_stuck() {
                return Err(format!("{under_way} of {done} messages stay under way; {}", end.note()?).into());
            }
        }
        result.ok_or_else(|| "the time was never over".into())
    }
}

/// The end that is written to or read from.
pub(crate) fn target(master: Master, _: &Settings, busy: bool) -> Outcome<()> {
    let (end, _) = End::with_master(master, |_| Ok(()))?;
    if busy {
        let stop = master.watch();
        let mut found = [WorkCompletion::EMPTY];
        while !stop.load(Ordering::Relaxed) {
            end.cq.poll(&mut found);
        }
    } else {
        master.wait();
    }
    master.say(&end.note()?)
}
