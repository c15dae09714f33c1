//! Holds what tshark shows against what we say.

use std::collections::{BTreeMap, BTreeSet};

use super::labels::label;
use super::mistakes::{self, Kind, MISTAKES, Mistake};
use super::pdml::{Field, Shown};
use super::row::Row;
use super::table;
use super::told::{Header, Known, Told};

/// A frame and our description of it.
pub(crate) struct Sample {
    /// For messages of the test.
    pub(crate) what: String,
    /// Ethernet header first.
    pub(crate) bytes: Vec<u8>,
    /// Our description.
    pub(crate) told: Told,
}

/// What a comparison found.
#[derive(Default)]
pub(crate) struct Findings {
    /// Everything in which tshark and we differ.
    pub(crate) differences: Vec<String>,
    /// How many fields were compared.
    pub(crate) fields: usize,
    /// Their names.
    pub(crate) names: BTreeSet<&'static str>,
    /// How often each part of each entry of the list of mistakes was needed.
    pub(crate) needed: BTreeMap<(&'static str, String), usize>,
}

/// A field that tshark must show.
struct Expected {
    name: &'static str,
    at: usize,
    len: usize,
    value: Known,
    label: Option<String>,
}

impl Findings {
    /// Compares one frame.
    pub(crate) fn compare(&mut self, sample: &Sample, shown: &Shown) {
        let mut expected = Vec::new();
        let payload = self.expect(sample, &mut expected);
        let mut differences = Vec::new();
        for (expected, field) in expected.iter().zip(&shown.fields) {
            differences.extend(difference(expected, field));
            self.names.insert(expected.name);
        }
        self.fields += expected.len().min(shown.fields.len());
        for missing in expected.iter().skip(shown.fields.len()) {
            differences.push(format!("tshark does not show {} {:x?}", missing.name, missing.value));
        }
        for surplus in shown.fields.iter().skip(expected.len()) {
            differences.push(format!("tshark shows {surplus:?}, which we do not expect"));
        }
        differences.extend(self.payload_difference(payload, shown));
        if shown.span != Some(sample.told.span()) {
            differences.push(format!(
                "tshark sees the packet at {:?}, we {:?}",
                shown.span,
                sample.told.span()
            ));
        }
        differences.extend(shown.strangers.iter().map(|name| format!("tshark sees a protocol {name}")));
        differences.extend(self.complaint_difference(&sample.told, shown));
        self.differences.extend(differences.into_iter().map(|text| format!("{}: {text}", sample.what)));
    }

    /// Entries of the list of mistakes, or parts of them, that no frame needed.
    pub(crate) fn unneeded(&self) -> Vec<String> {
        let all = MISTAKES
            .iter()
            .flat_map(|mistake| parts(mistake).into_iter().map(|part| (mistake.symptom, part)));
        all.filter(|entry| !self.needed.contains_key(entry))
            .map(|(symptom, part)| format!("{symptom} ({part})"))
            .collect()
    }

    /// Collects the fields that tshark must show, and returns the payload.
    fn expect(&mut self, sample: &Sample, expected: &mut Vec<Expected>) -> Option<(usize, Vec<u8>)> {
        let told = &sample.told;
        let opcode = told.number("bth", "opcode");
        if let Some(mistake) = mistakes::nameless(opcode) {
            self.need(mistake, format!("{opcode:#04x}"));
        }
        if let Some(mistake) = mistakes::unknown_opcode(opcode) {
            self.need(mistake, format!("{opcode:#04x}"));
            let bth = &told.transport()[0];
            self.expect_header(bth, sample, expected);
            let rest = bth.at + 12;
            for len in [4, sample.bytes.len() - rest] {
                let value = Known::Bytes(sample.bytes[rest..rest + len].to_vec());
                expected.push(Expected { name: "infiniband.vendor", at: rest, len, value, label: None });
            }
            return None;
        }
        for header in told.transport() {
            self.expect_header(header, sample, expected);
        }
        told.padded_payload()
    }

    fn expect_header(&mut self, header: &Header, sample: &Sample, expected: &mut Vec<Expected>) {
        if let Some(mistake) = mistakes::undissected(header.key) {
            self.need(mistake, header.key.to_owned());
            return;
        }
        let Some(rows) = table::rows(header.key) else {
            self.differences.push(format!("{}: tshark has no fields for {}", sample.what, header.key));
            return;
        };
        for row in rows.iter().filter(|row| row.appears(&sample.told)) {
            let right = row.value(header, &sample.bytes);
            let (row, value) = match mistakes::misread(header.key, row) {
                None => (row, right),
                Some((mistake, wrong_row)) => {
                    let wrong = wrong_row.value(header, &sample.bytes);
                    if wrong != right {
                        self.need(mistake, wrong_row.name.to_owned());
                    }
                    (wrong_row, wrong)
                }
            };
            let Row { name, at, len, .. } = *row;
            let label = label(name, &sample.told);
            expected.push(Expected { name, at: header.at + at, len, value, label });
        }
    }

    fn payload_difference(&mut self, ours: Option<(usize, Vec<u8>)>, shown: &Shown) -> Option<String> {
        match (ours, &shown.payload) {
            (None, None) => None,
            (Some((at, bytes)), Some(field)) => {
                self.fields += 1;
                self.names.insert("data.data");
                let len = bytes.len();
                let value = Known::Bytes(bytes);
                difference(&Expected { name: "data.data", at, len, value, label: None }, field)
            }
            (ours, theirs) => Some(format!("tshark shows the payload {theirs:?}, ours is {ours:x?}")),
        }
    }

    fn complaint_difference(&mut self, told: &Told, shown: &Shown) -> Option<String> {
        let mut expected = Vec::new();
        for mistake in MISTAKES {
            if let Kind::Complaint(protocol, text, when) = mistake.kind
                && when(told)
            {
                self.need(mistake, protocol.to_owned());
                expected.push((protocol.to_owned(), text.to_owned()));
            }
        }
        (expected != shown.complaints)
            .then(|| format!("tshark complains {:?}, not {expected:?}", shown.complaints))
    }

    fn need(&mut self, mistake: &'static Mistake, part: String) {
        *self.needed.entry((mistake.symptom, part)).or_default() += 1;
    }
}

/// The parts of an entry, each of which must be needed.
fn parts(mistake: &Mistake) -> Vec<String> {
    match mistake.kind {
        Kind::Misread(_, rows) => rows.iter().map(|row| row.name.to_owned()).collect(),
        Kind::UnknownOpcodes(opcodes) | Kind::NamelessOpcodes(opcodes) => {
            opcodes.iter().map(|byte| format!("{byte:#04x}")).collect()
        }
        Kind::Undissected(headers) => headers.iter().map(|&key| key.to_owned()).collect(),
        Kind::Complaint(protocol, ..) => vec![protocol.to_owned()],
    }
}

/// How a field differs from what it must be.
fn difference(expected: &Expected, field: &Field) -> Option<String> {
    let Expected { name, at, len, value, label } = expected;
    let place = field.name == *name && field.at == *at && field.len == *len;
    let same_value = match value {
        Known::Number(number) => {
            u64::from_str_radix(&field.value, 16) == Ok(*number)
                && (field.show.replace(':', "") == field.value || shown_number(&field.show) == Some(*number))
        }
        Known::Bytes(bytes) => field.value == hex(bytes),
        Known::Text(_) => false,
    };
    let same_label = label.as_ref().is_none_or(|label| field.line.to_lowercase().ends_with(label.as_str()));
    if place && same_value && same_label {
        return None;
    }
    let label = label.as_deref().unwrap_or("any words");
    Some(format!("{name} must be at {at}, {len} bytes, {value:x?}, {label}; tshark: {field:?}"))
}

/// The number that people see.
fn shown_number(show: &str) -> Option<u64> {
    match show {
        // Flags have been shown with these words since 4.2.
        "True" => Some(1),
        "False" => Some(0),
        _ => match show.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => show.parse().ok(),
        },
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
