//! What the target does while it is measured.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use ferroce::{Completion, RemoteRegion, WaitError};

use super::end::{End, Watch, receive_slots};
use super::latency::PingPong;
use super::pattern::Pattern;
use super::task::{Target, Task, Verb, slot};

/// Completions that one look takes off.
const CHUNK: usize = 32;

/// What the initiator says while the target works.
#[derive(Debug, Default)]
pub(crate) struct Word {
    /// Nothing more will come.
    pub(crate) over: AtomicBool,
    /// How many messages there were.
    pub(crate) messages: AtomicU64,
}

/// The target's part, ready before the initiator hears of it.
pub(crate) enum Attendant<'a> {
    PingPong(PingPong<'a>, &'a Task),
    Receiver(Receiver<'a>),
    OneSided(&'a Task, &'a End),
}

impl<'a> Attendant<'a> {
    /// Posts receives, and fills memory that will be read.
    pub(crate) fn new(task: &'a Task, end: &'a End, remote: RemoteRegion) -> anyhow::Result<Self> {
        if task.is_ping_pong() {
            return Ok(Self::PingPong(PingPong::new(task, end, remote)?, task));
        }
        if task.is_received() {
            return Receiver::new(task, end).map(Self::Receiver);
        }
        if task.verify && task.verb == Verb::Read {
            let pattern = Pattern::new(task.size);
            for slot in 0..task.qps * task.slots() {
                pattern.fill(&end.region, slot * task.size, slot as u64)?;
            }
        }
        Ok(Self::OneSided(task, end))
    }

    /// Works until the initiator has said that it is over. A target that sleeps beside one-sided work returns
    /// at once: the network card does it alone.
    pub(crate) fn attend(self, word: &Word) -> anyhow::Result<()> {
        let mut watch = Watch::new(Some(&word.over));
        match self {
            Self::PingPong(mut pong, task) => {
                for message in 0.. {
                    if !pong.wait(message, task.target, &mut watch)? {
                        break;
                    }
                    pong.judge(message)?;
                    pong.send(message)?;
                }
                Ok(())
            }
            Self::Receiver(mut receiver) => receiver.run(word, &mut watch),
            Self::OneSided(task, end) => one_sided(task.target, end, word),
        }
    }
}

/// The program beside which one-sided work is done.
fn one_sided(target: Target, end: &End, word: &Word) -> anyhow::Result<()> {
    if target == Target::Sleep {
        return Ok(());
    }
    while !word.over.load(Ordering::Acquire) {
        if target == Target::Poll {
            end.poll()?;
            continue;
        }
        for _ in 0..64 {
            end.region.load_u8(0)?;
            hint::spin_loop();
        }
    }
    Ok(())
}

/// Takes a stream of messages in.
pub(crate) struct Receiver<'a> {
    task: &'a Task,
    end: &'a End,
    slots: usize,
    /// Messages that came on each queue pair.
    came: Vec<u64>,
    pattern: Option<Pattern>,
}

impl<'a> Receiver<'a> {
    fn new(task: &'a Task, end: &'a End) -> anyhow::Result<Self> {
        let pattern = task.verify.then(|| Pattern::new(task.size));
        let receiver = Self { task, end, slots: receive_slots(task), came: vec![0; task.qps], pattern };
        for message in 0..u64::from(task.receives()) {
            for index in 0..task.qps {
                receiver.post(index, message)?;
            }
        }
        Ok(receiver)
    }

    fn run(&mut self, word: &Word, watch: &mut Watch<'_>) -> anyhow::Result<()> {
        loop {
            if self.take()? > 0 {
                watch.moved();
            } else if !self.idle(watch)? {
                break;
            }
        }
        // What was sent has arrived, since the initiator had it acknowledged; it is only to be taken off.
        while self.take()? > 0 {}
        let (came, sent) = (self.came.iter().sum::<u64>(), word.messages.load(Ordering::Acquire));
        ensure!(came == sent, "{came} messages came, and {sent} were sent");
        Ok(())
    }

    /// Nothing came: whether to go on.
    fn idle(&mut self, watch: &mut Watch<'_>) -> anyhow::Result<bool> {
        if self.task.target != Target::Sleep {
            return watch.go_on();
        }
        match self.end.cq.wait(Duration::from_millis(100)) {
            Ok(done) => self.note(&done).map(|()| true),
            Err(WaitError::TimedOut(_)) => watch.look(),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self) -> anyhow::Result<usize> {
        let mut found = [Completion::EMPTY; CHUNK];
        let count = self.end.cq.poll(&mut found);
        for done in &found[..count] {
            self.note(done)?;
        }
        Ok(count)
    }

    fn note(&mut self, done: &Completion) -> anyhow::Result<()> {
        let done = done.result()?;
        let index = slot(done.id, self.came.len());
        let message = self.came[index];
        ensure!(
            done.byte_len as usize == self.task.size,
            "message {message} has {} bytes instead of {}",
            done.byte_len,
            self.task.size
        );
        if let Some(pattern) = &mut self.pattern {
            let slot = index * self.slots + slot(message, self.slots);
            pattern.check(&self.end.region, slot * self.task.size, message)?;
        }
        self.came[index] += 1;
        self.post(index, message + u64::from(self.task.receives()))
    }

    fn post(&self, index: usize, message: u64) -> anyhow::Result<()> {
        let slot = index * self.slots + slot(message, self.slots);
        let at = slot * self.task.size;
        let here = self.end.region.slice(at..at + self.task.size);
        Ok(self.end.qps[index].receive(here).id(index as u64).post()?)
    }
}
