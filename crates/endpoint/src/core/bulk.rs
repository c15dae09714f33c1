//! Many bytes at once: streams, and several messages in one call.

use std::task::Poll;

use super::Core;
use super::delivery::Follow;
use super::sending::Payload;
use crate::error::Error;
use crate::frame::Header;
use crate::pieces::Pieces;

/// Bytes of a stream in one message that the peer reads itself. Less than that is sent at once, in pieces.
const STREAM_PIECE: usize = 1 << 20;
/// The longest payload of packets.
const STREAM_UNIT: usize = 4096;

impl Core {
    /// Sends messages in their order, as far as there is room; how many.
    pub(crate) fn try_send_batch<B: AsRef<[u8]>>(
        &mut self,
        messages: &[B],
        ticket: &mut Option<u64>,
    ) -> Poll<Result<usize, Error>> {
        match self.together(|core| core.send_together(messages, ticket)) {
            Ok(sent) => sent,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn send_together<B: AsRef<[u8]>>(
        &mut self,
        messages: &[B],
        ticket: &mut Option<u64>,
    ) -> Poll<Result<usize, Error>> {
        for (count, message) in messages.iter().enumerate() {
            match self.try_send(&mut Payload::Bytes(message.as_ref()), None, Follow::No, ticket) {
                Poll::Ready(Ok(_)) => {}
                // What was sent is told of first.
                _ if count > 0 => {
                    self.leave_queue(ticket);
                    return Poll::Ready(Ok(count));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(messages.len()))
    }

    /// Sends bytes of a stream as far as there is room; how many. There are some.
    pub(crate) fn try_write(
        &mut self,
        bytes: Pieces<'_>,
        ticket: &mut Option<u64>,
    ) -> Poll<Result<usize, Error>> {
        match self.together(|core| core.write_together(bytes, ticket)) {
            Ok(written) => written,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn write_together(&mut self, bytes: Pieces<'_>, ticket: &mut Option<u64>) -> Poll<Result<usize, Error>> {
        let mut rest = bytes;
        while rest.len() > 0 {
            let announced =
                rest.in_one(STREAM_PIECE).filter(|_| self.peer.max_message >= STREAM_PIECE as u64);
            let at_once = rest.first(self.most_in_stream());
            let (mut payload, len) = match announced {
                Some(piece) => (Payload::Bytes(piece), piece.len()),
                None => (Payload::Pieces(at_once), at_once.len()),
            };
            match self.try_send(&mut payload, None, Follow::No, ticket) {
                Poll::Ready(Ok(_)) => rest = rest.after(len),
                // What was sent is told of first.
                _ if rest.len() < bytes.len() => {
                    self.leave_queue(ticket);
                    break;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(bytes.len() - rest.len()))
    }

    /// Bytes of a stream that one message carries at most, if it is sent at once: as many as fill packets.
    const fn most_in_stream(&self) -> usize {
        let size = self.most_eager() + Header::LEN;
        match size - size % STREAM_UNIT {
            0 => self.most_eager(),
            size => size - Header::LEN,
        }
    }
}
