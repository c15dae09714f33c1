//! What tshark 4.0 gets wrong about RoCEv2. Nothing else is excepted.
//!
//! Each entry says exactly what tshark shows instead, and that is compared too.
//! Each part of each entry must be needed by some frame that we emit.

use super::row::Source::{Bits, Reversed};
use super::row::{Row, row};
use super::told::Told;

/// A mistake of tshark.
pub(crate) struct Mistake {
    /// What one sees.
    pub(crate) symptom: &'static str,
    /// Why our side is the right one.
    pub(crate) because: &'static str,
    /// Where it strikes, and what tshark shows there.
    pub(crate) kind: Kind,
}

/// Where a mistake strikes, and what tshark shows there.
pub(crate) enum Kind {
    /// These fields of our header with this key show something else.
    Misread(&'static str, &'static [Row]),
    /// Packets with these opcodes are dissected up to the BTH. The rest, ICRC
    /// included, is one field `infiniband.vendor`, after one with its first four bytes.
    UnknownOpcodes(&'static [u8]),
    /// These opcodes have no name.
    NamelessOpcodes(&'static [u8]),
    /// Our headers with these keys are shown as bytes without fields.
    Undissected(&'static [&'static str]),
    /// Some frames raise an expert information of this protocol with this text.
    Complaint(&'static str, &'static str, fn(&Told) -> bool),
}

pub(crate) const MISTAKES: &[Mistake] = &[
    Mistake {
        symptom: "the ICRC is shown with its bytes in the wrong order",
        because: "the lowest byte of the ICRC is sent first (IBA 7.8.1), tshark reads it as if it came last",
        kind: Kind::Misread("icrc", &[row("infiniband.invariant.crc", 0, 4, Reversed("value"))]),
    },
    Mistake {
        symptom: "flow label and packet rate of the primary path come from the wrong bits",
        because: "IBA 12.6.5 puts them into 32 bits, label first; tshark reads three bytes for the label \
                  and the first byte for what follows it, with masks made for all four",
        kind: Kind::Misread(
            "cm.req.primary",
            &[
                row("infiniband.cm.req.prim_flowlabel", 36, 3, Bits("flow_label", 8, 12)),
                row("infiniband.cm.req.prim_reserved0", 36, 1, Bits("flow_label", 18, 2)),
                row("infiniband.cm.req.prim_pktrate", 36, 1, Bits("flow_label", 12, 6)),
            ],
        ),
    },
    Mistake {
        symptom: "flow label and packet rate of the alternate path come from the wrong bits",
        because: "the alternate path has the layout of the primary one (IBA 12.6.5), and so has the mistake",
        kind: Kind::Misread(
            "cm.req.alternate",
            &[
                row("infiniband.cm.req.alt_flowlabel", 36, 3, Bits("flow_label", 8, 12)),
                row("infiniband.cm.req.alt_reserved0", 36, 1, Bits("flow_label", 18, 2)),
                row("infiniband.cm.req.alt_pktrate", 36, 1, Bits("flow_label", 12, 6)),
            ],
        ),
    },
    Mistake {
        symptom: "congestion notifications are an unknown header sequence",
        because: "annex A17 gives them opcode 0x81; tshark has its CNP at 0x80 and no fields for either",
        kind: Kind::UnknownOpcodes(&[0x81]),
    },
    Mistake {
        symptom: "FLUSH and ATOMIC WRITE are an unknown header sequence",
        because: "annex A19 defines both, after this version of tshark; 4.4 has learned them for RC",
        kind: Kind::UnknownOpcodes(&[0x1c, 0x1d]),
    },
    Mistake {
        symptom: "all of XRC is an unknown header sequence",
        because: "annex A14 defines it; tshark has names for most of its opcodes but no header sequences",
        kind: Kind::UnknownOpcodes(&[
            0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,
            0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb6, 0xb7, 0xbc, 0xbd,
        ]),
    },
    Mistake {
        symptom: "congestion notifications, FLUSH and ATOMIC WRITE have no name",
        because: "annexes A17 and A19 name them",
        kind: Kind::NamelessOpcodes(&[0x1c, 0x1d, 0x81, 0xbc, 0xbd]),
    },
    Mistake {
        symptom: "masked atomics are an unknown header sequence",
        because: "they are an addition of our own, in the range that the IBA leaves to manufacturers",
        kind: Kind::UnknownOpcodes(&[0xd3, 0xd4, 0xf3, 0xf4]),
    },
    Mistake {
        symptom: "masked atomics have no name",
        because: "they are an addition of our own, in the range that the IBA leaves to manufacturers",
        kind: Kind::NamelessOpcodes(&[0xd3, 0xd4, 0xf3, 0xf4]),
    },
    Mistake {
        symptom: "MRA, SIDR_REQ and SIDR_REP are shown as bytes",
        because: "IBA 12.6.6, 12.11.1 and 12.11.2 define their fields; tshark says itself that it does not \
                  implement them",
        kind: Kind::Undissected(&[
            "cm.mra",
            "cm.sidr_req",
            "cm.sidr_req.ip",
            "cm.sidr_req.private",
            "cm.sidr_rep",
        ]),
    },
    Mistake {
        symptom: "a UDP checksum of 0 over IPv6 is called illegal",
        because: "RFC 6935 allows it where the payload is protected otherwise, here by the ICRC; the Linux \
                  kernel sends it too",
        kind: Kind::Complaint("udp", "Illegal checksum value (0)", |told| {
            told.header("ipv6").is_some() && told.number("udp", "checksum") == 0
        }),
    },
];

/// The entry that says that tshark dissects no header behind the BTH of this opcode.
pub(crate) fn unknown_opcode(byte: u64) -> Option<&'static Mistake> {
    MISTAKES.iter().find(|mistake| match mistake.kind {
        Kind::UnknownOpcodes(opcodes) => opcodes.iter().any(|opcode| u64::from(*opcode) == byte),
        _ => false,
    })
}

/// The row that stands for what tshark shows in place of `right`, and its entry.
pub(crate) fn misread(header: &str, right: &Row) -> Option<(&'static Mistake, &'static Row)> {
    MISTAKES.iter().find_map(|mistake| match mistake.kind {
        Kind::Misread(key, rows) if key == header => {
            rows.iter().find(|row| row.name == right.name).map(|row| (mistake, row))
        }
        _ => None,
    })
}

/// The entry that says that tshark has no fields for this header.
pub(crate) fn undissected(header: &str) -> Option<&'static Mistake> {
    MISTAKES
        .iter()
        .find(|mistake| matches!(mistake.kind, Kind::Undissected(headers) if headers.contains(&header)))
}

/// The entry that says that tshark has no name for this opcode.
pub(crate) fn nameless(byte: u64) -> Option<&'static Mistake> {
    MISTAKES.iter().find(|mistake| match mistake.kind {
        Kind::NamelessOpcodes(opcodes) => opcodes.iter().any(|opcode| u64::from(*opcode) == byte),
        _ => false,
    })
}
