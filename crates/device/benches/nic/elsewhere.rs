//! The same work by other libraries, as their own programs measure it, on loopback: UCX over TCP and through memory, and
//! libfabric's reliable datagrams over UDP.

use std::error::Error;
use std::fmt;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::samples::Sample;
use crate::{Outcome, Settings};

/// How long a pair of programs may take, and how long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a child is looked after.
const LOOK_AFTER: Duration = Duration::from_millis(2);

/// Bytes of a large message.
const LARGE: &str = "1048576";

/// A program that is not on the path: no failure, but a baseline less.
#[derive(Debug)]
pub(crate) struct NotInstalled {
    package: &'static str,
}

impl fmt::Display for NotInstalled {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "not installed: apt install {}", self.package)
    }
}

impl Error for NotInstalled {}

/// UCX, a few bytes to and fro: the median of half round trips in microseconds. A `test` of `ucx_perftest`.
pub(crate) fn ucx_latency(settings: &Settings, test: &str, bytes: &str) -> Outcome<Sample> {
    let rounds = if settings.shared { 500 } else { 50 } * millis(settings);
    let columns = ucx(settings, &["-t", test, "-s", bytes], rounds)?;
    column(&columns, 1).map(Sample::new)
}

/// UCX, messages of 1 MiB, 16 under way: gigabytes per second, the mean. A `test` of `ucx_perftest`.
pub(crate) fn ucx_bandwidth(settings: &Settings, test: &str) -> Outcome<Sample> {
    let columns = ucx(settings, &["-t", test, "-s", LARGE, "-O", "16"], millis(settings))?;
    // Its megabytes are 2^20 bytes.
    Ok(Sample::new(column(&columns, 5)? * 1.048_576e-3))
}

/// libfabric's `udp;ofi_rxd`, 1 MiB to and fro, as that is what its package measures: gigabytes per second.
pub(crate) fn rxd_bandwidth(settings: &Settings) -> Outcome<Sample> {
    let program = Program { name: "fi_pingpong", package: "libfabric-bin", pin: settings.pin };
    // It may move less than 100 MB in a second.
    let rounds = (millis(settings) / 10).max(5).to_string();
    let common = ["-p", "udp;ofi_rxd", "-e", "rdm", "-d", "lo", "-I", &rounds, "-S", LARGE];
    let said = program.pair(
        |command, port| {
            command.args(common).args(["-B", port]);
        },
        |command, port| {
            command.args(common).args(["-P", port, "127.0.0.1"]);
        },
    )?;
    // After a line with the names of the columns: bytes, sent, acknowledged, total, time, MB/sec.
    let line = said.lines().find(|line| line.trim_start().starts_with("1m"));
    let value = line.and_then(|line| line.split_whitespace().nth(5)?.parse::<f64>().ok());
    let value = value.ok_or_else(|| format!("fi_pingpong said {said:?}"))?;
    Ok(Sample::new(value / 1e3))
}

/// Runs a test of `ucx_perftest`: rounds, then the percentile, mean and mean of all in microseconds, then
/// bandwidth twice and rate twice.
fn ucx(settings: &Settings, test: &[&str], rounds: u64) -> Outcome<Vec<f64>> {
    let program = Program { name: "ucx_perftest", package: "ucx-utils", pin: settings.pin };
    let (warm, rounds) = ((rounds / 5).to_string(), rounds.to_string());
    let transports = if settings.shared { "posix,cma" } else { "tcp" };
    let over = |command: &mut Command, port: &str| {
        command.env("UCX_TLS", transports).args(["-p", port]);
        if !settings.shared {
            command.env("UCX_NET_DEVICES", "lo");
        }
    };
    let said = program.pair(over, |command, port| {
        over(command, port);
        command.arg("127.0.0.1").args(test).args(["-n", &rounds, "-w", &warm]);
    })?;
    let line = said.lines().find_map(|line| line.trim_start().strip_prefix("Final:"));
    let columns = line.map(|line| line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>());
    columns.and_then(Result::ok).ok_or_else(|| format!("ucx_perftest said {said:?}").into())
}

fn column(columns: &[f64], at: usize) -> Outcome<f64> {
    columns.get(at).copied().ok_or_else(|| format!("there are only {} columns", columns.len()).into())
}

fn millis(settings: &Settings) -> u64 {
    u64::try_from(settings.duration.as_millis()).unwrap_or(u64::MAX).max(20)
}

/// A program that is its own server.
#[derive(Clone, Copy, Debug)]
struct Program {
    name: &'static str,
    package: &'static str,
    pin: bool,
}

impl Program {
    /// Starts a server and a client that meet at a port: what the client says.
    fn pair(
        self,
        serve: impl Fn(&mut Command, &str),
        connect: impl Fn(&mut Command, &str),
    ) -> Outcome<String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join(self.name).is_file()) {
            return Err(NotInstalled { package: self.package }.into());
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let mut server = self.command("1");
        serve(&mut server, &port);
        let mut server = Running(server.stdout(Stdio::null()).spawn()?);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut client = self.command("0");
            connect(&mut client, &port);
            let mut client = Running(client.stdout(Stdio::piped()).spawn()?);
            let done = client.ends_until(deadline)?;
            if done {
                let mut said = String::new();
                client.0.stdout.take().ok_or("it has no output")?.read_to_string(&mut said)?;
                server.ends_until(deadline)?;
                return Ok(said);
            }
            // A server that does not listen yet is asked again.
            if server.0.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(format!("{} failed, or took too long", self.name).into());
            }
            std::thread::sleep(LOOK_AFTER);
        }
    }

    fn command(self, core: &str) -> Command {
        let mut command = Command::new(if self.pin { Path::new("taskset") } else { Path::new(self.name) });
        if self.pin {
            command.args(["-c", core, self.name]);
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A child that does not outlive its measurement.
#[derive(Debug)]
struct Running(Child);

impl Running {
    /// Waits for its end: whether it ended well, and in time.
    fn ends_until(&mut self, deadline: Instant) -> Outcome<bool> {
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(LOOK_AFTER);
        }
        Ok(false)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
