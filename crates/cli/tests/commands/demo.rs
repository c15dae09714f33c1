//! `ferroce demo`.

use std::fs;
use std::time::Duration;

use ferroce_device::now;

use crate::golden::golden;
use crate::run::ferroce;

#[test]
fn in_a_pipe_it_is_plain_golden_and_quick() {
    let start = now();
    let text = ferroce(&["demo"]).success().stdout;
    assert!(now().since(start) < Duration::from_secs(20), "{:?}", now().since(start));
    assert!(!text.contains('\x1b'), "escape codes: {text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80 && !line.ends_with(' '), "{line:?}");
    }
    golden("demo.txt", &masked(&text));
}

#[test]
fn it_speaks_json() {
    let json = ferroce(&["demo", "--json"]).success().json();
    let events = json["events"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).collect::<Vec<_>>();
    let (steps, completions, speeds) = (of("step"), of("completion"), of("speed"));
    let verbs: Vec<&str> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    for verb in ["SEND", "WRITE", "READ", "COMPARE & SWAP", "FETCH & ADD", "ATOMIC WRITE", "UD SEND"] {
        assert!(verbs.contains(&verb), "{verb} is missing: {verbs:?}");
    }
    let failed: Vec<&str> = completions
        .iter()
        .filter(|event| event["code"] != 0)
        .map(|event| event["status"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["remote access error", "flushed"]);
    let fact = |name: &str| events.iter().find_map(|event| event["facts"][name].as_u64()).unwrap();
    assert!(fact("rnr_naks") > 0 && fact("retransmitted") > 0);
    assert_eq!(speeds.len(), 3);
    for speed in speeds {
        for path in ["wire", "shared", "local"] {
            assert!(speed["facts"][path].as_f64().unwrap() > 0.0, "{speed}");
        }
    }
}

#[test]
fn its_time_line_is_written_in_the_form_that_the_file_is_named_for() {
    let folder = std::env::temp_dir().join(format!("ferroce-demo-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (name, begin, how) in [
        ("demo.html", &b"<!doctype html>"[..], "open # in a browser"),
        ("demo.pcapng", &[0x0a, 0x0d, 0x0d, 0x0a], "wireshark #"),
        ("demo.ftrace", b"FTRACE", "ferroce trace show #"),
    ] {
        let path = folder.join(name);
        let file = path.to_str().unwrap();
        let out = ferroce(&["demo", "--trace", file]);
        assert_eq!(out.code, Some(0), "{}", out.stderr);
        let said = format!("\nThe time-line of all this: {}\n", how.replace('#', file));
        assert!(out.stdout.contains(&said), "{said:?} is not in {}", out.stdout);
        let bytes = fs::read(&path).unwrap();
        assert!(bytes[..begin.len()].eq_ignore_ascii_case(begin), "{name}: {:?}", &bytes[..20]);
    }
    // What it did on purpose is found in its record.
    let record = folder.join("demo.ftrace");
    let out = ferroce(&["trace", "explain", "--json", record.to_str().unwrap()]);
    let json = out.json();
    let of = |severity: &str| {
        let all = json["findings"].as_array().unwrap().iter();
        all.filter(|found| found["severity"] == severity)
            .map(|found| found["text"].as_str().unwrap())
            .collect()
    };
    let (errors, warnings): (Vec<&str>, Vec<&str>) = (of("error"), of("warning"));
    assert!(errors.len() == 1 && errors[0].contains("remote access error"), "{json:#}");
    assert!(warnings.iter().any(|text| text.contains("answered RNR NAK")), "{json:#}");
    fs::remove_dir_all(&folder).unwrap();
    let out = ferroce(&["demo", "--trace", "demo.txt"]);
    assert!(
        out.usage().contains("a name that ends with .html, .pcapng, .pftrace or .ftrace"),
        "{}",
        out.stderr
    );
}

/// Replaces what differs from run to run: addresses, keys and numbers, times and counts.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        let mut words: Vec<String> = Vec::new();
        for word in line.split(' ') {
            let core = word.trim_end_matches([',', ';']);
            let hidden = if core.starts_with("127.") {
                "127.#"
            } else if core.starts_with("0x") && core.len() >= 8 {
                "0x#"
            } else if ["us", "M/s", "GB/s"].contains(&core) {
                hide_last(&mut words);
                core
            } else {
                core
            };
            words.push(format!("{hidden}{}", &word[core.len()..]));
        }
        if ["packets sent again by", "RNR NAKs until"].iter().any(|start| line.contains(start)) {
            hide_last(&mut words);
        }
        masked += &words.join(" ");
        masked.push('\n');
    }
    masked
}

/// Hides a number, and how many blanks stand before it.
fn hide_last(words: &mut Vec<String>) {
    words.pop();
    while words.last().is_some_and(String::is_empty) {
        words.pop();
    }
    words.push("#".to_owned());
}
