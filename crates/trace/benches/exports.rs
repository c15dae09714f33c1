//! How long exports take, and how much memory: `cargo bench -p ferroce-trace --bench exports -- [events]`.
//!
//! Without an export's name it makes records and runs itself for each export, so that each has its own peak.

#![allow(clippy::unwrap_used, clippy::print_stdout, dead_code, reason = "a program that measures")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ferroce_trace::Timeline;
use ferroce_trace::export::{Choice, HtmlOptions, Selection, html, mermaid, pcapng, perfetto, svg};

#[path = "../tests/it/made.rs"]
mod made;

const EXPORTS: &[&str] = &["read", "pcapng", "perfetto", "html", "svg", "mermaid"];

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
            for export in EXPORTS {
                let files = ["client", "server"].map(|name| made.directory().join(format!("{name}.ftrace")));
                let status = Command::new(std::env::current_exe().unwrap()).arg(export).args(files).status();
                assert!(status.unwrap().success());
            }
        }
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
        _ => {
            ferroce_trace::export::Summary { events: timeline.events().count() as u64, ..Default::default() }
        }
    };
    let took = begin.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    let bytes = std::fs::metadata(&path).unwrap().len() >> 10;
    println!("{export:9} {:6.2} s  peak {peak}  {bytes} KiB written  {summary:?}", took.as_secs_f64());
    std::fs::remove_file(path).unwrap();
}
