//! The goodput table is a snapshot; `UPDATE_SNAPSHOT=1 cargo test -p ferroce-sim` rewrites it.

use std::path::Path;

use ferroce_sim::goodput::{Direction, table};

const SMALL: u32 = 208 * 1024;
const LARGE: u32 = 4 * 1024 * 1024;

#[test]
fn goodput_is_what_it_was() {
    let table = table();
    let text = table.to_string();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/goodput.txt");
    if std::env::var_os("UPDATE_SNAPSHOT").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, known, "goodput has changed; if that is meant, run again with UPDATE_SNAPSHOT=1");

    let rate = |direction, pairs, buffer, loss| table.get(direction, pairs, buffer, loss).unwrap().megabytes;
    for direction in [Direction::Write, Direction::Read] {
        for pairs in [1, 8] {
            for buffer in [SMALL, LARGE] {
                let (clean, lossy) =
                    (rate(direction, pairs, buffer, 0), rate(direction, pairs, buffer, 10_000));
                let case = format!("{direction:?}, {pairs} queue pairs, {buffer} bytes");
                assert!(lossy * 2 >= clean, "1 % loss: {lossy} of {clean} MB/s: {case}");
            }
        }
        let (one, eight) = (rate(direction, 1, SMALL, 0), rate(direction, 8, SMALL, 0));
        assert!(
            eight * 2 >= one,
            "8 queue pairs into a small buffer: {eight}, one has {one} MB/s: {direction:?}"
        );
    }
}
