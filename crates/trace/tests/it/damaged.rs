//! Records that were damaged: whatever their bytes say, every reader comes to an end and none panics.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ferroce_trace::export::{Choice, HtmlOptions, Selection, html, mermaid, pcapng, perfetto, svg};
use ferroce_trace::{Block, Explainer, Filter, Line, Stats, Timeline, Told, check, read};

use crate::made::Made;

/// Damaged files; each is read by ten readers.
const FILES: u32 = 60;

/// Bytes of an event.
const EVENT: usize = 64;

/// Has every reader read the records.
fn read_all(files: &[PathBuf]) {
    let Ok(timeline) = Timeline::open(files) else { return };
    let mut text = String::new();
    let mut stats = Stats::new(&timeline, Filter::default());
    let mut explainer = Explainer::new(&timeline);
    let whole = read(&timeline, |told| {
        if let Told::Over(record, work) | Told::Open(record, work) = &told {
            text.clear();
            write!(text, "{}{}", Block(work), Line { record: *record, work }).unwrap();
        }
        stats.take(&told);
        explainer.take(&told);
        ControlFlow::<()>::Continue(())
    });
    drop(whole);
    write!(text, "{stats}{}", explainer.finish()).unwrap();
    drop(check(&timeline));
    let (all, quiet, mut out) = (Selection::default(), &mut |_| {}, std::io::sink());
    drop(pcapng(&timeline, &all, &mut out, quiet));
    drop(perfetto(&timeline, &all, &mut out, quiet));
    drop(html(&timeline, &HtmlOptions::default(), &mut out, quiet));
    drop(svg(&timeline, &Choice::default(), &mut out, quiet));
    drop(mermaid(&timeline, &Choice::default(), &mut out, quiet));
    out.flush().unwrap();
}

#[test]
fn readers_of_damaged_records_come_to_an_end() {
    let mut made = Made::new("damaged", false);
    made.traffic(300, 3);
    drop(made.timeline(2));
    let files: Vec<PathBuf> =
        ["client", "server"].map(|name| made.directory().join(format!("{name}.ftrace"))).into();
    // Events of a whole record stand behind its rings: at the end of what is not zero. Only there it is changed.
    let parts: Vec<(u64, Vec<u8>, u64)> = files
        .iter()
        .map(|file| {
            let bytes = std::fs::read(file).unwrap();
            let end =
                bytes.chunks(4096).rposition(|part| part != [0; 4096]).map_or(0, |last| (last + 1) * 4096);
            let end = end.min(bytes.len());
            let first = end.saturating_sub(1_000 * EVENT);
            (first as u64, bytes[first..end].to_vec(), bytes.len() as u64)
        })
        .collect();
    read_all(&files);
    for number in 0..FILES {
        // The same numbers are drawn each time: a file that fails is the one with its number.
        println!("file {number}");
        let end = usize::try_from(made.random(2)).unwrap();
        let (first, bytes, len) = &parts[end];
        let file = OpenOptions::new().write(true).open(&files[end]).unwrap();
        let mut place = |width: usize| {
            let places = (bytes.len() / width) as u64;
            usize::try_from(made.random(places)).unwrap() * width
        };
        let (changes, cut) = (place(1) % 60, place(1));
        for change in 0..=changes {
            let (byte, word, event, other) = (place(1), place(8), place(EVENT), place(EVENT));
            let (at, new) = match change % 4 {
                0 => (word, &bytes[event..event + 8]),
                1 => (byte, &bytes[event + 9..event + 10]),
                // One event in the place of another.
                2 => (event, &bytes[other..other + EVENT]),
                _ => (word, &[0xff; 8][..]),
            };
            file.write_all_at(new, first + at as u64).unwrap();
        }
        if number % 8 == 0 {
            file.set_len(first + cut as u64).unwrap();
        }
        read_all(&files);
        file.write_all_at(bytes, *first).unwrap();
        file.set_len(*len).unwrap();
    }
}
