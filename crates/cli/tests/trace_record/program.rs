//! A program with a device, which does what it is told line by line: this test, run again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use ferroce::{
    Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, PathPolicy, QpAddress, QueuePair,
    RemoteRegion, Service,
};
use ferroce_device::wait_readable;

use crate::support::LIMIT;

/// Says to the test below that it is the program, and its address.
const ADDRESS: &str = "FERROCE_TEST_PROGRAM";

/// What every line begins with that the program says; the harness says other ones.
const MARK: &str = "program: ";

/// Work requests that are under way in a stream.
const DEPTH: u32 = 16;

/// Bytes of memory, and of a message.
const MEMORY: usize = 1 << 16;
const MESSAGE: usize = 2000;

/// A queue pair with what it needs.
pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    pub(crate) fn open(address: &str) -> Result<Self, ferroce::OpenError> {
        let address: std::net::IpAddr = address.parse().unwrap();
        let context = Context::builder("lo").address(address).path(PathPolicy::Forbid).open()?;
        let pd = context.protection_domain().unwrap();
        let cq = context.completion_queue(256).unwrap();
        let qp = pd.queue_pair(Service::Rc).send_queue(&cq, 64).receive_queue(&cq, 64).build().unwrap();
        let region = pd.allocate(MEMORY, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        Ok(Self { context, qp, cq, region })
    }

    /// Its address and its memory, as a line.
    pub(crate) fn line(&self) -> String {
        let RemoteRegion { address, length, rkey } = self.region.remote();
        format!("{} {address} {length} {}", self.qp.local_address(), rkey.0)
    }

    /// Connects to what such a line tells, and tries for ever where no receive is posted; the memory there.
    pub(crate) fn connect(&self, line: &str) -> RemoteRegion {
        let mut words = line.split(' ');
        let peer: QpAddress = words.next().unwrap().parse().unwrap();
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (address, length, rkey) = (number(), number(), number());
        // RNR timer code 12 is 0.64 ms; a machine with much to do may keep a peer from answering for long.
        let options =
            ConnectOptions { rnr_retry: 7, min_rnr_timer: 12, timeout: 20, ..ConnectOptions::default() };
        self.qp.connect_with(&peer, &options).unwrap();
        RemoteRegion { address, length, rkey: ferroce::Rkey(u32::try_from(rkey).unwrap()) }
    }

    /// Writes so many messages, or until the process is killed.
    fn write(&self, to: &RemoteRegion, messages: u64) {
        let (mut posted, mut done) = (0, 0);
        while done < messages {
            while posted < messages && posted < done + u64::from(DEPTH) {
                let work =
                    self.qp.write(self.region.slice(..MESSAGE), to.slice(..u64::try_from(MESSAGE).unwrap()));
                work.id(posted).post().unwrap();
                posted += 1;
            }
            self.cq.wait(LIMIT).unwrap().result().unwrap();
            done += 1;
        }
    }
}

/// Is the program if another test starts it as such.
#[test]
fn is_this_the_program() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let say = |text: &str| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{MARK}{text}").unwrap();
        out.flush().unwrap();
    };
    let end = match End::open(&address) {
        Ok(end) => end,
        Err(error) => {
            say(&format!("no device: {}", ferroce_device::Chain::of(&error)));
            std::process::exit(3);
        }
    };
    say(&end.line());
    let mut to = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (order, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match order {
            "connect" => to = Some(end.connect(rest)),
            "send" => end.qp.send(end.region.slice(..MESSAGE)).id(77).post().unwrap(),
            "receive" => end.qp.receive(end.region.slice(..)).id(78).post().unwrap(),
            "wait" => assert!(end.cq.wait(LIMIT).unwrap().result().is_ok()),
            "write" => end.write(&to.unwrap(), rest.parse().unwrap()),
            "stream" => {
                say("done");
                end.write(&to.unwrap(), u64::MAX);
            }
            "exit" => {
                drop(end);
                std::process::exit(rest.parse().unwrap());
            }
            other => panic!("{other:?} is no order"),
        }
        say("done");
    }
}

/// The program, as the test sees it; it ends with this.
pub(crate) struct Program {
    pub(crate) child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// The words that make this file the program, after its own name.
pub(crate) const WORDS: [&str; 4] = ["--exact", "program::is_this_the_program", "--nocapture", "--quiet"];

impl Program {
    /// Starts it at an address, and hears its line; this command may run it under another one.
    pub(crate) fn start(mut command: Command, address: &str) -> (Self, String) {
        command.env(ADDRESS, address).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Self { child, to, from };
        let line = program.hear();
        (program, line)
    }

    /// The program itself, which is recorded into this file.
    pub(crate) fn recorded(file: &Path, flight: Option<&str>, address: &str) -> (Self, String) {
        let mut command = alone();
        command.env("FERROCE_TRACE", file);
        command.envs(flight.map(|mib| ("FERROCE_TRACE_FLIGHT", mib)));
        Self::start(command, address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order, and waits until it is done.
    pub(crate) fn does(&mut self, order: &str) {
        self.begins(order);
        assert_eq!(self.hear(), "done", "{order}");
    }

    pub(crate) fn begins(&mut self, order: &str) {
        self.to.as_mut().unwrap().write_all(format!("{order}\n").as_bytes()).unwrap();
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let is_there = !self.from.buffer().is_empty()
                || wait_readable(self.from.get_ref().as_fd(), Some(LIMIT)).unwrap();
            assert!(is_there, "the program said nothing for {LIMIT:?}");
            let mut line = String::new();
            let len = self.from.read_line(&mut line).unwrap();
            assert!(len > 0, "the program ended: {}", self.complaint());
            if let Some(said) = line.trim_end().strip_prefix(MARK) {
                return said.to_owned();
            }
        }
    }

    fn complaint(&mut self) -> String {
        let mut stderr: Option<ChildStderr> = self.child.stderr.take();
        stderr.as_mut().map_or_else(String::new, |from| std::io::read_to_string(from).unwrap())
    }

    /// Lets it end; its exit code, and what it said as an error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        drop(self.to.take());
        self.ends()
    }

    /// The same if it ends without being told so.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        while self.from.read_line(&mut rest).unwrap() > 0 {}
        let complaint = self.complaint();
        (self.child.wait().unwrap().code(), complaint)
    }

    /// Kills it in the middle of what it does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program without another one before it.
pub(crate) fn alone() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(WORDS).process_group(0);
    crate::support::without_settings(&mut command);
    command
}

/// Two programs that are connected.
pub(crate) fn connected(one: (Program, String), other: (Program, String)) -> (Program, Program) {
    let ((mut one, one_line), (mut other, other_line)) = (one, other);
    one.does(&format!("connect {other_line}"));
    other.does(&format!("connect {one_line}"));
    (one, other)
}
