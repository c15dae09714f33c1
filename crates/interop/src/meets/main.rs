//! Endpoints and brokers between two hosts, whose devices may be of different kinds: one may be ours and the other a card. And
//! objects of a card that are left in the ways that leak.
//!
//! The same program is at both ends; each prints a line for each scene, and ends with a failure if one of them went wrong.
#![forbid(unsafe_code)]

mod ends;
mod lasts;
mod mesh;
mod wear;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use ferroce_broker::Members;

/// What went wrong, in words: this is a test, and its user a person.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Long enough for an emulated machine; nothing waits for it to pass.
const SOON: Duration = Duration::from_secs(40);

/// Endpoints and brokers between two hosts
#[derive(Parser)]
#[command(name = "ferroce-meets", version)]
enum Cli {
    #[command(flatten)]
    Role(Role),
}

#[derive(Subcommand)]
enum Role {
    /// Plays the listener of every scene, until it is told that there are no more
    Listen {
        /// Where
        address: SocketAddr,
    },
    /// Plays every scene with a listener
    Visit {
        /// Where the listener is
        address: SocketAddr,
    },
    /// Both, in one process
    Alone {
        /// Where
        address: SocketAddr,
    },
    /// Is one or several members of a mesh of brokers
    Mesh {
        /// All members as HOST:PORT,HOST:PORT,...
        #[arg(long)]
        members: Members,
        /// The numbers of those that this process is
        #[arg(long, required = true, value_delimiter = ',')]
        me: Vec<u32>,
    },
    /// Leaves objects of a card in the ways that leak, and compares what the kernel counts
    Wear {
        /// The card
        device: String,
        /// How often in each way
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// What starts this program again
        #[arg(long, default_value = "ferroce-meets")]
        program: String,
    },
    /// Puts the interface of a card down and up, with work under way
    Port {
        /// The card
        device: String,
        /// Its interface
        interface: String,
    },
    /// Takes a card away, with work under way
    Gone {
        /// The card
        device: String,
    },
    /// Holds such objects until it is killed
    #[command(hide = true)]
    Hold {
        /// The card
        device: String,
    },
}

fn main() -> ExitCode {
    let Cli::Role(role) = Cli::parse();
    let done = match role {
        Role::Listen { address } => ends::listen(address),
        Role::Visit { address } => ends::visit(address),
        Role::Alone { address } => ends::alone(address),
        Role::Mesh { members, me } => mesh::run(&members, &me),
        Role::Wear { device, rounds, program } => wear::wear(&device, rounds, &program),
        Role::Port { device, interface } => lasts::port(&device, &interface),
        Role::Gone { device } => lasts::gone(&device),
        Role::Hold { device } => wear::hold(&device),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroce-meets: {}", ferroce_verbs::Chain::of(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error, unless it holds.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(what().into()) }
}
