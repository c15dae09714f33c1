//! What is measured, and beside what.

use ferroce_device::fabric::PORT;

use crate::company::beside;
use crate::ends::NARROW;
use crate::neighbour::UNUSED;
use crate::pingpong::Exchange;
use crate::samples::{Sample, Statistic};
use crate::stream::{ASLEEP, RECEIVER, Stream, Verb};
use crate::{Outcome, Settings, alone, crowd, elsewhere, local, pingpong, raw};

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
const SMALL: Stream = Stream::writes(64, 16, 128);

/// WRITEs of 1 MiB.
const BULK: Stream = Stream::writes(1 << 20, 1, 16);

/// The same, of which the mean counts.
const MEAN: Stream = Stream { statistic: Statistic::Mean, ..BULK };

/// READs of 1 MiB.
const READS: Stream = Stream { verb: Verb::Read, ..BULK };

/// SENDs of 64 bytes, posted one by one.
const SENDS: Stream = Stream { verb: Verb::Send, target: RECEIVER, list: 1, ..SMALL };

/// The same into the receive buffer that a socket has if the program does not ask for more.
const NARROW_BULK: Stream = Stream { receive_buffer: NARROW, ..BULK };

pub(crate) const FIGURES: &[Figure] = &[
    Figure {
        name: "SEND 64 B, RTT/2, both poll",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| Exchange::BUSY.run(s)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "SEND 64 B, RTT/2, both poll, one of 16 signaled",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| Exchange::SILENT.run(s)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "WRITE 64 B, RTT/2, both poll and look at memory",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| pingpong::write(s, 64, true)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "WRITE 64 B with immediate, RTT/2, both poll",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| Exchange::IMMEDIATE.run(s)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "WRITE 8 B, RTT/2, target spins on memory",
        unit: "us",
        against: "UDP of 40 B, both poll",
        ours: Some(|s| pingpong::write(s, 8, false)),
        raw: Some(raw::tiny_ping_pong),
    },
    Figure {
        name: "WRITE 64 B, RTT/2, target spins on memory",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| pingpong::write(s, 64, false)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "READ 8 B, RTT/2, target idle",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| pingpong::read(s, 8)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "SEND 64 B, RTT/2, both asleep",
        unit: "us",
        against: "UDP, both blocked",
        ours: Some(|s| Exchange::ASLEEP.run(s)),
        raw: Some(|s| raw::ping_pong(s, false)),
    },
    Figure {
        name: "WRITE 64 B rate, single posts, depth 128",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B",
        ours: Some(|s| Stream { list: 1, ..SMALL }.rate(s)),
        raw: Some(|s| raw::rate(s, 32)),
    },
    Figure {
        name: "SEND 64 B rate, single posts, depth 128",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B",
        ours: Some(|s| SENDS.rate(s)),
        raw: Some(|s| raw::rate(s, 32)),
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
        ours: Some(|s| READS.bandwidth(s)),
        raw: Some(raw::bulk),
    },
    Figure {
        name: "SEND 1 MiB, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B",
        ours: Some(|s| Stream { verb: Verb::Send, target: RECEIVER, ..BULK }.bandwidth(s)),
        raw: Some(raw::bulk),
    },
    Figure {
        name: "WRITE 1 MiB into 208 KiB, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B, 208 KiB",
        ours: Some(|s| NARROW_BULK.bandwidth(s)),
        raw: Some(raw::narrow_bulk),
    },
    Figure {
        name: "WRITE 1 MiB into 208 KiB, 8 queue pairs, depth 16 each",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B, 208 KiB",
        ours: Some(|s| Stream { pairs: 8, ..NARROW_BULK }.bandwidth(s)),
        raw: Some(raw::narrow_bulk),
    },
    Figure {
        name: "WRITE 64 KiB into 208 KiB, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B, 208 KiB",
        ours: Some(|s| Stream { len: 1 << 16, ..NARROW_BULK }.bandwidth(s)),
        raw: Some(raw::narrow_bulk),
    },
    Figure {
        name: "WRITE 64 KiB into 208 KiB, 8 queue pairs, depth 16 each",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B, 208 KiB",
        ours: Some(|s| Stream { len: 1 << 16, pairs: 8, ..NARROW_BULK }.bandwidth(s)),
        raw: Some(raw::narrow_bulk),
    },
    Figure {
        name: "WRITE 1 MiB under 1 % loss, depth 16, mean",
        unit: "GB/s",
        against: "the same without loss",
        ours: Some(|s| Stream { loss: 0.01, statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
        raw: Some(|s| Stream { statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
    },
    Figure {
        name: "WRITE 1 MiB beside a neighbour of 60,000 packets a second, depth 16, mean",
        unit: "GB/s",
        against: "the same alone; at least 0.8",
        ours: Some(|s| Stream { neighbour: Some(PORT), statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
        raw: Some(|s| Stream { statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
    },
    Figure {
        name: "WRITE 1 MiB beside a neighbour of 60,000 packets a second, depth 16, mean, but for the machine's time",
        unit: "GB/s",
        against: "the same beside one that aims elsewhere",
        ours: Some(|s| Stream { neighbour: Some(PORT), statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
        raw: Some(|s| Stream { neighbour: Some(UNUSED), statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
    },
    Figure {
        name: "WRITE 64 B, lists of 32, depth 128, the first 50 ms over the steady rate",
        unit: "x",
        against: "UDP GSO, 32 x 96 B, the same",
        ours: Some(|s| Stream { list: 32, ..SMALL }.first(s)),
        raw: Some(|s| raw::first_small(s, 32)),
    },
    Figure {
        name: "WRITE 64 B, single posts, depth 128, the first 50 ms over the steady rate",
        unit: "x",
        against: "UDP GSO, 32 x 96 B, the same",
        ours: Some(|s| Stream { list: 1, ..SMALL }.first(s)),
        raw: Some(|s| raw::first_small(s, 32)),
    },
    Figure {
        name: "SEND 64 B, single posts, depth 128, the first 50 ms over the steady rate",
        unit: "x",
        against: "UDP GSO, 32 x 96 B, the same",
        ours: Some(|s| SENDS.first(s)),
        raw: Some(|s| raw::first_small(s, 32)),
    },
    Figure {
        name: "WRITE 1 MiB, depth 16, the first 50 ms over the steady rate",
        unit: "x",
        against: "UDP GSO, 15 x 4112 B, the same",
        ours: Some(|s| BULK.first(s)),
        raw: Some(raw::first_bulk),
    },
    Figure {
        name: "WRITE 1 MiB beside a busy loop on each core, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B, in the same company",
        ours: Some(|s| beside(s, |s| BULK.bandwidth(s))),
        raw: Some(|s| beside(s, raw::bulk)),
    },
    Figure {
        name: "READ 1 MiB beside a busy loop on each core, depth 16",
        unit: "GB/s",
        against: "UDP GSO, 15 x 4112 B, in the same company",
        ours: Some(|s| beside(s, |s| READS.bandwidth(s))),
        raw: Some(|s| beside(s, raw::bulk)),
    },
    Figure {
        name: "WRITE 1 MiB beside a busy loop on each core, packets sent again",
        unit: "of 10,000",
        against: "nothing",
        ours: Some(|s| beside(s, |s| BULK.sent_again(s))),
        raw: None,
    },
    Figure {
        name: "READ 1 MiB beside a busy loop on each core, packets sent again",
        unit: "of 10,000",
        against: "nothing",
        ours: Some(|s| beside(s, |s| READS.sent_again(s))),
        raw: None,
    },
    Figure {
        name: "SEND 64 B rate beside a busy loop on each core, single posts, depth 128",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B, in the same company",
        ours: Some(|s| beside(s, |s| SENDS.rate(s))),
        raw: Some(|s| beside(s, |s| raw::rate(s, 32))),
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
        name: "local post of WRITEs 64 B, lists of 16, each",
        unit: "ns",
        against: "nothing",
        ours: Some(local::post),
        raw: None,
    },
    Figure {
        name: "poll of an empty queue, local queue pairs only",
        unit: "ns",
        against: "nothing",
        ours: Some(local::empty_poll),
        raw: None,
    },
    Figure {
        name: "poll of an empty queue, with a wire",
        unit: "ns",
        against: "UDP, nothing to receive",
        ours: Some(local::empty_poll_on_wire),
        raw: Some(raw::look),
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
        name: "local WRITE 64 B, lists of 16, work, among 10,000 queue pairs and 100,000 regions",
        unit: "ns",
        against: "the same alone",
        ours: Some(|s| crowd::local(s, true)),
        raw: Some(|s| crowd::local(s, false)),
    },
    Figure {
        name: "work of 16 WRITEs 64 B, both ends in one thread, among 10,000 queue pairs and 100,000 regions",
        unit: "us",
        against: "the same alone",
        ours: Some(|s| crowd::wire(s, true)),
        raw: Some(|s| crowd::wire(s, false)),
    },
    Figure {
        name: "work of 16 WRITEs 64 B, both ends in one thread, 10,000 queue pairs in turn",
        unit: "us",
        against: "one queue pair alone",
        ours: Some(crowd::rotation),
        raw: Some(|s| crowd::wire(s, false)),
    },
    Figure {
        name: "memory of an idle queue pair, connected, depth 64/64",
        unit: "KiB",
        against: "nothing",
        ours: Some(crowd::memory),
        raw: None,
    },
    Figure {
        name: "shared: WRITE 8 B, RTT/2, both poll and look at memory",
        unit: "us",
        against: "UCX posix,cma, ucp_put_lat",
        ours: Some(|s| pingpong::write(&s.near(), 8, true)),
        raw: Some(|s| elsewhere::ucx_latency(&s.near(), "ucp_put_lat", "8")),
    },
    Figure {
        name: "shared: WRITE 8 B, RTT/2, target spins on memory",
        unit: "us",
        against: "UCX posix,cma, ucp_put_lat",
        ours: Some(|s| pingpong::write(&s.near(), 8, false)),
        raw: Some(|s| elsewhere::ucx_latency(&s.near(), "ucp_put_lat", "8")),
    },
    Figure {
        name: "shared: SEND 64 B, RTT/2, both poll",
        unit: "us",
        against: "UCX posix,cma, tag_lat",
        ours: Some(|s| Exchange::BUSY.run(&s.near())),
        raw: Some(|s| elsewhere::ucx_latency(&s.near(), "tag_lat", "64")),
    },
    Figure {
        name: "shared: READ 8 B, RTT/2, target idle",
        unit: "us",
        against: "UDP, both poll",
        ours: Some(|s| pingpong::read(&s.near(), 8)),
        raw: Some(|s| raw::ping_pong(s, true)),
    },
    Figure {
        name: "shared: SEND 64 B, RTT/2, both asleep",
        unit: "us",
        against: "UDP, both blocked",
        ours: Some(|s| Exchange::ASLEEP.run(&s.near())),
        raw: Some(|s| raw::ping_pong(s, false)),
    },
    Figure {
        name: "shared: SEND 64 B, RTT/2, both asleep, without a look before",
        unit: "us",
        against: "eventfd, two threads",
        ours: Some(|s| Exchange::ASLEEP_AT_ONCE.run(&s.near())),
        raw: Some(raw::wake),
    },
    Figure {
        name: "shared: WRITE 64 B rate, single posts, depth 128",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B",
        ours: Some(|s| Stream { list: 1, ..SMALL }.rate(&s.near())),
        raw: Some(|s| raw::rate(s, 32)),
    },
    Figure {
        name: "shared: SEND 64 B rate, single posts, depth 128",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B",
        ours: Some(|s| SENDS.rate(&s.near())),
        raw: Some(|s| raw::rate(s, 32)),
    },
    Figure {
        name: "shared: WRITE 64 B rate, lists of 32, depth 128",
        unit: "M/s",
        against: "UDP GSO, 32 x 96 B",
        ours: Some(|s| Stream { list: 32, ..SMALL }.rate(&s.near())),
        raw: Some(|s| raw::rate(s, 32)),
    },
    Figure {
        name: "shared: WRITE 1 MiB, depth 16, mean",
        unit: "GB/s",
        against: "UCX posix,cma, tag_bw",
        ours: Some(|s| MEAN.bandwidth(&s.near())),
        raw: Some(|s| elsewhere::ucx_bandwidth(&s.near(), "tag_bw")),
    },
    Figure {
        name: "shared: READ 1 MiB, depth 16, mean",
        unit: "GB/s",
        against: "UCX posix,cma, tag_bw",
        ours: Some(|s| Stream { statistic: Statistic::Mean, ..READS }.bandwidth(&s.near())),
        raw: Some(|s| elsewhere::ucx_bandwidth(&s.near(), "tag_bw")),
    },
    Figure {
        name: "shared: SEND 1 MiB, depth 16, mean",
        unit: "GB/s",
        against: "UCX posix,cma, tag_bw",
        ours: Some(|s| {
            Stream { verb: Verb::Send, target: RECEIVER, statistic: Statistic::Mean, ..BULK }
                .bandwidth(&s.near())
        }),
        raw: Some(|s| elsewhere::ucx_bandwidth(&s.near(), "tag_bw")),
    },
    Figure {
        name: "shared: WRITE 1 MiB beside a busy loop on each core, depth 16, mean",
        unit: "GB/s",
        against: "the wire path in the same company",
        ours: Some(|s| beside(s, |s| MEAN.bandwidth(&s.near()))),
        raw: Some(|s| beside(s, |s| MEAN.bandwidth(s))),
    },
    Figure {
        name: "beside UCX: SEND 64 B, RTT/2, both poll",
        unit: "us",
        against: "UCX over TCP, tag_lat",
        ours: Some(|s| Exchange::BUSY.run(s)),
        raw: Some(|s| elsewhere::ucx_latency(s, "tag_lat", "64")),
    },
    Figure {
        name: "beside UCX: WRITE 64 B, RTT/2, both poll and look at memory",
        unit: "us",
        against: "UCX over TCP, ucp_put_lat",
        ours: Some(|s| pingpong::write(s, 64, true)),
        raw: Some(|s| elsewhere::ucx_latency(s, "ucp_put_lat", "64")),
    },
    Figure {
        name: "beside UCX: WRITE 1 MiB, depth 16, mean",
        unit: "GB/s",
        against: "UCX over TCP, ucp_put_bw",
        ours: Some(|s| Stream { statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
        raw: Some(|s| elsewhere::ucx_bandwidth(s, "ucp_put_bw")),
    },
    Figure {
        name: "beside rxd: WRITE 1 MiB, depth 16, mean",
        unit: "GB/s",
        against: "libfabric udp;ofi_rxd, to and fro",
        ours: Some(|s| Stream { statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
        raw: Some(elsewhere::rxd_bandwidth),
    },
    Figure {
        name: "beside rxd: WRITE 1 MiB, one at a time, mean",
        unit: "GB/s",
        against: "libfabric udp;ofi_rxd, to and fro",
        ours: Some(|s| Stream { depth: 1, statistic: Statistic::Mean, ..BULK }.bandwidth(s)),
        raw: Some(elsewhere::rxd_bandwidth),
    },
    Figure {
        name: "the time",
        unit: "ns",
        against: "Instant::now",
        ours: Some(local::clock),
        raw: Some(raw::clock),
    },
    Figure {
        name: "local SEND 64 B, RTT/2, two threads asleep",
        unit: "us",
        against: "eventfd, two threads",
        ours: Some(local::wake),
        raw: Some(raw::wake),
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
