//! A server and a client of one table, run to their ends on one address.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::library::{is_long, said, with_library_for};

/// How often a client is started until its server listens.
const TRIES: usize = 400;

/// Seconds after which a program hangs.
const PATIENCE: &str = "60";

/// The same in the long form, which has programs that work for a minute, and for some where others compute beside them.
const LONG_PATIENCE: &str = "600";

/// The same for udpong, which takes part of a second.
const SHORT_PATIENCE: &str = "20";

/// How often udpong is tried that goes round in circles. It sends again what no echo came of within a millisecond, and what it
/// sends again is the echo that came last: if a processor is kept from it for long, so many old messages are under way that
/// one finds no room, and if that is the one that it waits for, it sends old ones for ever.
const ROUNDABOUTS: usize = 4;

/// What is said of a program that `timeout` has ended.
const HANGS: &str = "client: exit status: 124";

/// What cmtime says of a connection that is refused, and how many it makes. It ends as if all were well.
const REFUSED: &str = "REJECTED, error: 8";
const ALL: usize = 1000;

/// What rping says if its thread for events asks for the next one when its main thread has closed the channel already. It does
/// so after all is done, with rdma-core too, and then ends with an error.
const OVERTAKEN: &str = "rdma_get_cm_event: Bad file descriptor";

/// The port of udpong.
const UDPONG: u16 = 7174;

/// Seconds that a server has to come to its own end once its client has failed.
const LAST_WORDS: &str = "5";

/// Two programs at this address meet over the network; at other addresses they take the shortest path, which leads through
/// memory that both share.
pub(crate) const WIRE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 89, 11));

/// Programs that meet by `rdma_cm`. `A` stands for the address of both, `FILE` for a file and `COPY` for what it is
/// copied to.
pub(crate) struct Meeting {
    pub(crate) server: &'static str,
    pub(crate) client: &'static str,
    pub(crate) manner: Manner,
    pub(crate) over: Over,
    /// What the client says, and what the server says, if all went well.
    pub(crate) proof: [&'static str; 2],
    /// How often it is run, and how often in the long form.
    pub(crate) times: [usize; 2],
}

/// How the server goes about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It ends with its client.
    Ends,
    /// It goes on, and is ended after so many clients.
    GoesOn(usize),
    /// It goes on, and takes datagrams on a UDP port of the kernel. A client that comes before it asks again in a second.
    TakesDatagrams,
    /// It says that it listens: what is sent before is lost.
    Listens,
}

/// What the programs can run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Both,
    V4,
    V6,
}

impl Over {
    pub(crate) fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Both => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

impl Meeting {
    /// What the table of the documentation says of it.
    pub(crate) fn row(&self) -> String {
        let over = match self.over {
            Over::Both => "IPv4, IPv6",
            Over::V4 => "IPv4",
            Over::V6 => "IPv6",
        };
        format!("| `{}` | `{}` | {over} |", self.server, self.client)
    }

    /// Runs both to good ends, or says how it went.
    pub(crate) fn run(&self, address: IpAddr) -> Result<(), String> {
        let mut ran = self.run_once(address);
        for _ in 1..ROUNDABOUTS {
            if self.manner != Manner::TakesDatagrams || !ran.as_ref().is_err_and(|told| told.contains(HANGS))
            {
                break;
            }
            ran = self.run_once(address);
        }
        ran
    }

    fn run_once(&self, address: IpAddr) -> Result<(), String> {
        let lines = [self.server, self.client].map(|line| filled(line, address));
        let mut server = Server::started(&lines[0], address, self.manner);
        let rounds = if let Manner::GoesOn(rounds) = self.manner { rounds } else { 1 };
        let called = (0..rounds).try_for_each(|_| self.call(&lines[1], address, &mut server));
        let goes_on = !matches!(self.manner, Manner::Ends | Manner::Listens);
        let (status, server) = match (&called, goes_on) {
            (Ok(()), false) => server.awaited(),
            (Ok(()), true) => server.ended(),
            (Err(_), _) => server.ended_if_it_hangs(),
        };
        let is_good = (goes_on || status.success()) && server.contains(self.proof[1]);
        let client = match called {
            Ok(()) if is_good => return Ok(()),
            Ok(()) => "client: all went well".into(),
            Err(client) => client,
        };
        Err(format!("{} + {} on {address}\n{client}\nserver: {status}\n{server}", self.server, self.client))
    }

    /// One client, begun anew while the server does not listen yet.
    fn call(&self, line: &str, address: IpAddr, server: &mut Server) -> Result<(), String> {
        let copy = copy_of(address);
        let _ = fs::remove_file(&copy);
        let mut heard = String::new();
        for _ in 0..TRIES {
            let client = command(line, address, self.manner)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let output = client.wait_with_output().unwrap();
            heard = format!("client: {}\n{}", output.status, said(&output));
            let is_in_vain = !output.status.success() || heard.matches(REFUSED).count() == ALL;
            let is_overtaken = heard.contains("DISCONNECT EVENT") && heard.contains(OVERTAKEN);
            if is_in_vain && (is_too_early(&heard) || is_overtaken) && server.is_running() {
                if self.manner == Manner::Ends {
                    // It may have begun to listen under way, and have met some of the connections of this client: udaddy and
                    // ucmatose meet so many and no more, so that the next client would wait for the others in vain.
                    server.begin_anew(&filled(self.server, address), address, self.manner);
                }
                continue;
            }
            let is_whole = !line.contains(&copy.display().to_string())
                || fs::read(&copy).is_ok_and(|copy| copy == fs::read(file()).unwrap());
            let is_good =
                output.status.success() && heard.contains(self.proof[0]) && !heard.contains("error:");
            return match (is_good, is_whole) {
                (true, true) => Ok(()),
                (true, false) => Err(format!("{heard}the copy differs from the file")),
                (false, _) => Err(heard),
            };
        }
        Err(format!("the server never listened; at last\n{heard}"))
    }
}

/// A server that runs. What it says goes to a file, so that it never waits for its reader.
struct Server {
    timeout: Child,
    told: PathBuf,
}

impl Server {
    fn started(line: &str, address: IpAddr, manner: Manner) -> Self {
        let program = line.split_whitespace().next().unwrap_or_default();
        let told = scratch(&format!("told-{program}-{address}"));
        let file = File::create(&told).unwrap();
        let mut command = command(line, address, manner);
        let timeout = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let mut server = Self { timeout, told };
        match manner {
            Manner::Listens => {
                while !server.told().contains("receiving data transfers") && server.is_running() {
                    std::thread::yield_now();
                }
            }
            Manner::Ends | Manner::GoesOn(_) => wait_for_manager(&server.timeout),
            Manner::TakesDatagrams => {
                while !is_bound(UDPONG, address) && server.is_running() {
                    std::thread::yield_now();
                }
            }
        }
        server
    }

    /// Ends it, and starts another one in its place.
    fn begin_anew(&mut self, line: &str, address: IpAddr, manner: Manner) {
        self.end();
        let _ = self.timeout.wait().unwrap();
        *self = Self::started(line, address, manner);
    }

    fn told(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.told).unwrap()).into_owned()
    }

    fn is_running(&mut self) -> bool {
        self.timeout.try_wait().unwrap().is_none()
    }

    /// How it ended by itself, and what it said.
    fn awaited(mut self) -> (ExitStatus, String) {
        (self.timeout.wait().unwrap(), self.told())
    }

    fn end(&self) {
        // `timeout` hands the signal on.
        let _ = Command::new("kill").arg(self.timeout.id().to_string()).status();
    }

    /// Ends it.
    fn ended(self) -> (ExitStatus, String) {
        self.end();
        self.awaited()
    }

    /// Its last words, if it has any, say more than its death.
    fn ended_if_it_hangs(mut self) -> (ExitStatus, String) {
        if self.is_running() {
            let pid = format!("--pid={}", self.timeout.id());
            let _ = Command::new("timeout").args([LAST_WORDS, "tail", &pid, "-f", "/dev/null"]).status();
        }
        if self.is_running() { self.ended() } else { self.awaited() }
    }
}

fn command(line: &str, address: IpAddr, manner: Manner) -> Command {
    let patience = match manner {
        Manner::TakesDatagrams => SHORT_PATIENCE,
        _ if is_long() => LONG_PATIENCE,
        _ => PATIENCE,
    };
    // Lines that stay in a buffer are lost when a program is ended.
    let mut command = with_library_for(patience, "stdbuf", &address.to_string());
    // What a program tries in vain is its own business here.
    command.env_remove("FERROCE_LOG").arg("-oL").args(line.split_whitespace());
    command.env("FERROCE_PATH", if address == WIRE { "forbid" } else { "prefer" });
    command
}

fn filled(line: &str, address: IpAddr) -> String {
    let word = |word: &str| match word {
        "A" => address.to_string(),
        "FILE" => file().display().to_string(),
        "A:COPY" => format!("{address}:{}", copy_of(address).display()),
        other => other.to_owned(),
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// The file that is copied.
fn file() -> PathBuf {
    let path = scratch("copied-from");
    if !path.exists() {
        let bytes = (0..3_000_001_u32).map(|number| number.wrapping_mul(31).to_le_bytes()[1]);
        fs::write(&path, bytes.collect::<Vec<u8>>()).unwrap();
    }
    path
}

fn copy_of(address: IpAddr) -> PathBuf {
    scratch(&format!("copied-to-{address}"))
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace(':', "_"))
}

/// Whether a UDP socket of this family has this port.
fn is_bound(port: u16, family: IpAddr) -> bool {
    let port = format!(":{port:04X}");
    let table =
        fs::read_to_string(if family.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" }).unwrap();
    table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&port)))
}

/// Waits until a program has a connection manager: the next thing that it does is to listen. Some clients cannot be
/// refused, they go on with what they have freed.
fn wait_for_manager(timeout: &Child) {
    let children = format!("/proc/{0}/task/{0}/children", timeout.id());
    for _ in 0..1_000_000 {
        let program = fs::read_to_string(&children).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{}/task", program.trim())).into_iter().flatten().flatten();
        let mut names =
            threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
        if names.any(|name| name.trim() == "ferroce-cm") {
            return;
        }
        std::thread::yield_now();
    }
}

/// Whether a client came before its server listened.
fn is_too_early(said: &str) -> bool {
    // In the words of ucmatose, cmtime and udaddy, of rping, of rdma_client, and of perftest's first connection. Its
    // second one is another matter: the server waits for that client alone.
    let words = ["REJECTED, error: 8", "UNREACHABLE, error: 1", "REJECTED, error 8", "Connection refused"];
    words.iter().any(|words| said.contains(words)) || said.contains("Unexpected CM event bl blka 8")
}
