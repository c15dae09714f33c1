//! Which field of tshark is which of ours, and where it lies on the wire.

use super::row::Source::{Bits, Field, Flags, Wire, Zero};
use super::row::{Row, When, row};
use super::table_cm::{ALTERNATE, DREP, DREQ, IP_CM, MAD, PRIMARY, REJ, REP, REQ, REQ_PRIVATE, RTU};

/// The fields that tshark shows for our header with this key, in its order. None
/// if it has no fields for such a header.
pub(crate) fn rows(key: &str) -> Option<&'static [Row]> {
    TABLE.iter().find(|(header, _)| *header == key).map(|(_, rows)| *rows)
}

/// The names of all fields in the table, some of them more than once.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|(_, rows)| rows.iter().map(|row| row.name))
}

/// Our header key, and tshark's fields for it.
const TABLE: &[(&str, &[Row])] = &[
    ("bth", BTH),
    ("deth", DETH),
    ("reth", RETH),
    ("atomiceth", ATOMICETH),
    ("aeth", AETH),
    ("atomicacketh", ATOMICACKETH),
    ("immdt", IMMDT),
    ("ieth", IETH),
    ("icrc", ICRC),
    ("mad", MAD),
    ("cm.req", REQ),
    ("cm.req.primary", PRIMARY),
    ("cm.req.alternate", ALTERNATE),
    ("cm.req.ip", IP_CM),
    ("cm.req.private", REQ_PRIVATE),
    ("cm.rep", REP),
    ("cm.rtu", RTU),
    ("cm.rej", REJ),
    ("cm.dreq", DREQ),
    ("cm.drep", DREP),
];

const BTH: &[Row] = &[
    row("infiniband.bth", 0, 12, Wire),
    row("infiniband.bth.opcode", 0, 1, Field("opcode")),
    row("infiniband.bth.se", 1, 1, Field("solicited")),
    row("infiniband.bth.m", 1, 1, Field("migrated")),
    row("infiniband.bth.padcnt", 1, 1, Field("pad")),
    row("infiniband.bth.tver", 1, 1, Field("version")),
    row("infiniband.bth.p_key", 2, 2, Field("pkey")),
    // tshark knows no congestion bits and shows the byte that they are in.
    row("infiniband.reserved", 4, 1, Flags(&[("fecn", 7), ("becn", 6)])),
    row("infiniband.bth.destqp", 5, 3, Field("dest_qp")),
    row("infiniband.bth.a", 8, 1, Field("ack_request")),
    row("infiniband.bth.reserved7", 8, 1, Zero),
    row("infiniband.bth.psn", 9, 3, Field("psn")),
];

const DETH: &[Row] = &[
    row("infiniband.deth", 0, 8, Wire),
    row("infiniband.deth.q_key", 0, 4, Field("qkey")),
    row("infiniband.reserved", 4, 1, Zero),
    row("infiniband.deth.srcqp", 5, 3, Field("source_qp")),
];

const RETH: &[Row] = &[
    row("infiniband.reth", 0, 16, Wire),
    row("infiniband.reth.va", 0, 8, Field("address")),
    row("infiniband.reth.r_key", 8, 4, Field("rkey")),
    row("infiniband.reth.dmalen", 12, 4, Field("length")),
];

const ATOMICETH: &[Row] = &[
    row("infiniband.atomiceth", 0, 28, Wire),
    row("infiniband.reth.va", 0, 8, Field("address")),
    row("infiniband.reth.r_key", 8, 4, Field("rkey")),
    row("infiniband.atomiceth.swapdt", 12, 8, Field("swap_or_add")),
    row("infiniband.atomiceth.cmpdt", 20, 8, Field("compare")),
];

const AETH: &[Row] = &[
    row("infiniband.aeth", 0, 4, Wire),
    row("infiniband.aeth.syndrome", 0, 1, Field("syndrome")),
    row("infiniband.aeth.syndrome.reserved", 0, 1, Bits("syndrome", 7, 1)),
    row("infiniband.aeth.syndrome.opcode", 0, 1, Bits("syndrome", 5, 2)),
    row("infiniband.aeth.syndrome.credit_count", 0, 1, Bits("syndrome", 0, 5)).when(When::Syndrome(0)),
    row("infiniband.aeth.syndrome.timer", 0, 1, Bits("syndrome", 0, 5)).when(When::Syndrome(1)),
    row("infiniband.aeth.syndrome.reserved_value", 0, 1, Bits("syndrome", 0, 5)).when(When::Syndrome(2)),
    row("infiniband.aeth.syndrome.error_code", 0, 1, Bits("syndrome", 0, 5)).when(When::Syndrome(3)),
    row("infiniband.aeth.msn", 1, 3, Field("msn")),
];

const ATOMICACKETH: &[Row] = &[
    row("infiniband.atomicacketh", 0, 8, Wire),
    row("infiniband.atomicacketh.origremdt", 0, 8, Field("original")),
];

/// The header and its one field have the same name.
const IMMDT: &[Row] = &[row("infiniband.immdt", 0, 4, Wire), row("infiniband.immdt", 0, 4, Field("data"))];

/// The header and its one field have the same name.
const IETH: &[Row] = &[row("infiniband.ieth", 0, 4, Wire), row("infiniband.ieth", 0, 4, Field("rkey"))];

const ICRC: &[Row] = &[row("infiniband.invariant.crc", 0, 4, Field("value"))];
