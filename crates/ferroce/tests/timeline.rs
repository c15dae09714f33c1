//! The time-line of one of each operation, as the example `timeline` prints it, is the one that docs/traces.md shows.
//! `UPDATE_GOLDEN=1` writes the golden file anew; read the difference before you believe it.
#![expect(unreachable_pub, reason = "an example's main is public so that it can be called from here")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

#[path = "../examples/timeline.rs"]
mod example;

/// The text with numbers that are the same in every run: queue pairs, addresses, keys, sequence numbers and times.
fn the_same_every_time(told: &example::Told) -> String {
    let mut text = told.text.clone();
    for (qpn, shown) in told.qpns.iter().zip(["0x000011", "0x000022"]) {
        text = text.replace(&qpn.to_string(), shown);
    }
    for (number, (key, address)) in (1_u64..).zip(told.regions) {
        text = text.replace(&format!("{:#010x}", key.0), &format!("{:#010x}", 0x1000 * number));
        text = text
            .replace(&format!("{address:#018x}"), &format!("{:#018x}", 0x7f8b_0000_0000 + (number << 16)));
    }
    let (mut lines, mut first_psn) = (Vec::new(), None);
    for line in text.lines() {
        // On a busy machine a packet may be sent twice, to see whether it has come.
        let line = without_times(&with_small_psn(line, &mut first_psn));
        if !line.contains("[sent again]") && lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}

/// Sequence numbers, counted from 1.
fn with_small_psn(line: &str, first: &mut Option<u32>) -> String {
    let Some((before, psn, after)) = line.split_once("psn=0x").and_then(|(before, rest)| {
        let (psn, after) = rest.split_at_checked(6)?;
        Some((before, u32::from_str_radix(psn, 16).ok()?, after))
    }) else {
        return line.to_owned();
    };
    let number = psn.wrapping_sub(*first.get_or_insert(psn)).wrapping_add(1) & 0xff_ffff;
    format!("{before}psn={number:#08x}{after}")
}

/// Times become a T.
fn without_times(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    let is_unit = |word: &str| matches!(word.trim_end_matches([',', ';']), "ns" | "us" | "ms" | "s");
    let is_number = |word: &str| word.trim_start_matches('+').parse::<f64>().is_ok() && !word.is_empty();
    let mut place = 1;
    while place < words.len() {
        if is_unit(words[place]) && is_number(words[place - 1]) {
            let ending = words[place].trim_start_matches(|c: char| c.is_ascii_alphabetic());
            words[place] = if ending.is_empty() { "" } else { ending };
            words[place - 1] = "T";
        }
        place += 1;
    }
    let line = words.join(" ").replace("T ,", "T,").replace("T ;", "T;");
    // Packets stand below each other by their times.
    match line.trim_start().strip_prefix("T ") {
        Some(rest) => format!("    T {}", rest.trim_start()),
        None => line.trim_end().to_owned(),
    }
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_time_line_of_one_of_each_is_as_documented() {
    let told = the_same_every_time(&example::run().unwrap());
    let golden = file("tests/golden/timeline.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, &told).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    for (line, (seen, expected)) in (1..).zip(told.lines().zip(expected.lines())) {
        assert_eq!(seen, expected, "line {line}; UPDATE_GOLDEN=1 rewrites it");
    }
    assert_eq!(told.len(), expected.len(), "length; UPDATE_GOLDEN=1 rewrites it");
    // It prints the same.
    example::main().unwrap();
}

#[test]
fn the_documentation_shows_what_is_tested() {
    let page = std::fs::read_to_string(file("../../docs/traces.md")).unwrap();
    let golden = std::fs::read_to_string(file("tests/golden/timeline.txt")).unwrap();
    assert!(
        page.contains(&golden),
        "docs/traces.md has to show crates/ferroce/tests/golden/timeline.txt as it is"
    );
}
