//! Endpoints and brokers.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ferroce::broker::{At, Broker, Change, Members, Piece, Post, Secret};
use ferroce::endpoint::{Connection, Exposed, Listener, Options, RemoteMemory, State};
use ferroce::time::{now, until};
use ferroce::{Access, Context, MemoryRegion};

use crate::pairs::{BOARD, COUNTER, Harm, LEN, Pair, contents, harmed, only_this_changed};
use crate::{LIMIT, OPEN};

/// Bytes of a message that is read by its receiver.
const LONG: usize = 100_000;

/// One of how many rounds has a long message.
const SELDOM: u64 = 8;

/// A connection of endpoints.
pub(crate) struct Endpoints {
    ends: [Connection; 2],
    boards: [Exposed; 2],
    remote: [RemoteMemory; 2],
    _listener: Listener,
    round: u64,
}

impl Endpoints {
    pub(crate) fn new(contexts: &[Context; 2], at: SocketAddr) -> Harm<Self> {
        let options = |context| Options::new().context(context).connect_timeout(LIMIT);
        let listener = Listener::bind_with(at, &options(&contexts[1])).map_err(harmed("listen"))?;
        let ends = thread::scope(|scope| {
            let asks = scope.spawn(|| Connection::connect_with(at, &options(&contexts[0])).wait());
            let accepted = listener.accept().wait_for(LIMIT).map_err(harmed("accept"))?;
            let asked = asks.join().map_err(|_| "the thread that asks panicked".to_owned())?;
            Ok::<_, String>([asked.map_err(harmed("connect"))?, accepted])
        })?;
        let expose = |end: &Connection| {
            let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
            end.expose("board", vec![0; BOARD], access).wait_for(LIMIT).map_err(harmed("expose"))
        };
        let boards = [expose(&ends[0])?, expose(&ends[1])?];
        let find =
            |end: &Connection| end.remote("board").wait_for(LIMIT).map_err(harmed("find the peer's memory"));
        let remote = [find(&ends[0])?, find(&ends[1])?];
        Ok(Self { ends, boards, remote, _listener: listener, round: 0 })
    }

    fn message(&self, from: usize, bytes: &[u8]) -> Harm<()> {
        let (here, there) = (&self.ends[from], &self.ends[1 - from]);
        here.send(bytes).wait_for(LIMIT).map_err(harmed("send"))?;
        let message = there.recv().wait_for(LIMIT).map_err(harmed("receive"))?;
        let seen = message.ok_or("the peer has said goodbye")?.into_vec();
        if seen == bytes { Ok(()) } else { Err(format!("a false message of {} bytes", seen.len())) }
    }
}

impl Pair for Endpoints {
    fn name(&self) -> &'static str {
        "endpoint"
    }

    fn check(&self) -> Harm<()> {
        for (index, (end, board)) in self.ends.iter().zip(&self.boards).enumerate() {
            if end.state() != State::Open {
                return Err(format!("the connection is {:?}", end.state()));
            }
            let counter = if index == 1 { self.round } else { 0 };
            let board = board.to_vec(..).map_err(harmed("memory"))?;
            only_this_changed(&board, self.round, counter, true)?;
        }
        Ok(())
    }

    fn round(&mut self) -> Harm<()> {
        self.round += 1;
        let bytes = contents(self.round);
        self.message(0, &bytes)?;
        self.message(1, &bytes)?;
        if self.round.is_multiple_of(SELDOM) {
            self.message(0, &vec![7; LONG])?;
        }
        for (end, remote) in self.ends.iter().zip(&self.remote) {
            end.write(remote, 0, &bytes).wait_for(LIMIT).map_err(harmed("write"))?;
        }
        let ([here, _], [remote, _]) = (&self.ends, &self.remote);
        let seen = here.read(remote, 0, LEN).wait_for(LIMIT).map_err(harmed("read"))?;
        if seen != bytes {
            return Err(format!("false bytes were read: {seen:x?}"));
        }
        let before = here.fetch_add(remote, COUNTER as u64, 1).wait_for(LIMIT).map_err(harmed("count"))?;
        if before + 1 == self.round {
            Ok(())
        } else {
            Err(format!("{before} was counted before {}", self.round))
        }
    }
}

/// The number of the region that brokers expose.
const REGION: u32 = 1;

/// Two members of a mesh.
pub(crate) struct Brokers {
    name: &'static str,
    members: [Broker; 2],
    /// Memory to write from and read into.
    own: [Arc<MemoryRegion>; 2],
    changes: Arc<Mutex<Vec<String>>>,
    round: u64,
}

impl Brokers {
    pub(crate) fn new(
        contexts: &[Context; 2],
        addresses: &[IpAddr; 2],
        port: u16,
        secret: Option<&Secret>,
    ) -> Harm<Self> {
        let places = addresses.iter().map(|address| SocketAddr::new(*address, port));
        let list = Members::new((0..).zip(places)).map_err(harmed("the members"))?;
        let changes: Arc<Mutex<Vec<String>>> = Arc::default();
        let start = |id: usize| {
            let noted = Arc::clone(&changes);
            let context = &contexts[id];
            let domain = context.protection_domain().map_err(harmed("a domain"))?;
            let own = domain.allocate(LEN, OPEN).map_err(harmed("memory"))?;
            let number = u32::try_from(id).unwrap_or(0);
            let builder = Broker::builder(number, list.clone()).device(context, &domain);
            let builder = builder.allocate(REGION, BOARD).patience(LIMIT).deadline(LIMIT);
            let builder = builder.on_change(move |_, change| {
                if let Change::Left { .. } = change {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{change:?}"));
                }
            });
            let builder = match secret {
                Some(secret) => builder.secret(secret),
                None => builder,
            };
            Ok::<_, String>((builder.start().map_err(harmed("start a broker"))?, Arc::new(own)))
        };
        let [first, second] = thread::scope(|scope| {
            let started = [0, 1].map(|id| scope.spawn(move || start(id)));
            started.map(|thread| thread.join().map_err(|_| "a broker panicked".to_owned()).flatten())
        });
        let ((first, own), (second, others)) = (first?, second?);
        let name = if secret.is_some() { "broker with secret" } else { "broker" };
        Ok(Self { name, members: [first, second], own: [own, others], changes, round: 0 })
    }

    fn message(&self, from: usize, bytes: &[u8]) -> Harm<()> {
        let (here, there) = (&self.members[from], &self.members[1 - from]);
        here.wait_send(there.me(), bytes, Post::new(), LIMIT).map_err(harmed("send"))?;
        here.flush(there.me()).map_err(harmed("flush"))?;
        let mut seen = Vec::new();
        let end = now() + LIMIT;
        while seen.is_empty() {
            let left = until(end);
            let take = |message: ferroce::broker::Message<'_>| seen.push(message.to_vec());
            let count = there.wait_receives(left, take).map_err(harmed("receive"))?;
            if count == 0 && until(end).is_zero() {
                return Err(format!("no message in {LIMIT:?}: {:?}", there.status()));
            }
        }
        if seen == [bytes] { Ok(()) } else { Err(format!("{} messages, or a false one", seen.len())) }
    }

    /// Waits for the work that was posted just now.
    fn done(&self, member: usize, what: &str) -> Harm<()> {
        let here = &self.members[member];
        here.flush_all();
        let mut result = None;
        let end = now() + LIMIT;
        while result.is_none() {
            let left = until(end);
            here.wait_sends(left, |done| result = Some(done.result)).map_err(harmed("wait for work"))?;
            if result.is_none() && until(end).is_zero() {
                return Err(format!("{what} is not done in {LIMIT:?}: {:?}", here.status()));
            }
        }
        result.map_or(Ok(()), |result| result.map_err(|error| format!("{what}: {error:?}")))
    }
}

impl Pair for Brokers {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self) -> Harm<()> {
        if let Some(change) = self.changes.lock().unwrap_or_else(PoisonError::into_inner).first() {
            return Err(format!("a member left: {change}"));
        }
        for (index, member) in self.members.iter().enumerate() {
            let other = self.members[1 - index].me();
            if !member.is_connected(other) {
                return Err(format!("not connected: {:?}", member.status()));
            }
            let counter = if index == 1 { self.round } else { 0 };
            let board = member.region(REGION).ok_or("no region")?.to_vec(..).map_err(harmed("memory"))?;
            only_this_changed(&board, self.round, counter, true)?;
        }
        Ok(())
    }

    fn round(&mut self) -> Harm<()> {
        self.round += 1;
        let bytes = contents(self.round);
        self.message(0, &bytes)?;
        self.message(1, &bytes)?;
        for member in [0, 1] {
            let (here, other) = (&self.members[member], self.members[1 - member].me());
            self.own[member].write_at(0, &bytes).map_err(harmed("memory"))?;
            let post = here.post_write(other, &self.own[member], At::offset(REGION, 0), Post::new().id(1));
            post.map_err(harmed("a WRITE"))?;
            self.done(member, "a WRITE")?;
        }
        let (here, own) = (&self.members[0], &self.own[0]);
        own.fill(.., 0).map_err(harmed("memory"))?;
        here.post_read(1, own, At::offset(REGION, 0), Post::new().id(2)).map_err(harmed("a READ"))?;
        self.done(0, "a READ")?;
        let seen = own.to_vec(..).map_err(harmed("memory"))?;
        if seen != bytes {
            return Err(format!("false bytes were read: {seen:x?}"));
        }
        let at = At::offset(REGION, COUNTER as u64);
        here.fetch_add(1, Piece::new(own, ..8), at, 1, Post::new().id(3)).map_err(harmed("an atomic"))?;
        self.done(0, "an atomic")?;
        let before = own.load_u64(0).map_err(harmed("memory"))?;
        if before + 1 == self.round {
            Ok(())
        } else {
            Err(format!("{before} was counted before {}", self.round))
        }
    }
}
