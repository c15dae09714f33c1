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
        if kind != Kind::Data {
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
            if list.bytes >= LIST_BYTES || list.frames.len() >= LIST_FRAMES {
                self.post_list()?;
            }
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
        match self.post_list() {
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
        posted.map_err(|(taken, error)| {
            self.take_back(count - taken);
            error
        })
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
    }

    fn header(&self, kind: Kind, len: usize) -> Header {
        let (returned, pulled) = self.receiving.totals();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Header { kind, tell: false, imm: None, returned, pulled, len }
    }
}
