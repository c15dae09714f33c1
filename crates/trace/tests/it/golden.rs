//! Small exports, byte for byte: a change of one is looked at before it is made.
//!
//! With `UPDATE_GOLDEN` set, they are written anew.

use std::path::{Path, PathBuf};

use ferroce_trace::Timeline;
use ferroce_trace::export::{Choice, ExportError, Selection, Summary, mermaid, pcapng, perfetto, svg};
use ferroce_wire::Qpn;

use crate::made::{Made, five_operations};

fn golden(name: &str, bytes: &[u8]) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let expected = std::fs::read(&path).unwrap_or_default();
    let is_same = expected == bytes;
    assert!(is_same, "{name} differs:\n{}", String::from_utf8_lossy(bytes));
}

/// Letters in bytes, one run of them per line: what people read in a file for machines.
fn words(bytes: &[u8]) -> String {
    let is_letter = |byte: &u8| (b' '..0x7f).contains(byte);
    let runs = bytes.split(|byte| !is_letter(byte)).filter(|run| run.len() >= 8);
    runs.map(|run| String::from_utf8_lossy(run) + "\n").collect()
}

type Export = fn(&Timeline, &Selection, &mut Vec<u8>, &mut dyn FnMut(u64)) -> Result<Summary, ExportError>;

#[test]
fn comments_name_work_and_places_in_it() {
    let timeline = five_operations("golden-comments").timeline(2);
    for (name, export) in [("comments.txt", pcapng as Export), ("perfetto.txt", perfetto as Export)] {
        let mut bytes = Vec::new();
        export(&timeline, &Selection::default(), &mut bytes, &mut |_| {}).unwrap();
        let text = words(&bytes).replace(env!("CARGO_PKG_VERSION"), "VERSION");
        golden(name, text.as_bytes());
    }
}

#[test]
fn one_operation_is_a_picture_and_a_diagram() {
    let mut made = five_operations("golden-operation");
    let timeline = made.timeline(2);
    for (name, choice) in [
        ("write", Choice { queue_pair: Some(Qpn::new(0x11)), work: Some(0), ..Choice::default() }),
        ("send", Choice { id: Some(0x1001), ..Choice::default() }),
        ("read", Choice { queue_pair: Some(Qpn::new(0x1000)), ..Choice::default() }),
        ("refused", Choice { source: Some(0), work: Some(3), ..Choice::default() }),
    ] {
        let (mut picture, mut diagram) = (Vec::new(), Vec::new());
        let summary = svg(&timeline, &choice, &mut picture, &mut |_| {}).unwrap();
        assert_eq!(mermaid(&timeline, &choice, &mut diagram, &mut |_| {}).unwrap(), summary);
        assert!(summary.packets > 0 && summary.works > 0, "{name}: {summary:?}");
        golden(&format!("{name}.svg"), &picture);
        golden(&format!("{name}.mmd"), &diagram);
        roxmltree::Document::parse(std::str::from_utf8(&picture).unwrap()).unwrap();
    }
    let none = Choice { id: Some(12345), ..Choice::default() };
    let error = svg(&timeline, &none, &mut Vec::new(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, ExportError::NoSuchWork));
}

#[test]
fn work_that_stays_in_its_process_says_so() {
    let mut made = Made::new("golden-local", false);
    let mut link = made.link([0x11, 0x1000]);
    made.local(&mut link);
    let timeline = made.timeline(1);
    let mut diagram = Vec::new();
    let summary = mermaid(&timeline, &Choice::default(), &mut diagram, &mut |_| {}).unwrap();
    assert_eq!((summary.local, summary.packets), (1, 0));
    golden("local.mmd", &diagram);
}
