//! The other process: started for one measurement, spoken to by lines, gone at its end.

use std::process::Command;

use ferroce_testkit::process::{Parent, Peer};

use crate::pingpong::{self, Exchange};
use crate::{Outcome, Settings, company, crowd, neighbour, raw, stream};

/// Starts this program again in a role.
pub(crate) fn start(role: &str, settings: &Settings) -> Outcome<Peer> {
    start_by(Command::new(std::env::current_exe()?), role, settings)
}

/// The same by a command that starts this program.
pub(crate) fn start_by(mut command: Command, role: &str, settings: &Settings) -> Outcome<Peer> {
    command.args(["--bench", "--peer", role, "--millis"]).arg(settings.duration.as_millis().to_string());
    command.args(settings.pin.then_some("--pin"));
    Ok(Peer::start_by(command)?)
}

/// Is the other process.
pub(crate) fn play(role: &str, parent: Parent, settings: &Settings) -> Outcome<()> {
    match role {
        raw::ECHO_BUSY => raw::echo(parent, true),
        raw::ECHO_BLOCKING => raw::echo(parent, false),
        raw::SINK => raw::sink(parent),
        pingpong::SEND_BUSY => Exchange::BUSY.play(parent),
        pingpong::SEND_BUSY_SILENT => Exchange::SILENT.play(parent),
        pingpong::SEND_ASLEEP => Exchange::ASLEEP.play(parent),
        pingpong::SEND_ASLEEP_AT_ONCE => Exchange::ASLEEP_AT_ONCE.play(parent),
        pingpong::WRITE_IMM => Exchange::IMMEDIATE.play(parent),
        pingpong::WRITE => pingpong::write_peer(parent, false),
        pingpong::WRITE_POLL => pingpong::write_peer(parent, true),
        stream::BUSY => stream::target(parent, settings, true),
        stream::ASLEEP => stream::target(parent, settings, false),
        stream::RECEIVER => stream::receiver(parent),
        crowd::CROWD => crowd::play(parent, settings),
        company::BUSY_LOOP => company::play(parent),
        neighbour::NEIGHBOUR => neighbour::play(parent),
        other => Err(format!("no role is called {other:?}").into()),
    }
}
