//! The few blocks of pcapng that a capture needs, written without allocating.

use std::io::{self, Write};
use std::time::Duration;

use ferroce_sys::Uncancelled;
use ferroce_wire::net::{Ip, Ipv6, Udp};

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Handed to the file.
    pub captured: u64,
    /// Not in the file: it cannot be written any more, or the packet cannot be drawn.
    pub missed: u64,
}

/// Which way a packet went: the numbers of the option `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Inbound = 1,
    Outbound = 2,
}

/// A capture file that grows. After the first error nothing more is written.
#[derive(Debug)]
pub(super) struct PcapNg<W> {
    writer: W,
    /// Whether something was written since the last flush.
    dirty: bool,
    failed: bool,
    counts: CaptureCounts,
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LENGTH_UNKNOWN: u32 = u32::MAX;
/// A frame begins with its IP header.
const LINK_TYPE_RAW: u32 = 101;
const OPTION_END: u32 = 0;
/// One byte: negative power of ten of the unit of time.
const OPTION_TIME_UNIT: u32 = 9 | 1 << 16;
const NANOSECONDS: u32 = 9;
/// Four bytes.
const OPTION_FLAGS: u32 = 2 | 4 << 16;

impl<W: Write> PcapNg<W> {
    /// Writes the beginning of the file.
    pub(super) fn begin(mut writer: W) -> io::Result<Self> {
        let section = [SECTION, 28, BYTE_ORDER, 1, LENGTH_UNKNOWN, LENGTH_UNKNOWN, 28];
        let interface = [INTERFACE, 32, LINK_TYPE_RAW, 0, OPTION_TIME_UNIT, NANOSECONDS, OPTION_END, 32];
        words(&mut writer, &section)?;
        words(&mut writer, &interface)?;
        writer.flush()?;
        Ok(Self { writer, dirty: false, failed: false, counts: CaptureCounts::default() })
    }

    pub(super) const fn counts(&self) -> CaptureCounts {
        self.counts
    }

    /// Writes one packet, BTH to ICRC, behind these headers.
    pub(super) fn packet(
        &mut self,
        time: Duration,
        direction: Direction,
        headers: Option<(Ip, Udp)>,
        packet: &[u8],
    ) {
        let _whole = Uncancelled::new();
        let written = match headers {
            Some((ip, udp)) if !self.failed => {
                match write(&mut self.writer, time, direction, &ip, &udp, packet) {
                    Ok(written) => written,
                    Err(_) => {
                        self.failed = true;
                        false
                    }
                }
            }
            _ => false,
        };
        self.dirty |= written;
        self.counts.captured += u64::from(written);
        self.counts.missed += u64::from(!written);
    }

    /// Brings the file up to date, if anything is new.
    pub(super) fn flush(&mut self) {
        if self.dirty && !self.failed {
            let _whole = Uncancelled::new();
            self.failed = self.writer.flush().is_err();
            self.dirty = false;
        }
    }
}

/// Writes one packet block; false if no datagram can be as long as this.
fn write(
    writer: &mut impl Write,
    time: Duration,
    direction: Direction,
    ip: &Ip,
    udp: &Udp,
    packet: &[u8],
) -> io::Result<bool> {
    const BLOCK_LEN: u32 = 32;
    const OPTIONS_LEN: u32 = 12;
    const HEADERS_LEN: usize = Ipv6::LEN + Udp::LEN;

    let lengths = (u16::try_from(packet.len()), u16::try_from(packet.len() + HEADERS_LEN));
    let (Ok(udp_payload), Ok(_)) = lengths else { return Ok(false) };
    let mut headers = [0; HEADERS_LEN];
    let Ok(ip_len) = ip.emit(udp_payload + 8, &mut headers) else { return Ok(false) };
    let Some(udp_header) = headers[ip_len..].first_chunk_mut() else { return Ok(false) };
    udp.emit(udp_payload, udp_header);
    let headers = &headers[..ip_len + Udp::LEN];

    let Ok(len) = u32::try_from(headers.len() + packet.len()) else { return Ok(false) };
    let pad = len.next_multiple_of(4) - len;
    let block_len = BLOCK_LEN + len + pad + OPTIONS_LEN;
    let [high, low] = halves(time);
    words(writer, &[PACKET, block_len, 0, high, low, len, len])?;
    writer.write_all(headers)?;
    writer.write_all(packet)?;
    writer.write_all([0; 3].get(..pad as usize).unwrap_or_default())?;
    words(writer, &[OPTION_FLAGS, direction as u32, OPTION_END, block_len])?;
    Ok(true)
}

/// Nanoseconds in two words, the high one first, as pcapng has them.
fn halves(time: Duration) -> [u32; 2] {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let [a, b, c, d, e, f, g, h] = nanoseconds.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

fn words(writer: &mut impl Write, words: &[u32]) -> io::Result<()> {
    words.iter().try_for_each(|word| writer.write_all(&word.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ferroce_wire::net::Ipv4;

    use super::*;

    /// A disk with this many bytes left.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fitting = bytes.len().min(self.0);
            self.0 -= fitting;
            if fitting == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(fitting) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn headers() -> Option<(Ip, Udp)> {
        let (source, dest) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        let ip = Ipv4 { tos: 0, id: 0, dont_fragment: true, ttl: 64, source, dest };
        Some((Ip::V4(ip), Udp { source_port: 50_000, dest_port: 4791, checksum: 0 }))
    }

    #[test]
    fn a_full_disk_is_counted_and_then_left_alone() {
        assert!(PcapNg::begin(Disk(59)).is_err());
        // The beginning takes 60 bytes, a packet of 20 bytes 92.
        let mut file = PcapNg::begin(Disk(60 + 2 * 92 + 10)).unwrap();
        for _ in 0..5 {
            file.packet(Duration::ZERO, Direction::Inbound, headers(), &[0; 20]);
            file.flush();
        }
        assert_eq!(file.counts(), CaptureCounts { captured: 2, missed: 3 });
        assert_eq!(file.writer.0, 0);
        file.writer.0 = 1000;
        file.packet(Duration::ZERO, Direction::Inbound, headers(), &[0; 20]);
        assert_eq!(
            (file.counts().missed, file.writer.0),
            (4, 1000),
            "what follows a torn block is unreadable"
        );
    }

    #[test]
    fn what_no_datagram_can_hold_is_not_drawn() {
        let mut file = PcapNg::begin(Vec::new()).unwrap();
        file.packet(Duration::ZERO, Direction::Outbound, headers(), &vec![0; 65_536]);
        file.packet(Duration::ZERO, Direction::Outbound, None, &[0; 20]);
        assert_eq!(file.counts(), CaptureCounts { captured: 0, missed: 2 });
        assert_eq!(file.writer.len(), 60);
    }
}
