//! Round trips over the device: one small message there, one back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferroce_device::CompletionQueue;
use ferroce_testkit::process::Parent;
use ferroce_transport::{Completion, Data, SendFlags, SendOp, SendRequest, WorkKind};
use ferroce_wire::Imm;

use crate::ends::{Card, End, RECEIVES, Shape, check};
use crate::samples::{Sample, trips};
use crate::{Outcome, Settings, peer};

/// Roles of the other process.
pub(crate) const SEND_BUSY: &str = "send-busy";
pub(crate) const SEND_BUSY_SILENT: &str = "send-busy-silent";
pub(crate) const SEND_ASLEEP: &str = "send-asleep";
pub(crate) const SEND_ASLEEP_AT_ONCE: &str = "send-asleep-at-once";
pub(crate) const WRITE: &str = "write";
pub(crate) const WRITE_POLL: &str = "write-poll";
pub(crate) const WRITE_IMM: &str = "write-imm";

/// Bytes of a message, if nothing else is said.
const LEN: u32 = 64;

/// Where ours is made.
const OURS: u64 = 1024;

/// Bytes of memory.
const BYTES: usize = 4096;

/// Nothing came for so long: something is broken.
const STUCK: Duration = Duration::from_secs(5);

/// How an end waits for a message.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Polls,
    /// It sleeps until something completes, after a look for as long as that pays.
    Sleeps,
    /// It sleeps without a look.
    SleepsAtOnce,
}

/// How messages that take a receive go to and fro.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    role: &'static str,
    wait: Wait,
    /// One of so many asks for a completion.
    signaled: u32,
    /// WRITEs with immediate data, not SENDs.
    write: bool,
}

impl Exchange {
    /// SENDs, all signaled.
    pub(crate) const BUSY: Self = Self { role: SEND_BUSY, wait: Wait::Polls, signaled: 1, write: false };
    /// SENDs of which one in 16 is signaled.
    pub(crate) const SILENT: Self =
        Self { role: SEND_BUSY_SILENT, wait: Wait::Polls, signaled: 16, write: false };
    /// SENDs by programs that sleep.
    pub(crate) const ASLEEP: Self = Self { role: SEND_ASLEEP, wait: Wait::Sleeps, signaled: 1, write: false };
    /// SENDs by programs that sleep, and do not look for a moment first.
    pub(crate) const ASLEEP_AT_ONCE: Self =
        Self { role: SEND_ASLEEP_AT_ONCE, wait: Wait::SleepsAtOnce, signaled: 1, write: false };
    /// WRITEs with immediate data.
    pub(crate) const IMMEDIATE: Self = Self { role: WRITE_IMM, wait: Wait::Polls, signaled: 1, write: true };

    /// Round trips, halved.
    pub(crate) fn run(self, settings: &Settings) -> Outcome<Sample> {
        let mut peer = peer::start(self.role, settings)?;
        let (end, card) = End::alone_with_peer(&mut peer, &Shape::new(64, BYTES).like(settings))?;
        end.post_receives(RECEIVES)?;
        let trips = self.trips(settings, &end, &card)?;
        let note = end.note()?;
        peer.stop()?;
        Ok(noted(Sample::of_trips(trips), &note))
    }

    /// Answers.
    pub(crate) fn play(self, parent: Parent) -> Outcome<()> {
        let (end, card, _) = End::alone_with_parent(parent, |end, _| end.post_receives(RECEIVES))?;
        self.answer(&end, &card, &parent.watch())
    }

    /// The trips of the side that begins.
    pub(crate) fn trips(self, settings: &Settings, end: &End, card: &Card) -> Outcome<Vec<u32>> {
        let never = AtomicBool::new(false);
        let mut number = 0;
        trips(settings, || {
            self.post(end, card, &mut number)?;
            if receive(end, self.wait, &never)? { Ok(()) } else { Err("no answer came".into()) }
        })
    }

    /// Answers until it is over.
    pub(crate) fn answer(self, end: &End, card: &Card, stop: &AtomicBool) -> Outcome<()> {
        let mut number = 0;
        while receive(end, self.wait, stop)? {
            self.post(end, card, &mut number)?;
        }
        Ok(())
    }

    fn post(self, end: &End, card: &Card, number: &mut u32) -> Outcome<()> {
        *number = number.wrapping_add(1);
        let op = if self.write { SendOp::WriteImm(card.remote, Imm(*number)) } else { SendOp::Send };
        let is_signaled = number.is_multiple_of(self.signaled);
        post(end, op, LEN, if is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() })
    }
}

/// WRITEs as `ib_write_lat` makes them: each side sees the other's in its memory, answers, and then polls
/// until its own is done. With `poll`, each side polls for its completions while it looks at its memory.
pub(crate) fn write(settings: &Settings, len: u32, poll: bool) -> Outcome<Sample> {
    let mut peer = peer::start(if poll { WRITE_POLL } else { WRITE }, settings)?;
    let shape = Shape { message: len, ..Shape::new(64, BYTES).like(settings) };
    let (end, card) = End::alone_with_peer(&mut peer, &shape)?;
    let never = AtomicBool::new(false);
    let mut number = 0_u8;
    let trips = trips(settings, || {
        number = number.wrapping_add(1);
        write_one(&end, &card, len, number, poll)?;
        if see(&end, len, number, poll, &never)? { Ok(()) } else { Err("no answer came".into()) }
    })?;
    let note = end.note()?;
    peer.stop()?;
    Ok(noted(Sample::of_trips(trips), &note))
}

/// READs from a program that sleeps: its driver answers.
pub(crate) fn read(settings: &Settings, len: u32) -> Outcome<Sample> {
    let mut peer = peer::start(crate::stream::ASLEEP, settings)?;
    let (end, card) = End::alone_with_peer(&mut peer, &Shape::new(64, BYTES).like(settings))?;
    let mut found = [Completion::EMPTY];
    let trips = trips(settings, || {
        post(&end, SendOp::Read(card.remote), len, SendFlags::SIGNALED)?;
        let begun = Instant::now();
        while end.cq.poll(&mut found) == 0 {
            if begun.elapsed() > STUCK {
                return Err("no answer came".into());
            }
        }
        check(&found[0])
    })?;
    let note = end.note()?;
    peer.stop()?;
    Ok(noted(Sample::of_trips(trips), &note))
}

/// Answers WRITEs.
pub(crate) fn write_peer(parent: Parent, poll: bool) -> Outcome<()> {
    let (end, card, Shape { message: len, .. }) = End::alone_with_parent(parent, |_, _| Ok(()))?;
    let stop = parent.watch();
    let mut number = 1_u8;
    while see(&end, len, number, poll, &stop)? {
        write_one(&end, &card, len, number, poll)?;
        number = number.wrapping_add(1);
    }
    Ok(())
}

/// With more in its note.
fn noted(sample: Sample, note: &str) -> Sample {
    let note = format!("{} {note}", sample.note);
    sample.with_note(note)
}

fn post(end: &End, op: SendOp, len: u32, flags: SendFlags) -> Outcome<()> {
    let piece = [end.piece(OURS, len)];
    let request = SendRequest { id: 1, op, data: Data::Gather(&piece), flags, dest: None };
    end.qp.post_send(&[request]).map_err(|refused| refused.error.into())
}

/// Waits for a message, and posts a receive in place of the one that it took. False if it is over.
fn receive(end: &End, wait: Wait, stop: &AtomicBool) -> Outcome<bool> {
    let mut found = [Completion::EMPTY; 4];
    let mut begun = None;
    loop {
        let count = match wait {
            Wait::Polls => end.cq.poll(&mut found),
            Wait::Sleeps => end.cq.wait(&mut found, Some(STUCK / 100)),
            Wait::SleepsAtOnce => match end.cq.poll(&mut found) {
                0 => {
                    let queue = std::iter::once(&*end.cq);
                    CompletionQueue::sleep_for_any(queue, Some(STUCK / 100), |_| true);
                    0
                }
                count => count,
            },
        };
        let mut came = 0;
        for done in &found[..count] {
            check(done)?;
            let kind = done.kind;
            came += u32::from(matches!(kind, WorkKind::Receive | WorkKind::ReceiveWithImm));
        }
        if came > 0 {
            end.post_receives(came)?;
            return Ok(true);
        }
        if stop.load(Ordering::Relaxed) || is_stuck(&mut begun) {
            return Ok(false);
        }
    }
}

/// Where a message of this length ends.
const fn last_byte(len: u32) -> usize {
    len as usize - 1
}

/// Posts one that carries a number, and polls until it is done unless that happens later.
fn write_one(end: &End, card: &Card, len: u32, number: u8, later: bool) -> Outcome<()> {
    end.memory.write(usize::try_from(OURS)? + last_byte(len), &[number])?;
    post(end, SendOp::Write(card.remote), len, SendFlags::SIGNALED)?;
    if later {
        return Ok(());
    }
    let mut found = [Completion::EMPTY; 4];
    let mut begun = None;
    loop {
        let count = end.cq.poll(&mut found);
        if count > 0 {
            return found[..count].iter().try_for_each(check);
        }
        if is_stuck(&mut begun) {
            return Err("a WRITE was not acknowledged".into());
        }
    }
}

/// Looks into memory until this number is there, and nowhere else unless it shall poll too. False if it is
/// over.
fn see(end: &End, len: u32, number: u8, poll: bool, stop: &AtomicBool) -> Outcome<bool> {
    let mut found = [Completion::EMPTY; 4];
    let mut begun = None;
    while end.memory.load_u8(last_byte(len))? != number {
        if poll {
            let count = end.cq.poll(&mut found);
            found[..count].iter().try_for_each(check)?;
        }
        if stop.load(Ordering::Relaxed) || is_stuck(&mut begun) {
            return Ok(false);
        }
        std::hint::spin_loop();
    }
    Ok(true)
}

/// Counts looks, and reads the clock at few of them.
fn is_stuck(begun: &mut Option<(Instant, u32)>) -> bool {
    let Some((start, looks)) = begun else {
        *begun = Some((Instant::now(), 0));
        return false;
    };
    *looks = looks.wrapping_add(1);
    looks.is_multiple_of(4096) && start.elapsed() > STUCK
}
