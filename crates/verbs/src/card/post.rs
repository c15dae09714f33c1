//! Posting to a card: from work as a program described it to that of the card's library.

use ferroce_system::{Binding, Piece, PostWorkError, PostWorkListError, ReceiveWork};
use ferroce_transport::{Load, PostError as Refusal, SendOp};

use super::{CardQueuePair, CardSharedQueue};
use crate::error::{BatchError, PostError, PostTarget};
use crate::work::Work;

/// Posts one request. It is the short way of cards, and out of that of the soft device.
#[inline(never)]
pub(crate) fn send(qp: &CardQueuePair, work: &Work<'_>) -> Result<(), PostError> {
    if let Some(binding) = work.binding_at_once() {
        return bind_at_once(qp, work, &binding);
    }
    work.with_card_pieces(|pieces| {
        let card = work.card_work(pieces, |op, load| check(qp, work, op, load))?;
        match qp.qp.post_send(std::slice::from_ref(&card)) {
            Ok(()) => Ok(()),
            Err(refused) => Err(refused_send(qp, work, refused.error)),
        }
    })
}

#[cold]
fn bind_at_once(qp: &CardQueuePair, work: &Work<'_>, binding: &Binding<'_>) -> Result<(), PostError> {
    let posted = qp.qp.bind_window(work.name(), binding, work.flags());
    posted.map(|_| ()).map_err(|error| refused_send(qp, work, error))
}

#[cold]
fn refused_send(qp: &CardQueuePair, work: &Work<'_>, error: PostWorkError) -> PostError {
    refusal(error, work.target(), sends(qp), || explained(qp, work))
}

/// Posts several in their order, with few calls.
pub(crate) fn send_all(
    qp: &CardQueuePair,
    all: &[Work<'_>],
    given: usize,
    wrong: Option<PostError>,
) -> Result<(), BatchError> {
    let mut taken = 0;
    // The binding of a window of type 1 is a call of its own.
    for list in
        all.chunk_by(|one, other| one.binding_at_once().is_none() && other.binding_at_once().is_none())
    {
        let posted = match list {
            [one] => send(qp, one).map_err(|error| (0, error)),
            list => send_list(qp, list),
        };
        posted.map_err(|(more, error)| BatchError { taken: taken + more, given, error })?;
        taken += list.len();
    }
    match wrong {
        Some(error) => Err(BatchError { taken, given, error }),
        None => Ok(()),
    }
}

/// Posts a list without bindings of type 1; how many were taken, and why the next was not.
fn send_list<'a>(qp: &CardQueuePair, list: &[Work<'a>]) -> Result<(), (usize, PostError)> {
    let mut wrong = None;
    let mut pieces: Vec<Piece<'a>> = Vec::with_capacity(list.len());
    let mut good = list;
    for (at, work) in list.iter().enumerate() {
        let added = work.with_card_pieces(|some| {
            pieces.extend_from_slice(some);
            Ok(())
        });
        if let Err(error) = added {
            (good, wrong) = (&list[..at], Some(error));
            break;
        }
    }
    let mut card = Vec::with_capacity(good.len());
    let mut left = pieces.as_slice();
    for work in good {
        let (own, others) = left.split_at(work.piece_count());
        left = others;
        match work.card_work(own, |op, load| check(qp, work, op, load)) {
            Ok(made) => card.push(made),
            Err(error) => {
                wrong = Some(error);
                break;
            }
        }
    }
    let posted = qp.qp.post_send(&card);
    posted.map_err(|PostWorkListError { taken, error, .. }| {
        let by = PostTarget::QueuePair(qp.qp.qpn());
        (taken, refusal(error, by, sends(qp), || list.get(taken).and_then(|work| explained(qp, work))))
    })?;
    wrong.map_or(Ok(()), |error| Err((card.len(), error)))
}

/// A queue of a card that takes receives.
#[derive(Clone, Copy)]
pub(crate) enum Receiver<'a> {
    Own(&'a CardQueuePair),
    Shared(&'a CardSharedQueue),
}

impl Receiver<'_> {
    /// Posts receives in their order: how many were taken, and why the next was not.
    pub(crate) fn post(self, by: PostTarget, work: &[ReceiveWork<'_>]) -> Result<(), (usize, PostError)> {
        let posted = match self {
            Self::Own(qp) => qp.qp.post_receive(work),
            Self::Shared(srq) => srq.queue.post(work),
        };
        posted.map_err(|PostWorkListError { taken, error, .. }| {
            (taken, refusal(error, by, self.queue(), || self.explained()))
        })
    }

    fn queue(self) -> (&'static str, u32) {
        match self {
            Self::Own(qp) => ("receive", qp.qp.caps().max_receive),
            Self::Shared(srq) => ("shared receive", srq.queue.depth()),
        }
    }

    #[cold]
    fn explained(self) -> Option<Refusal> {
        let Self::Own(qp) = self else { return None };
        let state = qp.rules()?.state;
        let needed = "move it to INIT first";
        let wrong = Refusal::WrongState { state, what: "receives", needed };
        (!state.takes_receives()).then_some(wrong)
    }
}

/// What the rules of the IBA say of a request: some cards take what they cannot do, and say so much later, if they do.
#[inline]
fn check(qp: &CardQueuePair, work: &Work<'_>, op: &SendOp, load: Load) -> Result<(), PostError> {
    let judged = if op.is_read_or_atomic() {
        qp.fixed_rules().check_described(op, work.has_dest(), load)
    } else {
        qp.fixed.check_described(op, work.has_dest(), load)
    };
    judged.map(|_| ()).map_err(|error| PostError::Refused { by: work.target(), error })
}

/// What the queue of sends is called, and how many it takes.
const fn sends(qp: &CardQueuePair) -> (&'static str, u32) {
    ("send", qp.qp.caps().max_send)
}

/// What a card says of a queue that is full.
const ENOMEM: i32 = 12;

/// Why the card refused this: cards say little more than that.
#[cold]
fn explained(qp: &CardQueuePair, work: &Work<'_>) -> Option<Refusal> {
    let rules = qp.rules()?;
    let judged =
        work.with_request(|request| Ok(rules.check_send(request).err().or_else(|| misaligned(request.op))));
    judged.ok().flatten()
}

/// Whether an atomic reaches for an address that it cannot have.
#[cold]
fn misaligned(op: SendOp) -> Option<Refusal> {
    let (SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. }) = op else { return None };
    (remote.address % 8 != 0).then_some(Refusal::Misaligned { address: remote.address })
}

#[cold]
fn refusal(
    error: PostWorkError,
    by: PostTarget,
    (what, depth): (&'static str, u32),
    explain: impl FnOnce() -> Option<Refusal>,
) -> PostError {
    let refused = |error| PostError::Refused { by, error };
    match error {
        PostWorkError::Full { depth } => refused(Refusal::QueueFull { what, depth }),
        PostWorkError::ManyPieces { given, allowed } => refused(Refusal::TooManyPieces { given, allowed }),
        PostWorkError::LongInline { given, allowed } => refused(Refusal::InlineTooLong { given, allowed }),
        PostWorkError::InlineAnswer => refused(Refusal::InlineAnswer),
        PostWorkError::Destination => refused(explain().unwrap_or(Refusal::WrongAddress)),
        PostWorkError::Shared => refused(Refusal::SharedQueue),
        PostWorkError::Outside { start, end, size } => PostError::OutsideRegion { start, end, size },
        PostWorkError::Refused(error) if error.is_fork() => refused(Refusal::OtherProcess),
        PostWorkError::Refused(error) if error.code == ENOMEM => refused(Refusal::QueueFull { what, depth }),
        PostWorkError::Refused(error) => explain().map_or(PostError::Card { by, error }, refused),
        // Of the address handle, which is of the same device: the library wants it of the same domain, too.
        _ => PostError::OtherDomain { by },
    }
}
