//! The long form: one line per header field.
//!
//! ```text
//! IP 10.77.0.3.53077 > 10.77.0.2.4791: UDP, length 24
//!     Ethernet II, Src: 52:54:00:12:34:03, Dst: 52:54:00:12:34:02
//!     Internet Protocol Version 4, Src: 10.77.0.3, Dst: 10.77.0.2, ...
//!     User Datagram Protocol, Src Port: 53077, Dst Port: 4791, ...
//!     InfiniBand: Base Transport Header (12 bytes)
//!         Opcode: SEND Only (0x04)
//!         ...
//!     Data: 4 bytes
//!     InfiniBand: Invariant CRC (4 bytes)
//!         Value: 0x1a2b3c4d
//!         Check: correct
//! ```

use core::fmt;

use crate::captured::Captured;
use crate::describe::{Describe, Value, Visitor};
use crate::frame::Frame;

/// Prints a [`Frame`] or a [`Captured`] frame with one line per header field, and one per note.
#[derive(Clone, Copy, Debug)]
pub struct Long<'a, F>(pub &'a F);

impl fmt::Display for Long<'_, Frame<'_>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Long(&Captured::from(*self.0)).fmt(f)
    }
}

impl fmt::Display for Long<'_, Captured<'_>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Captured { ethernet, ip, udp, packet, icrc, notes } = self.0;
        let family = if ip.source().is_ipv4() { "IP" } else { "IP6" };
        let (from, to, len) = (ip.source(), ip.dest(), packet.len());
        writeln!(f, "{family} {from}.{} > {to}.{}: UDP, length {len}", udp.source_port, udp.dest_port)?;
        if let Some(ethernet) = ethernet {
            inline(ethernet, f)?;
        }
        inline(ip, f)?;
        inline(udp, f)?;
        packet.describe(&mut Blocks(f))?;
        if let Some(icrc) = icrc {
            icrc.describe(&mut Blocks(f))?;
        }
        notes.iter().try_for_each(|note| writeln!(f, "    Note: {note}"))
    }
}

/// One header on one line.
fn inline(header: &dyn Describe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    header.describe(&mut Inline(f))?;
    writeln!(f)
}

struct Inline<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Visitor for Inline<'_, '_> {
    fn header(&mut self, _key: &'static str, title: &'static str, _len: usize) -> fmt::Result {
        write!(self.0, "    {title}")
    }

    fn field(&mut self, _key: &'static str, label: &'static str, value: Value<'_>) -> fmt::Result {
        write!(self.0, ", {label}: {value}")
    }

    fn data(&mut self, len: usize, _bytes: &[u8]) -> fmt::Result {
        write!(self.0, ", Data: {len} bytes")
    }
}

/// One header per block, one field per line.
struct Blocks<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Visitor for Blocks<'_, '_> {
    fn header(&mut self, _key: &'static str, title: &'static str, len: usize) -> fmt::Result {
        writeln!(self.0, "    InfiniBand: {title} ({len} bytes)")
    }

    fn field(&mut self, _key: &'static str, label: &'static str, value: Value<'_>) -> fmt::Result {
        match value {
            Value::Bytes([]) => writeln!(self.0, "        {label}: (none)"),
            value => writeln!(self.0, "        {label}: {value}"),
        }
    }

    fn data(&mut self, len: usize, _bytes: &[u8]) -> fmt::Result {
        writeln!(self.0, "    Data: {len} bytes")
    }
}
