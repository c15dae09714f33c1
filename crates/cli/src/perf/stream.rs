//! Many messages under way: bandwidth and rate, seen from the initiator.

use std::time::Duration;

use anyhow::ensure;
use ferroce::{Completion, QueuePair, RemoteRegion, Time, Work};
use ferroce_device::now;

use super::end::{End, Watch};
use super::pattern::{Pattern, check_number};
use super::report::Figures;
use super::task::{Limit, Task, Verb, slot};
use crate::interrupt;

/// Completions that one look takes off.
const CHUNK: usize = 32;
/// Looks at the completion queue between two looks at the clock.
const LOOKS: u32 = 8;

/// Streams until the limit is reached. `tick` hears which share is done.
pub(crate) fn measure(
    task: &Task,
    end: &End,
    remote: RemoteRegion,
    limit: Limit,
    tick: &mut dyn FnMut(f64),
) -> anyhow::Result<Figures> {
    let mut stream = Stream::new(task, end, remote);
    let figures = stream.run(limit, tick)?;
    if task.verify && task.verb == Verb::Write {
        stream.read_back()?;
    }
    Ok(Figures { total: stream.lanes.iter().map(|lane| lane.done).sum(), ..figures })
}

struct Stream<'a> {
    task: &'a Task,
    end: &'a End,
    remote: RemoteRegion,
    slots: usize,
    depth: u64,
    list: u64,
    lanes: Vec<Lane>,
    pattern: Option<Pattern>,
}

/// A queue pair's part of the stream.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    posted: u64,
    done: u64,
}

impl<'a> Stream<'a> {
    fn new(task: &'a Task, end: &'a End, remote: RemoteRegion) -> Self {
        Self {
            task,
            end,
            remote,
            slots: task.slots(),
            depth: task.depth().into(),
            list: task.list().into(),
            lanes: vec![Lane::default(); task.qps],
            pattern: task.verify.then(|| Pattern::new(task.size)),
        }
    }

    fn run(&mut self, limit: Limit, tick: &mut dyn FnMut(f64)) -> anyhow::Result<Figures> {
        let (most, warm_up, duration) = match limit {
            Limit::Messages(most) => (most, Duration::ZERO, Duration::MAX),
            Limit::Time(time) => (u64::MAX, (time / 10).min(Duration::from_millis(200)), time),
        };
        let begin = now();
        let mut started: Option<(Time, u64)> = warm_up.is_zero().then_some((begin, 0));
        let mut watch = Watch::new(None);
        let (mut posted, mut done, mut looks) = (0, 0, 0);
        let stopped = loop {
            posted += self.post(most - posted)?;
            let found = self.reap()?;
            done += found;
            match found {
                0 if !watch.go_on()? => break now(),
                0 => {}
                _ => watch.moved(),
            }
            if done >= most {
                break now();
            }
            looks += 1;
            if looks < LOOKS {
                continue;
            }
            looks = 0;
            let time = now();
            match started {
                None if time.since(begin) >= warm_up => started = Some((time, done)),
                None => {}
                Some((start, _)) => {
                    let so_far = time.since(start);
                    if so_far >= duration || interrupt::is_asked() {
                        break time;
                    }
                    tick(match limit {
                        Limit::Messages(most) => done as f64 / most as f64,
                        Limit::Time(time) => so_far.as_secs_f64() / time.as_secs_f64(),
                    });
                }
            }
        };
        let (start, before) = started.unwrap_or((begin, 0));
        let figures = Figures { messages: done - before, time: stopped.since(start), ..Figures::default() };
        self.drain()?;
        Ok(figures)
    }

    /// Fills every lane with lists; how many messages were posted.
    fn post(&mut self, most: u64) -> anyhow::Result<u64> {
        let mut left = most;
        for index in 0..self.lanes.len() {
            loop {
                let Lane { posted, done } = self.lanes[index];
                let list = self.list.min(left);
                if list == 0 || posted - done + list > self.depth {
                    break;
                }
                self.prepare(index, posted, list)?;
                self.post_list(index, posted, list)?;
                self.lanes[index].posted += list;
                left -= list;
            }
        }
        Ok(most - left)
    }

    fn post_list(&self, index: usize, first: u64, list: u64) -> anyhow::Result<()> {
        // The last of a list speaks for all of it.
        let id = (index as u64) << 32 | list;
        let qp = &self.end.qps[index];
        if list == 1 {
            return Ok(self.work(qp, index, first).id(id).signaled().post()?);
        }
        let mut batch = qp.batch();
        for message in first..first + list - 1 {
            batch.add(self.work(qp, index, message).id(id));
        }
        batch.add(self.work(qp, index, first + list - 1).id(id).signaled());
        Ok(batch.post()?)
    }

    #[inline]
    fn work(&self, qp: &'a QueuePair, index: usize, message: u64) -> Work<'a> {
        let at = self.place(index, message);
        let here = self.end.region.slice(at..at + self.task.size);
        let there = self.remote.slice(at as u64..(at + self.task.size) as u64);
        match self.task.verb {
            Verb::Write => qp.write(here, there),
            Verb::Read => qp.read(here, there),
            Verb::Send => qp.send(here),
            Verb::Atomic => {
                let word = self.place(index, 0) as u64;
                qp.fetch_add(here, self.remote.slice(word..word + 8), 1)
            }
        }
    }

    /// Where a message is, here and there.
    #[inline]
    fn place(&self, index: usize, message: u64) -> usize {
        (index * self.slots + slot(message, self.slots)) * self.task.size
    }

    /// Takes completions off; how many messages they speak for.
    fn reap(&mut self) -> anyhow::Result<u64> {
        let mut found = [Completion::EMPTY; CHUNK];
        let count = self.end.cq.poll(&mut found);
        let mut messages = 0;
        for done in &found[..count] {
            let done = done.result()?;
            let (index, list) = ((done.id >> 32) as usize, done.id & 0xffff_ffff);
            let first = self.lanes[index].done;
            self.judge(index, first, list)?;
            self.lanes[index].done += list;
            messages += list;
        }
        Ok(messages)
    }

    /// Waits for all that is under way.
    fn drain(&mut self) -> anyhow::Result<()> {
        let mut watch = Watch::new(None);
        while self.lanes.iter().any(|lane| lane.done < lane.posted) {
            match self.reap()? {
                // Also when the user wants an end: both ends must count the same messages.
                0 => drop(watch.go_on()?),
                _ => watch.moved(),
            }
        }
        Ok(())
    }

    /// Gives messages contents of their own.
    fn prepare(&self, index: usize, first: u64, list: u64) -> anyhow::Result<()> {
        let Some(pattern) = &self.pattern else { return Ok(()) };
        for message in first..first + list {
            let at = self.place(index, message);
            match self.task.verb {
                Verb::Write | Verb::Send => pattern.fill(&self.end.region, at, message)?,
                // What is there comes from the target, or it is wrong.
                Verb::Read => self.end.region.fill(at..at + self.task.size, 0)?,
                Verb::Atomic => self.end.region.store_u64(at, u64::MAX)?,
            }
        }
        Ok(())
    }

    /// Looks at what came.
    fn judge(&mut self, index: usize, first: u64, list: u64) -> anyhow::Result<()> {
        if self.pattern.is_none() {
            return Ok(());
        }
        for message in first..first + list {
            let at = self.place(index, message);
            match (self.task.verb, &mut self.pattern) {
                (Verb::Read, Some(pattern)) => {
                    pattern.check(&self.end.region, at, (at / self.task.size) as u64)?;
                }
                (Verb::Atomic, _) => check_number(&self.end.region, at, message)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads what the last messages wrote.
    fn read_back(&mut self) -> anyhow::Result<()> {
        for index in 0..self.lanes.len() {
            let done = self.lanes[index].done;
            for message in done.saturating_sub(self.slots as u64)..done {
                let at = self.place(index, message);
                let bytes = at..at + self.task.size;
                self.end.region.fill(bytes.clone(), 0)?;
                let there = self.remote.slice(at as u64..(at + self.task.size) as u64);
                self.end.qps[index].read(self.end.region.slice(bytes), there).signaled().post()?;
                let mut watch = Watch::new(None);
                while self.end.poll()?.is_none() {
                    ensure!(watch.go_on()?, "interrupted while the contents were read back");
                }
                if let Some(pattern) = &mut self.pattern {
                    pattern.check(&self.end.region, at, message)?;
                }
            }
        }
        Ok(())
    }
}
