//! Posting: what a request must be like to be taken.

use ferroce_wire::{PathMtu, Service};
use thiserror::Error;

use crate::inbound::MAX_MESSAGE;
use crate::qp::Caps;
use crate::state::State;
use crate::work::{Data, ReceiveRequest, SendOp, SendRequest};

/// Why a list of work was not posted whole. The requests before the refused one are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("request {taken} of the list was refused, those before it are posted")]
pub struct PostListError {
    /// How many were taken: the place of the refused one in the list.
    pub taken: usize,
    /// Why the next was not.
    #[source]
    pub error: PostError,
}

impl PostListError {
    /// So many were taken, and the next was refused for this.
    #[must_use]
    pub const fn new(taken: usize, error: PostError) -> Self {
        Self { taken, error }
    }

    /// The same of a list with so many more before it, all of which were taken.
    #[must_use]
    pub const fn after(self, before: usize) -> Self {
        Self { taken: before + self.taken, ..self }
    }
}

/// Why work is not taken. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The device refuses atomics on addresses that are no multiples of eight already when they are posted. Others leave that to the peer,
    /// and the work ends with a status.
    #[error("an atomic needs a remote address that is a multiple of eight, and {address:#x} is none")]
    Misaligned {
        /// The remote address.
        address: u64,
    },
    /// The queue pair is in a state that takes no such work.
    #[error("a queue pair in {state} takes no {what}; {needed}")]
    WrongState {
        /// The state.
        state: State,
        /// Sends or receives.
        what: &'static str,
        /// What would be needed.
        needed: &'static str,
    },
    /// The device belongs to the process that this one was forked from.
    #[error("the device was opened before a fork, and belongs to the parent; open it anew")]
    OtherProcess,
    /// The queue is full.
    #[error("the {what} queue is full: {depth} requests wait; poll for completions first")]
    QueueFull {
        /// Send or receive.
        what: &'static str,
        /// How many it takes.
        depth: u32,
    },
    /// More pieces than the queue pair was made for.
    #[error("{given} pieces, at most {allowed} allowed")]
    TooManyPieces {
        /// Pieces given.
        given: usize,
        /// Pieces allowed.
        allowed: u32,
    },
    /// More inline bytes than the queue pair was made for.
    #[error("{given} inline bytes, at most {allowed} allowed")]
    InlineTooLong {
        /// Bytes given.
        given: usize,
        /// Bytes allowed.
        allowed: u32,
    },
    /// The message is longer than this service allows.
    #[error("a message of {given} bytes, at most {allowed} allowed")]
    TooLong {
        /// Bytes given.
        given: u64,
        /// Bytes allowed.
        allowed: u32,
    },
    /// An atomic, or local work, with bytes of another length than it has.
    #[error("{given} bytes given, exactly {needed} needed")]
    WrongLength {
        /// Bytes given.
        given: u64,
        /// Bytes needed.
        needed: u32,
    },
    /// The answer of the peer cannot go into inline bytes.
    #[error("a READ or atomic needs memory for its answer, not inline bytes")]
    InlineAnswer,
    /// The service does not know this operation.
    #[error("{service} queue pairs cannot do this: {op:?}")]
    NotOfService {
        /// The service.
        service: &'static str,
        /// The operation.
        op: SendOp,
    },
    /// A datagram without an address, or a connected request with one.
    #[error("a datagram needs an address, a request on a connection has none")]
    WrongAddress,
    /// READs and atomics while the queue pair may have none under way.
    #[error("the queue pair may have no READ or atomic under way (max_rd_atomic is 0)")]
    NoReadDepth,
    /// Receives of this queue pair come from a shared queue.
    #[error("receives of this queue pair come from its shared queue: post them there")]
    SharedQueue,
}

/// What requests of a queue pair are checked against, beside the room in its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostRules {
    /// Its state.
    pub state: State,
    /// Its service.
    pub service: Service,
    /// How large its queues and requests are.
    pub caps: Caps,
    /// Payload of a full packet: no datagram is longer.
    pub path_mtu: PathMtu,
    /// READs and atomics under way as the requester.
    pub max_rd_atomic: u8,
    /// Whether receives come from a shared queue.
    pub shared_queue: bool,
}

/// The bytes of a request, as far as it depends on them whether it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// In so many pieces of memory, that have so many bytes together.
    Pieces {
        /// Pieces.
        count: usize,
        /// Bytes.
        bytes: u64,
    },
    /// So many bytes with the request itself.
    Inline(usize),
}

/// A request of those that are posted most, as far as the rules look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// SEND, with or without immediate data.
    Send,
    /// WRITE, with or without immediate data.
    Write,
    /// READ.
    Read,
}

/// The [`PostRules`] of a queue pair, prepared for the requests that are posted most. They say yes or no: no is no error, but means to ask
/// the rules themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortRules {
    /// It is connected, and takes sends.
    messages: bool,
    /// It may have READs under way, too.
    reads: bool,
    pieces: u32,
    inline: u32,
}

impl ShortRules {
    /// Whether such a request without an address is allowed for certain.
    #[inline(always)]
    #[must_use]
    pub const fn allow(&self, message: Message, load: Load) -> bool {
        let known = match message {
            Message::Send | Message::Write => self.messages,
            Message::Read => self.reads,
        };
        known
            && match load {
                Load::Pieces { count, bytes } => count <= self.pieces as usize && bytes <= MAX_MESSAGE as u64,
                Load::Inline(len) => !matches!(message, Message::Read) && len <= self.inline as usize,
            }
    }
}

impl PostRules {
    /// These rules for the requests that are posted most.
    #[must_use]
    pub const fn short(&self) -> ShortRules {
        let messages = self.state.takes_sends() && matches!(self.service, Service::Rc | Service::Uc);
        let inline = if self.caps.max_inline < MAX_MESSAGE { self.caps.max_inline } else { MAX_MESSAGE };
        ShortRules {
            messages,
            reads: messages && matches!(self.service, Service::Rc) && self.max_rd_atomic > 0,
            pieces: self.caps.max_send_sge,
            inline,
        }
    }

    /// Checks a send request and returns the length of its message.
    ///
    /// # Errors
    /// What was given and what is allowed.
    #[inline]
    pub fn check_send(&self, request: &SendRequest<'_>) -> Result<u32, PostError> {
        self.check_op(&request.op, request.dest.is_some(), || self.check_data(request))
    }

    /// The same of a request that is there in another form: what it does, whether it says where a datagram goes, and its bytes.
    ///
    /// # Errors
    /// As above.
    #[inline]
    pub fn check_described(&self, op: &SendOp, has_dest: bool, load: Load) -> Result<u32, PostError> {
        self.check_op(op, has_dest, || self.check_load(op, load))
    }

    #[inline]
    fn check_op(
        &self,
        op: &SendOp,
        has_dest: bool,
        load: impl FnOnce() -> Result<u64, PostError>,
    ) -> Result<u32, PostError> {
        if !self.state.takes_sends() {
            let needed = "move it to RTS first";
            return Err(PostError::WrongState { state: self.state, what: "sends", needed });
        }
        let of_service = match self.service {
            Service::Uc => {
                matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::Write(_) | SendOp::WriteImm(..))
            }
            Service::Ud => matches!(op, SendOp::Send | SendOp::SendImm(_)),
            _ => true,
        };
        if !of_service {
            return Err(PostError::NotOfService { service: self.service.name(), op: *op });
        }
        if has_dest != (self.service == Service::Ud) {
            return Err(PostError::WrongAddress);
        }
        if op.is_read_or_atomic() && self.max_rd_atomic == 0 {
            return Err(PostError::NoReadDepth);
        }
        let length = load()?;
        let needed = match op {
            op if op.is_atomic() => 8,
            SendOp::AtomicWrite(_) => 8,
            SendOp::BindWindow(_) | SendOp::LocalInvalidate(_) => 0,
            _ => {
                let allowed = if self.service == Service::Ud { self.mtu_bytes() } else { MAX_MESSAGE };
                return u32::try_from(length)
                    .ok()
                    .filter(|length| *length <= allowed)
                    .ok_or(PostError::TooLong { given: length, allowed });
            }
        };
        if length == u64::from(needed) {
            Ok(needed)
        } else {
            Err(PostError::WrongLength { given: length, needed })
        }
    }

    #[inline]
    fn check_data(&self, request: &SendRequest<'_>) -> Result<u64, PostError> {
        match request.data {
            Data::Gather(sges) if sges.len() > self.caps.max_send_sge as usize => {
                Err(PostError::TooManyPieces { given: sges.len(), allowed: self.caps.max_send_sge })
            }
            Data::Gather([one]) => Ok(one.length.into()),
            Data::Gather(sges) => Ok(sges.iter().map(|sge| u64::from(sge.length)).sum()),
            Data::Inline(bytes) => self.check_load(&request.op, Load::Inline(bytes.len())),
        }
    }

    #[inline]
    fn check_load(&self, op: &SendOp, load: Load) -> Result<u64, PostError> {
        match load {
            Load::Pieces { count, .. } if count > self.caps.max_send_sge as usize => {
                Err(PostError::TooManyPieces { given: count, allowed: self.caps.max_send_sge })
            }
            Load::Pieces { bytes, .. } => Ok(bytes),
            Load::Inline(_) if op.is_atomic() || matches!(op, SendOp::Read(_)) => {
                Err(PostError::InlineAnswer)
            }
            Load::Inline(given) if given > self.caps.max_inline as usize => {
                Err(PostError::InlineTooLong { given, allowed: self.caps.max_inline })
            }
            Load::Inline(len) => Ok(len as u64),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 4096")]
    const fn mtu_bytes(&self) -> u32 {
        self.path_mtu.bytes() as u32
    }

    /// Checks a receive request.
    ///
    /// # Errors
    /// What was given and what is allowed.
    pub const fn check_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if !self.state.takes_receives() && !matches!(self.state, State::Err) {
            let needed = "move it to INIT first";
            return Err(PostError::WrongState { state: self.state, what: "receives", needed });
        }
        if self.shared_queue {
            return Err(PostError::SharedQueue);
        }
        let (given, allowed) = (request.sges.len(), self.caps.max_receive_sge);
        if given > allowed as usize {
            return Err(PostError::TooManyPieces { given, allowed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::{Imm, Lkey, QKey, Qpn, Rkey};

    use super::*;
    use crate::work::{Access, Bind, DatagramDest, Remote, SendFlags, Sge};

    const CAPS: Caps =
        Caps { max_send: 4, max_receive: 4, max_send_sge: 2, max_receive_sge: 3, max_inline: 16 };
    const REMOTE: Remote = Remote { address: 0, rkey: Rkey(1) };
    const BIND: Bind = Bind {
        window: Rkey(1),
        new_key: Rkey(2),
        region: Lkey(3),
        address: 0,
        length: 0,
        access: Access::empty(),
    };

    fn rules(service: Service) -> PostRules {
        let path_mtu = PathMtu::B1024;
        PostRules { state: State::Rts, service, caps: CAPS, path_mtu, max_rd_atomic: 1, shared_queue: false }
    }

    fn check(rules: &PostRules, op: SendOp, data: Data<'_>) -> Result<u32, PostError> {
        let dest = DatagramDest { handle: 1, qpn: Qpn::new(1), qkey: QKey(1) };
        let dest = (rules.service == Service::Ud).then_some(dest);
        rules.check_send(&SendRequest { id: 1, op, data, flags: SendFlags::empty(), dest })
    }

    /// All that the short rules can be asked, at the edges of what is allowed.
    #[test]
    fn what_the_short_rules_allow_the_rules_take() {
        let loads = [0, 1, 2, 3].into_iter().flat_map(|count| {
            [0, 1, MAX_MESSAGE.into(), u64::from(MAX_MESSAGE) + 1].map(|bytes| Load::Pieces { count, bytes })
        });
        let loads: Vec<Load> = loads.chain([0, 1, 16, 17].map(Load::Inline)).collect();
        let asked = [
            (Message::Send, SendOp::Send),
            (Message::Send, SendOp::SendImm(Imm(1))),
            (Message::Write, SendOp::Write(REMOTE)),
            (Message::Write, SendOp::WriteImm(REMOTE, Imm(1))),
            (Message::Read, SendOp::Read(REMOTE)),
        ];
        for service in [Service::Rc, Service::Uc, Service::Ud] {
            for (state, max_rd_atomic) in
                [(State::Rts, 1), (State::Rts, 0), (State::Sqd, 1), (State::Rtr, 1), (State::Err, 1)]
            {
                let rules = PostRules { state, max_rd_atomic, ..rules(service) };
                for (message, op) in asked {
                    for load in &loads {
                        let short = rules.short().allow(message, *load);
                        let long = rules.check_described(&op, false, *load);
                        // They are of use only if they say yes to all that is right on a connection.
                        assert_eq!(short, long.is_ok(), "{rules:?} {op:?} {load:?} {long:?}");
                    }
                }
            }
        }
    }

    fn sge(length: u32) -> Sge {
        Sge { address: 0, length, lkey: Lkey(1) }
    }

    #[test]
    fn each_service_knows_its_operations() {
        let (compare, swap, add) = (0, 0, 1);
        let all = [
            (SendOp::Send, 0, [true; 3]),
            (SendOp::SendImm(Imm(1)), 0, [true; 3]),
            (SendOp::Write(REMOTE), 0, [true, true, false]),
            (SendOp::WriteImm(REMOTE, Imm(1)), 0, [true, true, false]),
            (SendOp::SendInvalidate(Rkey(1)), 0, [true, false, false]),
            (SendOp::Read(REMOTE), 0, [true, false, false]),
            (SendOp::CompareSwap { remote: REMOTE, compare, swap }, 8, [true, false, false]),
            (SendOp::FetchAdd { remote: REMOTE, add }, 8, [true, false, false]),
            (SendOp::AtomicWrite(REMOTE), 8, [true, false, false]),
            (SendOp::BindWindow(BIND), 0, [true, false, false]),
            (SendOp::LocalInvalidate(Rkey(1)), 0, [true, false, false]),
        ];
        for (op, length, known) in all {
            for (service, known) in [Service::Rc, Service::Uc, Service::Ud].into_iter().zip(known) {
                let seen = check(&rules(service), op, Data::Gather(&[sge(length)]));
                let not_known = PostError::NotOfService { service: service.name(), op };
                assert_eq!(seen, if known { Ok(length) } else { Err(not_known) });
            }
        }
    }

    #[test]
    fn what_has_one_length_is_taken_with_that_length_only() {
        let rules = rules(Service::Rc);
        for (op, needed) in [
            (SendOp::FetchAdd { remote: REMOTE, add: 1 }, 8),
            (SendOp::AtomicWrite(REMOTE), 8),
            (SendOp::BindWindow(BIND), 0),
            (SendOp::LocalInvalidate(Rkey(1)), 0),
        ] {
            assert_eq!(check(&rules, op, Data::Gather(&[sge(needed)])), Ok(needed));
            for given in [1, 7, 9] {
                let wrong = PostError::WrongLength { given: given.into(), needed };
                assert_eq!(check(&rules, op, Data::Gather(&[sge(given)])), Err(wrong), "{op:?}");
            }
        }
    }

    #[test]
    fn each_limit_is_allowed_and_one_more_is_not() {
        let (rc, ud) = (rules(Service::Rc), rules(Service::Ud));
        let send = |rules: &PostRules, data: Data<'_>| check(rules, SendOp::Send, data);
        assert_eq!(send(&rc, Data::Gather(&[sge(5), sge(6)])), Ok(11));
        let pieces = PostError::TooManyPieces { given: 3, allowed: 2 };
        assert_eq!(send(&rc, Data::Gather(&[sge(1); 3])), Err(pieces));
        assert_eq!(send(&rc, Data::Inline(&[0; 16])), Ok(16));
        let inline = PostError::InlineTooLong { given: 17, allowed: 16 };
        assert_eq!(send(&rc, Data::Inline(&[0; 17])), Err(inline));
        assert_eq!(send(&rc, Data::Gather(&[sge(MAX_MESSAGE)])), Ok(MAX_MESSAGE));
        let given = u64::from(MAX_MESSAGE) + 1;
        let long = PostError::TooLong { given, allowed: MAX_MESSAGE };
        assert_eq!(send(&rc, Data::Gather(&[sge(MAX_MESSAGE), sge(1)])), Err(long));
        assert_eq!(send(&ud, Data::Gather(&[sge(1024)])), Ok(1024));
        let long = PostError::TooLong { given: 1025, allowed: 1024 };
        assert_eq!(send(&ud, Data::Gather(&[sge(1025)])), Err(long));
    }

    #[test]
    fn reads_and_atomics_need_depth_and_memory() {
        let shallow = PostRules { max_rd_atomic: 0, ..rules(Service::Rc) };
        let read = SendOp::Read(REMOTE);
        assert_eq!(check(&shallow, read, Data::Gather(&[])), Err(PostError::NoReadDepth));
        assert_eq!(check(&shallow, SendOp::Write(REMOTE), Data::Gather(&[])), Ok(0));
        let rules = rules(Service::Rc);
        for op in [read, SendOp::FetchAdd { remote: REMOTE, add: 1 }] {
            assert_eq!(check(&rules, op, Data::Inline(&[0; 8])), Err(PostError::InlineAnswer));
        }
        assert_eq!(
            check(&rules, SendOp::AtomicWrite(REMOTE), Data::Inline(&[0; 8])),
            Ok(8),
            "it has no answer"
        );
    }

    #[test]
    fn an_address_belongs_to_datagrams_and_to_nothing_else() {
        let dest = DatagramDest { handle: 1, qpn: Qpn::new(1), qkey: QKey(1) };
        for service in [Service::Rc, Service::Uc, Service::Ud] {
            for dest in [None, Some(dest)] {
                let (data, flags) = (Data::Gather(&[]), SendFlags::empty());
                let seen =
                    rules(service).check_send(&SendRequest { id: 1, op: SendOp::Send, data, flags, dest });
                let right = dest.is_some() == (service == Service::Ud);
                assert_eq!(seen, if right { Ok(0) } else { Err(PostError::WrongAddress) });
            }
        }
    }

    #[test]
    fn work_is_taken_in_some_states_only() {
        let takes = |state: State| {
            let rules = PostRules { state, ..rules(Service::Rc) };
            let receive = ReceiveRequest { id: 1, sges: &[] };
            let send = check(&rules, SendOp::Send, Data::Gather(&[]));
            assert!(send.is_ok() || matches!(send, Err(PostError::WrongState { what: "sends", .. })));
            (send.is_ok(), rules.check_receive(&receive).is_ok())
        };
        let seen = State::ALL.map(takes);
        let wanted = [
            (false, false),
            (false, true),
            (false, true),
            (true, true),
            (true, true),
            (true, true),
            (true, true),
        ];
        assert_eq!(seen, wanted, "in the order of {:?}", State::ALL);
    }

    #[test]
    fn receives_have_their_own_limits() {
        let own = rules(Service::Rc);
        let check = |rules: &PostRules, count| {
            rules.check_receive(&ReceiveRequest { id: 1, sges: &vec![sge(1); count] })
        };
        assert_eq!(check(&own, 3), Ok(()));
        assert_eq!(check(&own, 4), Err(PostError::TooManyPieces { given: 4, allowed: 3 }));
        let shared = PostRules { shared_queue: true, ..own };
        assert_eq!(check(&shared, 0), Err(PostError::SharedQueue));
    }
}
