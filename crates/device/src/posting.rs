//! How work reaches a queue pair: straight into its engine, or by mail if another thread has that.

use std::borrow::Borrow;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_progress::Departure;
use ferroce_sys::clock;
use ferroce_sys::sync::lock;
use ferroce_transport::{Caps, PostError, PostListError, PostRules, ReceiveRequest, SendFlags, SendRequest};
use ferroce_wire::Qpn;

use crate::engine::qp_shared::{QpShared, note_most, release};
use crate::engine::qps::index_of;
use crate::engine::{Engine, Reason};
use crate::engines::Engines;
use crate::mail::{Parcel, ReceiveParcel, SendParcel};
use crate::visit::Visit;

/// What is to be known of a list that was posted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Posted {
    messages: u32,
    bytes: u64,
    is_urgent: bool,
}

/// What sends and receives differ in when they are posted.
pub(crate) trait Work: Sized {
    /// The name of the queue that the work is posted to.
    const QUEUE: &'static str;

    /// Whether posting it sets off anything that has to know the time.
    const TAKES_TIME: bool;

    /// Requests that its queue takes.
    fn depth(caps: &Caps) -> u32;

    /// How many have a place in the queue.
    fn places(shared: &QpShared) -> &AtomicU32;

    /// The most that had a place in the queue at a time.
    fn most(shared: &QpShared) -> &AtomicU32;

    /// What the work would be refused for, beside a full queue.
    fn check(&self, rules: &PostRules) -> Result<(), PostError>;

    /// Hands a list to its queue pair. [`posted`](Self::posted) has to follow. The error says how many were
    /// taken, and why the next was not.
    fn post(list: &[Self], engine: &mut Engine, qpn: Qpn) -> Result<(), PostListError>;

    /// Does what is due after the last of a list.
    fn posted(engine: &mut Engine, qpn: Qpn);

    /// Adds it to what is known of its list.
    fn add_to(&self, _: &mut Posted) {}

    /// The same work, to be posted by another thread; `at` is when it was posted, if a record asks.
    fn parcel(&self, qpn: Qpn, at: Option<NonZeroU64>) -> Parcel;

    /// Posts a list of one work request and has done with it, if that is possible. Else nothing has changed.
    fn post_alone(list: &[Self], visit: &mut Visit<'_>, qpn: Qpn) -> bool;

    /// Leaves the engine after work that was [posted alone](Self::post_alone).
    fn leave_alone(visit: Visit<'_>);

    /// Leaves the engine when all of a list is posted.
    fn leave(visit: Visit<'_>, qpn: Qpn, posted: Posted);
}

impl Work for SendRequest<'_> {
    const QUEUE: &'static str = "send";
    const TAKES_TIME: bool = true;

    fn depth(caps: &Caps) -> u32 {
        caps.max_send
    }

    fn places(shared: &QpShared) -> &AtomicU32 {
        &shared.sends
    }

    fn most(shared: &QpShared) -> &AtomicU32 {
        &shared.most_sends
    }

    fn check(&self, rules: &PostRules) -> Result<(), PostError> {
        rules.check_send(self).map(drop)
    }

    #[inline]
    fn post(list: &[Self], engine: &mut Engine, qpn: Qpn) -> Result<(), PostListError> {
        engine.queue_sends(qpn, list)
    }

    #[inline(always)]
    fn post_alone(list: &[Self], visit: &mut Visit<'_>, qpn: Qpn) -> bool {
        if let [request] = list { visit.send_alone(qpn, request) } else { false }
    }

    #[inline]
    fn posted(engine: &mut Engine, qpn: Qpn) {
        engine.after_posting(index_of(qpn));
    }

    #[inline(always)]
    fn leave_alone(visit: Visit<'_>) {
        visit.leave();
    }

    fn parcel(&self, qpn: Qpn, at: Option<NonZeroU64>) -> Parcel {
        Parcel::Send(qpn, SendParcel::new(self, at))
    }

    #[inline]
    fn add_to(&self, posted: &mut Posted) {
        posted.messages += 1;
        posted.bytes += self.data.bytes();
        posted.is_urgent |= self.flags.contains(SendFlags::SOLICITED);
    }

    /// Sends are begun at once, or wait a moment for others.
    #[inline]
    fn leave(mut visit: Visit<'_>, qpn: Qpn, posted: Posted) {
        let Posted { messages, bytes, is_urgent } = posted;
        if let Departure::Later(alarm) = visit.departure(qpn, messages, bytes, is_urgent) {
            return visit.leave_waiting(alarm);
        }
        let now = visit.tables.now;
        visit.turn_at(now, Reason::Posted);
        visit.leave();
    }
}

impl Work for ReceiveRequest<'_> {
    const QUEUE: &'static str = "receive";
    /// Only one that is flushed at once completes now: then the time of the last turn has to do.
    const TAKES_TIME: bool = false;

    fn depth(caps: &Caps) -> u32 {
        caps.max_receive
    }

    fn places(shared: &QpShared) -> &AtomicU32 {
        &shared.receives
    }

    fn most(shared: &QpShared) -> &AtomicU32 {
        &shared.most_receives
    }

    fn check(&self, rules: &PostRules) -> Result<(), PostError> {
        rules.check_receive(self)
    }

    #[inline]
    fn post(list: &[Self], engine: &mut Engine, qpn: Qpn) -> Result<(), PostListError> {
        engine.queue_receives(qpn, list)
    }

    #[inline(always)]
    fn post_alone(list: &[Self], visit: &mut Visit<'_>, qpn: Qpn) -> bool {
        if let [request] = list { visit.receive_alone(qpn, request) } else { false }
    }

    #[inline]
    fn posted(engine: &mut Engine, qpn: Qpn) {
        engine.after_receives(index_of(qpn));
    }

    /// At once: receives need no turn, but threads that wait for flushed ones are told.
    #[inline(always)]
    fn leave_alone(mut visit: Visit<'_>) {
        if visit.has_nothing_to_tell() {
            match visit.leave_at_rest() {
                Ok(()) => return,
                // The bell has rung.
                Err(inside) => visit = inside,
            }
        }
        visit.tables.settle();
        visit.leave();
    }

    fn parcel(&self, qpn: Qpn, at: Option<NonZeroU64>) -> Parcel {
        Parcel::Receive(qpn, ReceiveParcel::new(self, at))
    }

    #[inline]
    fn leave(visit: Visit<'_>, _: Qpn, _: Posted) {
        Self::leave_alone(visit);
    }
}

/// A queue pair, as posting sees it.
#[derive(Clone, Copy)]
pub(crate) struct Addressee<'a> {
    pub(crate) engines: &'a Engines,
    /// The engine of the queue pair, by its place.
    pub(crate) index: usize,
    pub(crate) qpn: Qpn,
    pub(crate) shared: &'a QpShared,
}

impl Addressee<'_> {
    /// Posts work, in order. The error says how many were taken, and why the next was not.
    #[inline]
    pub(crate) fn post<W: Work>(&self, requests: &[W]) -> Result<(), PostListError> {
        match self.engines.try_enter(self.index) {
            Some(visit) => self.post_inside(visit, requests, 0),
            None => self.mail(requests),
        }
    }

    /// Posts all of the work, in order, or nothing of it. The error says which was refused, and why; for a
    /// queue that has no room for all of them it is the first that has none.
    pub(crate) fn post_all<W: Work>(
        &self,
        requests: impl Iterator<Item = W> + Clone,
    ) -> Result<(), PostListError> {
        let station = self.engines.station(self.index);
        let mut visit = match self.engines.try_enter(self.index) {
            Some(visit) => visit,
            None => {
                let rules = *lock(&self.shared.rules);
                let count = check_all(requests.clone(), &rules)?;
                if reserve_all::<W>(self.shared, W::depth(&rules.caps), count) {
                    let at = self.engines.time_of_posting();
                    for request in requests {
                        station.mail.push(request.parcel(self.qpn, at));
                    }
                    self.engines.bell_posted(self.index);
                    return Ok(());
                }
                // Full, as far as is known out here. Whether it still is, can be seen inside.
                self.engines.enter(self.index)
            }
        };
        visit.tables.now = clock::now().max(visit.tables.now);
        visit.take_mail();
        let result = self.post_all_inside(&mut visit, requests.clone());
        W::posted(&mut visit, self.qpn);
        W::leave(visit, self.qpn, known::<W>(requests));
        result
    }

    fn post_all_inside<W: Work>(
        &self,
        engine: &mut Engine,
        requests: impl Iterator<Item = W> + Clone,
    ) -> Result<(), PostListError> {
        // A queue pair that is gone takes everything and does nothing, as with single requests.
        let Some(rules) = engine.qps.get(self.qpn).map(|entry| entry.machine.rules()) else { return Ok(()) };
        let count = check_all(requests.clone(), &rules)?;
        let (places, depth) = (W::places(self.shared), W::depth(&self.shared.caps));
        if !reserve_all::<W>(self.shared, depth, count) {
            let free = depth.saturating_sub(places.load(Ordering::Relaxed));
            return Err(PostListError::new(free as usize, PostError::QueueFull { what: W::QUEUE, depth }));
        }
        for (index, request) in requests.enumerate() {
            if let Err(PostListError { error, .. }) =
                W::post(std::slice::from_ref(&request), engine, self.qpn)
            {
                // Cannot be: it was checked, it has a place, and no other thread is in here.
                debug_assert!(false, "a request that was checked is refused: {error}");
                release(places, count.saturating_sub(u32::try_from(index).unwrap_or(count)));
                return Err(PostListError::new(index, error));
            }
        }
        Ok(())
    }

    #[inline]
    fn post_inside<W: Work>(
        &self,
        mut visit: Visit<'_>,
        requests: &[W],
        first: usize,
    ) -> Result<(), PostListError> {
        if W::TAKES_TIME {
            visit.tables.now = clock::now().max(visit.tables.now);
        }
        visit.take_mail();
        let depth = W::depth(&self.shared.caps);
        let places = W::places(self.shared);
        // In here the count is exact: what is in the machine, and what is on its way to it.
        let (before, fits) = reserve(places, depth, requests.len());
        let (fitting, rest) = requests.split_at(fits as usize);
        if rest.is_empty() && W::post_alone(fitting, &mut visit, self.qpn) {
            note_most(W::most(self.shared), before + 1);
            W::leave_alone(visit);
            return Ok(());
        }
        let mut posted = W::post(fitting, &mut visit, self.qpn);
        if let (Ok(()), Some(next)) = (posted, rest.first()) {
            let rules = visit.qps.get(self.qpn).map(|entry| entry.machine.rules());
            let full = PostError::QueueFull { what: W::QUEUE, depth };
            let error = rules.and_then(|rules| next.check(&rules).err()).unwrap_or(full);
            posted = Err(PostListError::new(fitting.len(), error));
        }
        let mut taken = fits;
        if let Err(refused) = posted {
            taken = u32::try_from(refused.taken).unwrap_or(u32::MAX);
            release(places, fits.saturating_sub(taken));
            posted = Err(refused.after(first));
        }
        note_most(W::most(self.shared), before + taken);
        W::posted(&mut visit, self.qpn);
        W::leave(visit, self.qpn, known::<W>(requests.iter()));
        posted
    }

    /// Leaves work in the mail, for the thread that has the engine.
    fn mail<W: Work>(&self, requests: &[W]) -> Result<(), PostListError> {
        let station = self.engines.station(self.index);
        let rules = *lock(&self.shared.rules);
        let mut result = Ok(());
        for (index, request) in requests.iter().enumerate() {
            if let Err(error) = request.check(&rules) {
                result = Err(PostListError::new(index, error));
                break;
            }
            let (before, taken) = reserve(W::places(self.shared), W::depth(&rules.caps), 1);
            if taken == 0 {
                // Full, as far as is known out here. Whether it still is, can be seen inside.
                return self.post_inside(self.engines.enter(self.index), &requests[index..], index);
            }
            note_most(W::most(self.shared), before + taken);
            station.mail.push(request.parcel(self.qpn, self.engines.time_of_posting()));
        }
        self.engines.bell_posted(self.index);
        result
    }
}

/// What is to be known of a list.
#[inline]
fn known<W: Work>(requests: impl Iterator<Item = impl Borrow<W>>) -> Posted {
    let mut posted = Posted::default();
    requests.for_each(|request| request.borrow().add_to(&mut posted));
    posted
}

/// Takes up to `wanted` places in a queue of this depth, as many as there are; how many were taken before,
/// and how many now.
#[inline(always)]
fn reserve(used: &AtomicU32, depth: u32, wanted: usize) -> (u32, u32) {
    if wanted == 1 {
        let more = |used: u32| (used < depth).then_some(used.wrapping_add(1));
        return match used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(before) => (before, 1),
            Err(before) => (before, 0),
        };
    }
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    let free = |used: u32| depth.saturating_sub(used).min(wanted);
    let more = |used: u32| (free(used) > 0).then(|| used + free(used));
    match used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
        Ok(before) => (before, free(before)),
        Err(before) => (before, 0),
    }
}

/// What the first of these would be refused for, beside a full queue; else how many they are.
fn check_all<W: Work>(requests: impl Iterator<Item = W>, rules: &PostRules) -> Result<u32, PostListError> {
    let mut count = 0;
    for (index, request) in requests.enumerate() {
        request.check(rules).map_err(|error| PostListError::new(index, error))?;
        count += 1;
    }
    Ok(count)
}

/// Takes so many places in a queue of this depth; false, and nothing changed, if there are not as many.
fn reserve_all<W: Work>(shared: &QpShared, depth: u32, count: u32) -> bool {
    let more = |used: u32| used.checked_add(count).filter(|sum| *sum <= depth);
    let reserved = W::places(shared).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    if let Ok(before) = reserved {
        note_most(W::most(shared), before + count);
    }
    reserved.is_ok()
}
