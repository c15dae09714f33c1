//! Processes of this machine that share memory with an engine: how that is agreed, and how it ends.
//!
//! A thread that connects a queue pair offers two lanes, one each way, and where its engine is called; the other process
//! answers with where its own is called. Both give what they got to their engines by mail. If both offer at once, the offer of the
//! lower slot stands. A connection between the two processes stays, over which nothing is said: its end tells that the
//! other one is gone.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ferroce_fabric::NotShared;
use ferroce_lane::{LaneError, LaneFile, LineFile};
use ferroce_switchboard::{LaneOffer, LaneRefusal, Lifeline, NoLane, Slot};
use ferroce_sys::clock;
use ferroce_sys::descriptor::is_event;
use ferroce_sys::fork::Tracked;
use ferroce_sys::sync::{lock, wait_for};

use crate::engine::lanes::{Bell, Neighbour};
use crate::engines::{Engines, Station};
use crate::mail::Parcel;
use crate::neighbours::{Known, Mapped, Shares, Standing, has_room};

/// How long a thread waits for an offer of another one of this process, or of the other process, to be settled.
const PATIENCE: Duration = Duration::from_millis(400);

/// The incarnation of this process, as far as its own engines are neighbours.
pub(crate) const OURS: u64 = 0;

/// Two lanes that this process has made.
struct Offer {
    out: LaneFile,
    back: LaneFile,
    mapped: [Mapped; 2],
}

impl Offer {
    fn new() -> Result<Self, LaneError> {
        let (out, back) = (LaneFile::create()?, LaneFile::create()?);
        let mapped = [Mapped::ours(&out)?, Mapped::ours(&back)?];
        Ok(Self { out, back, mapped })
    }
}

/// Sees to it that an engine of this process shares memory with the owner of another slot.
pub(crate) fn meet(engines: &Engines, index: usize, slot: &Slot, to: u8) -> Result<(), NotShared> {
    let station = engines.station(index);
    let end = clock::now() + PATIENCE;
    let mut known = lock(&station.neighbours.known);
    loop {
        match known.by_slot.get(&to) {
            Some(Standing::Shares(shares))
                if shares.is_gone()
                    || shares.is_broken() && engines.member.living(to) != Some(shares.incarnation) =>
            {
                forget(station, &mut known, to);
            }
            Some(Standing::Shares(shares)) if shares.is_broken() => return Err(NotShared::Broken),
            Some(Standing::Shares(_)) => return Ok(()),
            Some(Standing::Offered) => {
                let now = clock::now();
                if now >= end {
                    return Err(NotShared::NoAnswer);
                }
                known = wait_for(&station.neighbours.changed, known, end.since(now));
            }
            None => break,
        }
    }
    let line = own_line(&mut known, station).map_err(|error| reason(&error))?;
    known.by_slot.insert(to, Standing::Offered);
    drop(known);
    let made = offer(station, slot, to, &line);
    let mut known = lock(&station.neighbours.known);
    // The other process may have made an offer meanwhile, which stands.
    let is_open = matches!(known.by_slot.get(&to), Some(Standing::Offered));
    let result = match made {
        Ok((neighbour, held)) if is_open => {
            settle(&mut known, station, neighbour, held, true);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(NoOffer::TheirsStands) => {
            while matches!(known.by_slot.get(&to), Some(Standing::Offered)) && clock::now() < end {
                known = wait_for(&station.neighbours.changed, known, end.since(clock::now()));
            }
            match known.by_slot.get(&to) {
                Some(Standing::Shares(_)) => Ok(()),
                _ => Err(NotShared::NoAnswer),
            }
        }
        Err(_) if !is_open => Ok(()),
        Err(NoOffer::Why(why)) => Err(why),
    };
    if matches!(known.by_slot.get(&to), Some(Standing::Offered)) {
        known.by_slot.remove(&to);
    }
    station.neighbours.changed.notify_all();
    result
}

/// Sees to it that two engines of this process share memory; they may be one.
pub(crate) fn meet_here(engines: &Engines, index: usize, there: usize) -> Result<(), NotShared> {
    let [here, there] = [engines.station(index), engines.station(there)];
    let is_one = std::ptr::eq(here, there);
    // In the order of their slots, as all threads do.
    let (first, second) = if here.slot <= there.slot { (here, there) } else { (there, here) };
    let mut one = lock(&first.neighbours.known);
    if one.by_slot.contains_key(&second.slot) {
        return Ok(());
    }
    let failed = |error: LaneError| reason(&error);
    if is_one {
        let line = own_line(&mut one, first).map_err(failed)?;
        let file = LaneFile::create().map_err(failed)?;
        let mapped = [Mapped::ours(&file).map_err(failed)?, Mapped::ours(&file).map_err(failed)?];
        let call = calls(&line, first)?;
        let neighbour = Box::new(Neighbour::new((first.slot, OURS), file.split(), call));
        settle(&mut one, first, neighbour, (None, mapped), true);
        return Ok(());
    }
    let mut other = lock(&second.neighbours.known);
    let lines = [own_line(&mut one, first).map_err(failed)?, own_line(&mut other, second).map_err(failed)?];
    let Offer { out, back, mapped } = Offer::new().map_err(failed)?;
    let both = [mapped[0].again(), mapped[1].again()];
    let [to_first, to_second] = [calls(&lines[0], first)?, calls(&lines[1], second)?];
    let ((out_in, out_out), (back_in, back_out)) = (out.split(), back.split());
    let ours = Neighbour::new((second.slot, OURS), (out_in, back_out), to_second);
    let theirs = Neighbour::new((first.slot, OURS), (back_in, out_out), to_first);
    settle(&mut one, first, Box::new(ours), (None, mapped), true);
    settle(&mut other, second, Box::new(theirs), (None, both), false);
    Ok(())
}

/// The owner of another slot offers to share memory: what it is answered with.
pub(crate) fn answer(station: &Station, offer: LaneOffer) -> Result<Vec<OwnedFd>, LaneRefusal> {
    let neighbours = &station.neighbours;
    if !neighbours.is_open() {
        return Err(LaneRefusal::Forbidden);
    }
    let LaneOffer { from, incarnation, descriptors, lifeline, .. } = offer;
    let Ok::<[Tracked; 4], _>([out, back, line, bell]) = descriptors.try_into() else {
        return Err(LaneRefusal::Broken);
    };
    if !has_room() {
        return Err(LaneRefusal::NoDescriptors);
    }
    // What goes out there comes in here.
    let (incoming, outgoing) = (accepted(&out)?, accepted(&back)?);
    let mapped = [mapped_as_theirs(&incoming)?, mapped_as_theirs(&outgoing)?];
    let line = copy(&line).and_then(|line| LineFile::accept(line).map_err(|error| refusal(&error)))?;
    if !is_event(bell.as_fd()) {
        return Err(LaneRefusal::Broken);
    }
    let mut known = lock(&neighbours.known);
    match known.by_slot.get(&from) {
        Some(Standing::Offered) if station.slot < from => return Err(LaneRefusal::TheirsStands),
        Some(Standing::Shares(shares)) if shares.is_broken() && shares.incarnation == incarnation => {
            return Err(LaneRefusal::Broken);
        }
        // It has taken ours, and still holds it: this one was made before that.
        Some(Standing::Shares(shares))
            if shares.is_ours && shares.incarnation == incarnation && !shares.is_gone() =>
        {
            return Err(LaneRefusal::TheirsStands);
        }
        Some(Standing::Shares(_)) => forget(station, &mut known, from),
        Some(Standing::Offered) | None => {}
    }
    let own = own_line(&mut known, station).map_err(|error| refusal(&error))?;
    let ours = own.try_clone().map_err(|_| LaneRefusal::NoDescriptors)?;
    let own_bell = station.driver.bell().ok_or(LaneRefusal::Forbidden)?;
    let own_bell = own_bell.as_fd().try_clone_to_owned().map_err(|_| LaneRefusal::NoDescriptors)?;
    let ends = (outgoing.into_producer(), incoming.into_consumer());
    let call = (line.caller(), Bell::Theirs(bell));
    let neighbour = Box::new(Neighbour::new((from, incarnation), ends, call));
    settle(&mut known, station, neighbour, (Some(lifeline), mapped), false);
    drop(known);
    neighbours.changed.notify_all();
    Ok(vec![ours, own_bell])
}

/// The file of our own line; if there was none, the engine gets it.
fn own_line(known: &mut Known, station: &Station) -> Result<Arc<OwnedFd>, LaneError> {
    if let Some(line) = &known.line {
        return Ok(Arc::clone(line));
    }
    let file = LineFile::create()?;
    let copy = file.as_fd().try_clone_to_owned().map_err(LaneError::NoDescriptor)?;
    let line = Arc::new(copy);
    station.mail.push(Parcel::Line(file.into_line()));
    known.line = Some(Arc::clone(&line));
    Ok(line)
}

/// What is kept of a process that shares memory with this one: the end of a connection to it, and its two lanes.
type Held = (Option<Lifeline>, [Mapped; 2]);

/// A process shares memory with the engine from now on; `is_ours` says whether this one offered it.
fn settle(
    known: &mut Known,
    station: &Station,
    neighbour: Box<Neighbour>,
    (lifeline, mapped): Held,
    is_ours: bool,
) {
    // Before the driver may hear that the process is gone.
    station.driver.expect_rings();
    if let Some(lifeline) = &lifeline {
        station.driver.watch_lifeline(lifeline.as_fd().as_raw_fd());
    }
    let (incarnation, is_broken) = (neighbour.incarnation, neighbour.broken_flag());
    let shares = Shares { incarnation, lifeline, is_ours, is_broken, mapped };
    known.by_slot.insert(neighbour.slot, Standing::Shares(shares));
    station.mail.push(Parcel::Neighbour(neighbour));
    station.ask_for_a_turn();
}

/// Nothing is shared with a process any more.
fn forget(station: &Station, known: &mut MutexGuard<'_, Known>, slot: u8) {
    if let Some(Standing::Shares(shares)) = known.by_slot.remove(&slot) {
        station.mail.push(Parcel::Lost(slot, shares.incarnation));
        station.ask_for_a_turn();
    }
}

/// Why an offer came to nothing.
enum NoOffer {
    /// The other process has made one itself, and that stands.
    TheirsStands,
    Why(NotShared),
}

impl From<NotShared> for NoOffer {
    fn from(why: NotShared) -> Self {
        Self::Why(why)
    }
}

impl From<NoLane> for NoOffer {
    fn from(why: NoLane) -> Self {
        match why {
            NoLane::Refused { why: LaneRefusal::TheirsStands, .. } => Self::TheirsStands,
            why => Self::Why(reason_of(&why)),
        }
    }
}

/// Makes an offer to the owner of a slot.
fn offer(station: &Station, slot: &Slot, to: u8, line: &OwnedFd) -> Result<(Box<Neighbour>, Held), NoOffer> {
    if !has_room() {
        return Err(NotShared::NoDescriptors.into());
    }
    let Offer { out, back, mapped } = Offer::new().map_err(|error| reason(&error))?;
    let bell = station.driver.bell().ok_or(NotShared::SwitchedOff)?;
    let reached = slot.reach(to, &[out.as_fd(), back.as_fd(), line.as_fd(), bell.as_fd()])?;
    let [theirs, rung]: [Tracked; 2] = reached.descriptors.try_into().map_err(|_| NotShared::Broken)?;
    let line = theirs.as_fd().try_clone_to_owned().map_err(|_| NotShared::NoDescriptors)?;
    let line = LineFile::accept(line).map_err(|_| NotShared::Broken)?;
    if !is_event(rung.as_fd()) {
        return Err(NotShared::Broken.into());
    }
    let ends = (out.into_producer(), back.into_consumer());
    let call = (line.caller(), Bell::Theirs(rung));
    let incarnation = reached.incarnation;
    let neighbour = Box::new(Neighbour::new((to, incarnation), ends, call));
    Ok((neighbour, (Some(reached.lifeline), mapped)))
}

/// How an engine of this process is called.
fn calls(line: &OwnedFd, station: &Station) -> Result<(ferroce_lane::Caller, Bell), NotShared> {
    let line = line.try_clone().map_err(|_| NotShared::NoDescriptors)?;
    let line = LineFile::accept(line).map_err(|error| reason(&error))?;
    let bell = station.driver.bell().ok_or(NotShared::Refused)?;
    let bell = bell.as_fd().try_clone_to_owned().map_err(|_| NotShared::NoDescriptors)?;
    Ok((line.caller(), Bell::Ours(bell)))
}

/// A descriptor as an object takes it.
fn copy(descriptor: &Tracked) -> Result<OwnedFd, LaneRefusal> {
    descriptor.as_fd().try_clone_to_owned().map_err(|_| LaneRefusal::NoDescriptors)
}

fn accepted(descriptor: &Tracked) -> Result<LaneFile, LaneRefusal> {
    LaneFile::accept(copy(descriptor)?).map_err(|error| refusal(&error))
}

fn mapped_as_theirs(file: &LaneFile) -> Result<Mapped, LaneRefusal> {
    Mapped::theirs(file).map_err(|error| refusal(&error))?.ok_or(LaneRefusal::Broken)
}

/// Why a file is refused.
const fn refusal(error: &LaneError) -> LaneRefusal {
    match error {
        LaneError::NoMemory { .. } => LaneRefusal::NoMemory,
        LaneError::NoDescriptor(_) => LaneRefusal::NoDescriptors,
        LaneError::Forbidden(_) | LaneError::FileLimit { .. } => LaneRefusal::Forbidden,
        _ => LaneRefusal::Broken,
    }
}

/// Why there is no file.
const fn reason(error: &LaneError) -> NotShared {
    match error {
        LaneError::Forbidden(_) => NotShared::SystemForbids,
        LaneError::FileLimit { .. } => NotShared::FileLimit,
        LaneError::NoDescriptor(_) => NotShared::NoDescriptors,
        LaneError::NoMemory { .. } => NotShared::NoMemory,
        LaneError::OtherVersion { .. } => NotShared::OtherVersion,
        LaneError::System { .. } => NotShared::System,
        _ => NotShared::Broken,
    }
}

/// Why no memory is shared, in the words of a path.
const fn reason_of(why: &NoLane) -> NotShared {
    match why {
        NoLane::UserUnknown { .. } | NoLane::LocksOfProcess | NoLane::Forked => NotShared::Unfit,
        NoLane::NoOwner { .. } => NotShared::NoOwner,
        NoLane::OtherVersion { .. } => NotShared::OtherVersion,
        NoLane::Gone { .. } => NotShared::Gone,
        NoLane::NoAnswer { .. } => NotShared::NoAnswer,
        NoLane::NoDescriptors => NotShared::NoDescriptors,
        NoLane::Refused { why: LaneRefusal::NoMemory, .. } => NotShared::NoMemory,
        NoLane::NotListening { .. } | NoLane::OtherUser { .. } | NoLane::Refused { .. } => NotShared::Refused,
        NoLane::BrokenAnswer { .. } => NotShared::Broken,
        _ => NotShared::System,
    }
}
