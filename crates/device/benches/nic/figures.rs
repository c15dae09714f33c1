//! What is measured, and beside what.

use crate::samples::Sample;
use crate::stream::{ASLEEP, BUSY, Stream};
use crate::{Outcome, Settings, alone, local, pingpong, raw};

/// Measures one side of a figure.
pub(crate) type Load = fn(&Settings) -> Outcome<Sample>;

/// A figure and its baseline. Either may be alone.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// What the baseline is.
    pub(crate) against: &'static str,
    pub(crate) ours: Option<Load>,
    pub(crate) raw: Option<Load>,
}

/// WRITEs of 64 bytes.
const SMALL: Stream = Stream { read: false, len: 64, list: 16, depth: 128, target: BUSY };

/// WRITEs of 1 MiB.
const BULK: Stream = Stream { read: false, len: 1 << 20, list: 1, depth: 16, target: BUSY };

pub(crate) const FIGURES: &[Figure] = &[
    Figure {
        name: "SEND 64 B, RTT/2, both poll",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| pingpong::send(s, true)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "WRITE 64 B, RTT/2, target spins on memory",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(pingpong::write),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "SEND 64 B, RTT/2, both asleep",
        unit: "us",
        against: "UDP, both blocked",
        ours: Some(|s| pingpong::send(s, false)),
        raw: Some(|s| raw::ping_pong(s, false)),
    },
    Figure {
        name: "WRITE 64 B rate, lists of 16, depth 128",
        unit: "M/s",
        against: "UDP GSO, 16 x 96 B",
        ours: Some(|s| SMALL.rate(s)),
        raw: Some(|s| raw::rate(s, 16)),
    },
    Figure {
        name: "WRITE 64 B rate, lists of 32, depth 128",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B",
        ours: Some(|s| Stream { list: 32, ..SMALL }.rate(s)),
        raw: Some(|s| raw::rate(s, 32)),
    },
    Figure {
        name: "WRITE 64 B rate, lists of 16, depth 4096",
        unit: "M/s",
        against: "UDP GSO, 16 x 96 B",
        ours: Some(|s| Stream { depth: 4096, ..SMALL }.rate(s)),
        raw: Some(|s| raw::rate(s, 16)),
    },
    Figure {
        name: "WRITE 64 B rate, lists of 32, depth 4096",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B",
        ours: Some(|s| Stream { list: 32, depth: 4096, ..SMALL }.rate(s)),
        raw: Some(|s| raw::rate(s, 32)),
    },
    Figure {
        name: "WRITE 1 MiB, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B",
        ours: Some(|s| BULK.bandwidth(s)),
        raw: Some(raw::bulk),
    },
    Figure {
        name: "WRITE 1 MiB, depth 16, target asleep",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B",
        ours: Some(|s| Stream { target: ASLEEP, ..BULK }.bandwidth(s)),
        raw: Some(raw::bulk),
    },
    Figure {
        name: "WRITE 64 KiB, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B",
        ours: Some(|s| Stream { len: 1 << 16, ..BULK }.bandwidth(s)),
        raw: Some(raw::bulk),
    },
    Figure {
        name: "READ 1 MiB, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B",
        ours: Some(|s| Stream { read: true, ..BULK }.bandwidth(s)),
        raw: Some(raw::bulk),
    },
    Figure {
        name: "local WRITE 64 B, lists of 16",
        unit: "ns",
        against: "copy of 64 B",
        ours: Some(|s| local::nanos(Stream { depth: 16, ..SMALL }, s)),
        raw: Some(|s| Ok(Sample::new(raw::copy(s, 64)))),
    },
    Figure {
        name: "local WRITE 64 B, one at a time",
        unit: "ns",
        against: "copy of 64 B",
        ours: Some(|s| local::nanos(Stream { list: 1, depth: 1, ..SMALL }, s)),
        raw: Some(|s| Ok(Sample::new(raw::copy(s, 64)))),
    },
    Figure {
        name: "local WRITE 1 MiB, one at a time",
        unit: "GB/s",
        against: "copy of 1 MiB",
        ours: Some(|s| local::bandwidth(Stream { depth: 1, ..BULK }, s)),
        raw: Some(|s| Ok(Sample::new(f64::from(1 << 20) / raw::copy(s, 1 << 20)))),
    },
    Figure {
        name: "work of a SEND 64 B, both ends in one thread",
        unit: "us",
        against: "UDP, one thread",
        ours: Some(alone::send),
        raw: Some(alone::raw_trip),
    },
    Figure {
        name: "work of 16 WRITEs 64 B, both ends in one thread",
        unit: "us",
        against: "UDP GSO, one thread, 16 x 96 B",
        ours: Some(|s| alone::stream(SMALL, s)),
        raw: Some(alone::raw_small),
    },
    Figure {
        name: "work of a WRITE 1 MiB, both ends in one thread",
        unit: "us",
        against: "UDP GSO, one thread, 256 x 4112 B",
        ours: Some(|s| alone::stream(BULK, s)),
        raw: Some(alone::raw_bulk),
    },
    Figure {
        name: "the time",
        unit: "ns",
        against: "Instant::now",
        ours: Some(local::clock),
        raw: Some(raw::clock),
    },
    Figure {
        name: "wake a thread by eventfd, there and back, halved",
        unit: "us",
        against: "eventfd",
        ours: None,
        raw: Some(raw::wake),
    },
    Figure {
        name: "idle device, processor time",
        unit: "1/1000 core",
        against: "nothing",
        ours: Some(local::idle),
        raw: None,
    },
];
