//! Connections as programs hold them.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ferroce_verbs::ranges::bounds;
use ferroce_verbs::{Access, MemoryRegion, ProtectionDomain};

use crate::buffer::{Body, Buffer, Message};
use crate::call::{Attempt, Call};
use crate::calls::Turn;
use crate::core::{Core, Counters, Follow, Payload, Sent, State, Taken};
use crate::error::{Cause, Error};
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

/// How far [`Connection::send_until`] follows a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The peer's device has all of it; its program may not have asked for it yet.
    Delivered,
    /// The peer's program has taken it, by receiving it or in a callback.
    Taken,
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

    /// Sends several messages in their order, with one call of the device for many of them: as many as there is room for
    /// now, and at least the first, for which it waits. Tells how many; the rest is for another call.
    ///
    /// A call that is given up while it waits has sent none of them.
    ///
    /// ```
    /// # use ferroce_endpoint::{Connection, Listener};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let listener = Listener::bind("127.0.43.4:7471")?;
    /// # let client = std::thread::spawn(|| {
    /// #     let connection = Connection::connect("127.0.43.4:7471").wait().unwrap();
    /// #     for _ in 0..1000 {
    /// #         assert_eq!(connection.recv().wait().unwrap().unwrap(), b"tick");
    /// #     }
    /// # });
    /// # let connection = listener.accept().wait()?;
    /// let mut messages = &[b"tick"; 1000][..];
    /// while !messages.is_empty() {
    ///     let sent = connection.send_batch(messages).wait()?;
    ///     messages = &messages[sent..];
    /// }
    /// # client.join().unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_batch<'a, B: AsRef<[u8]>>(
        &'a self,
        messages: &'a [B],
    ) -> Call<'a, impl Attempt<Output = usize> + 'a> {
        let mut turn = Turn::new(self.shared());
        Call::new(self.shared(), move |waker: Option<&Waker>| {
            turn.poll(waker, |core, ticket| core.try_send_batch(messages, ticket))
        })
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
        let (offset, end) = bounds(&range, region.len());
        let len = end.saturating_sub(offset);
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

    /// Sends a message and follows it until the peer's device has it, or until the peer's program has taken it.
    ///
    /// A call that is given up after the message has left is not followed any further: the message arrives all the same.
    pub fn send_until<'a>(
        &'a self,
        bytes: &'a [u8],
        imm: impl Into<Option<u32>>,
        delivery: Delivery,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let follow = match delivery {
            Delivery::Delivered => Follow::Delivered,
            Delivery::Taken => Follow::Taken,
        };
        let (mut payload, imm) = (Payload::Bytes(bytes), imm.into());
        let (mut turn, mut sent) = (Turn::new(self.shared()), None);
        Call::new(self.shared(), move |waker: Option<&Waker>| {
            let message = match sent {
                Some(message) => message,
                None => {
                    match turn.poll(waker, |core, ticket| core.try_send(&mut payload, imm, follow, ticket)) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Ready(Ok(message)) => *sent.insert(message),
                    }
                }
            };
            poll_follow(self.shared(), waker, |core| core.try_follow(message, follow))
        })
    }

    /// Waits until the peer's device has all that was sent, written and begun on this end before: messages that are long
    /// enough to be announced have been read, and one-sided work is done. The peer reads long messages while its program
    /// is in a call of the connection, so this may wait for that program. What other calls are still waiting to send is
    /// not meant.
    pub fn flush(&self) -> Call<'_, impl Attempt<Output = ()> + '_> {
        let mut mark: Option<Sent> = None;
        Call::new(self.shared(), move |waker: Option<&Waker>| {
            poll_follow(self.shared(), waker, |core| {
                if mark.is_none() {
                    match core.try_mark() {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Ready(Ok(now)) => mark = Some(now),
                    }
                }
                mark.map_or(Poll::Pending, |mark| core.try_follow(mark, Follow::Delivered))
            })
        })
    }

    fn sending<'a>(
        &'a self,
        mut payload: Payload<'a>,
        imm: Option<u32>,
    ) -> Call<'a, impl Attempt<Output = ()> + 'a> {
        let mut turn = Turn::new(self.shared());
        Call::new(self.shared(), move |waker: Option<&Waker>| {
            let sent = turn.poll(waker, |core, ticket| core.try_send(&mut payload, imm, Follow::No, ticket));
            sent.map_ok(|_| ())
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

/// Looks how far messages have come, and waits until they are there.
fn poll_follow(
    shared: &Shared,
    waker: Option<&Waker>,
    mut look: impl FnMut(&mut Core) -> Poll<Result<(), Error>>,
) -> Poll<Result<(), Error>> {
    shared.poll_with(waker, |core, waker| {
        let there = look(core);
        if let (true, Some(waker)) = (there.is_pending(), waker) {
            core.add_watcher(waker);
        }
        there
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
