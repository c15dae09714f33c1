//! `ferroce decode` as a user meets it: the real binary, on the Linux kernel's
//! frames, on every format and link type, and on files that are broken.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

#[path = "decode/broken.rs"]
mod broken;
#[path = "decode/build.rs"]
mod build;
#[path = "decode/formats.rs"]
mod formats;
#[path = "decode/golden.rs"]
mod golden;
#[path = "decode/odd.rs"]
mod odd;
#[path = "decode/run.rs"]
mod run;
use golden::golden;
use run::{decode, ferroce};

/// The folder of captures of the Linux kernel's soft-RoCE.
fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures/linux-6.1-rxe")
}

fn capture(name: &str) -> PathBuf {
    captures().join(name)
}

fn all_captures() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![captures()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "pcap") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn json(args: &[&str], path: &Path) -> Vec<Value> {
    let out = decode(args, path).success();
    out.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn every_capture_of_the_kernel_in_every_form() {
    let mut total = 0;
    for path in all_captures() {
        let count = build::frames(&path).len();
        let wrong = usize::from(path.ends_with("udp_smoke.pcap"));
        let noun = if count == 1 { "frame" } else { "frames" };
        let summary =
            format!("{count} {noun}, {count} RoCEv2, {wrong} wrong ICRC, 0 malformed, 0 cut, 0 other\n");

        let long = decode(&[], &path).success();
        assert_eq!(long.stderr, summary, "{}", path.display());
        assert_eq!(long.stdout.matches(": UDP, length ").count(), count);
        assert_eq!(long.stdout.split("\n\n").count(), count);
        assert_eq!(long.stdout.matches("Check: wrong").count(), wrong);

        let short = decode(&["--short"], &path).success();
        assert_eq!(short.stderr, summary);
        assert_eq!(short.stdout.lines().count(), count);
        for (number, line) in (1..).zip(short.stdout.lines()) {
            assert!(line.starts_with(&format!("{number:>5} ")), "{line}");
        }
        assert_eq!(short.stdout.matches("WRONG ICRC").count(), wrong);

        let objects = json(&["--json", "--quiet"], &path);
        for (number, object) in (1..).zip(&objects) {
            assert_eq!(object["frame"], number);
            assert!(object["bth"]["psn"].is_u64(), "{object}");
            assert_eq!(object["udp"]["dest_port"], 4791);
            assert!(object["error"].is_null());
        }
        assert_eq!(objects.len(), count);
        total += count;
    }
    assert_eq!(total, 1352, "as the folder's page says");
}

#[test]
fn the_long_form_is_golden() {
    golden("rnr.txt", &decode(&[], &capture("rnr.pcap")).success().stdout);
}

/// Captures that together have every opcode, refusal and message that the kernel sent.
const REPRESENTATIVE: [&str; 16] = [
    "all_rc",
    "all_rc_multi",
    "all_uc",
    "all_ud",
    "atomic_cas",
    "bad_rkey",
    "cm_reject",
    "rnr",
    "rping",
    "send_inv",
    "srq_pingpong",
    "udaddy",
    "udp_smoke",
    "v6/all_rc_multi",
    "v6/all_ud",
    "zero_len",
];

#[test]
fn the_short_form_is_golden() {
    let mut text = String::new();
    for name in REPRESENTATIVE {
        let out = decode(&["--short"], &capture(&format!("{name}.pcap"))).success();
        text += &format!("== {name}: {}{}", out.stderr, out.stdout);
    }
    golden("short.txt", &text);
}

#[test]
fn a_connect_request_in_json() {
    let objects = json(&["--json"], &capture("rping.pcap"));
    let [req, ..] = &objects[..] else { panic!("no frames") };
    assert_eq!(req["time"], "1794705049.130862");
    assert_eq!(req["ipv4"]["source"], "10.77.0.3");
    assert_eq!(req["ipv4"]["dont_fragment"], true);
    assert_eq!(req["bth"]["dest_qp"], 1);
    assert_eq!(req["bth"]["opcode"], 0x64);
    assert_eq!(req["bth"]["opcode_name"], "SEND Only");
    assert_eq!(req["mad"]["transaction_id"], "0x000000022ef56290");
    assert_eq!(req["cm.req"]["service_id"], "0x0000000001061c06");
    assert_eq!(req["cm.req"]["local_qpn"], 0x17);
    assert_eq!(req["cm.req.ip"]["source_ip"], "10.77.0.3");
    assert_eq!(req["icrc"]["check"], "correct");

    let send = &objects[3];
    assert_eq!(send["payload"]["length"], 16);
    assert_eq!(send["payload"]["bytes"], hex(&build::frames(&capture("rping.pcap"))[3].bytes[54..70]));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn long_payloads_are_whole() {
    let path = capture("mtu9000/all_rc_4096.pcap");
    let frames = build::frames(&path);
    let objects = json(&["--json"], &path);
    let longest = objects.iter().max_by_key(|object| object["payload"]["length"].as_u64()).unwrap();
    assert_eq!(longest["payload"]["length"], 4096);
    let number = usize::try_from(longest["frame"].as_u64().unwrap()).unwrap();
    let frame = hex(&frames[number - 1].bytes);
    let payload = longest["payload"]["bytes"].as_str().unwrap();
    assert_eq!(payload.len(), 2 * 4096);
    assert!(frame.contains(payload));
}

#[test]
fn refusals_and_wrong_icrcs_are_errors() {
    let rnr = json(&["--json", "--errors"], &capture("rnr.pcap"));
    assert_eq!(rnr.len(), 3);
    for object in &rnr {
        assert_eq!(object["aeth"]["syndrome"], 0x2c);
        assert_eq!(object["aeth"]["syndrome_name"], "RNR NAK");
    }

    let nak = decode(&["--errors", "--short"], &capture("bad_rkey.pcap")).success();
    assert_eq!(nak.stdout.lines().count(), 1);
    assert!(nak.stdout.contains("NAK Remote Access Error"), "{}", nak.stdout);

    let wrong = json(&["--json", "--errors"], &capture("udp_smoke.pcap"));
    assert_eq!(wrong.len(), 1);
    assert_eq!(wrong[0]["icrc"]["check"], "wrong");
    assert_eq!(wrong[0]["icrc"]["computed"], 0x5c87_ec59);
}

#[test]
fn frames_are_chosen_by_queue_pair_and_number() {
    let path = capture("rping.pcap");
    let all = decode(&["--short"], &path).success().stdout;
    let of_qp = |qp: &str| all.lines().filter(|line| line.contains(qp)).count();
    for (asked, printed) in [("0x17", "qp=0x000017 "), ("23", "qp=0x000017 "), ("1", " qp=0x000001 ")] {
        let chosen = decode(&["--short", "--qp", asked], &path).success();
        assert!(chosen.stdout.lines().all(|line| line.contains(printed)));
        assert_eq!(chosen.stdout.lines().count(), of_qp(printed));
        assert!(chosen.stdout.lines().count() > 2);
    }
    let two = decode(&["--short", "--qp", "0x17", "--count", "2"], &path).success();
    assert_eq!(two.stdout.lines().count(), 2);
    assert_eq!(two.stderr, "5 frames, 5 RoCEv2, 0 wrong ICRC, 0 malformed, 0 cut, 0 other\n");
}

#[test]
fn the_command_line_is_explained_and_checked() {
    let help = ferroce(&["decode", "--help"]).success().stdout;
    for word in ["Examples:", "Exit codes:", "--errors", "256 KiB", "standard input", "segmentation offload"]
    {
        assert!(help.contains(word), "{word}");
    }
    assert!(ferroce(&["--help"]).success().stdout.contains("Exit codes:"));
    assert_eq!(
        ferroce(&["--version"]).success().stdout,
        concat!("ferroce ", env!("CARGO_PKG_VERSION"), "\n")
    );
    for wrong in [
        &["decode"][..],
        &[],
        &["decode", "--qp", "0x1000000", "x"],
        &["decode", "--qp", "frog", "x"],
        &["decode", "--qp", "0x+11", "x"],
        &["decode", "--qp", "+17", "x"],
        &["decode", "--qp", "0x", "x"],
        &["decode", "--count", "0", "x"],
        &["decode", "--count", "+1", "x"],
        &["decode", "--short", "--json", "x"],
        &["encode"],
    ] {
        let out = ferroce(wrong);
        assert_eq!((out.code, &*out.stdout), (Some(2), ""), "{wrong:?}");
        assert!(!out.stderr.is_empty());
    }
    let none = ferroce(&["decode", "-c", "0", "x"]).stderr;
    assert!(none.contains("'0' for '--count <N>': expected a number of frames, at least 1"), "{none}");
}
