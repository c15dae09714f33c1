//! What a connection does with memory: opening its own, and using the peer's.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ferroce_verbs::ranges::bounds;
use ferroce_verbs::time::{Time, now, until};
use ferroce_verbs::{Access, Memory, MemoryRegion, RemoteSlice};

use crate::buffer::Buffer;
use crate::call::{Attempt, Call};
use crate::calls::{Operating, Turn};
use crate::connection::Connection;
use crate::core::{Act, Begun, Held, Part, Remote};
use crate::done::{Done, DoneKind};
use crate::error::Error;
use crate::exposed::{Exposed, RemoteMemory};
use crate::frame::Exposure;
use crate::hello::Grant;
use crate::keeper::{self, Alarm};
use crate::place::{Place, physical};
use crate::shared::Shared;

impl Connection {
    /// Opens memory to the peer, under a name, for [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`],
    /// [`Access::REMOTE_ATOMIC`] or several of them. The peer hears of it before any message that is sent later.
    pub fn expose<'a>(
        &'a self,
        name: &'a str,
        memory: impl Into<Memory>,
        access: Access,
    ) -> Call<'a, impl Attempt<Output = Exposed> + 'a> {
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let granted = access & remote;
        let local = match granted.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            true => Access::LOCAL_WRITE,
            false => Access::empty(),
        };
        let region = match name.len() {
            len if len > Exposure::NAME => Err(Error::NameTooLong { len, allowed: Exposure::NAME }),
            _ => {
                self.protection_domain().register(memory, granted | local).map(Arc::new).map_err(Error::from)
            }
        };
        let mut turn = Turn::new(self.shared());
        Call::new(self.shared(), move |waker: Option<&Waker>| {
            let region = match &region {
                Ok(region) => region,
                Err(error) => return Poll::Ready(Err(error.clone())),
            };
            let exposed = turn.poll(waker, |core, ticket| core.try_expose(region, name, granted, ticket));
            exposed.map_ok(|id| Exposed { region: Arc::clone(region), id, shared: Arc::clone(self.shared()) })
        })
    }

    /// What the peer has opened under this name, waiting for it if need be, but not for longer than
    /// [`Options::name_timeout`](crate::Options::name_timeout). If there are several, the newest.
    ///
    /// A name that does not come is [`Error::NoSuchName`], which lists those that there are.
    pub fn remote<'a>(&'a self, name: &'a str) -> Call<'a, impl Attempt<Output = RemoteMemory> + 'a> {
        let shared = self.shared();
        let limit = shared.name_timeout;
        let (mut end, mut alarm): (Option<Time>, Option<Alarm>) = (None, None);
        Call::new(shared, move |waker: Option<&Waker>| {
            let end = *end.get_or_insert_with(|| now() + limit);
            let found = shared.poll_with(waker, |core, waker| {
                let found = core.find_remote(name);
                if found.is_pending() && until(end).is_zero() {
                    return Poll::Ready(Err(Error::NoSuchName {
                        name: name.to_owned(),
                        limit,
                        names: core.names(),
                    }));
                }
                if let (true, Some(waker)) = (found.is_pending(), waker) {
                    core.add_seeker(waker);
                }
                found
            });
            if let (true, Some(waker)) = (found.is_pending(), waker)
                && !alarm.as_ref().is_some_and(|alarm| alarm.will_wake(waker))
            {
                alarm = keeper::wake_at(end, waker);
            }
            found.map_ok(|remote| RemoteMemory { remote })
        })
    }

    /// All that the peer has opened to this end so far, oldest first.
    #[must_use]
    pub fn remotes(&self) -> Vec<RemoteMemory> {
        let all = self.shared().enter(|core| {
            core.progress();
            core.remotes()
        });
        all.into_iter().map(|remote| RemoteMemory { remote }).collect()
    }

    /// Writes into memory that the peer has opened. It is done when the bytes are there.
    pub fn write<'a>(
        &'a self,
        to: &RemoteMemory,
        offset: u64,
        bytes: &'a [u8],
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let part = to.part(offset, bytes.len() as u64, Access::REMOTE_WRITE);
        self.operating(Some(to), part, move |to| Act::Write { bytes, to, imm: None }, |_| Ok(()))
    }

    /// The same; the peer then receives a message that tells how much was written, with this number.
    pub fn write_with_imm<'a>(
        &'a self,
        to: &RemoteMemory,
        offset: u64,
        bytes: &'a [u8],
        imm: u32,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let part = to.part(offset, bytes.len() as u64, Access::REMOTE_WRITE);
        self.operating(Some(to), part, move |to| Act::Write { bytes, to, imm: Some(imm) }, |_| Ok(()))
    }

    /// Writes a buffer of [`allocate`](Self::allocate) without copying it, and gives it back.
    pub fn write_buffer<'a>(
        &'a self,
        to: &RemoteMemory,
        offset: u64,
        buffer: Buffer,
        imm: impl Into<Option<u32>>,
    ) -> Call<'a, impl Attempt<Output = Buffer> + 'a> {
        let part = match buffer.pool().domain() == self.protection_domain() {
            true => to.part(offset, buffer.len() as u64, Access::REMOTE_WRITE),
            false => Err(Error::OtherConnection),
        };
        let (mut buffer, imm) = (Some(buffer), imm.into());
        self.operating(
            Some(to),
            part,
            move |to| Act::WriteBuffer { buffer: buffer.take(), to, imm },
            Held::into_buffer,
        )
    }

    /// Reads memory that the peer has opened. The peer's program does not notice.
    pub fn read<'a>(
        &'a self,
        from: &RemoteMemory,
        offset: u64,
        len: usize,
    ) -> Call<'a, impl Attempt<Output = Vec<u8>> + 'a> {
        let part = from.part(offset, len as u64, Access::REMOTE_READ);
        self.operating(
            Some(from),
            part,
            move |from| Act::Read { len, from },
            |held| Ok(held.into_buffer()?.to_vec(..).unwrap_or_default()),
        )
    }

    /// The same, and leaves the bytes where the device has placed them.
    pub fn read_buffer<'a>(
        &'a self,
        from: &RemoteMemory,
        offset: u64,
        len: usize,
    ) -> Call<'a, impl Attempt<Output = Buffer> + 'a> {
        let part = from.part(offset, len as u64, Access::REMOTE_READ);
        self.operating(Some(from), part, move |from| Act::Read { len, from }, Held::into_buffer)
    }

    /// Writes a part of a region of the program's own, without a copy and without an allocation. It is done when the bytes
    /// are there. With a number, the peer then receives a message that tells how much was written, with that number.
    ///
    /// The region belongs to the connection's [`protection_domain`](Self::protection_domain), and should not change before
    /// the call is done. It stays registered for as long as the device needs it, even if the call is given up.
    pub fn write_from<'a>(
        &'a self,
        to: impl Into<Place>,
        region: &'a Arc<MemoryRegion>,
        range: impl RangeBounds<usize>,
        imm: impl Into<Option<u32>>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let (to, imm) = (to.into(), imm.into());
        let (from, part) = self.parts(&to, region, &range, Access::REMOTE_WRITE);
        self.operating_on(to.remote(), part, move |to| Act::WriteFrom { from, to, imm }, |_| Ok(()))
    }

    /// Reads into a part of a region of the program's own, without a copy and without an allocation. It is done when the
    /// bytes are here; until then they are partly old and partly new. The peer's program does not notice.
    ///
    /// The region belongs to the connection's [`protection_domain`](Self::protection_domain), and allows
    /// [`Access::LOCAL_WRITE`]. It stays registered for as long as the device needs it, even if the call is given up.
    pub fn read_into<'a>(
        &'a self,
        from: impl Into<Place>,
        region: &'a Arc<MemoryRegion>,
        range: impl RangeBounds<usize>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let from = from.into();
        let (into, part) = self.parts(&from, region, &range, Access::REMOTE_READ);
        self.operating_on(from.remote(), part, move |from| Act::ReadInto { into, from }, |_| Ok(()))
    }

    /// Begins what [`write_from`](Self::write_from) does, and does not wait for its end: the call is done when the device has
    /// the work. [`next_done`](Self::next_done), or a [`Handler`](crate::Handler), tells of the end, with the number `tag`.
    ///
    /// As many may be under way or waiting to be told of as [`Options::send_depth`](crate::Options::send_depth) says; one more
    /// waits until one of them was told of. In a callback of the reactor that tells of them it would wait for itself: there,
    /// begin as many as have ended, or give [`wait_for`](Call::wait_for) a limit.
    pub fn begin_write<'a>(
        &'a self,
        tag: u64,
        to: impl Into<Place>,
        region: &'a Arc<MemoryRegion>,
        range: impl RangeBounds<usize>,
        imm: impl Into<Option<u32>>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let (to, imm) = (to.into(), imm.into());
        let (from, part) = self.parts(&to, region, &range, Access::REMOTE_WRITE);
        let begun = Begun { tag, kind: DoneKind::Written, len: from.len };
        self.beginning(to.remote(), part, begun, move |to| Act::WriteFrom { from, to, imm })
    }

    /// Begins what [`read_into`](Self::read_into) does, and does not wait for its end: see
    /// [`begin_write`](Self::begin_write).
    pub fn begin_read<'a>(
        &'a self,
        tag: u64,
        from: impl Into<Place>,
        region: &'a Arc<MemoryRegion>,
        range: impl RangeBounds<usize>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let from = from.into();
        let (into, part) = self.parts(&from, region, &range, Access::REMOTE_READ);
        let begun = Begun { tag, kind: DoneKind::Read, len: into.len };
        self.beginning(from.remote(), part, begun, move |from| Act::ReadInto { into, from })
    }

    /// The next piece of work that was begun and is done, in the order in which it was begun; nothing if none is under
    /// way. What failed is told too, one by one.
    pub fn next_done(&self) -> Call<'_, impl Attempt<Output = Option<Done>> + '_> {
        let shared = self.shared();
        Call::new(shared, move |waker: Option<&Waker>| poll_done(shared, waker).map(Ok))
    }

    fn beginning<'a>(
        &'a self,
        on: Option<Arc<Remote>>,
        part: Result<RemoteSlice, Error>,
        begun: Begun,
        act: impl FnOnce(RemoteSlice) -> Act<'a>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let mut act = part.map(act);
        let mut turn = Turn::new(self.shared());
        Call::new(self.shared(), move |waker: Option<&Waker>| {
            let act = match &mut act {
                Ok(act) => act,
                Err(error) => return Poll::Ready(Err(error.clone())),
            };
            let on = on.as_deref();
            turn.poll(waker, |core, ticket| core.try_begin(act, on, Some(begun), ticket)).map_ok(|_| ())
        })
    }

    /// Both sides of one-sided work, checked as far as they are known here.
    fn parts<'a>(
        &self,
        place: &Place,
        region: &'a Arc<MemoryRegion>,
        range: &impl RangeBounds<usize>,
        needs: Access,
    ) -> (Part<'a>, Result<RemoteSlice, Error>) {
        let (start, end) = bounds(range, region.len());
        let len = end.saturating_sub(start);
        let size = region.len();
        let inside = start.checked_add(len).is_some_and(|end| end <= size);
        let part = match inside {
            false => Err(Error::OutsideBuffer { offset: start, len, size }),
            true if needs == Access::REMOTE_READ && !region.access().contains(Access::LOCAL_WRITE) => {
                Err(Error::NotAllowed {
                    name: "the region".to_owned(),
                    what: "being written by this end's device: register it with LOCAL_WRITE",
                })
            }
            true => place.part(len as u64, needs, || self.grant()),
        };
        (Part { region, start, len }, part)
    }

    /// Stores `swap` into eight bytes of the peer if `compare` is there, all at once, and tells what was there.
    pub fn compare_swap<'a>(
        &'a self,
        at: &RemoteMemory,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Call<'a, impl Attempt<Output = u64> + 'a> {
        self.operating(Some(at), at.word(offset), move |at| Act::CompareSwap { at, compare, swap }, number)
    }

    /// Adds to eight bytes of the peer, all at once, and tells what was there.
    pub fn fetch_add<'a>(
        &'a self,
        at: &RemoteMemory,
        offset: u64,
        add: u64,
    ) -> Call<'a, impl Attempt<Output = u64> + 'a> {
        self.operating(Some(at), at.word(offset), move |at| Act::FetchAdd { at, add }, number)
    }

    /// Reads the peer's [`PhysicalWindow`](crate::PhysicalWindow) by address.
    pub fn physical_read(&self, address: u64, len: usize) -> Call<'_, impl Attempt<Output = Vec<u8>> + '_> {
        let part = physical(self.grant(), address, len as u64, false);
        self.operating(
            None,
            part,
            move |from| Act::Read { len, from },
            |held| Ok(held.into_buffer()?.to_vec(..).unwrap_or_default()),
        )
    }

    /// Writes the peer's [`PhysicalWindow`](crate::PhysicalWindow) by address. It is done when the bytes are there.
    pub fn physical_write<'a>(
        &'a self,
        address: u64,
        bytes: &'a [u8],
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let part = physical(self.grant(), address, bytes.len() as u64, true);
        self.operating(None, part, move |to| Act::Write { bytes, to, imm: None }, |_| Ok(()))
    }

    fn operating<'a, T>(
        &'a self,
        on: Option<&RemoteMemory>,
        part: Result<RemoteSlice, Error>,
        act: impl FnOnce(RemoteSlice) -> Act<'a>,
        result: impl Fn(Held) -> Result<T, Error> + Unpin + 'a,
    ) -> Call<'a, impl Attempt<Output = T> + 'a> {
        self.operating_on(on.map(|memory| Arc::clone(&memory.remote)), part, act, result)
    }

    fn operating_on<'a, T>(
        &'a self,
        on: Option<Arc<Remote>>,
        part: Result<RemoteSlice, Error>,
        act: impl FnOnce(RemoteSlice) -> Act<'a>,
        result: impl Fn(Held) -> Result<T, Error> + Unpin + 'a,
    ) -> Call<'a, impl Attempt<Output = T> + 'a> {
        let mut operating = part.map(|part| Operating::new(self.shared(), act(part), on));
        Call::new(self.shared(), move |waker: Option<&Waker>| match &mut operating {
            Ok(operating) => operating.poll(waker).map(|held| result(held?)),
            Err(error) => Poll::Ready(Err(error.clone())),
        })
    }

    /// What the peer grants by address.
    fn grant(&self) -> Grant {
        self.shared().enter(|core| core.peer().window)
    }
}

/// The next piece of begun work that is done.
pub(crate) fn poll_done(shared: &Shared, waker: Option<&Waker>) -> Poll<Option<Done>> {
    shared.poll_with(waker, |core, waker| {
        let done = core.try_collect();
        if let (true, Some(waker)) = (done.is_pending(), waker) {
            core.add_collector(waker);
        }
        done
    })
}

fn number(held: Held) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    // It has eight bytes.
    let _ = held.into_buffer()?.read_at(0, &mut bytes);
    Ok(u64::from_ne_bytes(bytes))
}
