//! tshark as the judge of the frames that we emit, and of our reading of the Linux kernel's.
//!
//! Every field `infiniband.*` that tshark shows must be one that we expect there,
//! with the value that our own description of the frame has, at the place where our
//! header lengths put it; and every field that we expect must be shown. What tshark
//! gets wrong is in `mistakes.rs`, which says what it shows instead.
//!
//! The list is that of tshark 4.0, which Debian 12 has. Another version may have
//! mended a mistake; then this test says which entry is too much for it.

#[path = "tshark/compare.rs"]
mod compare;
#[path = "tshark/frames.rs"]
mod frames;
#[path = "tshark/labels.rs"]
mod labels;
#[path = "tshark/messages.rs"]
mod messages;
#[path = "tshark/mistakes.rs"]
mod mistakes;
#[path = "tshark/pdml.rs"]
mod pdml;
#[path = "tshark/row.rs"]
mod row;
#[path = "tshark/table.rs"]
mod table;
#[path = "tshark/table_cm.rs"]
mod table_cm;
#[path = "tshark/told.rs"]
mod told;

use std::collections::BTreeSet;

use ferroce_testkit::{captures, judge};
use ferroce_wire::{Frame, Opcode};

use compare::{Findings, Sample};
use mistakes::MISTAKES;
use told::Told;

#[test]
fn tshark_reads_in_our_frames_what_we_meant() {
    if !judge::is_here("tshark") {
        return;
    }
    let mut samples = frames::packets();
    samples.extend(messages::messages());
    let findings = compared("emitted", &samples);

    let opcodes = |prefix: &str| -> BTreeSet<u64> {
        let over = samples.iter().filter(|sample| sample.told.header(prefix).is_some());
        over.map(|sample| sample.told.number("bth", "opcode")).collect()
    };
    let all: BTreeSet<u64> = Opcode::all().map(|opcode| opcode.byte().into()).collect();
    assert_eq!((opcodes("ipv4"), opcodes("ipv6")), (all.clone(), all));
    assert!(samples.len() >= 2_000, "{} frames", samples.len());
    assert!(findings.fields >= 43_000, "{} fields", findings.fields);
    let never: Vec<&str> = table::names().filter(|name| !findings.names.contains(name)).collect();
    assert_eq!(never, [""; 0], "fields that no frame shows");
    assert!(findings.names.len() >= 150, "{} names", findings.names.len());
    assert_eq!(findings.unneeded(), [""; 0], "{} does not make these mistakes", pdml::version());
}

#[test]
fn tshark_reads_in_kernel_frames_what_we_read() {
    if !judge::is_here("tshark") {
        return;
    }
    let mut samples = Vec::new();
    for capture in captures::linux_rxe() {
        for (index, bytes) in capture.frames.into_iter().enumerate() {
            let frame = Frame::parse_ethernet(&bytes).expect("a RoCEv2 frame");
            let what = format!("{} frame {}: {frame}", capture.name, index + 1);
            let told = Told::of(&frame);
            samples.push(Sample { what, told, bytes });
        }
    }
    let findings = compared("captured", &samples);
    assert_eq!(samples.len(), 1_352);
    assert!(findings.fields >= 22_000, "{} fields", findings.fields);
    assert!(findings.names.len() >= 140, "{} names", findings.names.len());
}

/// Compares all samples, prints what was compared, and fails if anything differs.
fn compared(name: &str, samples: &[Sample]) -> Findings {
    let frames: Vec<&[u8]> = samples.iter().map(|sample| sample.bytes.as_slice()).collect();
    let shown = pdml::dissect(name, &frames);
    assert_eq!(shown.len(), samples.len(), "packets that tshark shows");
    let mut findings = Findings::default();
    for (sample, shown) in samples.iter().zip(&shown) {
        findings.compare(sample, shown);
    }
    println!("{name}: {} frames, {} fields, {} names", samples.len(), findings.fields, findings.names.len());
    for mistake in MISTAKES {
        let needed = findings.needed.iter().filter(|((symptom, _), _)| *symptom == mistake.symptom);
        let count: usize = needed.map(|(_, count)| count).sum();
        println!("{name}: {count:5} x {}: {}", mistake.symptom, mistake.because);
    }
    let differences = &findings.differences;
    let first = differences.iter().take(20).map(|text| format!("\n{text}")).collect::<String>();
    assert!(differences.is_empty(), "{}: {} differences{first}", pdml::version(), differences.len());
    findings
}
