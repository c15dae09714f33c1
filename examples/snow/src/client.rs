//! A client: one thread sends, another takes answers, and both sides compare what they counted.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use ferroce::endpoint::{Connection, Delivery, Exposed, Message};
use ferroce::time::Notice;
use ferroce::{Access, Context, Memory};
use serde_json::json;

use crate::counts::Counts;
use crate::plan::{Item, Kind, LONGEST_ANSWER, Plan, Question, SLOTS, book};
use crate::server::say;
use crate::settings::Settings;

/// The memory that the server writes into, and the one that it reads from.
pub(crate) const BOARD: &str = "board";
pub(crate) const BOOK: &str = "book";

/// How long a message, or an answer, may take. Only a server that is gone takes so long.
const LIMIT: Duration = Duration::from_secs(60);

/// Options of `ferroce-snow client`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the server listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.121.1:7471")]
    to: SocketAddr,
    /// The address of this client
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.121.2")]
    address: IpAddr,
    /// Which client it is: each draws messages of its own
    #[arg(long, value_name = "N", default_value_t = 0)]
    number: u32,
    /// Messages to send
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    messages: u32,
    #[command(flatten)]
    settings: Settings,
}

/// Questions that the server has not answered, each in its slot, or why none will be.
struct Open {
    slots: [Option<(u32, Question)>; SLOTS],
    failed: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (seed, number) = (args.settings.seed, args.number);
    let context = Context::builder("ferroce_lo").address(args.address).open();
    let context = context.with_context(|| format!("cannot open a device at {}", args.address))?;
    let options = args.settings.options().context(&context);
    let connection = Connection::connect_with(args.to, &options).wait()?;

    let book = book(seed, number);
    let board = Memory::zeroed(SLOTS * LONGEST_ANSWER)?;
    let board = connection.expose(BOARD, board, Access::REMOTE_WRITE).wait_for(LIMIT)?;
    let exposed = connection.expose(BOOK, book.clone(), Access::REMOTE_READ).wait_for(LIMIT)?;
    let hello = json!({"client": number, "seed": seed}).to_string();
    connection.send_until(hello.as_bytes(), None, Delivery::Taken).wait_for(LIMIT)?;

    let open = Notice::new(Open { slots: [const { None }; SLOTS], failed: false });
    let taker = Taker { connection: &connection, open: &open, board: &board, book: &book };
    let (sent, taken) = thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let taken = taker.run();
            open.change(|open| open.failed |= taken.is_err());
            taken
        });
        let sent = send(args, &connection, &open, &book);
        if sent.is_err() {
            // The other thread waits for answers that will not come.
            connection.abort();
        }
        (sent, taking.join().map_err(|_| anyhow!("the thread that takes answers panicked")))
    });
    let (mine, theirs) = match (sent, taken?) {
        (Ok(sent), Ok((taken, theirs))) => (Counts { messages: sent.0, bytes: sent.1, ..taken }, theirs),
        // If the thread that takes answers has failed by itself, it has seen the cause.
        (Err(sending), Err(taking)) => return Err(taking.context(format!("{sending:#}"))),
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => return Err(error),
    };
    ensure!(mine == theirs, "client {number} counted {mine:?}, and the server {theirs:?}");
    drop((board, exposed));
    connection.close().wait_for(LIMIT)?;
    say(&format!("done {}", mine.to_json()));
    Ok(())
}

/// Sends all messages; how many, and their bytes.
fn send(
    args: &Args,
    connection: &Connection,
    open: &Notice<Open>,
    book: &[u8],
) -> anyhow::Result<(u64, u64)> {
    let region = connection.protection_domain().register(book.to_vec(), Access::REMOTE_READ)?;
    let region = Arc::new(region);
    let mut bytes = 0;
    for Item { number, part, ask } in Plan::new(args.settings.seed, args.number).take(args.messages as usize)
    {
        if let Some(question) = ask {
            ask_for(open, number, &question)?;
        }
        bytes += part.len() as u64;
        match number % 4 {
            // A part of a region, without a copy.
            0 => connection.send_region(&region, part, number).wait_for(LIMIT)?,
            _ => connection.send_with_imm(&book[part], number).wait_for(LIMIT)?,
        }
    }
    wait_for_all(open)?;
    connection.send(b"end").wait_for(LIMIT)?;
    connection.flush().wait_for(LIMIT)?;
    Ok((args.messages.into(), bytes))
}

/// Takes the slot of a question, when it is free.
fn ask_for(open: &Notice<Open>, number: u32, question: &Question) -> anyhow::Result<()> {
    let taken = open.wait(Some(LIMIT), |open| match &mut open.slots[question.slot] {
        _ if open.failed => Some(false),
        Some(_) => None,
        free => {
            *free = Some((number, question.clone()));
            Some(true)
        }
    });
    match taken {
        Some(true) => Ok(()),
        Some(false) => bail!("no more answers are taken"),
        None => bail!("the question before {number} in its slot was not answered within {LIMIT:?}"),
    }
}

fn wait_for_all(open: &Notice<Open>) -> anyhow::Result<()> {
    let all = open.wait(Some(LIMIT), |open| match open.slots.iter().all(Option::is_none) {
        true => Some(true),
        false => open.failed.then_some(false),
    });
    match all {
        Some(true) => Ok(()),
        Some(false) => bail!("no more answers are taken"),
        None => bail!("the last questions were not answered within {LIMIT:?}"),
    }
}

/// What takes answers.
struct Taker<'a> {
    connection: &'a Connection,
    open: &'a Notice<Open>,
    board: &'a Exposed,
    book: &'a [u8],
}

impl Taker<'_> {
    /// Takes and checks answers until the server tells its counts; ours, and those of the server.
    fn run(&self) -> anyhow::Result<(Counts, Counts)> {
        let mut counts = Counts::default();
        loop {
            // The server may be silent for as long as there is no question: the sender has the limits.
            let message = self.connection.recv().wait()?.context("the server has closed the connection")?;
            let Some(number) = message.imm() else {
                let theirs =
                    serde_json::from_slice(&message.into_vec()).context("counts that are no JSON")?;
                return Ok((counts, Counts::from_json(&theirs)?));
            };
            let question = self.find(number)?;
            self.check(number, &question, &message, &mut counts)?;
            // Only now may the slot be used again.
            self.open.change(|open| open.slots[question.slot] = None);
        }
    }

    fn find(&self, number: u32) -> anyhow::Result<Question> {
        let mut found = None;
        self.open.change(|open| {
            found = open.slots.iter().flatten().find(|(open, _)| *open == number).cloned();
        });
        let (_, question) = found.with_context(|| format!("an answer to {number}, which is not open"))?;
        Ok(question)
    }

    fn check(
        &self,
        number: u32,
        question: &Question,
        message: &Message,
        counts: &mut Counts,
    ) -> anyhow::Result<()> {
        let Question { kind, slot, part } = question;
        let expected = &self.book[part.clone()];
        counts.back += part.len() as u64;
        match kind {
            Kind::Answer => {
                ensure!(
                    message.written().is_none() && *message == *expected,
                    "answer {number} has other bytes"
                );
                counts.answers += 1;
            }
            Kind::Write => {
                let len = message.written().map(|len| len as usize);
                ensure!(len == Some(part.len()), "write {number} wrote {len:?} of {} bytes", part.len());
                let start = slot * LONGEST_ANSWER;
                let there = self.board.to_vec(start..start + part.len())?;
                ensure!(there == expected, "write {number} wrote other bytes");
                counts.writes += 1;
            }
            Kind::Read => {
                ensure!(*message == b"read"[..], "read {number} was answered with something else");
                counts.reads += 1;
            }
        }
        Ok(())
    }
}
