//! Findings that open, change or close, told to another program as JSON.
//!
//! Each event has an id that follows from what it says: the same event has the same id, however often it
//! comes. What was told is remembered beside the store, if there is one, so that an analyzer that is started
//! again tells what was not told yet, and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::disk::replace;
use super::post::{Envelope, Letter};
use crate::proto::v1;

/// The port and the path that are taken if a URL has none.
pub(super) const USUAL: (u16, &str) = (80, "/");

/// How events are sent.
pub(super) const ENVELOPE: Envelope = Envelope { content_type: "application/json", headers: &[] };

/// The event that is the last one of a finding.
const CLOSED: &str = "closed";

/// What closed longer ago was told by the analyzer that led then, in nanoseconds: ten minutes.
const RECENT: u64 = 600_000_000_000;

/// Which findings are known to the other end, or are on their way.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By number: what was told of them last.
    open: BTreeMap<u64, Known>,
    /// Which time the analyzer leads, of all that share a database; 0 without one.
    term: u64,
}

/// What was told of a finding.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    /// Stands for what is bad, and how.
    digest: u64,
    /// How bad it was at worst.
    rank: usize,
    /// Events that were told of it.
    events: u64,
    /// It as it was last, so that its end can be told.
    finding: v1::Finding,
}

/// What happened to a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Opened,
    Changed,
    Closed,
}

impl Told {
    /// Goes on from what was open before, and what was told of it.
    pub(super) fn resume(open: &[v1::Finding], delivered: &BTreeMap<u64, Last>) -> Self {
        // What is no longer open has closed, and that is to be told.
        let known = |(id, last): (&u64, &Last)| {
            let gone = || v1::Finding { id: *id, ..v1::Finding::default() };
            let finding = open.iter().find(|finding| finding.id == *id).cloned().unwrap_or_else(gone);
            let Last { digest, events } = *last;
            (*id, Known { digest, rank: rank(&finding), events, finding })
        };
        Self { open: delivered.iter().map(known).collect(), term: 0 }
    }

    /// An analyzer that takes over does not know what the last one told: all that is open is told anew, and so is the
    /// end of what closed a moment ago. Events have other numbers then.
    pub(super) fn lead(&mut self, term: u64, over: &[v1::Finding], now: u64) {
        if term == self.term {
            return;
        }
        let is_recent = |finding: &&v1::Finding| finding.over_unix_ns.saturating_add(RECENT) > now;
        let known = |finding: &v1::Finding| Known {
            digest: digest(finding),
            rank: rank(finding),
            events: 0,
            finding: finding.clone(),
        };
        let open = over.iter().filter(is_recent).map(|finding| (finding.id, known(finding)));
        *self = Self { open: open.collect(), term };
    }

    /// What is to be told, now that these findings are open, and those over.
    pub(super) fn news(&mut self, now: &v1::FindingsReply, analyzer: &str) -> Vec<Letter> {
        let mut letters = Vec::new();
        for finding in &now.open {
            let (digest, rank) = (digest(finding), rank(finding));
            let before = self.open.get(&finding.id);
            let event = match before {
                None => Some(Event::Opened),
                Some(known) if known.digest != digest || rank > known.rank => Some(Event::Changed),
                Some(_) => None,
            };
            let (worst, told) = before.map_or((rank, 0), |known| (known.rank.max(rank), known.events));
            let events = told + u64::from(event.is_some());
            letters.extend(event.map(|event| letter(event, (self.term, events), finding, analyzer)));
            let known = Known { digest, rank: worst, events, finding: finding.clone() };
            self.open.insert(finding.id, known);
        }
        let is_open = |id: &u64| now.open.iter().any(|finding| finding.id == *id);
        let closed: Vec<u64> = self.open.keys().filter(|id| !is_open(id)).copied().collect();
        for id in closed {
            let Some(known) = self.open.remove(&id) else { continue };
            let over = now.over.iter().rev().find(|finding| finding.id == id);
            let last = v1::Finding { over_unix_ns: now.through_unix_ns, ..known.finding };
            letters.push(letter(
                Event::Closed,
                (self.term, known.events + 1),
                over.unwrap_or(&last),
                analyzer,
            ));
        }
        letters
    }
}

fn rank(finding: &v1::Finding) -> usize {
    let severities = ["minor", "major", "critical"];
    severities.iter().position(|severity| *severity == finding.severity).unwrap_or_default()
}

/// Stands for what is bad, and how: FNV-1a of trouble and suspects.
fn digest(finding: &v1::Finding) -> u64 {
    let mut suspects: Vec<&String> = finding.suspects.iter().collect();
    suspects.sort_unstable();
    let words = [&finding.trouble].into_iter().chain(suspects);
    let bytes = words.flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn letter(event: Event, (term, number): (u64, u64), finding: &v1::Finding, analyzer: &str) -> Letter {
    let life = if term == 0 { String::new() } else { format!("{term}-") };
    let id = format!("{}-{}-{life}{number}", finding.id, finding.since_unix_ns);
    let body = body(&id, (event, number), finding, analyzer).to_string();
    Letter { body: Bytes::from(body), id: Some(id) }
}

fn body(id: &str, (event, number): (Event, u64), finding: &v1::Finding, analyzer: &str) -> Value {
    let event = match event {
        Event::Opened => "opened",
        Event::Changed => "changed",
        Event::Closed => CLOSED,
    };
    let millis = |nanos: u64| nanos / 1_000_000;
    json!({
        "version": 1,
        "id": id,
        "event": event,
        "number": number,
        "analyzer": analyzer,
        "finding": {
            "id": finding.id,
            "trouble": finding.trouble,
            "severity": finding.severity,
            "suspects": finding.suspects,
            "since_ms": millis(finding.since_unix_ns),
            "over_ms": (finding.over_unix_ns > 0).then(|| millis(finding.over_unix_ns)),
            "evidence": {
                "crossings": finding.crossings,
                "losses": finding.losses,
                "expected": finding.expected,
                "gain": finding.gain,
            },
            "impact": {
                "priority": finding.priority,
                "services": finding.services.iter().map(service).collect::<Vec<_>>(),
            },
        },
    })
}

fn service(one: &v1::Affected) -> Value {
    json!({ "service": one.service, "priority": one.priority, "flows": one.flows })
}

/// What was taken at the other end, in a file of its own beside the store.
#[derive(Debug)]
pub(super) struct Delivered {
    path: Option<PathBuf>,
    open: BTreeMap<u64, Last>,
}

/// What was taken of a finding that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last {
    digest: u64,
    events: u64,
}

impl Delivered {
    /// What the file says; nothing if there is none.
    pub(super) fn read(store: Option<&Path>) -> io::Result<Self> {
        let path = store.map(|store| {
            let mut name = store.as_os_str().to_owned();
            name.push(".webhook");
            PathBuf::from(name)
        });
        let text = match path.as_ref().map(fs::read_to_string) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Some(Ok(text)) => text,
            _ => String::new(),
        };
        // What is damaged is told again: a double can be dropped.
        let known: Value = serde_json::from_str(&text).unwrap_or_default();
        let open = known["open"].as_object().into_iter().flatten();
        let entry = |(id, last): (&String, &Value)| {
            let digest = u64::from_str_radix(last["digest"].as_str()?, 16).ok()?;
            Some((id.parse().ok()?, Last { digest, events: last["events"].as_u64()? }))
        };
        Ok(Self { path, open: open.filter_map(entry).collect() })
    }

    pub(super) const fn open(&self) -> &BTreeMap<u64, Last> {
        &self.open
    }

    /// This event needs to be told no more.
    pub(super) fn settle(&mut self, letter: &Letter) -> io::Result<()> {
        let event: Value = serde_json::from_slice(&letter.body).unwrap_or_default();
        let Some(id) = event["finding"]["id"].as_u64() else { return Ok(()) };
        if event["event"] == CLOSED {
            self.open.remove(&id);
        } else {
            let words = |value: &Value| value.as_str().map(str::to_owned);
            let suspects = event["finding"]["suspects"].as_array().into_iter().flatten();
            let finding = v1::Finding {
                trouble: words(&event["finding"]["trouble"]).unwrap_or_default(),
                suspects: suspects.filter_map(words).collect(),
                ..v1::Finding::default()
            };
            let events = event["number"].as_u64().unwrap_or_default();
            self.open.insert(id, Last { digest: digest(&finding), events });
        }
        let Some(path) = &self.path else { return Ok(()) };
        let open = self.open.iter().map(|(id, Last { digest, events })| {
            (id.to_string(), json!({ "digest": format!("{digest:016x}"), "events": events }))
        });
        let text = json!({ "version": 1, "open": serde_json::Map::from_iter(open) }).to_string();
        replace(path, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: u64, severity: &str, suspects: &[&str]) -> v1::Finding {
        v1::Finding {
            id,
            trouble: "loss".to_owned(),
            severity: severity.to_owned(),
            suspects: suspects.iter().map(|name| (*name).to_owned()).collect(),
            since_unix_ns: 1_000_000 * id,
            ..v1::Finding::default()
        }
    }

    fn reply(open: Vec<v1::Finding>, over: Vec<v1::Finding>) -> v1::FindingsReply {
        v1::FindingsReply { open, over, through_unix_ns: 90_000_000, ..v1::FindingsReply::default() }
    }

    fn events(letters: &[Letter]) -> Vec<(String, u64)> {
        let event = |letter: &Letter| {
            let body: Value = serde_json::from_slice(&letter.body).unwrap();
            assert_eq!(body["id"].as_str(), letter.id.as_deref());
            (body["event"].as_str().unwrap().to_owned(), body["finding"]["id"].as_u64().unwrap())
        };
        letters.iter().map(event).collect()
    }

    fn said(event: &str, id: u64) -> Vec<(String, u64)> {
        vec![(event.to_owned(), id)]
    }

    #[test]
    fn one_that_takes_over_tells_what_is_open_and_what_has_just_closed_under_other_numbers() {
        let open = finding(7, "minor", &["a"]);
        let closed = |id: u64, over_unix_ns| v1::Finding { over_unix_ns, ..finding(id, "minor", &["b"]) };
        let now = 10 * RECENT;
        let all = reply(vec![open], vec![closed(1, now - RECENT), closed(2, now - RECENT + 1)]);
        let mut first = Told::default();
        first.lead(3, &all.over, now);
        let letters = first.news(&all, "");
        assert_eq!(events(&letters), [said("opened", 7), said(CLOSED, 2)].concat());
        first.lead(3, &all.over, now);
        assert!(first.news(&all, "").is_empty(), "it leads still");
        let mut second = Told::default();
        second.lead(4, &all.over, now);
        let again = second.news(&all, "");
        assert_eq!(events(&again), events(&letters));
        assert!(again.iter().zip(&letters).all(|(one, other)| one.id != other.id));
    }

    #[test]
    fn what_opens_changes_and_closes_is_told_once() {
        let mut told = Told::default();
        let mut news = |open: Option<&v1::Finding>, over: Option<&v1::Finding>| {
            let [open, over] = [open, over].map(|one| one.cloned().into_iter().collect());
            events(&told.news(&reply(open, over), "http://127.0.0.1:1"))
        };
        let minor = finding(7, "minor", &["host a"]);
        assert_eq!(news(Some(&minor), None), said("opened", 7));
        let more = v1::Finding { crossings: 9.0, ..minor.clone() };
        assert_eq!(news(Some(&more), None), [], "numbers alone are no news");
        let worse = finding(7, "critical", &["host a"]);
        assert_eq!(news(Some(&worse), None), said("changed", 7));
        assert_eq!(news(Some(&minor), None), [], "that it is better again is no news until it is over");
        assert_eq!(news(Some(&worse), None), []);
        let other = finding(7, "critical", &["host a", "host b"]);
        assert_eq!(news(Some(&other), None), said("changed", 7));
        let same = finding(7, "critical", &["host b", "host a"]);
        assert_eq!(news(Some(&same), None), [], "suspects have no order");
        let over = v1::Finding { over_unix_ns: 5_000_000, ..other };
        assert_eq!(news(None, Some(&over)), said("closed", 7));
        assert_eq!(news(None, Some(&over)), []);
    }

    #[test]
    fn after_a_restart_what_was_told_is_not_told_again_and_the_rest_is() {
        let folder = std::env::temp_dir().join(format!("ferroce-webhook-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let store = folder.join("store");
        let [a, b, c] = [1, 2, 3].map(|id| finding(id, "major", &["host a"]));
        let mut delivered = Delivered::read(Some(&store)).unwrap();
        let mut told = Told::resume(&[], delivered.open());
        let letters = told.news(&reply(vec![a.clone(), b.clone(), c.clone()], vec![]), "x");
        // The third is not taken before the end.
        letters[..2].iter().for_each(|letter| delivered.settle(letter).unwrap());
        let before = letters[2].clone();

        // While it is started again, the second is found to be over.
        let delivered = Delivered::read(Some(&store)).unwrap();
        let mut told = Told::resume(&[a.clone(), b.clone(), c.clone()], delivered.open());
        let over = v1::Finding { over_unix_ns: 5, ..b };
        let letters = told.news(&reply(vec![a.clone(), c.clone()], vec![over]), "x");
        assert_eq!(events(&letters), [said("opened", 3), said("closed", 2)].concat());
        assert_eq!((&letters[0].id, &letters[0].body), (&before.id, &before.body), "it is a double");

        // What was told as open, and is not in the store as open any more, is told as over.
        let mut told = Told::resume(&[], delivered.open());
        let over = v1::Finding { over_unix_ns: 5, ..a };
        let letters = told.news(&reply(vec![], vec![over]), "x");
        assert_eq!(events(&letters), [said("closed", 1), said("closed", 2)].concat());
        fs::write(folder.join("store.webhook"), "{damaged").unwrap();
        assert!(Delivered::read(Some(&store)).unwrap().open().is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
