//! How many instructions the shortest ways through the device take.
//!
//! `cargo xtask bench --only instructions` runs this under callgrind, which counts what happens within one
//! function. With `--before` it compares two commits: then this very program is built against the other
//! commit, so it uses nothing that commit 0b18e79 does not have. By itself (and as a test) this program runs
//! a few rounds of every case, and looks that the work was done in the way that the case is about.

mod end;
mod found;

use std::error::Error;

use end::{End, NEIGHBOUR, among_neighbours, be_neighbour, connected, sharing};
use ferroce_device::PathPolicy;
use ferroce_transport::{Data, SendFlags, SendOp, SendRequest, WorkKind};
use found::why;

/// What a step gives, or why it failed.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// One way through the device.
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
        name: "local-write",
        shows: "a local WRITE of 64 B in a list of 16",
        each: LIST,
        run: local_write,
    },
    Case {
        name: "wire-send",
        shows: "a SEND of 64 B through sockets, out and in, and its acknowledgement",
        each: 1,
        run: wire_send,
    },
    Case {
        name: "wire-pingpong",
        shows: "a SEND of 64 B and the answer, each way, both ends",
        each: 2,
        run: wire_pingpong,
    },
    Case { name: SHARED, shows: "the same through memory", each: 2, run: shared_pingpong },
    Case {
        name: POSTS,
        shows: "a WRITE of 64 B through memory, of 32 that are posted one by one, both ends",
        each: POSTED,
        run: shared_posts,
    },
    Case { name: "poll-local", shows: "a poll of an empty queue, no wire", each: POLLS, run: poll_local },
    Case { name: "poll-wire", shows: "a poll of an empty queue, with a wire", each: POLLS, run: poll_wire },
    Case { name: AMONG, shows: "a poll of an empty queue, 64 neighbours", each: POLLS, run: poll_among },
];

/// The cases that older commits do not have.
const SHARED: &str = "shared-pingpong";
const POSTS: &str = "shared-posts";
const AMONG: &str = "poll-neighbours";

/// WRITEs that are posted one by one, the last of which gives a completion.
const POSTED: u32 = 32;

/// WRITEs of a list, the last of which gives a completion.
const LIST: u32 = 16;

/// Polls of a round.
const POLLS: u32 = 100;

/// Rounds that are not counted: a driver that once found the program gone, as a profiler makes it seem, takes part for a while.
const WARM_UP: u32 = 64;

/// Empty polls of an end after which its driver has left the work to the program.
const SETTLED: u32 = 8;

/// Bytes of a message.
const LEN: u32 = 64;

/// Empty polls after which nothing is going to come any more.
const STUCK: u32 = 10_000_000;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == NEIGHBOUR) {
        return be_neighbour();
    }
    let after = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1)
    };
    if args.iter().any(|arg| arg == "--cases") {
        for Case { name, shows, each, .. } in
            CASES.iter().filter(|case| ![SHARED, POSTS, AMONG].contains(&case.name) || is_sharing())
        {
            println!("{{\"kind\":\"case\",\"case\":\"{name}\",\"shows\":\"{shows}\",\"each\":{each}}}");
        }
        return Ok(());
    }
    if let Some(name) = after("--case") {
        let case = CASES.iter().find(|case| case.name == name);
        let case = case.ok_or_else(|| format!("no case is called {name:?}; --cases lists them"))?;
        return (case.run)(after("--rounds").ok_or("--case needs --rounds with a number")?.parse()?);
    }
    CASES.iter().try_for_each(|case| (case.run)(10).map_err(|error| format!("{}: {error}", case.name).into()))
}

/// What this thread does in here is what callgrind counts, by the name of the function: when the device's own
/// threads look around is a matter of time, and so of chance.
#[inline(never)]
fn measured(round: &mut dyn FnMut() -> Outcome<()>) -> Outcome<()> {
    round()
}

/// Does a round again and again. Before each one the ends are polled until their drivers have seen that the
/// program does their work: a driver that takes part does more or less of it, by chance.
fn repeated(rounds: u32, ends: [&End; 2], mut round: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    for number in 0..WARM_UP + rounds {
        for _ in 0..SETTLED {
            ends.iter().try_for_each(|end| end.find_nothing())?;
        }
        if number < WARM_UP { round() } else { measured(&mut round) }?;
    }
    Ok(())
}

/// Lists of WRITEs between two queue pairs of one device.
fn local_write(rounds: u32) -> Outcome<()> {
    let (from, to) = connected(PathPolicy::Require)?;
    from.fill(0x5a)?;
    let piece = [from.piece(LEN)];
    let request = |at| {
        let flags = if at + 1 == LIST { SendFlags::SIGNALED } else { SendFlags::empty() };
        let op = SendOp::Write(to.remote());
        SendRequest { id: 1, op, data: Data::Gather(&piece), flags, dest: None }
    };
    let requests: Vec<_> = (0..LIST).map(request).collect();
    repeated(rounds, [&from, &to], || {
        from.qp.post_send(&requests).map_err(why)?;
        from.find(WorkKind::Write)
    })?;
    to.check_bytes(0x5a, LEN)?;
    match from.packets_sent() {
        0 => Ok(()),
        packets => Err(format!("{packets} packets were sent; the local path has none").into()),
    }
}

/// A SEND and its acknowledgement, between two devices whose only way is their sockets.
fn wire_send(rounds: u32) -> Outcome<()> {
    let (here, there) = connected(PathPolicy::Forbid)?;
    here.fill(0x5a)?;
    there.post_receive(LEN)?;
    let piece = [here.piece(LEN)];
    let (data, flags) = (Data::Gather(&piece), SendFlags::SIGNALED);
    repeated(rounds, [&here, &there], || {
        let request = SendRequest { id: 1, op: SendOp::Send, data, flags, dest: None };
        here.qp.post_send(&[request]).map_err(why)?;
        there.find(WorkKind::Receive)?;
        there.post_receive(LEN)?;
        // With an empty poll the acknowledgement leaves.
        there.find_nothing()?;
        here.find(WorkKind::Send)
    })?;
    there.check_bytes(0x5a, LEN)?;
    match here.packets_sent() {
        packets if packets >= u64::from(rounds) => Ok(()),
        packets => Err(format!("{packets} packets were sent for {rounds} messages").into()),
    }
}

/// A SEND and one back, again and again: acknowledgements ride with the answers.
fn wire_pingpong(rounds: u32) -> Outcome<()> {
    let (here, there) = connected(PathPolicy::Forbid)?;
    pingpong(rounds, &here, &there)?;
    match here.packets_sent() {
        packets if packets >= u64::from(rounds) => Ok(()),
        packets => Err(format!("{packets} packets were sent for {rounds} messages").into()),
    }
}

/// The same between two engines that share memory.
fn shared_pingpong(rounds: u32) -> Outcome<()> {
    let Some(both) = sharing() else { return Ok(()) };
    let (here, there) = both?;
    pingpong(rounds, &here, &there)?;
    match here.packets_sent() {
        0 => Ok(()),
        packets => Err(format!("{packets} packets were sent; the way through memory has none").into()),
    }
}

/// WRITEs between two engines that share memory, posted one by one.
fn shared_posts(rounds: u32) -> Outcome<()> {
    let Some(both) = sharing() else { return Ok(()) };
    let (here, there) = both?;
    here.fill(0x5a)?;
    let piece = [here.piece(LEN)];
    repeated(rounds, [&here, &there], || {
        for number in 1..=POSTED {
            let flags = if number == POSTED { SendFlags::SIGNALED } else { SendFlags::empty() };
            let op = SendOp::Write(there.remote());
            let request = SendRequest { id: 1, op, data: Data::Gather(&piece), flags, dest: None };
            here.qp.post_send(&[request]).map_err(why)?;
        }
        // What waits for company leaves with the first poll.
        while here.cq.poll(&mut [found::Found::EMPTY; 4]) == 0 {
            there.find_nothing()?;
        }
        Ok(())
    })?;
    there.check_bytes(0x5a, LEN)?;
    match here.packets_sent() {
        0 => Ok(()),
        packets => Err(format!("{packets} packets were sent; the way through memory has none").into()),
    }
}

/// Whether there is a way through memory.
fn is_sharing() -> bool {
    "shared".parse::<PathPolicy>().is_ok()
}

fn pingpong(rounds: u32, here: &End, there: &End) -> Outcome<()> {
    here.fill(0x5a)?;
    here.post_receive(LEN)?;
    there.post_receive(LEN)?;
    let trip = |from: &End, to: &End, is_counted: bool| {
        let counted =
            |step: &mut dyn FnMut() -> Outcome<()>| if is_counted { measured(step) } else { step() };
        let piece = [from.piece(LEN)];
        let (data, flags) = (Data::Gather(&piece), SendFlags::SIGNALED);
        let request = SendRequest { id: 1, op: SendOp::Send, data, flags, dest: None };
        counted(&mut || Ok(from.qp.post_send(&[request]).map_err(why)?))?;
        // Its program waits for the answer, so that its driver leaves the work to it: under a profiler a driver finds the program
        // gone in each of its looks, and takes part. Nothing is owed now, so that no acknowledgement leaves by itself.
        (0..SETTLED).try_for_each(|_| from.find_what_is_there())?;
        counted(&mut || {
            to.find(WorkKind::Receive)?;
            to.post_receive(LEN)
        })
    };
    // Here the completion of the first has come with the second, and so on.
    trip(here, there, false)?;
    for number in 0..WARM_UP + rounds {
        trip(there, here, number >= WARM_UP)?;
        trip(here, there, number >= WARM_UP)?;
    }
    there.check_bytes(0x5a, LEN)
}

/// Polls on a device with nothing but two queue pairs that are connected to each other.
fn poll_local(rounds: u32) -> Outcome<()> {
    let (from, to) = connected(PathPolicy::Require)?;
    poll(rounds, &from, &to)
}

/// Polls on a device with a peer that may send something at any time.
fn poll_wire(rounds: u32) -> Outcome<()> {
    let (here, there) = connected(PathPolicy::Forbid)?;
    poll(rounds, &here, &there)
}

/// Polls on a device that shares memory with 64 engines of other processes, which do nothing.
fn poll_among(rounds: u32) -> Outcome<()> {
    let Some(both) = among_neighbours() else { return Ok(()) };
    let (end, _idle) = both?;
    poll(rounds, &end, &end)
}

fn poll(rounds: u32, end: &End, other: &End) -> Outcome<()> {
    let (mut found, mut came) = ([found::Found::EMPTY; 4], 0);
    repeated(rounds, [end, other], || {
        (0..POLLS).for_each(|_| came += end.cq.poll(&mut found));
        Ok(())
    })?;
    if came == 0 { Ok(()) } else { Err(format!("{came} completions came of nothing").into()) }
}
