//! A board that the analyzer writes and a page reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::record::prepare;
use super::{Board, BoardConfig, BoardWindow};

/// A board with a lock, and a bell that rings for each new window.
#[derive(Clone, Debug)]
pub struct SharedBoard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    board: Mutex<Board>,
    newest: watch::Sender<u64>,
}

impl SharedBoard {
    /// An empty board.
    #[must_use]
    pub fn new(config: BoardConfig) -> Self {
        let (newest, _) = watch::channel(0);
        Self(Arc::new(Inner { board: Mutex::new(Board::new(config)), newest }))
    }

    /// The board; nothing long is to be done with it.
    pub fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let mut board = self.lock();
        *board = Board::new(*board.config());
    }

    /// Takes a window that was judged. What takes long is done without the lock, so windows are to come
    /// from one thread.
    pub fn window(&self, window: BoardWindow) {
        let (places, most) = {
            let mut board = self.lock();
            (board.places(&window.topology), board.config.flows)
        };
        let prepared = prepare(window, &places, most);
        let number = self.lock().put(prepared);
        self.0.newest.send_replace(number);
    }

    /// The number of the newest window, whenever there is another one.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }
}
