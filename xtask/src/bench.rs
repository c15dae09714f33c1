//! `cargo xtask bench`: the only source of performance figures.

use anyhow::Result;

use crate::say::say;
use crate::shell::Cmd;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// List the packages with benchmarks and what they show
    #[arg(long)]
    list: bool,
    /// Handed to the benchmarks, for example a filter
    #[arg(last = true)]
    rest: Vec<String>,
}

struct Bench {
    package: &'static str,
    shows: &'static str,
}

const BENCHES: &[Bench] = &[
    Bench { package: "ferroce-wire", shows: "parse, emit and ICRC per packet" },
    Bench { package: "ferroce-transport", shows: "requester and responder per packet" },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    for Bench { package, shows } in BENCHES {
        say!("{package}: {shows}");
        if args.list {
            continue;
        }
        let mut cmd = Cmd::cargo("bench").args(["-p", package]);
        if !args.rest.is_empty() {
            cmd = cmd.arg("--").args(&args.rest);
        }
        cmd.run()?;
    }
    Ok(())
}
