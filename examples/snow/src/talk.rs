//! One client, as the server has it: what each callback does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferroce::endpoint::{Connection, Done, Error, Message, RemoteMemory};
use ferroce::{Access, MemoryRegion};
use serde_json::Value;

use crate::client::{BOARD, BOOK};
use crate::counts::Counts;
use crate::plan::{Item, Kind, LONGEST_ANSWER, Plan, Question, SLOTS, book};
use crate::server::say;

/// How long a callback may wait. It never has to: a client has no more questions open than there is room for.
const LIMIT: Duration = Duration::from_secs(10);

/// After how many messages the server says how far a client is.
const TOLD_EVERY: u64 = 64;

/// What the server knows of one connection.
#[derive(Debug)]
pub(crate) struct Talk {
    seed: u64,
    /// There when the client has said which one it is.
    client: Option<Client>,
    counts: Counts,
    /// The client has said that no more messages come, and waits for the counts.
    is_asked: bool,
    has_failed: bool,
}

#[derive(Debug)]
struct Client {
    number: u32,
    plan: Plan,
    book: Vec<u8>,
    /// The book again, where the device can take it from; behind it a slot for each question, for what is read.
    region: Arc<MemoryRegion>,
    theirs: Theirs,
    /// Writes and reads that are under way, each in its slot.
    open: [Option<(u32, Question)>; SLOTS],
}

/// What the client has opened.
#[derive(Debug)]
struct Theirs {
    board: RemoteMemory,
    book: RemoteMemory,
}

impl Talk {
    pub(crate) const fn new(seed: u64) -> Self {
        let counts = Counts { messages: 0, bytes: 0, answers: 0, writes: 0, reads: 0, back: 0 };
        Self { seed, client: None, counts, is_asked: false, has_failed: false }
    }

    pub(crate) fn received(&mut self, connection: &Connection, message: &Message) {
        let result = self.take(connection, message);
        self.judge(connection, result);
    }

    pub(crate) fn written(&mut self, connection: &Connection, done: &Done) {
        let result = self.finish(connection, done, Kind::Write);
        self.judge(connection, result);
    }

    pub(crate) fn read(&mut self, connection: &Connection, done: &Done) {
        let result = self.finish(connection, done, Kind::Read);
        self.judge(connection, result);
    }

    /// The client is gone, in peace or not.
    pub(crate) fn closed(&mut self, how: &Result<(), Error>) {
        let name = self.name();
        let counts = self.counts.to_json();
        match how {
            Ok(()) => say(&format!("closed {name} {counts}")),
            Err(error) => say(&format!("lost {name} {counts} {error}")),
        }
    }

    fn name(&self) -> String {
        self.client.as_ref().map_or_else(|| "?".to_owned(), |client| client.number.to_string())
    }

    /// What went wrong is told, unless it is that the client is gone: `closed` tells that.
    fn judge(&mut self, connection: &Connection, result: anyhow::Result<()>) {
        let Err(error) = result else { return };
        if self.has_failed || matches!(error.downcast_ref(), Some(Error::Lost(_) | Error::ClosedByPeer)) {
            return;
        }
        self.has_failed = true;
        say(&format!("error client {}: {error:#}", self.name()));
        connection.abort();
    }

    fn take(&mut self, connection: &Connection, message: &Message) -> anyhow::Result<()> {
        let Some(client) = &mut self.client else {
            self.client = Some(Client::greet(self.seed, connection, message)?);
            return Ok(());
        };
        let Some(number) = message.imm() else {
            ensure!(*message == b"end"[..], "a message without a number that is not the end");
            self.is_asked = true;
            return self.tell(connection);
        };
        let item = client.plan.next().context("the plan has ended")?;
        ensure!(number == item.number, "message {number} came, and {} was expected", item.number);
        let (len, part) = (message.len(), &client.book[item.part.clone()]);
        ensure!(
            *message == *part,
            "message {number} of {len} bytes is not the {} that were sent",
            part.len()
        );
        self.counts.messages += 1;
        self.counts.bytes += len as u64;
        if self.counts.messages.is_multiple_of(TOLD_EVERY) {
            say(&format!("progress {} {}", client.number, self.counts.messages));
        }
        match item {
            Item { number, ask: Some(question), .. } => self.answer(connection, number, question),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, connection: &Connection, number: u32, question: Question) -> anyhow::Result<()> {
        let client = self.client.as_mut().context("a question of an unknown client")?;
        let Question { kind, slot, ref part } = question;
        let tag = number.into();
        match kind {
            Kind::Answer => {
                connection.send_with_imm(&client.book[part.clone()], number).wait_for(LIMIT)?;
                self.counts.answers += 1;
                self.counts.back += part.len() as u64;
                return Ok(());
            }
            Kind::Write => {
                let place = client.theirs.board.at((slot * LONGEST_ANSWER) as u64);
                connection.begin_write(tag, place, &client.region, part.clone(), number).wait_for(LIMIT)?;
            }
            Kind::Read => {
                let place = client.theirs.book.at(part.start as u64);
                let into = client.slot(slot, part.len());
                connection.begin_read(tag, place, &client.region, into).wait_for(LIMIT)?;
            }
        }
        let before = client.open[slot].replace((number, question));
        ensure!(before.is_none(), "question {number} takes the slot of {before:?}");
        Ok(())
    }

    /// A write or a read is done.
    fn finish(&mut self, connection: &Connection, done: &Done, kind: Kind) -> anyhow::Result<()> {
        done.result.clone()?;
        let client = self.client.as_mut().context("work for an unknown client")?;
        let is_it = |open: &&mut Option<(u32, Question)>| {
            open.as_ref().is_some_and(|(number, question)| {
                u64::from(*number) == done.tag && question.kind == kind && question.part.len() == done.len
            })
        };
        let open = client.open.iter_mut().find(is_it).and_then(Option::take);
        let (number, Question { slot, part, .. }) =
            open.with_context(|| format!("{done:?} was never begun"))?;
        match kind {
            Kind::Read => {
                let bytes = client.region.to_vec(client.slot(slot, part.len()))?;
                ensure!(bytes == client.book[part.clone()], "question {number} read other bytes");
                connection.send_with_imm(b"read", number).wait_for(LIMIT)?;
                self.counts.reads += 1;
            }
            Kind::Write => self.counts.writes += 1,
            Kind::Answer => bail!("a message is no work that was begun"),
        }
        self.counts.back += part.len() as u64;
        self.tell(connection)
    }

    /// Tells the client what was counted, once it has asked and nothing is under way.
    fn tell(&mut self, connection: &Connection) -> anyhow::Result<()> {
        let is_quiet = self.client.iter().all(|client| client.open.iter().all(Option::is_none));
        if self.is_asked && is_quiet {
            self.is_asked = false;
            connection.send(self.counts.to_json().to_string().as_bytes()).wait_for(LIMIT)?;
        }
        Ok(())
    }
}

impl Client {
    /// The first message says which client it is. What it has opened is known by then.
    fn greet(seed: u64, connection: &Connection, message: &Message) -> anyhow::Result<Self> {
        let hello: Value =
            serde_json::from_slice(&message.to_vec()).context("the first message is no hello")?;
        let number = hello["client"].as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.context("a hello without the number of the client")?;
        ensure!(hello["seed"] == seed, "the client draws from another seed: {hello}");
        let book = book(seed, number);
        let len = book.len() + SLOTS * LONGEST_ANSWER;
        let region = connection.protection_domain().allocate(len, Access::LOCAL_WRITE)?;
        region.write_at(0, &book)?;
        let theirs = Theirs {
            board: connection.remote(BOARD).wait_for(LIMIT)?,
            book: connection.remote(BOOK).wait_for(LIMIT)?,
        };
        say(&format!("hello {number}"));
        let (plan, open) = (Plan::new(seed, number), [const { None }; SLOTS]);
        Ok(Self { number, plan, book, region: Arc::new(region), theirs, open })
    }

    /// Where in our region bytes for a slot are read to.
    const fn slot(&self, slot: usize, len: usize) -> std::ops::Range<usize> {
        let start = self.book.len() + slot * LONGEST_ANSWER;
        start..start + len
    }
}
