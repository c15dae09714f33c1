//! Round trips over the device: one small message there, one back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferroce_device::WorkCompletion;
use ferroce_transport::{Data, Remote, SendFlags, SendOp, SendRequest, WorkKind};

use crate::ends::{Card, End, RECEIVES, check};
use crate::peer::{Master, Peer};
use crate::samples::{Sample, trips};
use crate::{Outcome, Settings};

/// Roles of the other process.
pub(crate) const SEND_BUSY: &str = "send-busy";
pub(crate) const SEND_ASLEEP: &str = "send-asleep";
pub(crate) const WRITE: &str = "write";

/// Bytes of a message.
const LEN: u32 = 64;

/// Where the peer's message ends in the first half of the memory.
const FLAG: usize = LEN as usize - 1;

/// Where ours is made.
const OURS: u64 = 1024;

/// Bytes of memory.
const BYTES: usize = 4096;

/// Nothing came for so long: something is broken.
const STUCK: Duration = Duration::from_secs(5);

/// SENDs, both sides polling or both asleep.
pub(crate) fn send(settings: &Settings, busy: bool) -> Outcome<Sample> {
    let mut peer = Peer::start(if busy { SEND_BUSY } else { SEND_ASLEEP }, settings)?;
    let (end, _) = End::with_peer(&mut peer, 64, BYTES)?;
    end.post_receives(RECEIVES)?;
    let never = AtomicBool::new(false);
    let trips = trips(settings, || {
        post(&end, SendOp::Send)?;
        receive(&end, busy, &never).and_then(|came| if came { Ok(()) } else { Err("no answer came".into()) })
    })?;
    let note = end.note()?;
    peer.stop()?;
    let sample = Sample::of_trips(trips);
    let note = format!("{} {note}", sample.note);
    Ok(sample.with_note(note))
}

/// Answers SENDs.
pub(crate) fn send_peer(master: Master, busy: bool) -> Outcome<()> {
    let (end, _) = End::with_master(master, |end| end.post_receives(RECEIVES))?;
    let stop = master.watch();
    while receive(&end, busy, &stop)? {
        post(&end, SendOp::Send)?;
    }
    Ok(())
}

/// WRITEs as `ib_write_lat` makes them: each side sees the other's in its memory, answers, and then polls
/// until its own is done.
pub(crate) fn write(settings: &Settings) -> Outcome<Sample> {
    let mut peer = Peer::start(WRITE, settings)?;
    let (end, card) = End::with_peer(&mut peer, 64, BYTES)?;
    let never = AtomicBool::new(false);
    let mut number = 0_u8;
    let trips = trips(settings, || {
        number = number.wrapping_add(1);
        write_one(&end, &card, number)?;
        if see(&end, number, &never)? { Ok(()) } else { Err("no answer came".into()) }
    })?;
    let note = end.note()?;
    peer.stop()?;
    let sample = Sample::of_trips(trips);
    let note = format!("{} {note}", sample.note);
    Ok(sample.with_note(note))
}

/// Answers WRITEs.
pub(crate) fn write_peer(master: Master) -> Outcome<()> {
    let (end, card) = End::with_master(master, |_| Ok(()))?;
    let stop = master.watch();
    let mut number = 1_u8;
    while see(&end, number, &stop)? {
        write_one(&end, &card, number)?;
        number = number.wrapping_add(1);
    }
    Ok(())
}

fn post(end: &End, op: SendOp) -> Outcome<()> {
    let piece = [end.piece(OURS, LEN)];
    let request =
        SendRequest { id: 1, op, data: Data::Gather(&piece), flags: SendFlags::SIGNALED, dest: None };
    end.qp.post_send(&[request]).map_err(|(_, error)| error.into())
}

/// Waits for a message, and posts a receive in place of the one that it took. False if it is over.
fn receive(end: &End, busy: bool, stop: &AtomicBool) -> Outcome<bool> {
    let mut found = [WorkCompletion::EMPTY; 4];
    let mut begun = None;
    loop {
        let count = if busy { end.cq.poll(&mut found) } else { end.cq.wait(&mut found, Some(STUCK / 100)) };
        let mut came = 0;
        for done in &found[..count] {
            check(done)?;
            came += u32::from(done.completion.kind == WorkKind::Receive);
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

fn write_one(end: &End, card: &Card, number: u8) -> Outcome<()> {
    let last = usize::try_from(OURS)? + FLAG;
    end.memory.write(last, &[number])?;
    let Remote { address, rkey } = card.remote;
    post(end, SendOp::Write(Remote { address, rkey }))?;
    let mut found = [WorkCompletion::EMPTY; 4];
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

/// Looks into memory, and nowhere else, until this number is there. False if it is over.
fn see(end: &End, number: u8, stop: &AtomicBool) -> Outcome<bool> {
    let mut begun = None;
    while end.memory.load_u8(FLAG)? != number {
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
