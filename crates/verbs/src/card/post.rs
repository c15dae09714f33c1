//! Posting to a card: from work as a program described it to that of the card's library.

use ferroce_system::{
    Binding, Bytes as CardBytes, PostWorkError, PostWorkListError, ReceiveWork, SendWork, Sends,
};
use ferroce_transport::{Load, PostError as Refusal, SendOp};

use super::{CardQueuePair, CardSharedQueue};
use crate::error::{BatchError, PostError, PostTarget};
use crate::work::{Plain, Work};

/// Posts one request. It is the short way of cards, and out of that of the soft device.
#[inline(never)]
pub(crate) fn send(qp: &CardQueuePair, work: &Work<'_>) -> Result<(), PostError> {
    let Some(bytes) = work.plain_bytes() else { return send_slowly(qp, work) };
    let piece;
    let bytes = match bytes {
        Plain::Inline(bytes) => CardBytes::Inline(bytes),
        Plain::Piece(one) => {
            piece = [one];
            CardBytes::Pieces(&piece)
        }
    };
    let Some(card) = plain(qp, work, bytes) else { return send_slowly(qp, work) };
    match qp.qp.post_one(&card) {
        Ok(()) => Ok(()),
        Err(error) => Err(refused_send(qp, work, error)),
    }
}

/// The same of one of which something is special, or wrong.
#[inline(never)]
fn send_slowly(qp: &CardQueuePair, work: &Work<'_>) -> Result<(), PostError> {
    if let Some(binding) = work.binding_at_once() {
        return bind_at_once(qp, work, &binding);
    }
    work.with_card_pieces(|pieces| {
        let card = work.card_work(pieces, |op, load| check(qp, work, op, load))?;
        qp.qp.post_one(&card).map_err(|error| refused_send(qp, work, error))
    })
}

/// A request as a card wants it, with these bytes, if it is one of those that are posted most, and right for certain. Where its bytes are is
/// looked at when it is posted.
#[inline(always)]
fn plain<'b>(qp: &CardQueuePair, work: &Work<'_>, bytes: CardBytes<'b>) -> Option<SendWork<'b>> {
    let (len, load) = match bytes {
        CardBytes::Inline(bytes) => (bytes.len() as u64, Load::Inline(bytes.len())),
        CardBytes::Pieces([piece]) => (piece.len(), Load::Pieces { count: 1, bytes: piece.len() }),
        CardBytes::Pieces(_) => return None,
    };
    let (operation, message) = work.plain_operation(len)?;
    let card = SendWork { id: work.name(), operation, bytes, flags: work.flags(), destination: None };
    qp.allows(message, load).then_some(card)
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
    while taken < all.len() {
        let left = &all[taken..];
        let posted = match left[0].binding_at_once() {
            // That is a call of its own.
            Some(binding) => bind_at_once(qp, &left[0], &binding).map(|()| 1).map_err(|error| (0, error)),
            None => send_list(qp, left),
        };
        taken += posted.map_err(|(more, error)| BatchError { taken: taken + more, given, error })?;
    }
    match wrong {
        Some(error) => Err(BatchError { taken, given, error }),
        None => Ok(()),
    }
}

/// Posts the beginning of a list, which is no binding of a window of type 1, up to the first that is: how many that is. If not all of it was
/// taken, how much was, and why the next was not.
fn send_list<'a>(qp: &CardQueuePair, list: &[Work<'a>]) -> Result<usize, (usize, PostError)> {
    let mut count = 0;
    let posted = qp.qp.post_described(|sends: &mut Sends<'_, 'a>| {
        for work in list {
            if !add_quickly(qp, work, sends)? && !add_slowly(qp, work, sends)? {
                break;
            }
            count += 1;
        }
        Ok(())
    });
    match posted {
        Ok(()) => Ok(count),
        Err((taken, Stop::Work(error))) => Err((taken, error)),
        Err((taken, Stop::Card(error))) => {
            let by = PostTarget::QueuePair(qp.qp.qpn());
            let explain = || list.get(taken).and_then(|work| explained(qp, work));
            Err((taken, refusal(error, by, sends(qp), explain)))
        }
    }
}

/// Why a list ends before its end.
enum Stop {
    Work(PostError),
    Card(PostWorkError),
}

impl From<PostWorkError> for Stop {
    fn from(error: PostWorkError) -> Self {
        Self::Card(error)
    }
}

/// Adds a request to a list if nothing is special about it.
#[inline(always)]
fn add_quickly<'a>(qp: &CardQueuePair, work: &Work<'a>, sends: &mut Sends<'_, 'a>) -> Result<bool, Stop> {
    match work.plain_bytes() {
        None => return Ok(false),
        Some(Plain::Inline(bytes)) => match plain(qp, work, CardBytes::Inline(bytes)) {
            Some(card) => sends.add(&card)?,
            None => return Ok(false),
        },
        Some(Plain::Piece(piece)) => {
            let pieces = [piece];
            match plain(qp, work, CardBytes::Pieces(&pieces)) {
                Some(card) => sends.add_gathered(&card, &pieces)?,
                None => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// The same of any other; a binding of a window of type 1 is not added.
#[inline(never)]
fn add_slowly<'a>(qp: &CardQueuePair, work: &Work<'a>, sends: &mut Sends<'_, 'a>) -> Result<bool, Stop> {
    if work.binding_at_once().is_some() {
        return Ok(false);
    }
    let judge = |op: &SendOp, load| check(qp, work, op, load);
    if work.inline().is_some() {
        // None: what was found wrong is told before.
        work.with_card_pieces(|_| Ok(())).map_err(Stop::Work)?;
        sends.add(&work.card_work(&[], judge).map_err(Stop::Work)?)?;
        return Ok(true);
    }
    let mut added = Ok(());
    let described = work.with_card_pieces(|pieces| {
        added = sends.add_gathered(&work.card_work(pieces, judge)?, pieces);
        Ok(())
    });
    described.map_err(Stop::Work)?;
    added?;
    Ok(true)
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
