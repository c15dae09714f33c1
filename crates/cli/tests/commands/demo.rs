//! `ferroce demo`.

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
        let (wire, local) =
            (speed["facts"]["wire"].as_f64().unwrap(), speed["facts"]["local"].as_f64().unwrap());
        assert!(wire > 0.0 && local > 0.0, "{speed}");
    }
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
