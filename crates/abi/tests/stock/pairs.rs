//! A server and a client, each a process, on one address.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::library::{said, with_library};

/// How often a client is started until its server listens.
const TRIES: usize = 200;

/// A program that is started twice: as a server, and as a client that is told where the server is.
pub(crate) struct Pair<'a> {
    /// The program.
    pub(crate) program: &'a str,
    /// Its arguments, for both.
    pub(crate) args: &'a [&'a str],
    /// The address of both their devices: two processes share it.
    pub(crate) address: &'a str,
    /// Variables of both.
    pub(crate) variables: &'a [(&'a str, &'a str)],
}

impl Pair<'_> {
    /// Runs both to their ends, which must be good ones, and returns what the client and the server said.
    pub(crate) fn run(&self) -> (String, String) {
        self.try_run().unwrap_or_else(|both| panic!("{self}: {both}"))
    }

    /// The same, or what both said if one of the ends was not good.
    pub(crate) fn try_run(&self) -> Result<(String, String), String> {
        let port = free_port().to_string();
        let server = self.started(&port, None);
        for _ in 0..TRIES {
            let client = self.started(&port, Some("127.0.0.1")).wait_with_output().unwrap();
            let client_said = said(&client);
            // It begins anew if the server does not listen yet.
            if !client.status.success() && is_too_early(&client_said) {
                continue;
            }
            let server = server.wait_with_output().unwrap();
            let server_said = said(&server);
            let both =
                format!("client: {}\n{client_said}\nserver: {}\n{server_said}", client.status, server.status);
            let good = client.status.success() && server.status.success();
            return if good { Ok((client_said, server_said)) } else { Err(both) };
        }
        let server = ended(server);
        panic!("{self}: the server never listened: {server}");
    }

    /// Starts both, and kills them in the middle, with a signal that cannot be caught.
    pub(crate) fn run_and_kill(&self) {
        let port = free_port().to_string();
        let mut server = self.started(&port, None);
        for _ in 0..TRIES {
            let mut client = self.started(&port, Some("127.0.0.1"));
            // It prints what the two have agreed on, and then begins.
            let mut out = BufReader::new(client.stdout.take().unwrap());
            let mut begun = false;
            let mut line = String::new();
            while out.read_line(&mut line).unwrap() > 0 {
                begun |= line.contains("remote address");
                if begun {
                    break;
                }
                line.clear();
            }
            for child in [&mut client, &mut server] {
                if begun {
                    signal_program_of(child, "-KILL");
                }
            }
            let _ = client.wait();
            if begun {
                let _ = server.wait();
                return;
            }
        }
        panic!("{self}: the server never listened: {}", ended(server));
    }

    fn started(&self, port: &str, server: Option<&str>) -> Child {
        let mut command = with_library(self.program, self.address);
        command.args(self.args).args(["-p", port]).args(server);
        command.envs(self.variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl std::fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program, self.args.join(" "))
    }
}

/// Sends a signal to the program that `timeout` runs.
pub(crate) fn signal_program_of(timeout: &Child, signal: &str) {
    let children = format!("/proc/{0}/task/{0}/children", timeout.id());
    let children = fs::read_to_string(children).unwrap_or_default();
    for child in children.split_whitespace() {
        let _ = Command::new("kill").args([signal, child]).status();
    }
}

fn is_too_early(said: &str) -> bool {
    ["Couldn't connect", "Unable to init the socket connection", "Connection refused"]
        .iter()
        .any(|words| said.contains(words))
}

fn ended(mut server: Child) -> String {
    // `timeout` hands the signal on.
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    let _ = server.wait();
    server.wait_with_output().map(|output| said(&output)).unwrap_or_default()
}

/// A TCP port that no program has, and that the system does not give to a program that asks for any port:
/// else a connection of another pair may get it before the server does.
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
