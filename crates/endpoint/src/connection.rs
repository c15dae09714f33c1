//! Connections as programs hold them.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ferroce_verbs::{Access, Memory, MemoryRegion, ProtectionDomain, RemoteSlice};

use crate::buffer::{Body, Buffer, Message};
use crate::call::{Attempt, Call};
use crate::calls::{Operating, Turn};
use crate::core::{Act, Core, Counters, Payload, State, Taken};
use crate::error::{Cause, Error};
use crate::exposed::{Exposed, RemoteMemory};
use crate::frame::Exposure;
use crate::hello::Grant;
use crate::keeper;
use crate::shared::Shared;
use crate::stream::Stream;

/// One end of a connection. Clones are the same end; any number of threads and tasks may use it at once.
///
/// Every method that may have to wait gives a [`Call`], which is waited for (`.wait()`) or awaited (`.await`).
///
/// Messages arrive whole, once, and in order. A sender that is faster than the receiver waits.
///
/// When the last handle is dropped, what was sent is delivered behind its back, for as long as
/// [`Options::linger`](crate::Options::linger) says. [`close`](Self::close) tells whether that worked.
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

/// What came into the program's own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes.
    pub len: usize,
    /// The number that the peer sent along.
    pub imm: Option<u32>,
    /// How many bytes the peer wrote into exposed memory, if this tells of that.
    pub written: Option<u32>,
}

/// A connection's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Held now.
    pub now: u64,
    /// The most so far.
    pub peak: u64,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        keeper::watch(&shared);
        Self { handle: Arc::new(Handle { shared }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Sends a message of any length. It is done when the bytes are copied and on their way: they may be used again.
    pub fn send<'a>(&'a self, bytes: &'a [u8]) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        self.sending(Payload::Bytes(bytes), None)
    }

    /// The same with a number that goes along.
    pub fn send_with_imm<'a>(
        &'a self,
        bytes: &'a [u8],
        imm: u32,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        self.sending(Payload::Bytes(bytes), Some(imm))
    }

    /// Sends a buffer of [`allocate`](Self::allocate) without copying it, unless it is short. It goes back to the
    /// connection once the peer has it.
    pub fn send_buffer(
        &self,
        buffer: Buffer,
        imm: impl Into<Option<u32>>,
    ) -> Call<'_, impl Attempt<Output = ()> + '_> {
        let ours = buffer.pool().domain() == self.protection_domain();
        let mut sending = self.sending(Payload::Buffer(Some(buffer)), imm.into()).into_inner();
        Call::new(self.shared(), move |waker: Option<&Waker>| match ours {
            true => sending.attempt(waker),
            false => Poll::Ready(Err(Error::OtherConnection)),
        })
    }

    /// Sends a part of a region of the connection's [`protection_domain`](Self::protection_domain) without
    /// copying it, unless it is short. The region must allow [`Access::REMOTE_READ`], and should not change
    /// before the peer has it; the same bytes may be sent many times.
    pub fn send_region<'a>(
        &'a self,
        region: &'a Arc<MemoryRegion>,
        range: impl RangeBounds<usize>,
        imm: impl Into<Option<u32>>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let (offset, len) = bounds(&range, region.len());
        let wrong = match offset.checked_add(len) {
            Some(end) if end <= region.len() => {
                (!region.access().contains(Access::REMOTE_READ)).then(|| Error::NotAllowed {
                    name: "the region".to_owned(),
                    what: "being read by the peer: register it with REMOTE_READ",
                })
            }
            _ => Some(Error::OutsideBuffer { offset, len, size: region.len() }),
        };
        let mut sending = self.sending(Payload::Shared(region, offset, len), imm.into()).into_inner();
        Call::new(self.shared(), move |waker: Option<&Waker>| match &wrong {
            None => sending.attempt(waker),
            Some(error) => Poll::Ready(Err(error.clone())),
        })
    }

    fn sending<'a>(
        &'a self,
        mut payload: Payload<'a>,
        imm: Option<u32>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let mut turn = Turn::new(self.shared());
        Call::new(self.shared(), move |waker: Option<&Waker>| {
            turn.poll(waker, |core, ticket| core.try_send(&mut payload, imm, ticket))
        })
    }

    /// The next message; nothing when the peer has said that no more come.
    pub fn recv(&self) -> Call<'_, impl Attempt<Output = Option<Message>> + '_> {
        let shared = self.shared();
        Call::new(shared, move |waker: Option<&Waker>| {
            let taken = poll_receive(shared, waker, None);
            taken.map_ok(|taken| match taken {
                Taken::Message(message) => Some(message),
                Taken::Copied { .. } | Taken::TooShort(_) | Taken::End => None,
            })
        })
    }

    /// The next message into bytes of the program's own; nothing when the peer has said that no more come. If they are
    /// too short the message stays, and the error tells its length.
    pub fn recv_into<'a>(
        &'a self,
        into: &'a mut [u8],
    ) -> Call<'a, impl Attempt<Output = Option<Received>> + 'a> {
        let shared = self.shared();
        Call::new(shared, move |waker: Option<&Waker>| {
            let size = into.len();
            poll_receive(shared, waker, Some(into)).map(|taken| match taken? {
                Taken::Copied { len, imm } => Ok(Some(Received { len, imm, written: None })),
                Taken::Message(Message { body: Body::Written(len), imm }) => {
                    Ok(Some(Received { len: 0, imm, written: Some(len) }))
                }
                Taken::TooShort(len) => Err(Error::OutsideBuffer { offset: 0, len, size }),
                Taken::Message(_) | Taken::End => Ok(None),
            })
        })
    }

    /// A buffer for a message that is sent without a copy.
    ///
    /// # Errors
    /// The system has no memory to give.
    pub fn allocate(&self, len: usize) -> Result<Buffer, Error> {
        Ok(self.shared().send_pool.take(len)?)
    }

    /// Where the connection's memory is registered.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.shared().send_pool.domain()
    }

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

    /// What the peer has opened under this name, waiting for it if need be. If there are several, the newest.
    pub fn remote<'a>(&'a self, name: &'a str) -> Call<'a, impl Attempt<Output = RemoteMemory> + 'a> {
        let shared = self.shared();
        Call::new(shared, move |waker: Option<&Waker>| {
            let found = shared.poll_with(waker, |core, waker| {
                let found = core.find_remote(name);
                if let (true, Some(waker)) = (found.is_pending(), waker) {
                    core.add_seeker(waker);
                }
                found
            });
            found.map_ok(|remote| RemoteMemory { remote })
        })
    }

    /// Writes into memory that the peer has opened. It is done when the bytes are there.
    pub fn write<'a>(
        &'a self,
        to: &RemoteMemory,
        offset: u64,
        bytes: &'a [u8],
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let part = to.part(offset, bytes.len() as u64, Access::REMOTE_WRITE);
        self.operating(Some(to), part, move |to| Act::Write { bytes, to, imm: None }, |_| ())
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
        self.operating(Some(to), part, move |to| Act::Write { bytes, to, imm: Some(imm) }, |_| ())
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
            move |to| Act::WriteFrom { buffer: buffer.take(), to, imm },
            |buffer| buffer,
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
            |buffer| buffer.to_vec(..).unwrap_or_default(),
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
        self.operating(Some(from), part, move |from| Act::Read { len, from }, |buffer| buffer)
    }

    /// Stores `swap` into eight bytes of the peer if `compare` is there, all at once, and tells what was there.
    pub fn compare_swap<'a>(
        &'a self,
        at: &RemoteMemory,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Call<'a, impl Attempt<Output = u64> + 'a> {
        self.operating(
            Some(at),
            at.word(offset),
            move |at| Act::CompareSwap { at, compare, swap },
            |word| number(&word),
        )
    }

    /// Adds to eight bytes of the peer, all at once, and tells what was there.
    pub fn fetch_add<'a>(
        &'a self,
        at: &RemoteMemory,
        offset: u64,
        add: u64,
    ) -> Call<'a, impl Attempt<Output = u64> + 'a> {
        self.operating(Some(at), at.word(offset), move |at| Act::FetchAdd { at, add }, |word| number(&word))
    }

    /// Reads the peer's [`PhysicalWindow`](crate::PhysicalWindow) by address.
    pub fn physical_read(&self, address: u64, len: usize) -> Call<'_, impl Attempt<Output = Vec<u8>> + '_> {
        let part = self.physical(address, len as u64, false);
        self.operating(
            None,
            part,
            move |from| Act::Read { len, from },
            |buffer| buffer.to_vec(..).unwrap_or_default(),
        )
    }

    /// Writes the peer's [`PhysicalWindow`](crate::PhysicalWindow) by address. It is done when the bytes are there.
    pub fn physical_write<'a>(
        &'a self,
        address: u64,
        bytes: &'a [u8],
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let part = self.physical(address, bytes.len() as u64, true);
        self.operating(None, part, move |to| Act::Write { bytes, to, imm: None }, |_| ())
    }

    fn physical(&self, address: u64, len: u64, write: bool) -> Result<RemoteSlice, Error> {
        let window = match self.shared().enter(|core| core.peer().window) {
            Grant::None => return Err(Error::NoWindow),
            Grant::Refused => return Err(Error::WindowRefused),
            Grant::ReadOnly(_) if write => return Err(Error::WindowReadOnly),
            Grant::ReadOnly(window) | Grant::ReadWrite(window) => window,
        };
        let (start, size) = (window.address, window.length);
        let offset = address.checked_sub(start);
        match offset.and_then(|offset| Some((offset, offset.checked_add(len)?))) {
            Some((offset, end)) if end <= size => Ok(window.slice(offset..end)),
            _ => Err(Error::OutsideWindow { address, len, start, size }),
        }
    }

    fn operating<'a, T>(
        &'a self,
        on: Option<&RemoteMemory>,
        part: Result<RemoteSlice, Error>,
        act: impl FnOnce(RemoteSlice) -> Act<'a>,
        result: impl Fn(Buffer) -> T + Unpin + 'a,
    ) -> Call<'a, impl Attempt<Output = T> + 'a> {
        let on = on.map(|memory| Arc::clone(&memory.remote));
        let mut operating = part.map(|part| Operating::new(self.shared(), act(part), on));
        Call::new(self.shared(), move |waker: Option<&Waker>| match &mut operating {
            Ok(operating) => operating.poll(waker).map_ok(&result),
            Err(error) => Poll::Ready(Err(error.clone())),
        })
    }

    /// Says that this end sends no more, and waits until the peer has everything. The peer may go on sending.
    pub fn shutdown(&self) -> Call<'_, impl Attempt<Output = ()> + '_> {
        let mut turn = Turn::new(self.shared());
        Call::new(self.shared(), move |waker: Option<&Waker>| poll_end(&mut turn, waker, Core::try_finish))
    }

    /// Says that this end sends no more, waits until the peer has everything, and ends the connection. What the peer has
    /// sent meanwhile and this end has not received is gone.
    pub fn close(&self) -> Call<'_, impl Attempt<Output = ()> + '_> {
        let mut turn = Turn::new(self.shared());
        Call::new(self.shared(), move |waker: Option<&Waker>| poll_end(&mut turn, waker, Core::try_close))
    }

    /// The connection as a stream of bytes. Messages that have arrived become its first bytes.
    #[must_use]
    pub const fn into_stream(self) -> Stream {
        Stream::new(self)
    }

    /// Ends the connection at once. Both ends hear of it as a loss.
    pub fn abort(&self) {
        self.shared().enter(|core| core.abort(Cause::Aborted));
    }

    /// Where the connection stands, as far as this end knows by now.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared().enter(|core| {
            core.progress();
            core.state()
        })
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared().enter(|core| core.counters())
    }

    /// The memory that it holds for messages.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let (now, peak) = self.shared().gauge.read();
        MemoryUse { now, peak }
    }

    /// The address of this end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local
    }

    /// The address of the other end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.shared().peer
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} to {}, {:?})", self.local_addr(), self.peer_addr(), self.state())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        keeper::release(&self.shared);
    }
}

pub(crate) fn poll_receive(
    shared: &Shared,
    waker: Option<&Waker>,
    mut into: Option<&mut [u8]>,
) -> Poll<Result<Taken, Error>> {
    shared.poll_with(waker, |core, waker| {
        let taken = core.try_receive(into.as_deref_mut());
        if let (true, Some(waker)) = (taken.is_pending(), waker) {
            core.add_reader(waker);
        }
        taken
    })
}

/// Waits for an end of some kind.
fn poll_end(
    turn: &mut Turn<'_>,
    waker: Option<&Waker>,
    end: impl Fn(&mut Core, &mut Option<u64>) -> Poll<Result<(), Error>>,
) -> Poll<Result<(), Error>> {
    turn.poll(waker, |core, ticket| {
        let ended = end(core, ticket);
        if let (true, Some(waker)) = (ended.is_pending(), waker) {
            core.add_closer(waker);
        }
        ended
    })
}

fn number(word: &Buffer) -> u64 {
    let mut bytes = [0; 8];
    // It has eight bytes.
    let _ = word.read_at(0, &mut bytes);
    u64::from_ne_bytes(bytes)
}

fn bounds(range: &impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    use std::ops::Bound;
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len.max(start),
    };
    (start, end.saturating_sub(start))
}
