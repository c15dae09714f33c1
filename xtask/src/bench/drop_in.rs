//! Stock programs on the drop-in library, over the network and through memory, beside `ferroce perf` and plain sockets.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Args;
use super::line::Line;
use super::table::Spread;
use crate::link_abi::{self, Build};
use crate::say::{complain, say};
use crate::shell::{Cmd, root, target_dir};

/// Its name for `--only`.
pub(crate) const NAME: &str = "drop-in";

/// How often a client is started until its server listens.
const TRIES: usize = 500;

/// What is measured in three ways.
struct Figure {
    name: &'static str,
    unit: &'static str,
    /// The program of perftest, and its arguments but for the number of rounds.
    tool: &'static str,
    args: &'static [&'static str],
    /// Rounds, and those of a quick look.
    rounds: [u32; 2],
    /// Which column of its table, and what that is in our unit.
    column: usize,
    scale: f64,
    /// The same by `ferroce perf`, which field of its answer, and what that is in our unit.
    perf: &'static [&'static str],
    field: &'static str,
    field_scale: f64,
    /// The figure of the device's benchmark whose raw side stands beside it.
    raw: &'static str,
    raw_scale: f64,
}

/// Both ends of `ib_write_lat` poll for the end of their own WRITE before they look at their memory, so the card's work is done
/// by polling. The target of `ib_write_bw` sleeps until it is told that all is over.
const FIGURES: &[Figure] = &[
    Figure {
        name: "WRITE 64 KiB, depth 128",
        unit: "GB/s",
        tool: "ib_write_bw",
        args: &["-s", "65536", "-t", "128"],
        rounds: [20_000, 500],
        column: 3,
        // Its megabytes are 2^20 bytes.
        scale: 1.048_576e-3,
        perf: &["write", "--bw", "--size", "64K", "--depth", "128"],
        field: "bytes_per_second",
        field_scale: 1e-9,
        raw: "WRITE 64 KiB, depth 16",
        raw_scale: 1.0,
    },
    Figure {
        name: "WRITE 8 B, RTT/2, both poll",
        unit: "us",
        tool: "ib_write_lat",
        args: &["-s", "8"],
        rounds: [20_000, 200],
        column: 4,
        scale: 1.0,
        perf: &["write", "--lat", "--size", "8", "--target", "poll"],
        field: "p50",
        field_scale: 1e-3,
        raw: "WRITE 8 B, RTT/2",
        raw_scale: 1.0,
    },
    // The program posts them one by one; `ferroce perf` posts lists.
    Figure {
        name: "SEND 64 B rate, depth 128",
        unit: "M/s",
        tool: "ib_send_bw",
        args: &["-s", "64", "-t", "128", "-r", "512"],
        rounds: [500_000, 5_000],
        column: 4,
        scale: 1.0,
        perf: &["send", "--rate", "--size", "64", "--depth", "128"],
        field: "messages_per_second",
        field_scale: 1e-6,
        raw: "SEND 64 B rate, single posts, depth 128",
        raw_scale: 1.0,
    },
];

/// The programs, built for a release.
struct Programs {
    ferroce: PathBuf,
    library: PathBuf,
    pin: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let library = link_abi::link(Build::Alone { release: true })?;
    Cmd::cargo("build --release -p ferroce-cli").run()?;
    let programs = Programs { ferroce: target_dir().join("release/ferroce"), library, pin: args.pin };
    let repeats = args.repeats.unwrap_or(if args.quick { 1 } else { 5 });
    let mut rows = vec![
        [
            "figure",
            "drop-in",
            "drop-in, shared",
            "ferroce perf",
            "raw UDP",
            "drop-in / perf",
            "drop-in / raw",
            "shared / drop-in",
        ]
        .map(String::from),
    ];
    let mut samples = vec![Vec::new(); FIGURES.len()];
    // Again and again, so that a slow minute falls on all of them.
    for repeat in 0..repeats {
        for (figure, samples) in FIGURES.iter().zip(&mut samples) {
            complain!("repeat {} of {repeats}, {}", repeat + 1, figure.name);
            let raw = figure.raw(args)?;
            let perf = programs.perf(figure, args.quick)?;
            let stock = programs.stock(figure, args.quick, "0")?;
            let shared = programs.stock(figure, args.quick, "1")?;
            samples.push([stock, shared, perf, raw]);
        }
    }
    for (figure, samples) in FIGURES.iter().zip(&samples) {
        let show = |value: fn(&[f64; 4]) -> f64| Spread::of(samples.iter().map(value)).show();
        rows.push([
            format!("{} [{}]", figure.name, figure.unit),
            show(|[stock, ..]| *stock),
            show(|[_, shared, ..]| *shared),
            show(|[_, _, perf, _]| *perf),
            show(|[.., raw]| *raw),
            show(|[stock, _, perf, _]| stock / perf),
            show(|[stock, .., raw]| stock / raw),
            show(|[stock, shared, ..]| shared / stock),
        ]);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    say!("load {}; {repeats} repeats\n", load.split(' ').next().unwrap_or_default());
    for (index, row) in rows.iter().enumerate() {
        say!("| {} |", row.join(" | "));
        if index == 0 {
            say!("|{}", "---|".repeat(row.len()));
        }
    }
    say!(
        "\nMedian (least to most). In each repeat raw, perf and drop-in are measured one after the other; ratios are of these. \
         All go over the network, but for the column that says how."
    );
    Ok(())
}

impl Figure {
    /// The raw side of a figure of the device, once.
    fn raw(&self, args: &Args) -> Result<f64> {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["bench", "-q", "-p", "ferroce-device", "--bench", "nic", "--", "--repeats", "1"]);
        for (wanted, flag) in [(args.quick, "--quick"), (args.pin, "--pin")] {
            command.args(wanted.then_some(flag));
        }
        let output = command.arg(self.raw).current_dir(root()).stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        for line in text.lines() {
            let sample = Line::parse(line).context("reading what the benchmark says")?;
            if sample.text("kind")? != "machine" && sample.text("side")? == "raw" {
                return Ok(sample.number("value")? * self.raw_scale);
            }
        }
        bail!("the benchmark of the device has no raw figure for {:?}: {text}", self.raw)
    }
}

impl Programs {
    fn command(&self, program: &Path, core: &str) -> Command {
        let mut command = Command::new(if self.pin { Path::new("taskset") } else { program });
        if self.pin {
            command.args(["-c", core]).arg(program);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// `ferroce perf` between two processes.
    fn perf(&self, figure: &Figure, quick: bool) -> Result<f64> {
        let mut server = self.command(&self.ferroce, "1");
        let mut server = server.args(["perf", "--server", "--port", "0"]).spawn().context("ferroce perf")?;
        let mut line = String::new();
        let output = server.stdout.take().context("the server has no output")?;
        let mut output = BufReader::new(output);
        output.read_line(&mut line)?;
        let port = line.trim_end().rsplit(' ').next().unwrap_or_default().to_owned();
        let mut client = self.command(&self.ferroce, "0");
        client.arg("perf").args(figure.perf).args(["--connect", "127.0.0.1", "--port", &port, "--json"]);
        client.args(["--duration", if quick { "0.05" } else { "0.5" }]);
        let client = client.stderr(Stdio::piped()).output().context("ferroce perf")?;
        let said = String::from_utf8_lossy(&client.stdout);
        if !client.status.success() {
            // It would wait for the next one.
            let _ = server.kill();
            let _ = server.wait();
            bail!("ferroce perf failed: {line}{said}{}", String::from_utf8_lossy(&client.stderr));
        }
        ensure!(server.wait()?.success(), "the server of ferroce perf failed: {said}");
        let value = field(&said, figure.field).with_context(|| format!("no {} in {said}", figure.field))?;
        Ok(value * figure.field_scale)
    }

    /// A program of perftest between two processes, which share memory or do not.
    fn stock(&self, figure: &Figure, quick: bool, shared: &str) -> Result<f64> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let rounds = figure.rounds[usize::from(quick)].to_string();
        let started = |core: &str, host: Option<&str>| -> Result<Child> {
            let mut command = self.command(Path::new(figure.tool), core);
            command.args(["-F", "-x", "0", "-p", &port, "-n", &rounds]).args(figure.args).args(host);
            command.env("LD_LIBRARY_PATH", &self.library).env("FERROCE_SHARED", shared).stderr(Stdio::null());
            command.spawn().with_context(|| format!("{} (package perftest)", figure.tool))
        };
        let mut server = started("1", None)?;
        for _ in 0..TRIES {
            let client = started("0", Some("127.0.0.1"))?.wait_with_output()?;
            if !client.status.success() && server.try_wait()?.is_none() {
                // It begins anew if the server does not listen yet.
                continue;
            }
            let said = String::from_utf8_lossy(&client.stdout);
            let server = server.wait()?;
            ensure!(client.status.success() && server.success(), "{} failed: {said}", figure.tool);
            let value = cell(&said, figure.args[1], figure.column);
            return Ok(value.with_context(|| format!("{} said {said}", figure.tool))? * figure.scale);
        }
        let _ = server.kill();
        let _ = server.wait();
        bail!("{}: the server never listened", figure.tool)
    }
}

/// A number of the only row of an answer in JSON, or of its latencies.
fn field(text: &str, name: &str) -> Option<f64> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let row = &answer["rows"][0];
    row[name].as_f64().or_else(|| row["latency_ns"][name].as_f64())
}

/// A column of perftest's line for this size.
fn cell(text: &str, size: &str, column: usize) -> Option<f64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(size))?;
    line.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_programs_say() {
        let json = r#"{ "rows": [{ "bytes_per_second": 3.5e9, "latency_ns": { "p50": 5759 } }] }"#;
        assert_eq!(field(json, "p50"), Some(5759.0));
        assert_eq!(field(json, "bytes_per_second"), Some(3.5e9));
        assert_eq!(field(json, "p99"), None);
        assert_eq!(field("the peer is gone", "p50"), None);
        let table = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]\n 65536   500   2100.5   2000.25   0.03\n";
        assert_eq!(cell(table, "65536", 3), Some(2000.25));
        assert_eq!(cell(table, "8", 3), None);
    }
}
