//! The agent's side.

use std::collections::VecDeque;

use super::Mark;

/// Windows that are not settled yet, oldest first. It holds so many and no more: the oldest make room.
#[derive(Clone, Debug)]
pub struct Outbox<W> {
    last: Mark,
    queue: VecDeque<(Mark, W)>,
    most: usize,
    dropped: u64,
    settled: u64,
}

impl<W> Outbox<W> {
    /// An empty one for this many windows, at least one, in this life of the agent.
    #[must_use]
    pub fn new(epoch: u64, most: usize) -> Self {
        let last = Mark { epoch, number: 0 };
        Self { last, queue: VecDeque::new(), most: most.max(1), dropped: 0, settled: 0 }
    }

    /// The life of the agent.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.last.epoch
    }

    /// A new life of the agent begins; windows that wait keep their marks. An older one is none.
    pub const fn begin(&mut self, epoch: u64) {
        if epoch > self.last.epoch {
            self.last = Mark { epoch, number: 0 };
        }
    }

    /// A new life, in which also the windows that wait get marks: the analyzer has seen later lives than they are of.
    pub fn begin_anew(&mut self, epoch: u64) {
        self.begin(epoch);
        for (mark, _) in &mut self.queue {
            self.last.number += 1;
            *mark = self.last;
        }
    }

    /// Adds a window.
    pub fn push(&mut self, window: W) -> Mark {
        if self.queue.len() >= self.most {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.last.number += 1;
        self.queue.push_back((self.last, window));
        self.last
    }

    /// All windows up to this one are settled.
    pub fn settle(&mut self, mark: Mark) {
        while self.queue.front().is_some_and(|(waits, _)| *waits <= mark) {
            self.queue.pop_front();
            self.settled += 1;
        }
    }

    /// The first window behind this one.
    #[must_use]
    pub fn after(&self, mark: Mark) -> Option<(Mark, &W)> {
        let place = self.queue.partition_point(|(waits, _)| *waits <= mark);
        self.queue.get(place).map(|(mark, window)| (*mark, window))
    }

    /// How many windows wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many windows had to make room before they were settled.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many windows are settled.
    #[must_use]
    pub const fn settled(&self) -> u64 {
        self.settled
    }
}
