//! Honest traffic: a requester that fills the responder's memory again and again, and looks at all of it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_transport::{SendOp, State, Status};
use ferroce_wire::Psn;

use crate::common::{Side, signaled};

/// One message.
const MESSAGE: u32 = 1 << 16;
const MESSAGES: u32 = 12;

/// Where the READ goes, and where the counter is: behind the messages.
const READ_INTO: usize = 13 << 16;
const COUNTER: usize = 14 << 16;

/// Packets of one round: WRITEs, one READ, one FETCH AND ADD.
const PACKETS: u32 = (MESSAGES + 1) * (MESSAGE / 4096) + 1;

/// The first PSN that the common connection has.
const FIRST: u32 = 0xff_fff0;

/// How far the honest traffic has come, for a sprayer that wants to lie about it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    rounds: AtomicU64,
    psn: AtomicU32,
}

impl Progress {
    /// Everything before this was served and acknowledged.
    pub(crate) fn served(&self) -> Psn {
        Psn::new(FIRST) + self.psn.load(Ordering::Relaxed)
    }

    /// Bytes that arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed) * u64::from(MESSAGE) * u64::from(MESSAGES + 1)
    }
}

/// Both ends, and what was seen.
pub(crate) struct Honest {
    pub(crate) requester: Side,
    pub(crate) responder: Side,
    pub(crate) progress: Arc<Progress>,
    scratch: Mutex<Vec<u8>>,
}

impl Honest {
    pub(crate) fn new(requester: Side, responder: Side) -> Self {
        requester.connect(&responder.address());
        responder.connect(&requester.address());
        let scratch = Mutex::new(vec![0; MESSAGE as usize]);
        Self { requester, responder, progress: Arc::default(), scratch }
    }

    /// Writes everything once, reads some of it back, counts up by one, and looks at it all.
    pub(crate) fn round(&self) {
        let Self { requester, responder, progress, .. } = self;
        let round = progress.rounds.load(Ordering::Relaxed);
        let peer = responder.address();
        // Never the byte that lies are made of.
        let byte = |message: u32| u8::try_from((round + u64::from(message)) % 127).expect("small");
        for message in 0..MESSAGES {
            let at = (message * MESSAGE) as usize;
            requester.memory.fill(at, MESSAGE as usize, byte(message)).expect("inside");
            let out = [requester.sge(at as u64, MESSAGE)];
            let write = SendOp::Write(peer.at(at as u64));
            requester.qp.post_send(&[signaled(message.into(), write, &out)]).expect("room");
        }
        let (into, counter) =
            ([requester.sge(READ_INTO as u64, MESSAGE)], [requester.sge(COUNTER as u64, 8)]);
        let read = signaled(100, SendOp::Read(peer.at(0)), &into);
        let add = signaled(101, SendOp::FetchAdd { remote: peer.at(COUNTER as u64), add: 1 }, &counter);
        requester.qp.post_send(&[read, add]).expect("room");
        for id in (0..u64::from(MESSAGES)).chain([100, 101]) {
            let done = requester.polled_completion();
            assert_eq!((done.id, done.status), (id, Status::Success), "in round {round}");
        }
        progress.rounds.store(round + 1, Ordering::Relaxed);
        progress.psn.fetch_add(PACKETS, Ordering::Relaxed);
        let mut seen = self.scratch.lock().expect("one thread");
        for message in 0..MESSAGES {
            let at = (message * MESSAGE) as usize;
            responder.memory.read(at, &mut seen).expect("inside");
            assert!(seen.iter().all(|seen| *seen == byte(message)), "message {message} of round {round}");
        }
        requester.memory.read(READ_INTO, &mut seen).expect("inside");
        assert!(seen.iter().all(|seen| *seen == byte(0)), "what was read in round {round}");
        let mut before = [0; 8];
        requester.memory.read(COUNTER, &mut before).expect("inside");
        assert_eq!(u64::from_ne_bytes(before), round, "the counter before round {round}");
    }

    /// Both ends are as they were.
    pub(crate) fn check(&self) {
        for side in [&self.requester, &self.responder] {
            let state = side.qp.query().expect("it is there");
            assert_eq!(state.attributes.state, State::Rts, "{:?}", state.counters);
            assert!(side.nic.next_event().is_none(), "nothing to report");
        }
    }
}
