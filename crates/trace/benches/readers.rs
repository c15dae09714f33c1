//! How long it takes to read long records, and how much memory: `cargo xtask bench --only trace` runs it.
//!
//! Without the name of a reader it makes records of two ends, of so many events, and runs itself for each reader, so that each
//! has its own peak. It writes one JSON object per line.

#![allow(clippy::unwrap_used, clippy::print_stdout, dead_code, reason = "a program that measures")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ferroce_trace::export::{Choice, HtmlOptions, Selection, Summary, html, mermaid, pcapng, perfetto, svg};
use ferroce_trace::{Block, Explainer, Filter, Line, Stats, Timeline, Told, check, read};

#[path = "../tests/it/made.rs"]
mod made;

const READERS: &[&str] =
    &["read", "show", "json", "explain", "stats", "check", "pcapng", "perfetto", "html", "svg", "mermaid"];

/// Somewhere in the record.
const CHOICE: Choice = Choice { source: None, queue_pair: None, work: Some(100_000), id: None };

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match &words[..] {
        [export, first, second] => run(export, &[first.into(), second.into()]),
        _ => {
            let events = words.first().map_or(10_000_000, |word| word.parse().unwrap());
            let mut made = made::Made::new("exports", false);
            made.traffic(events, 4);
            drop(made.timeline(2));
            for export in READERS {
                let files = ["client", "server"].map(|name| made.directory().join(format!("{name}.ftrace")));
                let status = Command::new(std::env::current_exe().unwrap()).arg(export).args(files).status();
                assert!(status.unwrap().success());
            }
        }
    }
}

/// What the readers of the command line do.
fn look(reader: &str, timeline: &Timeline, out: &mut impl Write) -> std::io::Result<()> {
    let mut stats = Stats::new(timeline, Filter::default());
    let mut explainer = Explainer::new(timeline);
    match reader {
        "read" => assert!(timeline.events().count() > 0),
        "check" => return check(timeline).iter().try_for_each(|check| write!(out, "{check}")),
        _ => {
            let read = read(timeline, |told| {
                let done = match (&told, reader) {
                    (Told::Over(_, work) | Told::Open(_, work), "show") => writeln!(out, "{}", Block(work)),
                    (Told::Over(record, work) | Told::Open(record, work), "json") => {
                        writeln!(out, "{}", Line { record: *record, work })
                    }
                    _ => Ok(()),
                };
                match reader {
                    "stats" => stats.take(&told),
                    "explain" => explainer.take(&told),
                    _ => {}
                }
                done.map_or_else(ControlFlow::Break, ControlFlow::Continue)
            });
            read.map(drop)?;
        }
    }
    match reader {
        "stats" => write!(out, "{stats}"),
        "explain" => write!(out, "{}", explainer.finish()),
        _ => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn run(export: &str, files: &[PathBuf]) {
    let timeline = Timeline::open(files).unwrap();
    let path = Path::new(&files[0]).with_file_name("out");
    let mut out = File::create(&path).unwrap();
    let begin = Instant::now();
    let (all, quiet) = (Selection::default(), &mut |_| {});
    let summary = match export {
        "pcapng" => pcapng(&timeline, &all, &mut out, quiet).unwrap(),
        "perfetto" => perfetto(&timeline, &all, &mut out, quiet).unwrap(),
        "html" => html(&timeline, &HtmlOptions::default(), &mut out, quiet).unwrap(),
        "svg" => svg(&timeline, &CHOICE, &mut out, quiet).unwrap(),
        "mermaid" => mermaid(&timeline, &CHOICE, &mut out, quiet).unwrap(),
        other => {
            look(other, &timeline, &mut BufWriter::with_capacity(1 << 16, &mut out)).unwrap();
            Summary { events: timeline.len(), ..Summary::default() }
        }
    };
    let took = begin.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    let bytes = std::fs::metadata(&path).unwrap().len() >> 10;
    let peak: u64 = peak.trim_end_matches(" kB").parse().unwrap_or(0);
    let (events, seconds, mib) = (summary.events, took.as_secs_f64(), peak >> 10);
    println!(
        "{{\"kind\":\"reader\",\"name\":\"{export}\",\"seconds\":{seconds:.2},\"mib\":{mib},\"events\":{events},\"kib\":{bytes}}}"
    );
    std::fs::remove_file(path).unwrap();
}
