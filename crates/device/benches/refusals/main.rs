//! What it costs to refuse a packet, by class.
//!
//! `cargo xtask bench --only refusals` runs this under callgrind and prints a table. One process is the
//! victim, whose instructions are counted; a child, whose instructions are not, sends forged packets of one
//! class in lots. The victim takes in a lot only when it is complete, so each run does the same work. By
//! itself (and as a test) this program sends one lot of every class, and looks that each packet is refused by
//! its reason.

#[path = "../../tests/common/mod.rs"]
mod common;

mod class;
mod connections;
mod sender;
mod victim;

use std::error::Error;

use class::{CLASSES, Class};
use ferroce_wire::Qpn;
use sender::Sender;
use victim::Victim;

/// What a step gives, or why it failed.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// Packets of a lot: few enough for the smallest buffer of a socket.
const LOT: u64 = 32;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1)
    };
    if let Some(name) = after("--sender") {
        let qpn = after("--qpn").ok_or("--sender needs --qpn with the number of a queue pair")?;
        return sender::play(class::named(name)?, Qpn::new(qpn.parse()?));
    }
    if args.iter().any(|arg| arg == "--classes") {
        list();
        return Ok(());
    }
    if let Some(name) = after("--class") {
        let lots = after("--lots").ok_or("--class needs --lots with a number")?;
        return attack(class::named(name)?, lots.parse()?);
    }
    CLASSES
        .iter()
        .try_for_each(|class| attack(class, 1).map_err(|error| format!("{}: {error}", class.name).into()))
}

/// One JSON object per line: first what holds for all classes, then the classes.
fn list() {
    println!("{{\"kind\":\"program\",\"lot\":{LOT}}}");
    for Class { name, counted_as, budget, .. } in CLASSES {
        println!(
            "{{\"kind\":\"class\",\"class\":\"{name}\",\"counted_as\":\"{counted_as}\",\"budget\":{budget}}}"
        );
    }
}

/// Has so many lots of a class refused. Each packet must be counted by its reason, and nothing must end.
fn attack(class: &Class, lots: u64) -> Outcome<()> {
    let victim = Victim::new(class)?;
    let mut sender = Sender::start(class, victim.qpn())?;
    victim.prepare(&mut sender)?;
    let before = victim.counted();
    for lot in 1..=lots {
        sender.send_lot(victim.name())?;
        victim.wait_for(before + lot * LOT)?;
    }
    let counted = victim.counted() - before;
    if counted != lots * LOT {
        return Err(format!("{} packets were sent, but {counted} counted", lots * LOT).into());
    }
    victim.check()?;
    Ok(sender.stop()?)
}
