//! A server and a client, each a process, that meet at a port.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Unprivileged, run, said};

/// How often a client is started until its server listens.
const TRIES: usize = 200;

/// A program that is started twice. Arguments are words with blanks between them.
#[derive(Clone)]
pub(crate) struct Pair {
    /// The server, with `PORT` where the port goes.
    pub(crate) server: String,
    /// The client, with `PORT` and `ADDRESS` where these go.
    pub(crate) client: String,
    /// The address of both their devices.
    pub(crate) address: String,
    /// Variables of both.
    pub(crate) variables: Vec<(String, String)>,
    /// Where the server listens before the client may come.
    pub(crate) meeting: Meeting,
    /// Which user runs them, if it is another one.
    pub(crate) user: Option<Arc<Unprivileged>>,
}

/// How two programs find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// By a TCP connection.
    Tcp,
    /// By a port of rdma_cm.
    Rdma,
}

impl Pair {
    pub(crate) fn new(server: &str, client: &str, address: &str) -> Self {
        let [server, client, address] = [server, client, address].map(str::to_owned);
        Self { server, client, address, variables: Vec::new(), meeting: Meeting::Tcp, user: None }
    }

    /// With these variables too.
    pub(crate) fn with(mut self, variables: &[(&str, &str)]) -> Self {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        self.variables.extend(variables.iter().map(owned));
        self
    }

    /// Meeting at a port of rdma_cm.
    pub(crate) fn by_rdma(mut self) -> Self {
        self.meeting = Meeting::Rdma;
        self
    }

    /// Run by this user.
    pub(crate) fn by(mut self, user: &Arc<Unprivileged>) -> Self {
        self.user = Some(Arc::clone(user));
        self
    }

    /// Runs both to their ends, which must be good ones, and returns what the client and the server said.
    pub(crate) fn run(&self) -> (String, String) {
        self.try_run().unwrap_or_else(|both| panic!("{}\n{both}", self.client))
    }

    /// The same, or what both said if one of the ends was not good.
    pub(crate) fn try_run(&self) -> Result<(String, String), String> {
        let ends = self.run_to_ends()?;
        if ends.client.status.success() && ends.server.status.success() {
            Ok((said(&ends.client), said(&ends.server)))
        } else {
            Err(ends.told())
        }
    }

    /// Runs both to their ends, whatever these are.
    pub(crate) fn run_to_ends(&self) -> Result<Ends, String> {
        let (mut server, port) = self.start_server()?;
        for _ in 0..TRIES {
            let client = self.start(&self.client, port).wait_with_output().unwrap();
            let may_try_again = !client.status.success() && is_too_early(&said(&client));
            if may_try_again && server.try_wait().unwrap().is_none() {
                continue;
            }
            return Ok(Ends { client, server: server.wait_with_output().unwrap() });
        }
        kill(&server);
        Err(format!("the server never listened: {}", said(&server.wait_with_output().unwrap())))
    }

    /// Starts both and leaves them to the caller.
    pub(crate) fn start_both(&self) -> Result<Running, String> {
        let (server, port) = self.start_server()?;
        let client = self.start(&self.client, port);
        Ok(Running { server, client })
    }

    /// Starts the server and waits until it listens, or until its time is over.
    fn start_server(&self) -> Result<(Child, u16), String> {
        let port = free_port();
        let mut server = self.start(&self.server, port);
        loop {
            let listens = match self.meeting {
                Meeting::Tcp => is_listening(port),
                Meeting::Rdma => has_thread(&server, "ferroce-cm"),
            };
            if listens {
                return Ok((server, port));
            }
            if server.try_wait().unwrap().is_some() {
                let output = server.wait_with_output().unwrap();
                return Err(format!("the server ended: {}\n{}", output.status, said(&output)));
            }
            std::thread::yield_now();
        }
    }

    fn start(&self, line: &str, port: u16) -> Child {
        let line = line.replace("PORT", &port.to_string()).replace("ADDRESS", &self.address);
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = match &self.user {
            Some(user) => user.run(&self.address, &words),
            None => run(&self.address, &words),
        };
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// Both ends of a pair that runs.
pub(crate) struct Running {
    server: Child,
    client: Child,
}

impl Running {
    /// Waits until both have opened the card.
    pub(crate) fn wait_until_open(&mut self) -> Result<(), String> {
        for child in [&mut self.server, &mut self.client] {
            while !has_thread(child, "ferroce-") {
                if child.try_wait().unwrap().is_some() {
                    return Err("a program ended before it opened the card".into());
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Kills one with a signal that cannot be caught, then the other, and says what they had said until then.
    pub(crate) fn kill(self) -> [Output; 2] {
        kill(&self.client);
        let client = self.client.wait_with_output().unwrap();
        kill(&self.server);
        [client, self.server.wait_with_output().unwrap()]
    }
}

/// How both programs of a pair ended.
pub(crate) struct Ends {
    pub(crate) client: Output,
    pub(crate) server: Output,
}

impl Ends {
    /// What both said, with their ends.
    pub(crate) fn told(&self) -> String {
        let Self { client, server } = self;
        format!("client: {}\n{}\nserver: {}\n{}", client.status, said(client), server.status, said(server))
    }
}

/// What `timeout` says of a program that it had to end.
const TIMED_OUT: i32 = 124;

/// Whether a program was still at work when its time was over.
pub(crate) fn has_timed_out(output: &Output) -> bool {
    output.status.code() == Some(TIMED_OUT)
}

/// Kills the program that `timeout` runs.
fn kill(timeout: &Child) {
    for child in program_of(timeout).split_whitespace() {
        let _ = Command::new("kill").args(["-KILL", child]).status();
    }
}

/// The process that `timeout` runs.
fn program_of(timeout: &Child) -> String {
    let children = format!("/proc/{0}/task/{0}/children", timeout.id());
    fs::read_to_string(children).unwrap_or_default()
}

/// Whether a program has a thread whose name begins so.
fn has_thread(timeout: &Child, start: &str) -> bool {
    let folder = format!("/proc/{}/task", program_of(timeout).trim());
    let threads = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
    names.any(|name| name.starts_with(start))
}

/// Whether a client came before its server listened, in the words of rping and ucmatose.
fn is_too_early(said: &str) -> bool {
    ["REJECTED, error: 8", "REJECTED, error 8", "UNREACHABLE, error: 1"]
        .iter()
        .any(|words| said.contains(words))
}

/// Whether a process listens at this TCP port.
fn is_listening(port: u16) -> bool {
    let end = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&end)) && fields.nth(1) == Some("0A")
        })
    })
}

/// A TCP port that no program has, and that the system does not give to a program that asks for any port.
fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id().wrapping_mul(61).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + u16::try_from(next % 12_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
