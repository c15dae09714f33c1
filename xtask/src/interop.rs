//! `cargo xtask interop`: our stack against the Linux kernel's soft-RoCE, which runs in a guest.

mod image;
mod vm;
mod world;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::clock::Stopwatch;
use crate::link_abi::{self, Build};
use crate::say::say;
use crate::setup;
use crate::shell::{Cmd, root, target_dir};
use vm::{Guest, Shape};
use world::World;

/// Options of `cargo xtask interop`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Leave guest and namespace as they are afterwards, and say how to use and end them
    #[arg(long)]
    keep: bool,
    /// Only the cases for this MTU of the link: 1500 or 9000
    #[arg(long, value_name = "BYTES", value_parser = ["1500", "9000"])]
    mtu: Option<String>,
    /// Only cases whose name contains this; repeat for several
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// What takes long only over IPv4 with MTU 1500 and over IPv6 with MTU 9000, as `cargo xtask test` has it
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// 10,000 rounds with the kernel's own tools
    #[arg(long)]
    long: bool,
    /// Only measure how fast the kernel's device, we and plain sockets are, all in one guest
    #[arg(long, conflicts_with_all = ["short", "long", "only", "mtu", "pcap", "json"])]
    speed: bool,
    /// With --speed: how often everything is measured
    #[arg(long, value_name = "TIMES", default_value_t = 5, requires = "speed")]
    repeats: u32,
    /// Only show how the kernel's device stops sending when its network card lets go of packets late
    #[arg(long, conflicts_with_all = ["short", "long", "only", "mtu", "pcap", "json", "speed", "write_docs"])]
    stall: bool,
    /// Only run all of `ferroce selftest` in the guest, over the kernel's device as a card
    #[arg(long, conflicts_with_all = ["short", "long", "mtu", "pcap", "json", "speed", "stall", "write_docs"])]
    card: bool,
    /// Only run programs of ours over the kernel's device as a card, and between it and ours
    #[arg(long, conflicts_with_all = ["short", "mtu", "pcap", "json", "speed", "stall", "card", "write_docs"])]
    programs: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Put the table into docs/interop.md, or that of --speed into docs/performance.md
    #[arg(long)]
    write_docs: bool,
    /// Write all packets of the run into this file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        return Cmd::new(&build()?).arg("--list").run();
    }
    if let Some(missing) = missing() {
        bail!("interop: {missing}");
    }
    let program = build()?;
    run_built(args, &program, Build::Alone { release: false })
}

fn run_built(args: &Args, program: &str, build: Build) -> Result<()> {
    // Stock programs at our end run on it.
    let library = link_abi::link(build)?;
    let watch = Stopwatch::start();
    let image = image::ready(&target_dir().join("interop"))?;
    let mut world = World::create()?;
    let shape = if args.speed {
        let early = world.run_dir().join("initramfs");
        image::with_program(&image, &build_speed()?, &early)?;
        // Both ends of what is measured are busy all the time.
        Shape { initramfs: early, processors: 2, napi_tx: false }
    } else {
        // One processor is enough, and leaves the others to other programs.
        Shape { initramfs: image.join("initramfs.zst"), processors: 1, napi_tx: args.stall }
    };
    let mut guest = Guest::boot(&image, &shape, &world)?;
    say!("interop: Linux {} is up with {} after {}", guest.kernel, guest.accelerator, watch.read());
    let more = if args.programs { programs(args.long)? } else { Vec::new() };
    let result = Cmd::new("ip")
        .args(["netns", "exec", world.namespace(), program, "--guest", world::GUEST])
        .arg("--versions")
        .arg(image.join("versions"))
        .arg("--library")
        .arg(&library)
        .arg("--ferroce")
        .arg(ferroce())
        .args(pass_on(args))
        .args(more)
        .env("FERROCE_NETDEV", world::DEVICES)
        .run();
    if result.is_err() {
        say!("interop: {}", guest.obituary(&world));
    }
    if args.keep {
        world.keep();
        say!("{}", how_to_use(&world, &guest, program, &library));
    }
    result
}

/// As part of `cargo xtask test`: where it cannot run, the rule of [`setup`] decides whether that is a failure.
pub(crate) fn check() -> Result<String> {
    if let Some(missing) = missing() {
        ensure!(!setup::skipping_is_failing(), "{missing}");
        return Ok(format!("SKIPPED: {missing}"));
    }
    run_built(&Args { short: true, ..Args::default() }, &program(), Build::WithTests)?;
    Ok("against the kernel in a guest".into())
}

/// The long form, for the soak.
pub(crate) fn long() -> Result<()> {
    run(&Args { long: true, ..Args::default() })
}

/// All that runs over the kernel's device as a card, in its long form.
pub(crate) fn cards() -> Result<()> {
    run(&Args { card: true, ..Args::default() })?;
    run(&Args { programs: true, long: true, ..Args::default() })
}

/// What stands in the way, and what to do about it.
pub(crate) fn missing() -> Option<String> {
    if !setup::is_root() {
        return Some("the guest needs a network namespace and a tap device: run it as root".into());
    }
    setup::missing_for_guest()
}

fn build() -> Result<String> {
    // By the workspace: by packages, what they stand on has fewer features than in the tests, and is compiled a second time.
    Cmd::cargo("build --quiet --workspace --bin ferroce-interop --bin ferroce").run()?;
    Ok(program())
}

fn program() -> String {
    target_dir().join("debug/ferroce-interop").to_string_lossy().into_owned()
}

/// The program whose probes the kernel's device answers, and that answers those of a program there.
fn ferroce() -> PathBuf {
    target_dir().join("debug/ferroce")
}

/// What is measured in the guest: with all that it needs inside, so that it does not matter whose libraries are there.
fn build_speed() -> Result<PathBuf> {
    let dir = target_dir().join("interop/build");
    let target = "x86_64-unknown-linux-gnu";
    Cmd::cargo("build --quiet --release -p ferroce-interop --bin ferroce-speed --target")
        .args([target, "--target-dir"])
        .arg(&dir)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .run()?;
    Ok(dir.join(target).join("release/ferroce-speed"))
}

/// What runs over the kernel's device beside the selftest, as options.
fn programs(long: bool) -> Result<Vec<OsString>> {
    Cmd::cargo("build --quiet --workspace --bin ferroce-meets --bin ferroce-kv").run()?;
    let debug = target_dir().join("debug");
    let mut options: Vec<OsString> = vec![
        "--meets".into(),
        debug.join("ferroce-meets").into(),
        "--kv".into(),
        debug.join("ferroce-kv").into(),
    ];
    for package in ["ferroce-endpoint", "ferroce-broker"] {
        options.extend(["--suite".into(), build_test(package, "on_a_card")?.into()]);
    }
    if long {
        options.extend(["--rounds".into(), "1000".into()]);
    }
    Ok(options)
}

/// A test of a package, as a program.
fn build_test(package: &str, test: &str) -> Result<PathBuf> {
    let said = Cmd::cargo("test --workspace --no-run --message-format json-render-diagnostics")
        .args(["--test", test])
        .printed()?;
    let built = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // Several packages may have a test of that name.
    let folder = root().join("crates").join(package.trim_start_matches("ferroce-")).join("Cargo.toml");
    let is_it = |artifact: &Value| {
        artifact["target"]["name"] == test
            && artifact["manifest_path"].as_str().map(Path::new) == Some(&folder)
    };
    let mut built = built.filter(is_it);
    let program = built.find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from));
    program.context("cargo built no test of this name")
}

fn pass_on(args: &Args) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    if let Some(mtu) = &args.mtu {
        add("--mtu", mtu);
    }
    for case in &args.only {
        add("--only", case);
    }
    if let Some(file) = &args.pcap {
        add("--pcap", &file.to_string_lossy());
    }
    if args.speed {
        add("--speed", &args.repeats.to_string());
    }
    if args.write_docs {
        let page = if args.speed { "docs/performance.md" } else { "docs/interop.md" };
        add("--write-docs", &root().join(page).to_string_lossy());
    }
    for (on, name) in [
        (args.short, "--short"),
        (args.long && !args.programs, "--long"),
        (args.json, "--json"),
        (args.stall, "--stall"),
        (args.card, "--card"),
    ] {
        words.extend(on.then(|| name.to_owned()));
    }
    words
}

fn how_to_use(world: &World, guest: &Guest, program: &str, library: &Path) -> String {
    let (namespace, pid, library) = (world.namespace(), guest.pid, library.display());
    let inside = format!("ip netns exec {namespace} env FERROCE_NETDEV={} {program}", world::DEVICES);
    format!(
        "interop: the guest stays up (process {pid}, console in {})\n  \
         a command in it:  {inside} --guest {guest_address} --run 'ibv_devinfo'\n  \
         some cases again: {inside} --guest {guest_address} --library {library} --ferroce {ferroce} --only write\n  \
         the end of it:    kill {pid}; ip netns del {namespace}; rm -r {run}",
        world.run_dir().join("console").display(),
        guest_address = world::GUEST,
        ferroce = ferroce().display(),
        run = world.run_dir().display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_program() {
        let args = Args {
            mtu: Some("9000".into()),
            only: vec!["write".into(), "read".into()],
            json: true,
            ..Args::default()
        };
        assert_eq!(pass_on(&args).join(" "), "--mtu 9000 --only write --only read --json");
        assert!(pass_on(&Args::default()).is_empty());
    }
}
