//! Captures put together byte by byte.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::PcapReader;

pub(crate) const ETHERNET: u32 = 1;

/// A frame: when, what.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) time: Duration,
    pub(crate) bytes: Vec<u8>,
}

/// The frames of a capture, read by a library that is not ours.
pub(crate) fn frames(path: &Path) -> Vec<Frame> {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        frames.push(Frame { time: packet.timestamp, bytes: packet.data.into_owned() });
    }
    frames
}

/// Writes numbers in one byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Big,
    Little,
}

impl Order {
    pub(crate) fn u16(self, number: u16) -> [u8; 2] {
        if self == Self::Big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    pub(crate) fn u32(self, number: u32) -> [u8; 4] {
        if self == Self::Big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn words(self, numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| self.u32(*number)).collect()
    }
}

fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}

/// The file header of a classic capture.
pub(crate) fn pcap_header(order: Order, nanos: bool, link: u32) -> Vec<u8> {
    let magic = if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut file = order.u32(magic).to_vec();
    file.extend(order.u16(2));
    file.extend(order.u16(4));
    file.extend(order.words(&[0, 0, 0x4_0000, link]));
    file
}

/// The header of a frame in a classic capture.
pub(crate) fn pcap_frame(order: Order, [seconds, fraction, kept, original]: [u32; 4]) -> Vec<u8> {
    order.words(&[seconds, fraction, kept, original])
}

/// A classic capture.
pub(crate) fn pcap(order: Order, nanos: bool, link: u32, frames: &[Frame]) -> Vec<u8> {
    let mut file = pcap_header(order, nanos, link);
    for Frame { time, bytes } in frames {
        let fraction = if nanos { time.subsec_nanos() } else { time.subsec_micros() };
        let seconds = u32::try_from(time.as_secs()).unwrap();
        file.extend(pcap_frame(order, [seconds, fraction, len(bytes), len(bytes)]));
        file.extend(bytes);
    }
    file
}

/// A block of a pcapng file.
pub(crate) fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let pad = body.len().next_multiple_of(4) - body.len();
    let total = len(body) + u32::try_from(pad).unwrap() + 12;
    let mut block = order.words(&[kind, total]);
    block.extend(body);
    block.extend(vec![0; pad]);
    block.extend(order.u32(total));
    block
}

pub(crate) fn section(order: Order) -> Vec<u8> {
    let mut body = order.u32(0x1a2b_3c4d).to_vec();
    body.extend(order.u16(1));
    body.extend(order.u16(0));
    body.extend([0xff; 8]);
    block(order, 0x0a0d_0d0a, &body)
}

/// An interface, with options as pairs of code and value.
pub(crate) fn interface(order: Order, link: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = [order.u16(link), [0, 0]].concat();
    body.extend(order.u32(0));
    for (code, value) in options {
        body.extend(order.u16(*code));
        body.extend(order.u16(u16::try_from(value.len()).unwrap()));
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    block(order, 1, &body)
}

/// An enhanced packet block.
pub(crate) fn packet(order: Order, interface: u32, stamp: u64, bytes: &[u8]) -> Vec<u8> {
    let [high, low] = [stamp >> 32, stamp & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
    let mut body = order.words(&[interface, high, low, len(bytes), len(bytes)]);
    body.extend(bytes);
    block(order, 6, &body)
}

/// A pcapng file with one Ethernet interface that counts microseconds.
pub(crate) fn pcapng(order: Order, frames: &[Frame]) -> Vec<u8> {
    let mut file = section(order);
    file.extend(interface(order, 1, &[]));
    for Frame { time, bytes } in frames {
        file.extend(packet(order, 0, u64::try_from(time.as_micros()).unwrap(), bytes));
    }
    file
}
