//! `ferroce switchboard`: which processes share a port, and which process owns which slot.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Context as _, anyhow};
use ferroce_device::discovery::{self, DeviceInfo};
use ferroce_device::switchboard::{Refusals, Row, Survey, survey};
use serde_json::{Value, json};

/// Show which processes share UDP port 4791, and which slots each of them owns
///
/// All processes of one user on an interface share its port: each owns slots, and the top byte of a
/// queue pair number is the slot that its packets go to. One of the processes leads: it lets
/// newcomers in, and another takes over when it ends.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// Only this interface, such as lo; any other word is refused
    #[arg(value_name = "INTERFACE")]
    interface: Option<String>,

    /// One JSON object: "switchboards" is a list, each with its "slots"
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce switchboard
  ferroce switchboard lo
  ferroce switchboard --json | jq -r '.switchboards[].slots[] | select(.alive) | .pid'";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let interface =
        args.interface.as_deref().map(|word| word.strip_prefix(DeviceInfo::PREFIX).unwrap_or(word));
    let seen = survey(interface)?;
    if let Some(interface) = interface.filter(|_| seen.is_empty()) {
        let all = discovery::interfaces().context("the operating system did not list its interfaces")?;
        if let Err(error) = known(interface, &all) {
            crate::usage("switchboard", &error);
        }
    }
    let mut surveys = Vec::new();
    let mut silent = None;
    for seen in seen {
        match seen {
            Ok(seen) => surveys.push(seen),
            // One that cannot be asked does not hide the others.
            Err(error) => silent = silent.or(Some(error)),
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        let all: Vec<Value> = surveys.iter().map(to_json).collect();
        writeln!(out, "{:#}", json!({ "switchboards": all }))?;
    } else if silent.is_none() || !surveys.is_empty() {
        print(&mut out, &surveys)?;
    }
    out.flush()?;
    silent.map_or(Ok(()), |error| Err(error.into()))
}

/// Checks that a word of the command line is an interface that could have a device.
fn known(word: &str, interfaces: &[DeviceInfo]) -> anyhow::Result<()> {
    if interfaces.iter().any(|info| info.interface == word) {
        return Ok(());
    }
    let names: Vec<&str> = interfaces.iter().map(|info| info.interface.as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(anyhow!("{word:?} is no interface with an address; those of this machine: {names}"))
}

fn print(out: &mut impl Write, surveys: &[Survey]) -> io::Result<()> {
    if surveys.is_empty() {
        return writeln!(out, "No process of this user has a device open here.");
    }
    for Survey { group, leader, refused, rows } in surveys {
        writeln!(out, "{group}, led by process {leader}")?;
        writeln!(out, "  slot      pid  program          since (UTC)          incarnation")?;
        for row in rows {
            let Row { slot, pid, program, incarnation, .. } = row;
            let since = utc(row.since_millis / 1000);
            let note = if row.leads {
                "  leads"
            } else if row.alive {
                ""
            } else {
                "  ended"
            };
            writeln!(out, "  {slot:4}  {pid:7}  {program:15}  {since}  {incarnation:11}{note}")?;
        }
        if *refused != Refusals::default() {
            writeln!(out, "  the leader refused: {refused}")?;
        }
    }
    Ok(())
}

fn to_json(survey: &Survey) -> Value {
    let slot = |row: &Row| {
        json!({
            "slot": row.slot,
            "pid": row.pid,
            "program": row.program,
            "since": utc(row.since_millis / 1000),
            "since_ms": row.since_millis,
            "incarnation": row.incarnation,
            "leads": row.leads,
            "alive": row.alive,
        })
    };
    json!({
        "interface": survey.group.interface,
        "address": survey.group.address.map(|address| address.to_string()),
        "leader": survey.leader,
        "refused": survey.refused.iter().collect::<BTreeMap<_, _>>(),
        "slots": survey.rows.iter().map(slot).collect::<Vec<_>>(),
    })
}

/// Seconds since 1970 as a date and a time.
fn utc(seconds: u64) -> String {
    // What a process wrote there may be anything.
    let seconds = seconds.min(LAST);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Counted in eras of 400 years from 1 March 0000, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The last second of the year 9999.
const LAST: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use ferroce_device::discovery::DeviceInfo;
    use ferroce_device::switchboard::{Group, Refusals, Survey};

    use super::{known, print, to_json, utc};

    #[test]
    fn without_processes_it_says_so() {
        let mut out = Vec::new();
        print(&mut out, &[]).expect("memory");
        assert_eq!(out, b"No process of this user has a device open here.\n");
    }

    #[test]
    fn a_word_is_an_interface_or_refused_with_those_there_are() {
        let all = ["lo", "eth7"].map(|name| DeviceInfo {
            name: format!("ferroce_{name}"),
            interface: name.to_owned(),
            index: 1,
            mtu: 1500,
            up: true,
            loopback: false,
            addresses: Vec::new(),
            mac: [0; 6],
        });
        assert!(known("lo", &all).is_ok() && known("eth7", &all).is_ok());
        let said = known("list", &all).expect_err("no interface").to_string();
        assert_eq!(said, "\"list\" is no interface with an address; those of this machine: lo, eth7");
        assert!(known("lo", &[]).expect_err("no interface").to_string().ends_with(": none"));
    }

    #[test]
    fn what_a_leader_refused_is_shown_by_reason() {
        let refused = Refusals { foreign_connections: 3, names_skipped: 1, ..Refusals::default() };
        let group = Group { interface: "lo".to_owned(), address: None };
        let mut survey = Survey { group, leader: 7, refused, rows: Vec::new() };
        let shown = |survey: &Survey| {
            let mut out = Vec::new();
            print(&mut out, std::slice::from_ref(survey)).expect("memory");
            String::from_utf8(out).expect("text")
        };
        let text = shown(&survey);
        assert!(text.ends_with("  the leader refused: 3 foreign connections, 1 names skipped\n"), "{text}");
        assert_eq!(to_json(&survey)["refused"]["foreign_connections"], 3);
        assert_eq!(to_json(&survey)["refused"]["violations"], 0);
        survey.refused = Refusals::default();
        assert!(!shown(&survey).contains("refused"));
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_735_689_600, "2025-01-01 00:00:00"),
            (253_402_300_799, "9999-12-31 23:59:59"),
            (u64::MAX, "9999-12-31 23:59:59"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
