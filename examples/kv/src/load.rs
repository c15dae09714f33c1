//! The load generator: nodes in processes, clients in threads, and a history that is checked.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::ValueEnum;
use ferroce::FaultPlan;
use ferroce::broker::Members;

use crate::client::{Client, Counters};
use crate::history::{self, Kind, Operation};
use crate::layout::{Home, LONGEST_VALUE};
use crate::member::{PATIENCE, Place, faults, faults_text};
use crate::node;
use crate::report::{HEADING, Line, Times};

/// Options of `ferroce-kv load`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Nodes, a process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: u32,
    /// Clients, a thread and a device each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=14))]
    clients: u32,
    /// How long gets and puts go on
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How long only gets go on after that, while the threads of all nodes sleep
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=3600))]
    asleep: u64,
    /// How many different keys there are
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    keys: u32,
    /// How many of a hundred operations are gets
    #[arg(long, value_name = "N", default_value_t = 70, value_parser = clap::value_parser!(u8).range(0..=100))]
    gets: u8,
    /// Buckets of four keys at each node
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = node::buckets)]
    buckets: usize,
    /// Faults in all that is sent, such as loss=0.005,seed=1
    #[arg(long, value_name = "PLAN", value_parser = faults)]
    faults: Option<FaultPlan>,
    /// The address of the first node; all others follow it [default: one of 127.0.0.0/8 that follows from the
    /// number of this process]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Ipv4Addr>,
    /// All nodes and clients at one address, each with a port of its own: they may share memory
    #[arg(long)]
    near: bool,
    /// Nodes that run already, and then the clients that this program is: HOST:PORT,HOST:PORT,...
    #[arg(long, value_name = "LIST", conflicts_with_all = ["address", "near", "clients", "faults", "buckets"])]
    members: Option<Members>,
    /// Which numbers clients draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A bug, to see that it is found
    #[arg(long, value_enum, value_name = "BUG")]
    plant: Option<Plant>,
}

/// A bug that clients have on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Plant {
    /// One get in twenty is answered with what this client saw last, without asking
    StaleRead,
    /// Puts write the first half of a bucket alone before they write all of it; gets have to notice
    TornWrite,
}

/// The port that members listen on, or the first of them.
const PORT: u16 = 7471;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let members = members(args)?;
    let mut nodes = Vec::new();
    if args.members.is_none() {
        for id in 0..args.nodes {
            nodes.push(Node::start(args, id, &members)?);
        }
    }
    let clients = join(args, &members)?;
    println!(
        "{} nodes in processes of their own, {} clients; {} keys, {} % gets, faults: {}",
        args.nodes,
        clients.len(),
        args.keys,
        args.gets,
        args.faults.as_ref().map_or_else(|| "none".to_owned(), faults_text)
    );
    println!("{HEADING}");
    let mixed = Phase { name: "", gets: args.gets, time: Duration::from_secs(args.seconds) };
    let mut workers: Vec<Worker> =
        (0..).zip(clients).map(|(index, client)| Worker::new(args, index, client)).collect();
    mixed.run(&mut workers, args)?;
    let calls = settle(&mut workers, args.nodes)?;
    // Nodes that others have started cannot be told to sleep.
    if args.asleep > 0 && !nodes.is_empty() {
        nodes.iter_mut().try_for_each(Node::fall_asleep)?;
        let asleep = Phase { name: "asleep", gets: 100, time: Duration::from_secs(args.asleep) };
        asleep.run(&mut workers, args)?;
        let after = callbacks(&mut workers[0], args.nodes)?;
        ensure!(after == calls, "gets made nodes call their application {} times", after - calls);
        nodes.iter_mut().try_for_each(|node| node.say("wake"))?;
    }
    tell_counters(&workers, calls);
    compare_replicas(&mut workers[0], args.keys)?;
    let mut history = Vec::new();
    for worker in workers {
        history.extend(worker.history);
        worker.client.leave()?;
    }
    for node in nodes {
        node.stop()?;
    }
    match history::check(&history) {
        Ok(()) => println!("the history of {} operations is linearizable", history.len()),
        Err(violation) => {
            bail!("the history of {} operations is not linearizable: {violation}", history.len())
        }
    }
    Ok(())
}

/// The addresses of nodes and clients.
fn members(args: &Args) -> anyhow::Result<Members> {
    if let Some(members) = &args.members {
        let count = u32::try_from(members.iter().count())?;
        ensure!(count > args.nodes, "{count} members, of which {} are nodes: there is no client", args.nodes);
        return Ok(members.clone());
    }
    let count = args.nodes + args.clients;
    let first = args.address.unwrap_or_else(|| {
        // 18 bits of the number of this process tell it from others; the rest are its members.
        let number = std::process::id() & 0x3_ffff;
        Ipv4Addr::from_bits(127 << 24 | 1 << 23 | number << 5 | 1)
    });
    ensure!(args.near || first.is_loopback(), "{first} is no address of loopback");
    let address = |id: u16| match args.near {
        true => SocketAddr::new(first.into(), PORT + id),
        false => SocketAddr::new(Ipv4Addr::from_bits(first.to_bits() + u32::from(id)).into(), PORT),
    };
    let count = u16::try_from(count).context("so many members")?;
    Ok(Members::new((0..count).map(|id| (id.into(), address(id))))?)
}

/// Has all clients join at the same time: every member waits for every other.
fn join(args: &Args, members: &Members) -> anyhow::Result<Vec<Client>> {
    thread::scope(|scope| {
        let joining: Vec<_> = members
            .iter()
            .map(|member| member.id)
            .filter(|id| *id >= args.nodes)
            .map(|id| {
                let (members, faults) = (members.clone(), args.faults);
                let place = Place { id, members, nodes: args.nodes, faults };
                scope.spawn(move || Client::join(&place))
            })
            .collect();
        joining.into_iter().map(|client| client.join().map_err(|_| anyhow!("a client panicked"))?).collect()
    })
}

/// How often nodes have called their application, in all.
fn callbacks(worker: &mut Worker, nodes: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for node in 0..nodes {
        let [calls, damaged] = worker.client.node_counters(node)?;
        ensure!(damaged == 0, "node {node} found {damaged} damaged replicas");
        sum += calls;
    }
    Ok(sum)
}

/// Waits until nodes have handled every message, and sees that they called their application for nothing else: for
/// replicas and for the questions of clients, and never for a get.
fn settle(workers: &mut [Worker], nodes: u32) -> anyhow::Result<u64> {
    let messages: u64 = workers.iter().map(|worker| worker.client.counters.messages).sum();
    let worker = &mut workers[0];
    let end = worker.client.now() + u64::try_from(PATIENCE.as_nanos())?;
    loop {
        let calls = callbacks(worker, nodes)?;
        ensure!(calls <= messages, "nodes called their application {calls} times for {messages} messages");
        if calls == messages {
            return Ok(calls);
        }
        ensure!(
            worker.client.now() < end,
            "nodes have handled {calls} of {messages} messages after {PATIENCE:?}"
        );
    }
}

fn tell_counters(workers: &[Worker], calls: u64) {
    let sum =
        |of: fn(&Counters) -> u64| workers.iter().map(|worker| of(&worker.client.counters)).sum::<u64>();
    println!(
        "nodes called application code {calls} times: once for each replica and each client that came, never for a get; \
         {} torn reads and {} taken locks were tried again",
        sum(|counters| counters.torn),
        sum(|counters| counters.contended)
    );
}

/// When nothing is under way, both copies of every bucket are the same.
fn compare_replicas(worker: &mut Worker, keys: u32) -> anyhow::Result<()> {
    for key in 0..keys {
        let home: Home = worker.client.home(name(key).as_bytes());
        let (primary, replica) =
            (worker.client.read_bucket(home, false)?, worker.client.read_bucket(home, true)?);
        ensure!(
            primary == replica,
            "key {key}: the replica at node {} is not what node {} has",
            home.replica,
            home.primary
        );
    }
    println!("primaries and replicas of all {keys} keys are the same");
    Ok(())
}

fn name(key: u32) -> String {
    format!("key-{key}")
}

/// A time in which clients do one thing.
struct Phase {
    name: &'static str,
    gets: u8,
    time: Duration,
}

impl Phase {
    /// Has all workers work, and prints what they measured.
    fn run(&self, workers: &mut [Worker], args: &Args) -> anyhow::Result<()> {
        let done: anyhow::Result<Vec<Measured>> = thread::scope(|scope| {
            let working: Vec<_> =
                workers.iter_mut().map(|worker| scope.spawn(|| worker.work(self, args))).collect();
            working
                .into_iter()
                .map(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?)
                .collect()
        });
        let mut all = Measured::new();
        for measured in done? {
            all.gets.add_all(&measured.gets);
            all.puts.add_all(&measured.puts);
        }
        for (kind, times) in [("get", &all.gets), ("put", &all.puts)] {
            if times.count() > 0 {
                let name = format!("{kind} {}", self.name);
                println!("{}", Line { name: &name, times, elapsed: self.time });
            }
        }
        Ok(())
    }
}

/// What one client measured in one phase.
struct Measured {
    gets: Times,
    puts: Times,
}

impl Measured {
    fn new() -> Self {
        Self { gets: Times::new(), puts: Times::new() }
    }
}

/// A client under load.
struct Worker {
    client: Client,
    dice: Dice,
    /// The next value that it puts: no other worker puts the same.
    next: u64,
    history: Vec<Operation>,
    /// What it has seen last, for the planted bug.
    seen: HashMap<u32, Option<u64>>,
}

impl Worker {
    fn new(args: &Args, index: u64, mut client: Client) -> Self {
        client.tears = args.plant == Some(Plant::TornWrite);
        let dice = Dice(args.seed.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { client, dice, next: index << 40 | 1, history: Vec::new(), seen: HashMap::new() }
    }

    fn work(&mut self, phase: &Phase, args: &Args) -> anyhow::Result<Measured> {
        let mut measured = Measured::new();
        let start = self.client.now();
        let end = start + u64::try_from(phase.time.as_nanos())?;
        let mut begin = start;
        while begin < end {
            let key = self.dice.below(args.keys);
            let kind = match self.dice.below(100) < u32::from(phase.gets) {
                true => Kind::Get(self.get(key, args.plant)?),
                false => self.put(key)?,
            };
            let now = self.client.now();
            match kind {
                Kind::Get(value) => {
                    measured.gets.add(now - begin);
                    self.seen.insert(key, value);
                }
                Kind::Put(_) => measured.puts.add(now - begin),
            }
            self.history.push(Operation { key, kind, begin, end: now });
            begin = self.client.now();
        }
        Ok(measured)
    }

    fn get(&mut self, key: u32, plant: Option<Plant>) -> anyhow::Result<Option<u64>> {
        if plant == Some(Plant::StaleRead)
            && self.dice.below(20) == 0
            && let Some(&seen) = self.seen.get(&key)
        {
            return Ok(seen);
        }
        let value = self.client.get(name(key).as_bytes())?;
        value.map(|bytes| read_value(&bytes)).transpose().with_context(|| format!("key {key}"))
    }

    fn put(&mut self, key: u32) -> anyhow::Result<Kind> {
        let value = self.next;
        self.next += 1;
        self.client.put(name(key).as_bytes(), &write_value(value))?;
        Ok(Kind::Put(value))
    }
}

/// A value of the length that its number says, with its number in front and in every byte after it.
fn write_value(number: u64) -> Vec<u8> {
    let [low, ..] = number.to_le_bytes();
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + usize::from(low) % (LONGEST_VALUE - 7), low);
    bytes
}

fn read_value(bytes: &[u8]) -> anyhow::Result<u64> {
    let number = bytes.first_chunk().map(|number| u64::from_le_bytes(*number));
    match number {
        Some(number) if write_value(number) == bytes => Ok(number),
        _ => bail!("{} bytes that were never put: {}", bytes.len(), bytes.escape_ascii()),
    }
}

/// A row of numbers that follows from a seed.
struct Dice(u64);

impl Dice {
    /// From 0 up to this.
    const fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) % end as u64) as u32
    }
}

/// A node in a process of its own. It ends when its input is closed.
struct Node {
    id: u32,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Node {
    fn start(args: &Args, id: u32, members: &Members) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program does not know where it is")?;
        let list: Vec<String> = members.iter().map(|member| member.address.to_string()).collect();
        let mut command = Command::new(program);
        command.args(["node", "--id", &id.to_string(), "--members", &list.join(",")]);
        command.args(["--nodes", &args.nodes.to_string(), "--buckets", &args.buckets.to_string()]);
        if let Some(plan) = &args.faults {
            command.args(["--faults", &faults_text(plan)]);
        }
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a node")?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let output = BufReader::new(output.context("a node has no output")?);
        Ok(Self { id, process, input, output })
    }

    fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the node is on its way out")?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .with_context(|| format!("node {} is gone", self.id))
    }

    /// Returns when the node's thread sleeps.
    fn fall_asleep(&mut self) -> anyhow::Result<()> {
        self.say("sleep")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.trim() == "asleep", "node {} does not sleep: {line:?}", self.id);
        Ok(())
    }

    fn stop(mut self) -> anyhow::Result<()> {
        self.input = None;
        let status = self.process.wait()?;
        ensure!(status.success(), "node {} ended with {status}", self.id);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // After `stop` it is gone already, and this does nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_say_what_they_are() {
        for number in [1, 0x77, 1 << 40 | 255, u64::MAX] {
            let bytes = write_value(number);
            assert!(bytes.len() <= LONGEST_VALUE);
            assert_eq!(read_value(&bytes).unwrap(), number);
            assert!(read_value(&bytes[..bytes.len() - 1]).is_err());
        }
        assert!(read_value(b"short").is_err());
    }
}
