//! One message at a time: latency, seen from both ends.

use std::hint;
use std::time::Duration;

use ferroce::RemoteRegion;
use ferroce_device::now;

use super::end::{End, PING_PONG_DEPTH, Watch, outgoing_and_incoming};
use super::pattern::{Pattern, check_number};
use super::report::{Figures, histogram};
use super::task::{Limit, Target, Task, Verb};
use crate::interrupt;

/// Messages before those that count, unless a tenth of the time is over earlier.
const WARM_UP: u64 = 200;
/// Messages between two words about progress.
const LOOKS: u64 = 64;

/// Sends one message after the other and notes how long each took. `tick` hears which share is done.
pub(crate) fn measure(
    task: &Task,
    end: &End,
    remote: RemoteRegion,
    limit: Limit,
    tick: &mut dyn FnMut(f64),
) -> anyhow::Result<Figures> {
    let mut trips = Trips::new(task, end, remote)?;
    // The first ones find cold caches, and a driver that has still to learn that it is not needed.
    let (warm_up, most, duration) = match limit {
        Limit::Messages(most) => ((most / 10).min(WARM_UP), most, Duration::MAX),
        Limit::Time(time) => (WARM_UP, u64::MAX, time),
    };
    let mut warm = warm_up == 0;
    let mut times = histogram();
    let mut figures = Figures::default();
    let mut message = 0;
    let mut begin = now();
    let mut last = begin;
    let mut watch = Watch::new(None);
    loop {
        if task.verify {
            last = now();
        }
        if !trips.go(message, &mut watch)? {
            break;
        }
        let time = now();
        let took = u64::try_from(time.since(last).as_nanos()).unwrap_or(u64::MAX);
        last = time;
        trips.judge(message)?;
        message += 1;
        let so_far = time.since(begin);
        if !warm {
            warm = message >= warm_up || so_far >= duration / 10;
            begin = if warm { time } else { begin };
            continue;
        }
        // A ping and a pong took the way twice; a READ or an atomic is a whole trip.
        let took = if task.is_ping_pong() { took / 2 } else { took };
        times.saturating_record(took.max(1));
        figures.messages += 1;
        if figures.messages >= most {
            break;
        }
        if so_far >= duration || interrupt::is_asked() {
            break;
        }
        if message.is_multiple_of(LOOKS) {
            tick(match limit {
                Limit::Messages(most) => figures.messages as f64 / most as f64,
                Limit::Time(time) => so_far.as_secs_f64() / time.as_secs_f64(),
            });
        }
    }
    figures.time = last.since(begin);
    figures.total = message;
    figures.times = Some(times);
    Ok(figures)
}

/// The two kinds of trips.
enum Trips<'a> {
    PingPong(PingPong<'a>),
    OneSided { task: &'a Task, end: &'a End, remote: RemoteRegion, pattern: Option<Pattern> },
}

impl<'a> Trips<'a> {
    fn new(task: &'a Task, end: &'a End, remote: RemoteRegion) -> anyhow::Result<Self> {
        if task.is_ping_pong() {
            return PingPong::new(task, end, remote).map(Self::PingPong);
        }
        let pattern = (task.verify && task.verb == Verb::Read).then(|| Pattern::new(task.size));
        Ok(Self::OneSided { task, end, remote, pattern })
    }

    /// There and back; `false` if the user wants an end.
    fn go(&mut self, message: u64, watch: &mut Watch<'_>) -> anyhow::Result<bool> {
        match self {
            Self::PingPong(ping) => {
                ping.send(message)?;
                ping.wait(message, Target::Poll, watch)
            }
            Self::OneSided { task, end, remote, .. } => {
                let here = end.region.slice(..task.size);
                let there = remote.slice(..task.size as u64);
                let work = match task.verb {
                    Verb::Atomic => end.qps[0].fetch_add(here, there, 1),
                    _ => end.qps[0].read(here, there),
                };
                work.signaled().post()?;
                while end.poll()?.is_none() {
                    if !watch.go_on()? {
                        return Ok(false);
                    }
                }
                watch.moved();
                Ok(true)
            }
        }
    }

    /// Looks at what came.
    fn judge(&mut self, message: u64) -> anyhow::Result<()> {
        match self {
            Self::PingPong(ping) => ping.judge(message),
            Self::OneSided { task, end, pattern, .. } => {
                if let Some(pattern) = pattern {
                    pattern.check(&end.region, 0, 0)?;
                    end.region.fill(..task.size, 0)?;
                } else if task.verify {
                    check_number(&end.region, 0, message)?;
                }
                Ok(())
            }
        }
    }
}

/// One end of a ping-pong: message by message, each answered by the same one.
pub(crate) struct PingPong<'a> {
    task: &'a Task,
    end: &'a End,
    remote: RemoteRegion,
    pattern: Option<Pattern>,
    /// Sends that have not been reported as done.
    under_way: u32,
    /// Messages that arrived and were not waited for.
    arrived: u32,
}

/// One of so many sends is reported.
const REPORTED: u32 = PING_PONG_DEPTH / 4;
/// The ids of receives; those of sends are smaller.
const RECEIVE: u64 = 1 << 32;

impl<'a> PingPong<'a> {
    pub(crate) fn new(task: &'a Task, end: &'a End, remote: RemoteRegion) -> anyhow::Result<Self> {
        let pattern = task.verify.then(|| Pattern::new(task.size));
        let ping = Self { task, end, remote, pattern, under_way: 0, arrived: 0 };
        if task.is_received() {
            for _ in 0..PING_PONG_DEPTH {
                ping.post_receive()?;
            }
        }
        Ok(ping)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: u64) -> anyhow::Result<()> {
        let Task { size, verb, .. } = *self.task;
        let (out, into) = outgoing_and_incoming(size);
        if let Some(pattern) = &self.pattern {
            pattern.fill(&self.end.region, out, message)?;
        }
        if self.spins() {
            self.end.region.write_at(out + size - 1, &[stamp(message)])?;
        }
        while self.under_way >= PING_PONG_DEPTH - REPORTED {
            self.take_one()?;
        }
        let qp = &self.end.qps[0];
        let here = self.end.region.slice(out..out + size);
        let there = self.remote.slice(into as u64..(into + size) as u64);
        let work = match (verb, self.spins()) {
            (Verb::Send, _) => qp.send(here),
            (_, true) => qp.write(here, there),
            (_, false) => qp.write(here, there).imm(0),
        };
        self.under_way += 1;
        let work = work.id(REPORTED.into());
        let work = if self.under_way.is_multiple_of(REPORTED) { work.signaled() } else { work };
        Ok(work.post()?)
    }

    /// Waits for a message in the way of the target; `false` if none will come.
    pub(crate) fn wait(&mut self, message: u64, how: Target, watch: &mut Watch<'_>) -> anyhow::Result<bool> {
        if self.spins() {
            let (_, into) = outgoing_and_incoming(self.task.size);
            let last = into + self.task.size - 1;
            while self.end.region.load_u8(last)? != stamp(message) {
                hint::spin_loop();
                if !watch.go_on()? {
                    return Ok(false);
                }
            }
        } else {
            while self.arrived == 0 {
                let on = match (self.take_one()?, how) {
                    (true, _) => true,
                    (false, Target::Sleep) => self.sleep(watch)?,
                    (false, _) => watch.go_on()?,
                };
                if !on {
                    return Ok(false);
                }
            }
            self.arrived -= 1;
            self.post_receive()?;
        }
        watch.moved();
        Ok(true)
    }

    /// Looks at the message that was waited for.
    pub(crate) fn judge(&mut self, message: u64) -> anyhow::Result<()> {
        let (_, into) = outgoing_and_incoming(self.task.size);
        let spins = self.spins();
        match &mut self.pattern {
            None => Ok(()),
            Some(pattern) if spins => pattern.check_but_last(&self.end.region, into, message, stamp(message)),
            Some(pattern) => pattern.check(&self.end.region, into, message),
        }
    }

    fn spins(&self) -> bool {
        !self.task.is_received()
    }

    fn post_receive(&self) -> anyhow::Result<()> {
        let (_, into) = outgoing_and_incoming(self.task.size);
        // A WRITE with immediate data takes a receive, but none of its bytes.
        let len = if self.task.verb == Verb::Send { self.task.size } else { 0 };
        let here = self.end.region.slice(into..into + len);
        Ok(self.end.qps[0].receive(here).id(RECEIVE).post()?)
    }

    /// Takes one completion off, if there is one.
    fn take_one(&mut self) -> anyhow::Result<bool> {
        let Some(done) = self.end.poll()? else { return Ok(false) };
        self.note(done.id);
        Ok(true)
    }

    /// Sleeps until there is a completion, but not for long: the user or the peer may want an end.
    fn sleep(&mut self, watch: &mut Watch<'_>) -> anyhow::Result<bool> {
        match self.end.cq.wait(Duration::from_millis(100)) {
            Ok(done) => {
                self.note(done.result()?.id);
                Ok(true)
            }
            Err(ferroce::WaitError::TimedOut(_)) => watch.look(),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&mut self, id: u64) {
        if id == RECEIVE {
            self.arrived += 1;
        } else {
            self.under_way = self.under_way.saturating_sub(REPORTED);
        }
    }
}

/// The last byte of a message that a thread spins on: never what was there before.
fn stamp(message: u64) -> u8 {
    (message % 255) as u8 + 1
}
