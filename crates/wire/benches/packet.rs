//! What the wire crate adds to a bare CRC, in nanoseconds per packet.
//!
//! `cargo bench -p ferroce-wire`. The CRC of the same bytes is measured beside each
//! figure in the same round, because machines drift; the difference is header work:
//! parsing or writing headers, seeding the ICRC, comparing it. Writing also copies
//! the payload, which a bare copy beside it shows.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "nanoseconds of short rounds")]

use std::hint::black_box;
use std::time::Instant;

use ferroce_testkit::figure::sample;
use ferroce_wire::{Body, Flow, MAX_PACKET_LEN, Packet, ParseError, Psn, Qpn, Request, Reth, Rkey, Segment};

/// Packets per measurement.
const PACKETS: usize = 20_000;

/// Bytes of payload.
const PAYLOADS: [usize; 3] = [64, 1024, 4096];

/// Measurements of each figure.
const ROUNDS: usize = 41;

fn main() {
    if std::env::args().any(|arg| arg == "--once") {
        return say_samples();
    }
    println!("RDMA WRITE Only over IPv4, ns per packet: median of {ROUNDS} rounds (quartiles)\n");
    println!(
        "{:>8} | {:>22} {:>22} {:>22} | {:>22} {:>22} {:>22}",
        "payload",
        "crc32fast",
        "parse + verify",
        "header work",
        "crc32fast + copy",
        "build + ICRC",
        "header work"
    );
    for len in PAYLOADS {
        let [crc, read, read_extra, crc_copy, write, write_extra] = measure(len);
        println!(
            "{len:>8} | {:>22} {:>22} {:>22} | {:>22} {:>22} {:>22}",
            show(crc),
            show(read),
            show(read_extra),
            show(crc_copy),
            show(write),
            show(write_extra)
        );
    }
    println!("\nBudget: header work at most 40 ns on top of the CRC.");
}

/// What our own work takes, as lines for `cargo xtask bench pairs`.
fn say_samples() {
    for len in PAYLOADS {
        let [_, read, _, _, write, _] = measure(len).map(|mut figure| {
            figure.sort_by(f64::total_cmp);
            figure[figure.len() / 2]
        });
        println!("{}", sample(&format!("parse + verify, {len} B"), "ns", read));
        println!("{}", sample(&format!("build + ICRC, {len} B"), "ns", write));
    }
}

fn measure(len: usize) -> [Vec<f64>; 6] {
    let flow = Flow::new(([127, 0, 0, 1], 0xc000).into(), ([127, 0, 0, 2], 4791).into()).expect("one family");
    let payload = vec![0x5a; len];
    let reth = Reth { address: 0x7f00_0000_1000, rkey: Rkey(0x1234_5678), length: 64 };
    let packet = |psn: usize| {
        let psn = Psn::new(u32::try_from(psn).expect("few packets"));
        let write = Request::Write(Segment::Only(reth, None), black_box(&payload[..]));
        Packet::new(Qpn::new(0x01_0002), psn, Body::RcRequest(write))
    };
    let mut bytes = vec![0; MAX_PACKET_LEN];
    let end = packet(7).emit(&flow, 0, &mut bytes).expect("room");
    let mut buffer = vec![0; MAX_PACKET_LEN];

    let mut figures: [Vec<f64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        let crc = time(|_| crc32fast::hash(black_box(&bytes[..end - 4])));
        let read = time(|_| receive(black_box(&bytes[..end]), &flow));
        let crc_copy = time(|_| {
            buffer[28..28 + len].copy_from_slice(black_box(&payload));
            crc32fast::hash(black_box(&buffer[..end - 4]))
        });
        let write = time(|psn| packet(psn).emit(black_box(&flow), 0, black_box(&mut buffer)));
        let round = [crc, read, read - crc, crc_copy, write, write - crc_copy];
        figures.iter_mut().zip(round).for_each(|(figure, value)| figure.push(value));
    }
    figures
}

/// What a receiver does with a datagram before the transport sees it.
fn receive<'a>(bytes: &'a [u8], flow: &Flow) -> Result<Packet<&'a [u8]>, ParseError> {
    flow.verify(bytes, 0)?;
    Packet::parse(bytes)
}

fn time<T>(mut work: impl FnMut(usize) -> T) -> f64 {
    let start = Instant::now();
    for i in 0..PACKETS {
        black_box(work(i));
    }
    start.elapsed().as_nanos() as f64 / PACKETS as f64
}

fn show(mut figure: Vec<f64>) -> String {
    figure.sort_by(f64::total_cmp);
    let at = |quarter: usize| figure[(figure.len() - 1) * quarter / 4];
    format!("{:.1} ({:.1} to {:.1})", at(2), at(1), at(3))
}
