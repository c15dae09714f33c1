//! Every packet of a time-line as a capture in which each says what work it belongs to.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

use ferroce_wire::net::{Ip, Ipv4, Ipv6, Udp};

use super::follow::{PacketRow, Route, Sink, follow};
use super::words::comment;
use super::{ExportError, Selection, Summary, process_name, process_names, wall_start};
use crate::timeline::Timeline;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// A frame begins with its IP header.
const LINK_TYPE_RAW: u16 = 101;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const SECTION_HARDWARE: u16 = 2;
const SECTION_OS: u16 = 3;
const SECTION_PROGRAM: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION: u16 = 3;
const INTERFACE_TIME_UNIT: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// The UDP port of RoCEv2.
const ROCE: u16 = 4791;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 16;

/// Writes every packet of a time-line as pcapng.
///
/// Each process has an interface of its own. A packet that left one recorded process and came to another is there
/// twice: on the interface of each, at the time of each. The record has no payload, so packets are cut behind their
/// transport headers; the IP and UDP headers are made from the addresses of the queue pairs. Work on the local path
/// has no packets: the summary counts it.
///
/// # Errors
/// It cannot be written.
pub fn pcapng(
    timeline: &Timeline,
    selection: &Selection,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ExportError> {
    let mut file = File {
        out,
        buffer: Vec::with_capacity(BUFFER * 2),
        headers: Vec::new(),
        text: String::new(),
        wall: wall_start(timeline),
        processes: process_names(timeline),
    };
    file.section();
    for source in timeline.sources() {
        let header = source.trace().header();
        let host = if header.host.is_empty() { String::new() } else { format!(" on {}", header.host) };
        file.interface(&process_name(header), &format!("{}{host}", header.program));
    }
    let summary = follow(timeline, selection, &mut file, progress)?;
    file.flush()?;
    file.out.flush()?;
    Ok(summary)
}

struct File<'a, W> {
    out: &'a mut W,
    buffer: Vec<u8>,
    headers: Vec<u8>,
    text: String,
    wall: u64,
    processes: Vec<String>,
}

impl<W: Write> Sink for File<'_, W> {
    fn packet(&mut self, row: &PacketRow) -> Result<(), ExportError> {
        self.headers.clear();
        network(&mut self.headers, row);
        let before = self.headers.len();
        row.put_headers(&mut self.headers);
        let captured = length(self.headers.len());
        let original = length(before) + row.wire_len();
        self.text.clear();
        comment(&mut self.text, row, &self.processes);

        let start = self.begin(PACKET);
        let time = self.wall.saturating_add(row.time);
        put(&mut self.buffer, &u32::try_from(row.source).unwrap_or(0).to_le_bytes());
        put(&mut self.buffer, &u32::try_from(time >> 32).unwrap_or(0).to_le_bytes());
        put(&mut self.buffer, &time.to_le_bytes()[..4]);
        put(&mut self.buffer, &captured.to_le_bytes());
        put(&mut self.buffer, &original.to_le_bytes());
        put(&mut self.buffer, &self.headers);
        pad(&mut self.buffer);
        option(&mut self.buffer, OPTION_COMMENT, self.text.as_bytes());
        let direction: u32 = if row.is_out() { 2 } else { 1 };
        option(&mut self.buffer, PACKET_FLAGS, &direction.to_le_bytes());
        self.end(start);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }
}

impl<W: Write> File<'_, W> {
    fn section(&mut self) {
        let start = self.begin(SECTION);
        put(&mut self.buffer, &BYTE_ORDER.to_le_bytes());
        put(&mut self.buffer, &1_u32.to_le_bytes());
        put(&mut self.buffer, &u64::MAX.to_le_bytes());
        option(&mut self.buffer, SECTION_HARDWARE, b"Ferroce soft RNIC");
        option(&mut self.buffer, SECTION_OS, std::env::consts::OS.as_bytes());
        option(&mut self.buffer, SECTION_PROGRAM, concat!("ferroce ", env!("CARGO_PKG_VERSION")).as_bytes());
        self.end(start);
    }

    fn interface(&mut self, name: &str, description: &str) {
        const NANOSECONDS: u8 = 9;
        let start = self.begin(INTERFACE);
        put(&mut self.buffer, &LINK_TYPE_RAW.to_le_bytes());
        put(&mut self.buffer, &[0; 6]);
        option(&mut self.buffer, INTERFACE_NAME, name.as_bytes());
        option(&mut self.buffer, INTERFACE_DESCRIPTION, description.as_bytes());
        option(&mut self.buffer, INTERFACE_TIME_UNIT, &[NANOSECONDS]);
        self.end(start);
    }

    /// Begins a block, whose length comes later.
    fn begin(&mut self, kind: u32) -> usize {
        let start = self.buffer.len();
        put(&mut self.buffer, &kind.to_le_bytes());
        put(&mut self.buffer, &[0; 4]);
        start
    }

    fn end(&mut self, start: usize) {
        put(&mut self.buffer, &u32::from(OPTION_END).to_le_bytes());
        let len = length(self.buffer.len() - start + 4).to_le_bytes();
        put(&mut self.buffer, &len);
        self.buffer[start + 4..start + 8].copy_from_slice(&len);
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

fn put(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.extend_from_slice(bytes);
}

/// Blocks begin at words, and so what is in them does: this fills the last word up.
fn pad(buffer: &mut Vec<u8>) {
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

fn option(buffer: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    put(buffer, &code.to_le_bytes());
    put(buffer, &u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    put(buffer, value);
    pad(buffer);
}

fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The IP and UDP headers that a packet has on the network; where no address is known, they say so with zeros.
fn network(headers: &mut Vec<u8>, row: &PacketRow) {
    const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const HOPS: u8 = 64;
    let Route { from, to, port } = row.route.unwrap_or(Route { from: NOWHERE, to: NOWHERE, port: 0 });
    let ip = match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            Ip::V4(Ipv4 { tos: 0, id: 0, dont_fragment: true, ttl: HOPS, source, dest })
        }
        (from, to) => {
            let v6 = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            Ip::V6(Ipv6 { traffic_class: 0, flow_label: 0, hop_limit: HOPS, source: v6(from), dest: v6(to) })
        }
    };
    // No packet is longer than a datagram; a file may say so.
    let payload = u16::try_from(row.wire_len()).unwrap_or(u16::MAX).min(u16::MAX - 48);
    let mut bytes = [0; Ipv6::LEN + Udp::LEN];
    // The buffer is long enough for both.
    let Ok(ip_len) = ip.emit(payload + 8, &mut bytes) else { return };
    if let Some(header) = bytes[ip_len..].first_chunk_mut() {
        Udp { source_port: port, dest_port: ROCE, checksum: 0 }.emit(payload, header);
    }
    headers.extend_from_slice(&bytes[..ip_len + Udp::LEN]);
}
