//! Every way in which work can end, provoked between two queue pairs on loopback and explained.
//!
//! README.md says how to run it; docs/statuses.md has all causes and remedies.
#![forbid(unsafe_code)]

mod cases;
mod hosts;
mod story;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use ferroce::Status;

use cases::{CASES, Case};
use hosts::Hosts;
use story::Story;

/// Provoke every status that work can end with, and explain each
#[derive(Debug, Parser)]
#[command(name = "ferroce-statuses", version)]
struct Cli {
    /// Only this status, such as RemoteAccess
    #[arg(long, value_name = "STATUS", value_parser = status)]
    only: Option<Status>,

    /// One JSON object: "statuses" is a list
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-statuses: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn status(text: &str) -> Result<Status, String> {
    let found = Status::ALL.into_iter().find(|status| format!("{status:?}").eq_ignore_ascii_case(text));
    let names = || Status::ALL.map(|status| format!("{status:?}")).join(", ");
    found.ok_or_else(|| format!("the statuses are {}", names()))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let hosts = Hosts::open()?;
    let mut out = io::stdout().lock();
    let wanted: Vec<&Case> =
        CASES.iter().filter(|case| cli.only.is_none_or(|only| only == case.status)).collect();
    let mut stories = Vec::new();
    if !cli.json {
        story::print_heading(&mut out)?;
    }
    for (place, case) in wanted.iter().enumerate() {
        let story = tell(&hosts, case)?;
        if !cli.json {
            story.print(&mut out, (place + 1, wanted.len()))?;
        }
        stories.push(story);
    }
    if cli.json {
        let all: Vec<_> = stories.iter().map(Story::to_json).collect();
        writeln!(out, "{:#}", serde_json::json!({ "statuses": all }))?;
    }
    if cli.only.is_none() {
        let missing: Vec<_> = Status::ALL
            .iter()
            .filter(|status| stories.iter().all(|story| story.status() != **status))
            .collect();
        ensure!(missing.is_empty(), "no case has provoked {missing:?}");
    }
    Ok(out.flush()?)
}

/// Does what a case is about, and checks that it ended as it should.
fn tell(hosts: &Hosts, case: &Case) -> anyhow::Result<Story> {
    let story = (case.provoke)(hosts).with_context(|| format!("the case of {:?}", case.status))?;
    if story.status() != case.status {
        bail!("{:?} was expected, and {:?} came: {:?}", case.status, story.status(), story.completion);
    }
    Ok(Story { here: case.here, ..story })
}
