//! UC and UD while packets are lost: messages may be missing, but what arrives is whole and in order.
//!
//! `ibv_uc_pingpong` and `ibv_ud_pingpong` wait for ever after the first loss, by design, so they cannot show this.

use std::time::Duration;

use ferroce_verbs::{AddressVector, Service, WaitError, WorkKind};

use crate::Result;
use crate::far::WITH_IMM;
use crate::lab::Lab;
use crate::pair::{Asks, Pair, PairSpec, QKEY, check};
use crate::pattern::{pattern, sum};

/// Messages of a case. With two in a hundred packets lost, some of them are as good as certain to be incomplete.
const MESSAGES: u32 = 100;

/// What ends a case: messages that are sent, one after the other, until one of them arrives.
const ENDS: u32 = 20;

/// How long to wait for the end before it is sent again.
const A_WHILE: Duration = Duration::from_millis(300);

/// A message that arrived: its number, and the receive that took it.
type Arrived = (u32, u32);

pub(super) fn kernel_loses(lab: &mut Lab, asks: Asks) -> Result<()> {
    both(lab, asks, asks == Asks::Kernel)
}

pub(super) fn we_lose(lab: &mut Lab, asks: Asks) -> Result<()> {
    both(lab, asks, asks == Asks::We)
}

/// `foul`: the sender is the one whose packets are lost.
fn both(lab: &Lab, asks: Asks, foul: bool) -> Result<()> {
    let mtu = lab.link.path_mtu().bytes();
    let mut missing = 0;
    for (service, len) in [(Service::Uc, 2 * mtu + 5), (Service::Ud, mtu - 3)] {
        let case = || -> Result<usize> {
            let size = (len + 64) * (MESSAGES + ENDS) as usize;
            let mut stream =
                Stream { asks, len, pair: Pair::new(&lab.context, PairSpec { size, ..lab.spec(service) })? };
            stream.run()
        };
        missing += case().map_err(|error| format!("{}: {error}", service.name()))?;
    }
    check("whether messages are missing", missing > 0, foul)
}

struct Stream {
    asks: Asks,
    /// Bytes of a message.
    len: usize,
    pair: Pair,
}

impl Stream {
    /// Every receive has a place of its own, so that nothing has to be looked at in haste. How many are missing?
    fn run(&mut self) -> Result<usize> {
        for receive in 0..MESSAGES + ENDS {
            self.receive(receive)?;
        }
        let mut arrived: Vec<Arrived> = Vec::new();
        for number in 0..MESSAGES + ENDS {
            self.send(number)?;
            // What is sent before the end is looked at later.
            while number >= MESSAGES
                && let Some(message) = self.next()?
            {
                arrived.push(message);
                if message.0 >= MESSAGES {
                    return self.compare(&arrived);
                }
            }
        }
        Err(format!("of {ENDS} messages that end it, none arrived").into())
    }

    fn compare(&mut self, arrived: &[Arrived]) -> Result<usize> {
        for pair in arrived.windows(2) {
            check("messages are in order", pair[0].0 < pair[1].0, true)?;
        }
        for (number, receive) in arrived {
            let (start, len) = (self.place(*receive) + self.pair.header(), self.len);
            let seen = match self.asks {
                Asks::We => self.pair.far.sum(start, len)?,
                Asks::Kernel => sum(&self.pair.region.to_vec(start..start + len)?),
            };
            check("checksum of a message", seen, sum(&pattern((*number).into(), len)))?;
        }
        Ok(MESSAGES as usize - arrived.iter().filter(|(number, _)| *number < MESSAGES).count())
    }

    /// Where a receive puts what it takes.
    const fn place(&self, receive: u32) -> usize {
        self.pair.target + receive as usize * (self.len + 64)
    }

    fn receive(&mut self, number: u32) -> Result<()> {
        let (at, len, id) = (self.place(number), self.len + self.pair.header(), u64::from(number));
        match self.asks {
            Asks::We => self.pair.far.receive(id, at, len),
            Asks::Kernel => Ok(self.pair.near.receive(self.pair.region.slice(at..at + len)).id(id).post()?),
        }
    }

    fn send(&mut self, number: u32) -> Result<()> {
        let (id, len, pair) = (u64::from(number), self.len, &mut self.pair);
        if self.asks == Asks::Kernel {
            pair.far.fill(0, len, id)?;
            pair.far.post(id, "send_imm", (0, len), &[pair.near.qpn().get().into(), QKEY.0.into(), id])?;
            return pair.far_done(id, WorkKind::Send).map(drop);
        }
        pair.region.write_at(0, &pattern(id, len))?;
        let bytes = pair.region.slice(..len);
        let handle;
        let work = if pair.near.service() == Service::Ud {
            let index = pair.context.gid_index(pair.address()).ok_or("our address is gone")?;
            handle = pair.domain.address_handle(&AddressVector::new(pair.peer.gid, index))?;
            pair.near.send_to(&handle, pair.peer.qpn, QKEY, bytes)
        } else {
            pair.near.send(bytes)
        };
        work.imm(number).id(id).post()?;
        pair.near_done(id, WorkKind::Send).map(drop)
    }

    /// The next message at the receiver, if one comes.
    fn next(&mut self) -> Result<Option<Arrived>> {
        let whole = self.len + self.pair.header();
        if self.asks == Asks::We {
            let Some(done) = self.pair.far.wait(A_WHILE)? else { return Ok(None) };
            check("the kernel's completion says", done.status, 0)?;
            check("immediate data at the kernel", done.flags & WITH_IMM, WITH_IMM)?;
            check("bytes that the kernel received", done.byte_len, whole as u64)?;
            return Ok(Some((u32::try_from(done.extra)?, u32::try_from(done.id)?)));
        }
        let done = match self.pair.queue.wait(A_WHILE) {
            Ok(done) => *done.result()?,
            Err(WaitError::TimedOut(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        check("bytes that we received", done.byte_len as usize, whole)?;
        Ok(Some((done.imm.ok_or("no immediate data at us")?, u32::try_from(done.id)?)))
    }
}
