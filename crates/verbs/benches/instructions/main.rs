//! How many instructions the API puts on top of the device: the same ways as in the benchmark of the device, by way of verbs.
//!
//! `cargo xtask bench --only instructions` runs this under callgrind, which counts what happens within one function. With
//! `--before` it compares two commits: then this very program is built against the other commit. By itself (and as a test)
//! this program runs a few rounds of every case, and looks that the work was done.

mod card;

use std::error::Error;

use ferroce_verbs::{
    Access, Completion, CompletionQueue, Context, MemoryRegion, PathPolicy, QueuePair, Service,
};

/// What a step gives, or why it failed.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// One way through the API.
struct Case {
    name: &'static str,
    /// What is counted.
    shows: &'static str,
    /// How many of these there are in a round.
    each: u32,
    run: fn(u32) -> Outcome<()>,
}

const CASES: &[Case] = &[
    Case {
        name: "verbs-write",
        shows: "verbs: a local WRITE of 64 B, posted and polled",
        each: 1,
        run: write,
    },
    Case {
        name: "verbs-write-list",
        shows: "verbs: a local WRITE of 64 B in a batch of 16",
        each: LIST,
        run: write_list,
    },
    Case {
        name: "verbs-send",
        shows: "verbs: a receive, and a local SEND of 64 B into it",
        each: 1,
        run: send,
    },
    Case { name: "verbs-poll", shows: "verbs: a poll of an empty queue, no wire", each: POLLS, run: poll },
    Case { name: "card-write", shows: "card: a WRITE of 8 B, posted and polled", each: 1, run: card::write },
    Case {
        name: "card-inline",
        shows: "card: an inline WRITE of 8 B, posted and polled",
        each: 1,
        run: card::write_inline,
    },
    Case {
        name: "card-write-list",
        shows: "card: a WRITE of 8 B in a batch of 16",
        each: LIST,
        run: card::write_list,
    },
    Case { name: "card-poll", shows: "card: a poll of an empty queue", each: POLLS, run: card::poll },
    Case {
        name: "card-c-write",
        shows: "card, by a C program: a WRITE of 8 B, posted and polled",
        each: 1,
        run: card::c_write,
    },
    Case {
        name: "card-c-list",
        shows: "card, by a C program: a WRITE of 8 B in a list of 16",
        each: LIST,
        run: card::c_write_list,
    },
    Case {
        name: "card-c-poll",
        shows: "card, by a C program: a poll of an empty queue",
        each: POLLS,
        run: card::c_poll,
    },
];

/// WRITEs of a list, the last of which gives a completion.
const LIST: u32 = 16;

/// Polls of a round.
const POLLS: u32 = 100;

/// Rounds that are not counted: a driver that once found the program gone, as a profiler makes it seem, takes part for a while.
const WARM_UP: u32 = 64;

/// Empty polls after which the driver has left the work to the program.
const SETTLED: u32 = 8;

/// Bytes of a message.
const LEN: usize = 64;

/// Empty polls after which nothing is going to come any more.
const STUCK: u32 = 10_000_000;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1)
    };
    if args.iter().any(|arg| arg == "--cases") {
        for Case { name, shows, each, .. } in CASES {
            println!("{{\"kind\":\"case\",\"case\":\"{name}\",\"shows\":\"{shows}\",\"each\":{each}}}");
        }
        return Ok(());
    }
    // They are about the card, which a C compiler makes.
    let of_card = |name: &str| name.starts_with("card-");
    if let Some(name) = after("--case") {
        if of_card(name) {
            card::prepare()?;
        }
        let case = CASES.iter().find(|case| case.name == name);
        let case = case.ok_or_else(|| format!("no case is called {name:?}; --cases lists them"))?;
        return (case.run)(after("--rounds").ok_or("--case needs --rounds with a number")?.parse()?);
    }
    card::prepare()?;
    CASES.iter().try_for_each(|case| (case.run)(10).map_err(|error| format!("{}: {error}", case.name).into()))
}

/// Two queue pairs of one device, which meet directly.
struct Pair {
    from: QueuePair,
    to: QueuePair,
    done: CompletionQueue,
    region: MemoryRegion,
}

impl Pair {
    fn new() -> Outcome<Self> {
        let context =
            Context::builder("ferroce_lo").address([127, 0, 190, 1]).path(PathPolicy::Require).open()?;
        let pd = context.protection_domain()?;
        let done = context.completion_queue(256)?;
        let [from, to] =
            [(); 2].map(|()| pd.queue_pair(Service::Rc).completion_queue(&done).signal_all(false).build());
        let (from, to) = (from?, to?);
        from.connect(&to.local_address())?;
        to.connect(&from.local_address())?;
        let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Self { from, to, done, region })
    }

    /// Polls until so many have come, all of which must be good.
    fn take(&self, mut wanted: usize) -> Outcome<()> {
        let mut found = [Completion::EMPTY; 4];
        for _ in 0..STUCK {
            let count = self.done.poll(&mut found);
            for done in &found[..count] {
                done.result()?;
                wanted -= 1;
            }
            if wanted == 0 {
                return Ok(());
            }
        }
        Err("nothing completes".into())
    }

    /// Does a round again and again. Before each one the queue is polled until the driver has seen that the program does
    /// its work.
    fn repeated(&self, rounds: u32, mut round: impl FnMut() -> Outcome<()>) -> Outcome<()> {
        for number in 0..WARM_UP + rounds {
            for _ in 0..SETTLED {
                if self.done.poll(&mut [Completion::EMPTY]) > 0 {
                    return Err("something is there that nothing has asked for".into());
                }
            }
            if number < WARM_UP { round() } else { measured(&mut round) }?;
        }
        Ok(())
    }
}

/// What this thread does in here is what callgrind counts, by the name of the function.
#[inline(never)]
fn measured(round: &mut dyn FnMut() -> Outcome<()>) -> Outcome<()> {
    round()
}

fn write(rounds: u32) -> Outcome<()> {
    let pair = Pair::new()?;
    let remote = pair.region.remote().slice(2048..);
    pair.repeated(rounds, || {
        pair.from.write(pair.region.slice(..LEN), remote).id(1).signaled().post()?;
        pair.take(1)
    })
}

fn write_list(rounds: u32) -> Outcome<()> {
    let pair = Pair::new()?;
    let remote = pair.region.remote().slice(2048..);
    pair.repeated(rounds, || {
        let mut batch = pair.from.batch();
        batch.reserve(LIST as usize);
        for number in 1..=LIST {
            let work = pair.from.write(pair.region.slice(..LEN), remote).id(number.into());
            batch.add(if number == LIST { work.signaled() } else { work });
        }
        batch.post()?;
        pair.take(1)
    })
}

fn send(rounds: u32) -> Outcome<()> {
    let pair = Pair::new()?;
    pair.repeated(rounds, || {
        pair.to.receive(pair.region.slice(2048..)).id(2).post()?;
        pair.from.send(pair.region.slice(..LEN)).id(1).signaled().post()?;
        pair.take(2)
    })
}

fn poll(rounds: u32) -> Outcome<()> {
    let pair = Pair::new()?;
    pair.repeated(rounds, || {
        let mut found = [Completion::EMPTY; 4];
        for _ in 0..POLLS {
            if pair.done.poll(&mut found) > 0 {
                return Err("something is there that nothing has asked for".into());
            }
        }
        Ok(())
    })
}
