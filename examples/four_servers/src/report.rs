//! What all servers counted: compared, and shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::office::SERVERS;
use crate::server::LANES;

/// By server and lane.
pub(crate) type Reports = BTreeMap<(u32, u8), Value>;

/// What became of the server that was killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death {
    pub(crate) server: u32,
    /// After how long all others knew.
    pub(crate) noticed: Duration,
    /// After how long it was back with all others.
    pub(crate) returned: Duration,
}

/// What servers count, as JSON and as columns.
const COLUMNS: [(&str, usize); 9] = [
    ("messages", 10),
    ("bytes", 12),
    ("writes", 8),
    ("reads", 8),
    ("atomics", 8),
    ("long", 7),
    ("requests", 10),
    ("doorbells", 10),
    ("lost", 6),
];

/// Sees that both sides counted the same, on every lane and in every direction.
pub(crate) fn compare(reports: &Reports) -> anyhow::Result<()> {
    let of = |from: u32, to: u32, lane: u8| -> anyhow::Result<&Value> {
        let report = reports.get(&(from, lane)).with_context(|| format!("server {from} did not report"))?;
        let peers = report["peers"].as_array().context("a report without peers")?;
        peers.iter().find(|peer| peer["peer"] == to).with_context(|| format!("server {from} forgot {to}"))
    };
    for lane in 0..LANES {
        for (from, to) in (0..SERVERS).flat_map(|from| (0..SERVERS).map(move |to| (from, to))) {
            if from == to {
                continue;
            }
            let (here, there) = (of(from, to, lane)?, of(to, from, lane)?);
            for (sent, received) in [("sent", "received"), ("numbers_there", "numbers_here")] {
                ensure!(
                    here[sent] == there[received] && !here[sent].is_null(),
                    "lane {lane}: {sent} of server {from} to {to} is {}, and {received} there is {}",
                    here[sent],
                    there[received]
                );
            }
        }
    }
    Ok(())
}

/// The sum over the lanes of a server.
fn sum(reports: &Reports, server: u32, what: &str) -> u64 {
    (0..LANES).filter_map(|lane| reports.get(&(server, lane))?[what].as_u64()).sum()
}

fn saved(reports: &Reports, server: u32) -> u64 {
    sum(reports, server, "requests").saturating_sub(sum(reports, server, "doorbells"))
}

pub(crate) fn to_json(reports: &Reports, death: Option<&Death>, took: Duration) -> Value {
    let server = |id: u32| {
        let mut row = json!({"server": id, "doorbells_saved": saved(reports, id)});
        for what in COLUMNS.iter().map(|(name, _)| *name).chain(["done", "datagrams"]) {
            row[what] = sum(reports, id, what).into();
        }
        row["lanes"] = (0..LANES).filter_map(|lane| reports.get(&(id, lane))).cloned().collect();
        row
    };
    json!({
        "servers": (0..SERVERS).map(server).collect::<Vec<_>>(),
        "killed": death.map(|death| json!({
            "server": death.server,
            "noticed_ms": millis(death.noticed),
            "returned_ms": millis(death.returned),
        })),
        "milliseconds": millis(took),
        "same_on_both_sides": true,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn to_text(reports: &Reports, death: Option<&Death>, took: Duration) -> anyhow::Result<String> {
    let mut text = String::from("server");
    for (name, width) in COLUMNS {
        write!(text, " {name:>width$}")?;
    }
    writeln!(text, " {:>10}", "saved")?;
    for server in 0..SERVERS {
        write!(text, "{server:<6}")?;
        for (name, width) in COLUMNS {
            write!(text, " {:>width$}", sum(reports, server, name))?;
        }
        writeln!(text, " {:>10}", saved(reports, server))?;
    }
    if let Some(Death { server, noticed, returned }) = death {
        writeln!(
            text,
            "server {server} was killed: all others knew after {noticed:.1?}, went on, and had it back after {returned:.1?}"
        )?;
    }
    writeln!(
        text,
        "after {took:.1?}: every message once and in order on every lane, and both sides counted the same"
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports in which every server has sent 5 messages to every other, and `change` has been at work.
    fn reports(change: impl Fn(&mut Value)) -> Reports {
        let report = |id: u32| {
            let peer = |peer: u32| {
                json!({
                    "peer": peer, "sent": [5, 500, id], "received": [5, 500, peer],
                    "numbers_there": [id, 1], "numbers_here": [peer, 1],
                })
            };
            json!({"peers": (0..SERVERS).filter(|peer| *peer != id).map(peer).collect::<Vec<_>>()})
        };
        let mut all: Reports = (0..SERVERS)
            .flat_map(|id| (0..LANES).map(move |lane| (id, lane)))
            .map(|(id, lane)| ((id, lane), report(id)))
            .collect();
        change(all.get_mut(&(1, 1)).unwrap());
        all
    }

    #[test]
    fn what_only_one_side_counted_is_found() {
        compare(&reports(|_| ())).unwrap();
        for field in ["sent", "received", "numbers_there", "numbers_here"] {
            for place in 0..2 {
                let changed = reports(|report| report["peers"][2][field][place] = json!(77));
                let error = compare(&changed).unwrap_err().to_string();
                assert!(error.contains("lane 1") && error.contains("77"), "{error}");
            }
        }
        assert!(compare(&reports(|report| report["peers"] = json!([]))).is_err());
    }
}
