//! The figures of the device: runs its benchmark and shows what it says.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Args;
use super::line::Line;
use super::table::{Figure, render};
use crate::say::say;
use crate::shell::root;

/// The package, without the common part of its name.
pub(crate) const PACKAGE: &str = "device";

/// What the rows of processes that share memory are asked for by, and what their names begin with.
pub(crate) const SHARED: &str = "shared";
pub(crate) const SHARED_ROWS: &str = "shared: ";

/// Runs it; `rows` are parts of the names of figures, all if there are none.
pub(super) fn run(args: &Args, rows: &[&str]) -> Result<()> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Its progress, and what cargo says, go to the terminal as they are.
    command.args(["bench", "-q", "-p", "ferroce-device", "--bench", "nic", "--"]).current_dir(root());
    for (wanted, flag) in [(args.quick, "--quick"), (args.pin, "--pin")] {
        command.args(wanted.then_some(flag));
    }
    if let Some(repeats) = args.repeats {
        command.arg("--repeats").arg(repeats.to_string());
    }
    let mut child =
        command.args(rows).args(&args.rest).stdout(Stdio::piped()).spawn().context("starting cargo bench")?;
    let output = child.stdout.take().context("cargo bench has no output")?;
    let (mut machine, mut figures) = (None, Vec::new());
    for line in BufReader::new(output).lines() {
        let line = line.context("reading what the benchmark says")?;
        let line = Line::parse(&line).context("reading what the benchmark says")?;
        match line.text("kind")? {
            "machine" => machine = Some(line),
            _ => Figure::take(&mut figures, &line)?,
        }
    }
    // Figures that came are shown, even if others failed.
    let status = child.wait().context("waiting for cargo bench")?;
    if let Some(machine) = machine {
        if args.json {
            let figures: Vec<Value> = figures.iter().map(Figure::to_json).collect();
            say!("{:#}", json!({ "machine": machine.into_value(), "figures": figures }));
        } else {
            say!("{}\n\n{}", describe(&machine)?, render(&figures));
        }
    }
    if !status.success() {
        bail!("the benchmark of the device failed: {status}");
    }
    Ok(())
}

fn describe(machine: &Line) -> Result<String> {
    Ok(format!(
        "{}, {} cores, Linux {}, net.core.rmem_max {}, load {}; {} repeats of {} ms{}",
        machine.text("processor")?,
        machine.number("cores")?,
        machine.text("kernel")?,
        machine.text("rmem_max")?,
        machine.text("load")?.split(' ').next().unwrap_or_default(),
        machine.number("repeats")?,
        machine.number("millis")?,
        if machine.flag("pinned")? { ", each process on its own core" } else { "" },
    ))
}
