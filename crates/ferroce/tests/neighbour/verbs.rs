//! Queue pairs that programs connect themselves, or by connection management.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use ferroce::cm::{self, CmOptions, Established, Listener};
use ferroce::time::now;
use ferroce::{
    Access, AddressHandle, AddressVector, CompletionQueue, Context, DatagramHeader, MemoryRegion,
    ProtectionDomain, QKey, Qpn, QueuePair, Service, State, WaitError, WorkKind,
};

use crate::pairs::{BOARD, COUNTER, Harm, LEN, Pair, contents, harmed, only_this_changed};
use crate::{LIMIT, OPEN};

/// The key of datagrams.
const QKEY: QKey = QKey(0x1122_3344);

/// What honest requests for a connection say.
const HONEST: &[u8] = b"honest";

/// Receives that are posted.
const RECEIVES: usize = 8;

/// Bytes of memory for one message: a datagram has a header besides.
const BOX: usize = 512;

/// How long an unreliable message may be under way before it is sent again.
const LOST: Duration = Duration::from_millis(200);

/// One end.
struct End {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    /// What the peer may write, read and count in.
    board: MemoryRegion,
    /// Messages in, and one out.
    boxes: MemoryRegion,
    /// Messages that have come: where, and how long.
    arrived: VecDeque<(usize, usize)>,
    /// Work of ours that is done.
    done: usize,
    /// The way to the peer, for datagrams.
    way: Option<AddressHandle>,
}

impl End {
    fn new(context: &Context, service: Service) -> Harm<Self> {
        let domain = context.protection_domain().map_err(harmed("a domain"))?;
        let cq = context.completion_queue(256).map_err(harmed("a queue"))?;
        let qp = domain.queue_pair(service).completion_queue(&cq).build().map_err(harmed("a queue pair"))?;
        let board = domain.allocate(BOARD, OPEN).map_err(harmed("memory"))?;
        let boxes = domain.allocate((RECEIVES + 1) * BOX, Access::LOCAL_WRITE).map_err(harmed("memory"))?;
        let (arrived, done, way) = (VecDeque::new(), 0, None);
        Ok(Self { domain, cq, qp, board, boxes, arrived, done, way })
    }

    fn post_receives(&self) -> Harm<()> {
        (0..RECEIVES).try_for_each(|slot| self.post_receive(slot))
    }

    fn post_receive(&self, slot: usize) -> Harm<()> {
        let into = self.boxes.slice(slot * BOX..(slot + 1) * BOX);
        self.qp.receive(into).id(slot as u64).post().map_err(harmed("post a receive"))
    }

    /// Takes in one completion; false if none comes in this time.
    fn look(&mut self, limit: Duration) -> Harm<bool> {
        let found = match self.cq.wait(limit) {
            Ok(found) => found,
            Err(WaitError::TimedOut { .. }) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        let found = *found.result().map_err(harmed("work"))?;
        match found.kind {
            WorkKind::Receive => {
                let slot = usize::try_from(found.id).map_err(harmed("a slot"))?;
                self.arrived.push_back((slot, found.byte_len as usize));
            }
            _ => self.done += 1,
        }
        Ok(true)
    }

    fn wait_done(&mut self, what: &str) -> Harm<()> {
        while self.done == 0 {
            if !self.look(LIMIT)? {
                return Err(format!("{what} is not done in {LIMIT:?}: {:?}", self.qp.query()));
            }
        }
        self.done -= 1;
        Ok(())
    }

    fn send(&mut self, peer: &QueuePair, round: u64) -> Harm<()> {
        let from = RECEIVES * BOX..RECEIVES * BOX + LEN;
        self.boxes.write_at(from.start, &contents(round)).map_err(harmed("memory"))?;
        let from = self.boxes.slice(from);
        let sent = match &self.way {
            Some(way) => self.qp.send_to(way, peer.qpn(), QKEY, from).post(),
            None => self.qp.send(from).post(),
        };
        sent.map_err(harmed("post a SEND"))?;
        self.wait_done("a SEND")
    }

    /// The message of this round; false if it does not come in this time. Earlier ones that come late are
    /// passed over.
    fn receive(&mut self, round: u64, limit: Duration) -> Harm<bool> {
        loop {
            while self.arrived.is_empty() {
                if !self.look(limit)? {
                    return Ok(false);
                }
            }
            let Some((slot, len)) = self.arrived.pop_front() else { continue };
            let head = if self.qp.service() == Service::Ud { DatagramHeader::LEN } else { 0 };
            let bytes =
                self.boxes.to_vec(slot * BOX + head..slot * BOX + len).map_err(harmed("a message"))?;
            self.post_receive(slot)?;
            let number = bytes.first_chunk().copied().map_or(u64::MAX, u64::from_be_bytes);
            if number > round || bytes != contents(number) {
                return Err(format!(
                    "in round {round} came a false message of {} bytes: {bytes:x?}",
                    bytes.len()
                ));
            }
            if number == round {
                return Ok(true);
            }
        }
    }
}

/// Two ends that are connected.
pub(crate) struct Verbs {
    name: &'static str,
    ends: [End; 2],
    links: Vec<Established>,
    round: u64,
}

impl Verbs {
    /// Connected by hand.
    pub(crate) fn by_hand(contexts: &[Context; 2], name: &'static str, service: Service) -> Harm<Self> {
        let [mut a, mut b] = [End::new(&contexts[0], service)?, End::new(&contexts[1], service)?];
        if service == Service::Ud {
            let [at_a, at_b] = [a.qp.local_address(), b.qp.local_address()];
            for (here, there) in [(&mut a, at_b), (&mut b, at_a)] {
                here.qp.activate(QKEY).map_err(harmed("activate"))?;
                let way = AddressVector::new(there.gid, 0);
                here.way = Some(here.domain.address_handle(&way).map_err(harmed("a way"))?);
            }
        } else {
            a.qp.connect(&b.qp.local_address()).map_err(harmed("connect"))?;
            b.qp.connect(&a.qp.local_address()).map_err(harmed("connect"))?;
        }
        Self::ready(name, [a, b], Vec::new())
    }

    /// Connected by connection management.
    pub(crate) fn managed(contexts: &[Context; 2], address: SocketAddr, listener: &Listener) -> Harm<Self> {
        let [a, b] = [End::new(&contexts[0], Service::Rc)?, End::new(&contexts[1], Service::Rc)?];
        let options = CmOptions::default().timeout(LIMIT).private_data(HONEST);
        let links = thread::scope(|scope| {
            let asks = scope.spawn(|| cm::connect(address, &a.qp, &options));
            let request = loop {
                let request = listener.accept(LIMIT).map_err(harmed("wait for a request"))?;
                if request.private_data().starts_with(HONEST) {
                    break request;
                }
                // It is of the neighbour, if that gets through; what comes of it does not matter.
                request.reject(b"").unwrap_or_default();
            };
            let accepted = request.accept(&b.qp, &options).map_err(harmed("accept"))?;
            let asked = asks.join().map_err(|_| "the thread that asks panicked".to_owned())?;
            Ok::<_, String>(vec![asked.map_err(harmed("connect"))?, accepted])
        })?;
        Self::ready("CM", [a, b], links)
    }

    fn ready(name: &'static str, ends: [End; 2], links: Vec<Established>) -> Harm<Self> {
        ends.iter().try_for_each(End::post_receives)?;
        Ok(Self { name, ends, links, round: 0 })
    }

    fn message(&mut self, from: usize) -> Harm<()> {
        let [first, second] = &mut self.ends;
        let (here, there) = if from == 0 { (first, second) } else { (second, first) };
        let reliable = here.qp.service() == Service::Rc;
        let (tries, limit) = if reliable { (1, LIMIT) } else { (LIMIT.as_millis() / LOST.as_millis(), LOST) };
        for _ in 0..tries {
            here.send(&there.qp, self.round)?;
            if there.receive(self.round, limit)? {
                return Ok(());
            }
        }
        Err(format!("message {} did not come in {LIMIT:?}: {:?}", self.round, there.qp.query()))
    }

    /// Writes to the other's board, once or until it is seen.
    fn write(&mut self, from: usize) -> Harm<()> {
        let [first, second] = &mut self.ends;
        let (here, there) = if from == 0 { (first, second) } else { (second, first) };
        let bytes = contents(self.round);
        let reliable = here.qp.service() == Service::Rc;
        let tries = if reliable { 1 } else { LIMIT.as_millis() / LOST.as_millis() };
        for _ in 0..tries {
            here.boxes.write_at(RECEIVES * BOX, &bytes).map_err(harmed("memory"))?;
            let piece = here.boxes.slice(RECEIVES * BOX..RECEIVES * BOX + LEN);
            here.qp
                .write(piece, there.board.remote().slice(..LEN as u64))
                .post()
                .map_err(harmed("a WRITE"))?;
            here.wait_done("a WRITE")?;
            // It is acknowledged, or it may be under way for a moment.
            let end = now() + LOST;
            while there.board.to_vec(..LEN).map_err(harmed("memory"))? != bytes {
                if reliable {
                    return Err("an acknowledged WRITE is not in memory".into());
                }
                there.look(Duration::from_millis(1))?;
                if now() > end {
                    break;
                }
            }
            if there.board.to_vec(..LEN).map_err(harmed("memory"))? == bytes {
                return Ok(());
            }
        }
        Err(format!("WRITE {} is not in memory after {LIMIT:?}", self.round))
    }

    /// Reads the other's board back, and counts there.
    fn read(&mut self) -> Harm<()> {
        let [here, there] = &mut self.ends;
        let piece = here.boxes.slice(RECEIVES * BOX..RECEIVES * BOX + LEN);
        here.qp.read(piece, there.board.remote().slice(..LEN as u64)).post().map_err(harmed("a READ"))?;
        here.wait_done("a READ")?;
        let seen = here.boxes.to_vec(RECEIVES * BOX..RECEIVES * BOX + LEN).map_err(harmed("memory"))?;
        if seen != contents(self.round) {
            return Err(format!("false bytes were read: {seen:x?}"));
        }
        let piece = here.boxes.slice(RECEIVES * BOX..RECEIVES * BOX + 8);
        let at = there.board.remote().slice(COUNTER as u64..COUNTER as u64 + 8);
        here.qp.fetch_add(piece, at, 1).post().map_err(harmed("an atomic"))?;
        here.wait_done("an atomic")?;
        let before = here.boxes.load_u64(RECEIVES * BOX).map_err(harmed("memory"))?;
        if before + 1 != self.round {
            return Err(format!("{before} was counted before round {}", self.round));
        }
        Ok(())
    }
}

impl Pair for Verbs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self) -> Harm<()> {
        for (index, End { qp, board, .. }) in self.ends.iter().enumerate() {
            if qp.state() != State::Rts {
                let counters = qp.counters();
                let counted: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
                return Err(format!("queue pair {} is in {:?}: {counted:?}", qp.qpn(), qp.state()));
            }
            let counter = if index == 1 && qp.service() == Service::Rc { self.round } else { 0 };
            let wrote = qp.service() != Service::Ud;
            only_this_changed(&board.to_vec(..).map_err(harmed("memory"))?, self.round, counter, wrote)?;
        }
        match self.links.iter().find_map(Established::disconnected) {
            Some(why) => Err(format!("it was disconnected: {why:?}")),
            None => Ok(()),
        }
    }

    fn number(&self) -> Option<Qpn> {
        Some(self.ends[1].qp.qpn())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        self.ends[1].qp.counters().iter().collect()
    }

    fn round(&mut self) -> Harm<()> {
        self.round += 1;
        self.message(0)?;
        self.message(1)?;
        let service = self.ends[0].qp.service();
        if service != Service::Ud {
            self.write(0)?;
            self.write(1)?;
        }
        if service == Service::Rc { self.read() } else { Ok(()) }
    }
}
