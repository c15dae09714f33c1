//! How messages and frames of our own reach the device: one by one, or several with one doorbell.

use std::io::IoSlice;

use ferroce_verbs::{BatchError, PostError};

use super::Core;
use super::delivery::Follow;
use super::sending::{Posted, What};
use crate::error::Error;
use crate::frame::{Header, Kind};
use crate::pieces::Pieces;

/// Messages that leave with one doorbell. They count as under way from when they are in here.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Messages go in here.
    is_open: bool,
    frames: Vec<Frame>,
    /// What goes inline.
    inline: Vec<u8>,
    /// All of them, in bytes.
    bytes: usize,
    /// Why the device did not take them.
    refused: Option<PostError>,
}

/// A frame that is ready to be posted.
#[derive(Clone, Copy, Debug)]
struct Frame {
    seq: u64,
    signaled: bool,
    /// Where it begins: in the ring if it has a slot, else in what goes inline.
    start: usize,
    len: usize,
    slot: Option<u32>,
}

/// Bytes that leave together: about the largest run of packets.
const LIST_BYTES: usize = 48 * 1024;
/// Messages that leave together: as many as gather in the device.
const LIST_FRAMES: usize = 64;

impl Core {
    /// Posts a message of the program's.
    pub(super) fn post_message(
        &mut self,
        kind: Kind,
        imm: Option<u32>,
        body: Pieces<'_>,
        follow: Follow,
    ) -> Result<(), PostError> {
        let header = Header { imm, tell: follow == Follow::Taken, ..self.header(kind, body.len()) };
        // What is taken was delivered: then the device need not report it.
        self.post(header, body, follow == Follow::Delivered)?;
        self.sending.messages += 1;
        Ok(())
    }

    /// Posts a frame of our own.
    pub(super) fn post_frame(&mut self, kind: Kind, body: &[u8]) -> Result<(), PostError> {
        let told = self.receiving.told().emit();
        let body = if kind.tells_taken() { &told } else { body };
        self.post(self.header(kind, body.len()), Pieces::new(&[IoSlice::new(body)]), true)
    }

    /// Posts a frame with the counters of the moment. It fits, and the peer has room for it.
    fn post(&mut self, header: Header, body: Pieces<'_>, must_know: bool) -> Result<(), PostError> {
        let kind = header.kind;
        let list = &self.sending.list;
        // Before this one is counted: those that are refused were.
        if kind != Kind::Data || list.bytes >= LIST_BYTES || list.frames.len() >= LIST_FRAMES {
            self.post_list()?;
        }
        let frame = self.make_ready(header, body, must_know);
        if kind != Kind::Data || !self.sending.list.is_open {
            self.post_one(frame)?;
        }
        let what = match kind {
            Kind::Data | Kind::Announce => What::Message(frame.slot),
            Kind::Goodbye => What::Goodbye,
            Kind::Farewell => What::Farewell,
            Kind::Fault => What::Fault,
            _ => What::Frame(frame.slot),
        };
        self.note_posted(what, frame.signaled);
        self.receiving.reported(kind);
        self.sending.sent += u64::from(kind.takes_credit());
        let list = &mut self.sending.list;
        if kind == Kind::Data && list.is_open {
            list.frames.push(frame);
            list.bytes += frame.len;
        }
        Ok(())
    }

    /// Lays a frame where the device gathers it.
    fn make_ready(&mut self, header: Header, body: Pieces<'_>, must_know: bool) -> Frame {
        let sending = &mut self.sending;
        let len = Header::LEN + body.len();
        let slot = match len <= sending.inline {
            true => None,
            false => sending.slots.free.pop(),
        };
        let last_slot = slot.is_some() && sending.slots.free.is_empty();
        let full = sending.posted.len() + 1 >= sending.depth;
        let signaled = must_know || last_slot || full || sending.unsignaled + 1 >= sending.signal_every;
        let start = match slot {
            None => {
                let inline = &mut sending.list.inline;
                let start = inline.len();
                inline.extend(header.emit());
                body.places().for_each(|place| inline.extend_from_slice(place));
                start
            }
            Some(slot) => {
                let (ring, start) = (&sending.slots.ring, sending.slots.offset(slot));
                // A slot has room for the longest frame.
                let _ = ring.write_at(start, &header.emit());
                let mut at = start + Header::LEN;
                for place in body.places() {
                    let _ = ring.write_at(at, place);
                    at += place.len();
                }
                start
            }
        };
        Frame { seq: sending.next_seq, signaled, start, len, slot }
    }

    /// Posts a frame by itself.
    fn post_one(&mut self, frame: Frame) -> Result<(), PostError> {
        let posted = self.work(frame).post();
        self.sending.list.inline.truncate(if frame.slot.is_none() { frame.start } else { usize::MAX });
        if posted.is_err() {
            self.sending.slots.free.extend(frame.slot);
        }
        posted
    }

    fn work(&self, frame: Frame) -> ferroce_verbs::Work<'_> {
        let Frame { seq, signaled, start, len, slot } = frame;
        let work = match slot {
            None => self.qp.send_inline(&self.sending.list.inline[start..start + len]),
            Some(_) => self.qp.send(self.sending.slots.ring.slice(start..start + len)),
        };
        let work = work.id(seq);
        if signaled { work.signaled() } else { work }
    }

    /// Does something during which messages are kept together, and posts them. Those that were refused have not been sent.
    pub(super) fn together<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> Result<T, Error> {
        self.sending.list.is_open = true;
        let done = act(self);
        self.sending.list.is_open = false;
        let posted = self.post_list();
        // What was refused on the way, `act` may take for sent.
        match self.sending.list.refused.take().map_or(posted, Err) {
            Ok(()) => Ok(done),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Posts what is in the list.
    fn post_list(&mut self) -> Result<(), PostError> {
        let list = &self.sending.list;
        let count = list.frames.len();
        let posted = match list.frames[..] {
            [] => return Ok(()),
            [frame] => self.work(frame).post().map_err(|error| (0, error)),
            _ => {
                let mut batch = self.qp.batch();
                batch.reserve(count);
                list.frames.iter().for_each(|frame| batch.add(self.work(*frame)));
                batch.post().map_err(|BatchError { taken, error, .. }| (taken, error))
            }
        };
        let list = &mut self.sending.list;
        list.frames.clear();
        list.inline.clear();
        list.bytes = 0;
        let Err((taken, error)) = posted else { return Ok(()) };
        list.refused = Some(error);
        self.take_back(count - taken);
        Err(error)
    }

    /// So many of the last messages were not taken by the device.
    fn take_back(&mut self, count: usize) {
        let sending = &mut self.sending;
        for _ in 0..count {
            let Some(Posted { signaled, what, .. }) = sending.posted.pop_back() else { return };
            if let What::Message(slot) = what {
                sending.slots.free.extend(slot);
            }
            sending.next_seq -= 1;
            sending.signaled -= u32::from(signaled);
            sending.sent -= 1;
            sending.messages -= 1;
            self.counters.sent = self.counters.sent.saturating_sub(1);
        }
        // What is reported ends with what came before it.
        let unsignaled = sending.posted.iter().rev().take_while(|posted| !posted.signaled).count();
        sending.unsignaled = u32::try_from(unsignaled).unwrap_or(u32::MAX);
    }

    fn header(&self, kind: Kind, len: usize) -> Header {
        let (returned, pulled) = self.receiving.totals();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Header { kind, tell: false, imm: None, returned, pulled, len }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops here")]
mod tests {
    use std::fmt::Debug;
    use std::task::Poll;

    use ferroce_verbs::{Attributes, State};

    use super::*;
    use crate::connection::Connection;
    use crate::options::Options;
    use crate::tests::{open, pair_with};

    /// Sends that a program may have under way.
    const DEPTH: u16 = 256;

    /// Two ends that have room for long lists, where every fourth message is reported.
    fn ends() -> (Connection, Connection) {
        let options = Options::new().signal_every(4).receive_depth(DEPTH).send_depth(DEPTH.into());
        pair_with(&open(115, 1), &open(115, 2), &options, &options)
    }

    /// Has the queue pair take two messages in this state, where they stay.
    fn post_two(core: &mut Core, state: State) {
        core.qp.modify(&Attributes::to(state), None).unwrap();
        assert_eq!(core.try_send_batch(&[[2; 8]; 2], &mut None), Poll::Ready(Ok(2)));
        assert_eq!(core.sending.unsignaled, 2);
    }

    /// What a list changes.
    fn seen(core: &Core) -> impl PartialEq + Debug + use<> {
        let sending = &core.sending;
        let mut free = sending.slots.free.clone();
        free.sort_unstable();
        let signs = (sending.unsignaled, sending.signaled);
        let list = (sending.list.frames.len(), sending.list.inline.len(), sending.list.bytes);
        let counts = (sending.next_seq, sending.posted.len(), sending.sent, sending.messages);
        (signs, counts, list, free, core.counters)
    }

    /// It was: a message that was refused with a list that was full left the count of messages one short, and what came before
    /// it in the call was said to be sent.
    #[test]
    fn a_list_that_the_device_refuses_was_never_sent() {
        for (count, len) in [(1, 8), (5, 8), (64, 8), (65, 8), (200, 8), (20, 4000)] {
            let (a, _b) = ends();
            a.shared().enter(|core| {
                post_two(core, State::Sqd);
                core.qp.modify(&Attributes::to(State::Reset), None).unwrap();
                let before = seen(core);
                let refused = core.try_send_batch(&vec![vec![2; len]; count], &mut None);
                assert!(matches!(refused, Poll::Ready(Err(Error::Post(_)))), "{count} of {len}: {refused:?}");
                assert_eq!(seen(core), before, "{count} of {len}");
            });
        }
    }

    /// It was: a message that is reported was taken back, and those before it still counted as reported.
    #[test]
    fn a_message_that_is_taken_back_leaves_those_before_it_unreported() {
        let (a, _b) = ends();
        a.shared().enter(|core| {
            post_two(core, State::Sqd);
            let frames = |core: &Core| core.sending.posted.iter().map(|one| one.signaled).collect::<Vec<_>>();
            let room = u32::from(DEPTH) + Options::OWN_WORK - 2;
            (0..room - 1).for_each(|_| core.qp.send_inline(&[]).post().unwrap());
            // The third is taken; the fourth, which would be reported, has no place.
            let refused = core.try_send_batch(&[[2; 8]; 2], &mut None);
            assert!(matches!(refused, Poll::Ready(Err(Error::Post(_)))), "{refused:?}");
            assert_eq!((frames(core), core.sending.signaled), (vec![false; 3], 0));
            assert_eq!(core.sending.unsignaled, 3, "the next is reported");
        });
    }
}
