//! Programs that other people wrote, over the drop-in library and beside the same program over TCP.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::Args;
use super::table::{Spread, aligned, short};
use crate::clock::Stopwatch;
use crate::link_abi::{self, Build};
use crate::say::{complain, say};
use crate::shell::{Cmd, root, target_dir};

/// Its name for `--only`.
pub(crate) const NAME: &str = "programs";

/// How often a client is started until its server listens.
const TRIES: usize = 500;

/// Seconds after which a program hangs.
const PATIENCE: &str = "60";

/// rstream must have this share of the rate of `ib_write_bw`.
const LEAST_SHARE: f64 = 0.5;

/// What is measured on our library and beside something else, one after the other.
struct Figure {
    name: &'static str,
    unit: &'static str,
    ours: Side,
    /// None if there is nothing to compare with.
    beside: Option<(&'static str, Side)>,
    /// Rounds, and those of a quick look.
    rounds: [u32; 2],
}

/// A program, or two of them that meet. `PORT` stands for a free port, `ROUNDS` for the number of rounds, `MPI` for our program
/// for Open MPI.
#[derive(Clone, Copy)]
struct Side {
    /// Words before both lines: `ferroce run` with options.
    run: &'static str,
    variables: &'static [(&'static str, &'static str)],
    /// Empty if there is but one program.
    server: &'static str,
    client: &'static str,
    read: fn(&str) -> Option<f64>,
}

const OURS: &str = "ferroce run --";
const RC: &[(&str, &str)] = &[("UCX_TLS", "rc_v,self"), ("UCX_NET_DEVICES", "ferroce_lo:1")];
const TCP: &[(&str, &str)] = &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")];

const fn pair(
    run: &'static str,
    server: &'static str,
    client: &'static str,
    read: fn(&str) -> Option<f64>,
) -> Side {
    Side { run, variables: &[], server, client, read }
}

const RSTREAM: Side = pair(
    OURS,
    "rstream -b 127.0.0.1 -p PORT -S 65536 -C ROUNDS -I 1",
    "rstream -s 127.0.0.1 -p PORT -S 65536 -C ROUNDS -I 1",
    stream_rate,
);

const fn mpi(
    run: &'static str,
    variables: &'static [(&'static str, &'static str)],
    client: &'static str,
) -> Side {
    Side { run, variables, server: "", client, read: |said| after(said, "median", 1) }
}

const fn ucx(
    run: &'static str,
    variables: &'static [(&'static str, &'static str)],
    [server, client]: [&'static str; 2],
    read: fn(&str) -> Option<f64>,
) -> Side {
    Side { run, variables, server, client, read }
}

const TAG_BW: [&str; 2] = [
    "ucx_perftest -p PORT -t tag_bw -s 65536 -w 200 -n ROUNDS",
    "ucx_perftest -p PORT -t tag_bw -s 65536 -w 200 -n ROUNDS 127.0.0.1",
];
const TAG_LAT: [&str; 2] = [
    "ucx_perftest -p PORT -t tag_lat -s 8 -w 200 -n ROUNDS",
    "ucx_perftest -p PORT -t tag_lat -s 8 -w 200 -n ROUNDS 127.0.0.1",
];

const FIGURES: &[Figure] = &[
    Figure {
        name: "rstream, 64 KiB",
        unit: "GB/s",
        ours: RSTREAM,
        beside: Some((
            "ib_write_bw",
            pair(
                OURS,
                "ib_write_bw -F -x 0 -s 65536 -p PORT -n ROUNDS",
                "ib_write_bw -F -x 0 -s 65536 -p PORT -n ROUNDS 127.0.0.1",
                // Its megabytes are 2^20 bytes.
                |said| Some(after(said, "65536", 3)? * 1.048_576e-3),
            ),
        )),
        rounds: [20_000, 500],
    },
    Figure {
        name: "rstream, 64 KiB",
        unit: "GB/s",
        ours: RSTREAM,
        beside: Some((
            "TCP (`-T s`)",
            pair(
                "",
                "rstream -b 127.0.0.1 -p PORT -S 65536 -C ROUNDS -I 1 -T s",
                "rstream -s 127.0.0.1 -p PORT -S 65536 -C ROUNDS -I 1 -T s",
                stream_rate,
            ),
        )),
        rounds: [20_000, 500],
    },
    Figure {
        name: "rstream, 64 B, one way",
        unit: "us",
        ours: pair(
            OURS,
            "rstream -b 127.0.0.1 -p PORT -S 64 -C 1 -I ROUNDS",
            "rstream -s 127.0.0.1 -p PORT -S 64 -C 1 -I ROUNDS",
            |said| after(said, "custom", 7),
        ),
        beside: Some((
            "TCP (`-T s`)",
            pair(
                "",
                "rstream -b 127.0.0.1 -p PORT -S 64 -C 1 -I ROUNDS -T s",
                "rstream -s 127.0.0.1 -p PORT -S 64 -C 1 -I ROUNDS -T s",
                |said| after(said, "custom", 7),
            ),
        )),
        rounds: [20_000, 200],
    },
    Figure {
        name: "iperf3, `ferroce run --sockets`",
        unit: "GB/s",
        ours: pair(
            "ferroce run --sockets --",
            "iperf3 -s -1 -p PORT",
            "iperf3 -c 127.0.0.1 -p PORT -J -n ROUNDSM",
            sent_rate,
        ),
        beside: Some((
            "TCP",
            pair("", "iperf3 -s -1 -p PORT", "iperf3 -c 127.0.0.1 -p PORT -J -n ROUNDSM", sent_rate),
        )),
        rounds: [2_000, 50],
    },
    Figure {
        name: "UCX, `tag_bw`, 64 KiB",
        unit: "GB/s",
        ours: ucx(OURS, RC, TAG_BW, |said| Some(after(said, "Final:", 6)? * 1.048_576e-3)),
        beside: Some((
            "`UCX_TLS=tcp`",
            ucx("", TCP, TAG_BW, |said| Some(after(said, "Final:", 6)? * 1.048_576e-3)),
        )),
        rounds: [10_000, 500],
    },
    Figure {
        name: "UCX, `tag_lat`, 8 B",
        unit: "us",
        ours: ucx(OURS, RC, TAG_LAT, |said| after(said, "Final:", 2)),
        beside: Some(("`UCX_TLS=tcp`", ucx("", TCP, TAG_LAT, |said| after(said, "Final:", 2)))),
        rounds: [20_000, 200],
    },
    Figure {
        name: "Open MPI, 8 B, one way",
        unit: "us",
        ours: mpi(OURS, RC, "mpirun --allow-run-as-root -n 2 --mca pml ucx --mca btl ^openib MPI 8 ROUNDS"),
        beside: Some((
            "`--mca pml ob1 --mca btl tcp,self`",
            mpi(
                "",
                &[],
                "mpirun --allow-run-as-root -n 2 --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo MPI 8 ROUNDS",
            ),
        )),
        rounds: [10_000, 200],
    },
    Figure {
        name: "Open MPI, 1 MiB, one way",
        unit: "us",
        ours: mpi(
            OURS,
            RC,
            "mpirun --allow-run-as-root -n 2 --mca pml ucx --mca btl ^openib MPI 1048576 ROUNDS",
        ),
        beside: Some((
            "`--mca pml ob1 --mca btl tcp,self`",
            mpi(
                "",
                &[],
                "mpirun --allow-run-as-root -n 2 --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo MPI 1048576 ROUNDS",
            ),
        )),
        rounds: [500, 20],
    },
    Figure {
        name: "libfabric, datagrams of 1 KiB, one way",
        unit: "us",
        ours: pair(
            OURS,
            "fi_pingpong -p verbs -e dgram -S 1024 -I ROUNDS -B PORT",
            "fi_pingpong -p verbs -e dgram -S 1024 -I ROUNDS -P PORT 127.0.0.1",
            |said| after(said, "1k", 6),
        ),
        beside: Some((
            "UDP (`-p udp`)",
            pair(
                "",
                "fi_pingpong -p udp -e dgram -S 1024 -I ROUNDS -B PORT",
                "fi_pingpong -p udp -e dgram -S 1024 -I ROUNDS -P PORT 127.0.0.1",
                |said| after(said, "1k", 6),
            ),
        )),
        rounds: [5_000, 100],
    },
    Figure {
        name: "libfabric, `ofi_rxd`, 1 KiB, one way",
        unit: "us",
        ours: pair(
            OURS,
            "fi_pingpong -p verbs;ofi_rxd -e rdm -S 1024 -I ROUNDS -B PORT",
            "fi_pingpong -p verbs;ofi_rxd -e rdm -S 1024 -I ROUNDS -P PORT 127.0.0.1",
            |said| after(said, "1k", 6),
        ),
        beside: Some((
            "TCP (`-p tcp -e rdm`)",
            pair(
                "",
                "fi_pingpong -p tcp -e rdm -S 1024 -I ROUNDS -B PORT",
                "fi_pingpong -p tcp -e rdm -S 1024 -I ROUNDS -P PORT 127.0.0.1",
                |said| after(said, "1k", 6),
            ),
        )),
        rounds: [5_000, 100],
    },
    Figure {
        name: "cmtime, 1,000 connections, the whole program",
        unit: "s",
        // It is timed from outside.
        ours: pair(OURS, "cmtime -b 127.0.0.1 -p PORT", "cmtime -s 127.0.0.1 -p PORT -c ROUNDS", |_| None),
        beside: None,
        rounds: [1_000, 50],
    },
];

/// What programs are started with.
struct Bench {
    /// `ferroce` of the release, which finds the libraries beside it.
    ferroce: PathBuf,
    mpi: PathBuf,
    pin: bool,
    quick: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    link_abi::link(Build::Alone { release: true })?;
    Cmd::cargo("build --release -p ferroce-cli").run()?;
    let mpi = target_dir().join("release/mpi_pingpong");
    Cmd::new("mpicc")
        .args(["-O2", "-o"])
        .arg(&mpi)
        .arg(root().join("xtask/src/bench/mpi_pingpong.c"))
        .run()?;
    let ferroce = target_dir().join("release/ferroce");
    let bench = Bench { ferroce, mpi, pin: args.pin, quick: args.quick };
    let repeats = args.repeats.unwrap_or(if args.quick { 1 } else { 5 });
    let chosen = |figure: &&Figure| args.rest.iter().all(|words| figure.name.contains(words));
    let figures: Vec<&Figure> = FIGURES.iter().filter(chosen).collect();
    let mut samples = vec![Vec::new(); figures.len()];
    // Again and again, so that a slow minute falls on all of them.
    for repeat in 0..repeats {
        for (figure, samples) in figures.iter().zip(&mut samples) {
            complain!("repeat {} of {repeats}, {}", repeat + 1, figure.name);
            let rounds = figure.rounds[usize::from(args.quick)];
            let ours = bench.measured(&figure.ours, rounds)?;
            let beside = figure.beside.as_ref().map(|(_, side)| bench.measured(side, rounds)).transpose()?;
            samples.push((ours, beside));
        }
    }
    let mut rows = vec![["figure", "drop-in", "beside", "", "ratio"].map(String::from)];
    for (figure, samples) in figures.iter().zip(&samples) {
        let ratios = samples.iter().filter_map(|(ours, beside)| Some(ours / (*beside)?));
        rows.push([
            format!("{}, {}", figure.name, figure.unit),
            Spread::of(samples.iter().map(|(ours, _)| *ours)).show(),
            figure.beside.as_ref().map_or("-", |(name, _)| name).to_owned(),
            Spread::of(samples.iter().filter_map(|(_, beside)| *beside)).show(),
            Spread::of(ratios).show(),
        ]);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    say!("load {}; {cores} cores; {repeats} repeats\n", load.split(' ').next().unwrap_or_default());
    say!("{}", aligned(&rows));
    say!("Median (least to most). Both sides are measured one after the other; ratios are of these.");
    bench.judge(&figures, &samples)
}

impl Bench {
    /// Whether rstream is as fast as it must be.
    fn judge(&self, figures: &[&Figure], samples: &[Vec<(f64, Option<f64>)>]) -> Result<()> {
        let Some(place) = figures.iter().position(|figure| matches!(figure.beside, Some(("ib_write_bw", _))))
        else {
            return Ok(());
        };
        let ratios = samples[place].iter().filter_map(|(ours, beside)| Some(ours / (*beside)?));
        match Spread::of(ratios) {
            Spread::Of { median, .. } if median < LEAST_SHARE && !self.quick => {
                bail!("rstream has {} of the rate of ib_write_bw; {LEAST_SHARE} is asked for", short(median))
            }
            _ => Ok(()),
        }
    }

    fn measured(&self, side: &Side, rounds: u32) -> Result<f64> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let start = |line: &str, core: &str| self.started(side, line, core, &port, rounds);
        let server = if side.server.is_empty() { None } else { Some(start(side.server, "1")?) };
        let mut server = server.map(Ended);
        for _ in 0..TRIES {
            let watch = Stopwatch::start();
            let client = start(side.client, "0")?.wait_with_output()?;
            let took = watch.read().0.as_secs_f64();
            let said = words(&client);
            let is_timed = side.client.starts_with("cmtime");
            // It ends as if all were well when it is refused.
            let figure = if is_timed && !said.contains("error:") { Some(took) } else { (side.read)(&said) };
            if let Some(figure) = figure.filter(|_| client.status.success()) {
                return Ok(figure);
            }
            // It begins anew if the server does not listen yet. iperf3 is content without one if it is asked for JSON.
            let waits = server.as_mut().is_some_and(|server| matches!(server.0.try_wait(), Ok(None)));
            ensure!(waits, "{}: {}, without a figure\n{said}", side.client, client.status);
        }
        bail!("{}: the server never listened", side.server)
    }

    fn started(&self, side: &Side, line: &str, core: &str, port: &str, rounds: u32) -> Result<Child> {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", PATIENCE]);
        if self.pin && !side.server.is_empty() {
            command.args(["taskset", "-c", core]);
        }
        let rounds = rounds.to_string();
        for word in side.run.split_whitespace().chain(line.split_whitespace()) {
            match word {
                "ferroce" => command.arg(&self.ferroce),
                "MPI" => command.arg(&self.mpi),
                word => command.arg(word.replace("PORT", port).replace("ROUNDS", &rounds)),
            };
        }
        command.envs(side.variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().with_context(|| format!("cannot start {line}"))
    }
}

/// A server that is ended when it is not needed any more: some do not end by themselves.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // `timeout` hands the signal on.
        let _ = Command::new("kill").arg(self.0.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// A column of the line that begins with a word.
fn after(said: &str, first: &str, column: usize) -> Option<f64> {
    let line = said.lines().find(|line| line.split_whitespace().next() == Some(first))?;
    line.split_whitespace().nth(column)?.parse().ok()
}

/// Gigabytes in a second, of rstream.
fn stream_rate(said: &str) -> Option<f64> {
    Some(after(said, "custom", 6)? / 8.0)
}

/// Gigabytes in a second, of iperf3.
fn sent_rate(said: &str) -> Option<f64> {
    let answer: Value = serde_json::from_str(said.trim()).ok()?;
    Some(answer["end"]["sum_received"]["bits_per_second"].as_f64()? / 8e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_programs_say() {
        let rstream = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n\
                       custom    64k     2k      1       250m        2.79s      0.80     698.28\n";
        assert!((stream_rate(rstream).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(after(rstream, "custom", 7), Some(698.28));
        let ucx = "[thread 0]  889  3.1 570.9 570.9 0.01 0.01 1751 1751\n\
                   Final:     2000  3.162   226.842   379.803        0.03       0.02        4408        2633\n";
        assert_eq!(after(ucx, "Final:", 2), Some(3.162));
        let iperf = r#"{ "end": { "sum_received": { "bits_per_second": 16e9 } } }"#;
        assert_eq!(sent_rate(iperf), Some(2.0));
        assert_eq!(sent_rate("iperf3: error"), None);
    }
}
