//! Our stack against the Linux kernel's soft-RoCE, both as requester and as responder.
//!
//! It runs in a network namespace with a guest at the other end of the wire; `cargo xtask interop` makes both
//! and starts it.
#![forbid(unsafe_code)]

mod alone;
mod cases;
mod connections;
mod docs;
mod doctor;
mod far;
mod lab;
mod pair;
mod pattern;
mod pingpong;
mod probes;
mod programs;
mod proof;
mod run;
mod selftest;
mod speed;
mod stock;
mod stock_cm;
mod table;
mod totals;

use std::error::Error;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// What went wrong, in words: this is a test, and its user a person.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Meets the Linux kernel's soft-RoCE, which runs in a guest
#[derive(Parser)]
pub(crate) struct Args {
    /// The guest's address
    #[arg(long, default_value = "10.77.0.2")]
    guest: IpAddr,
    /// Only the cases for this MTU of the link
    #[arg(long)]
    mtu: Option<u32>,
    /// Only cases whose name contains this; repeat for several
    #[arg(long)]
    only: Vec<String>,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// Cases that take long only over IPv4 with MTU 1500 and over IPv6 with MTU 9000
    #[arg(long)]
    short: bool,
    /// 10,000 rounds with the kernel's own tools
    #[arg(long)]
    long: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// The folder of our drop-in library, for stock programs
    #[arg(long, value_name = "FOLDER")]
    library: Option<PathBuf>,
    /// The program `ferroce`, for probes
    #[arg(long, value_name = "FILE")]
    ferroce: Option<PathBuf>,
    /// Put the table between the markers of this Markdown file
    #[arg(long, value_name = "FILE")]
    write_docs: Option<PathBuf>,
    /// A file with the guest's packages and their versions, for the notes
    #[arg(long, value_name = "FILE")]
    versions: Option<PathBuf>,
    /// Write all packets into this file, and further ones beside it
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Only show what the kernel does with itself where it differs from our expectations
    #[arg(long)]
    alone: bool,
    /// Only let the kernel send much to a queue pair that is not there, and see whether it ever stops
    #[arg(long)]
    stall: bool,
    /// Only measure, so many times, how fast the kernel's device, we and plain sockets are in the guest
    #[arg(long, value_name = "REPEATS")]
    speed: Option<u32>,
    /// Only run all of `ferroce selftest` in the guest, over the kernel's device
    #[arg(long)]
    card: bool,
    #[command(flatten)]
    programs: programs::Programs,
    /// Only run a command in the guest
    #[arg(long, value_name = "COMMAND")]
    run: Option<String>,
}

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> Result<ExitCode> {
    if args.list {
        for case in cases::CASES {
            println!("{:18} {}", case.name, case.shows);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(command) = &args.run {
        let mut far = far::Far::connect(args.guest)?;
        far.start(command)?;
        let (status, output) = far.finish()?;
        print!("{output}");
        return Ok(if status == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if args.card {
        selftest::all(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    if programs::run(args)? {
        return Ok(ExitCode::SUCCESS);
    }
    if args.alone {
        println!("{}", alone::differences(args.guest)?.join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    if args.stall {
        println!("{}", alone::stall(args.guest)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(repeats) = args.speed {
        return measure(args, repeats);
    }
    let mut table = run::run(args)?;
    if let Some(file) = &args.versions {
        let versions = fs::read_to_string(file)?;
        table.notes.push(format!("In the guest: {}.", versions.trim().replace('\n', ", ")));
    }
    if args.json {
        println!("{:#}", table.json());
    } else {
        println!("\n{}", table.markdown());
    }
    if let Some(file) = &args.write_docs {
        docs::replace(file, "interop table", &table.markdown())?;
    }
    let failures: Vec<_> = table.failures().collect();
    for cell in &failures {
        eprintln!("FAILED {} ({}): {}", cell.case, cell.column, cell.wrong.as_deref().unwrap_or_default());
    }
    for wrong in &table.wrong {
        eprintln!("FAILED {wrong}");
    }
    eprintln!("interop: {} of {} passed", table.len() - failures.len(), table.len());
    let passed = failures.is_empty() && table.wrong.is_empty() && table.len() > 0;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(args: &Args, repeats: u32) -> Result<ExitCode> {
    let speed = speed::Speed::measure(args.guest, repeats)?;
    let text = speed.markdown()?;
    println!("\n{text}\n{}", speed.notes());
    if let Some(file) = &args.write_docs {
        docs::replace(file, "interop speed", &text)?;
    }
    Ok(ExitCode::SUCCESS)
}
