//! What waits to be taken: so much, and then the oldest gives way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::post::Letter;
use super::state::Cell;

/// Letters that wait for their turn.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    /// Bytes of all letters at most; but one may always wait.
    bytes: usize,
    waiting: Mutex<Waiting>,
    news: Notify,
    state: Cell,
}

#[derive(Debug, Default)]
struct Waiting {
    letters: VecDeque<Letter>,
    bytes: usize,
    /// How many have left.
    gone: u64,
}

impl Queue {
    pub(super) fn new(most: usize, bytes: usize, state: Cell) -> Self {
        Self(Arc::new(Inner { most, bytes, waiting: Mutex::default(), news: Notify::new(), state }))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a letter at the end. Where there is no room, the oldest give way.
    pub(super) fn push(&self, letter: Letter) {
        let mut waiting = self.waiting();
        waiting.bytes += letter.body.len();
        waiting.letters.push_back(letter);
        let mut dropped = 0;
        while waiting.letters.len() > 1
            && (waiting.letters.len() > self.0.most || waiting.bytes > self.0.bytes)
        {
            waiting.pop();
            dropped += 1;
        }
        let mut state = self.0.state.lock();
        state.dropped += dropped;
        state.waiting = waiting.letters.len() as u64;
        drop(state);
        drop(waiting);
        self.0.news.notify_one();
    }

    /// The oldest letter, which stays where it is, and its number.
    pub(super) fn first(&self) -> Option<(u64, Letter)> {
        let waiting = self.waiting();
        waiting.letters.front().map(|letter| (waiting.gone, letter.clone()))
    }

    /// The letter with this number needs to wait no more.
    pub(super) fn done(&self, number: u64) {
        let mut waiting = self.waiting();
        if waiting.gone == number {
            waiting.pop();
        }
        self.0.state.lock().waiting = waiting.letters.len() as u64;
    }

    /// Waits for a letter.
    pub(super) async fn news(&self) {
        self.0.news.notified().await;
    }
}

impl Waiting {
    fn pop(&mut self) {
        if let Some(letter) = self.letters.pop_front() {
            self.bytes -= letter.body.len();
            self.gone += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    fn letter(text: &'static str) -> Letter {
        Letter { body: Bytes::from_static(text.as_bytes()), id: None }
    }

    fn queue(most: usize, bytes: usize) -> (Queue, Cell) {
        let state = Cell::new("test", String::new());
        (Queue::new(most, bytes, state.clone()), state)
    }

    /// What was dropped, and what waits.
    fn counts(state: &Cell) -> (u64, u64) {
        let state = state.lock();
        (state.dropped, state.waiting)
    }

    #[test]
    fn the_oldest_gives_way_and_is_counted() {
        let (queue, state) = queue(2, 100);
        ["a", "b", "c"].into_iter().for_each(|text| queue.push(letter(text)));
        let (number, first) = queue.first().unwrap();
        assert_eq!((number, &*first.body), (1, &b"b"[..]));
        assert_eq!(counts(&state), (1, 2));
        // It gave way while it was on its way: the next one is not taken for it.
        queue.push(letter("d"));
        queue.done(number);
        assert_eq!(&*queue.first().unwrap().1.body, b"c");
        queue.done(2);
        queue.done(3);
        assert!(queue.first().is_none());
        assert_eq!(counts(&state), (2, 0));
    }

    #[test]
    fn bytes_are_bounded_but_one_letter_may_always_wait() {
        let (queue, state) = queue(9, 5);
        queue.push(letter("far too long"));
        assert!(queue.first().is_some());
        queue.push(letter("abc"));
        queue.push(letter("de"));
        assert_eq!(counts(&state), (1, 2));
        queue.push(letter("f"));
        assert_eq!((counts(&state), &*queue.first().unwrap().1.body), ((2, 2), &b"de"[..]));
    }
}
