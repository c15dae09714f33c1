//! A work request as text: what was posted, what went over the wire for it, and what came of it.

use std::fmt;

use ferroce_record::{CompletedFlags, PacketFlags, PostedFlags, WorkOp};
use ferroce_wire::Packet;

use crate::work::{PacketAt, Work, WorkState};

/// A time in nanoseconds, as people read it: seconds with nine places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A stretch of time in nanoseconds, in the unit that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0;
        // Three places, rounded; whole numbers, as work has many of them.
        let (unit, name) = match nanos {
            0..1_000 => return write!(f, "{nanos} ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let thousandths = nanos.saturating_add(unit / 2_000) / (unit / 1_000);
        write!(f, "{}.{:03} {name}", thousandths / 1_000, thousandths % 1_000)
    }
}

/// How long after something else.
struct After(u64);

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{}", Span(self.0))
    }
}

/// A work request as a block of text.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a>(pub &'a Work);

impl fmt::Display for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = self.0;
        let posted = &work.posted;
        writeln!(f, "work {} of {}, posted at {}", posted.work, posted.queue, Nanos(work.posted_at))?;
        self.entry(f)?;
        self.packets(f)?;
        self.completion(f)?;
        self.states(f)
    }
}

impl Block<'_> {
    /// What was posted.
    fn entry(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = self.0;
        let posted = &work.posted;
        writeln!(f, "  WQE")?;
        writeln!(f, "    Work Request ID: {:#018x}", posted.id)?;
        writeln!(f, "    Opcode: {} ({})", posted.op.name(), posted.op.code())?;
        let flags = posted.flags - PostedFlags::DATAGRAM - PostedFlags::EARLIER - PostedFlags::REPORTS;
        if posted.op != WorkOp::Receive {
            writeln!(f, "    Send Flags: {:#04x}{}", ibv_flags(flags), names(&flags))?;
        }
        if posted.flags.contains(PostedFlags::EARLIER) {
            writeln!(f, "    Posted before the record began: not all of this is known")?;
        }
        if matches!(posted.op, WorkOp::SendImm | WorkOp::WriteImm) {
            writeln!(f, "    Immediate Data: {:#010x}", posted.imm)?;
        }
        if posted.flags.contains(PostedFlags::DATAGRAM) {
            let (handle, qpn) = (posted.remote >> 32, posted.remote & 0xff_ffff);
            writeln!(f, "    Remote Queue Pair: {qpn:#08x}, by address handle {handle}")?;
            writeln!(f, "    Queue Key: {}", posted.key)?;
        } else if has_remote(posted.op) {
            writeln!(f, "    Remote Address: {:#018x}", posted.remote)?;
            writeln!(f, "    Remote Key: {}", posted.key)?;
        } else if matches!(posted.op, WorkOp::SendInvalidate | WorkOp::LocalInvalidate) {
            writeln!(f, "    Invalidated Key: {}", posted.key)?;
        }
        if let Some(operands) = work.operands {
            writeln!(f, "    Compare Add: {:#018x}", operands.compare_add)?;
            writeln!(f, "    Swap: {:#018x}", operands.swap)?;
            if matches!(posted.op, WorkOp::MaskedCompareSwap | WorkOp::MaskedFetchAdd) {
                writeln!(f, "    Compare Add Mask: {:#018x}", operands.compare_mask)?;
                writeln!(f, "    Swap Mask: {:#018x}", operands.swap_mask)?;
            }
        }
        writeln!(f, "    Scatter/Gather Elements: {}, {} bytes", posted.pieces, posted.length)?;
        if posted.pieces > 0 && !posted.flags.contains(PostedFlags::INLINE) {
            let first = work.first_piece();
            let (address, lkey) = (posted.address, posted.lkey);
            writeln!(f, "    SGE[0]: Address: {address:#018x}, Length: {first}, LKey: {lkey}")?;
        }
        for piece in &work.pieces {
            let sge = piece.sge;
            writeln!(
                f,
                "    SGE[{}]: Address: {:#018x}, Length: {}, LKey: {}",
                piece.index, sge.address, sge.length, sge.lkey
            )?;
        }
        Ok(())
    }

    /// What went over the wire.
    fn packets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = self.0;
        if work.packets.is_empty() {
            return match work.begun {
                Some((_, begun)) if begun.packets == 0 => {
                    writeln!(f, "  packets: none, it stayed in this process")
                }
                _ => Ok(()),
            };
        }
        writeln!(f, "  packets")?;
        work.packets.iter().try_for_each(|packet| self.line(f, packet))?;
        match work.more_packets {
            0 => Ok(()),
            more => writeln!(f, "    and {more} more"),
        }
    }

    /// A packet in one line.
    fn line(&self, f: &mut fmt::Formatter<'_>, at: &PacketAt) -> fmt::Result {
        let flags = at.packet.flags;
        let way = if flags.contains(PacketFlags::OUT) { "out" } else { "in " };
        let after = After(at.time.saturating_sub(self.0.posted_at)).to_string();
        write!(f, "    {after:>12} {way} ")?;
        let (bytes, len) = at.header_bytes();
        match Packet::parse_kept(&bytes[..len], at.wire_len()) {
            Ok(packet) => write!(f, "{packet}")?,
            Err(error) => write!(f, "{} bytes that are no packet: {error}", at.wire_len())?,
        }
        for (_, text) in FATES.iter().filter(|(flag, _)| flags.contains(*flag)) {
            write!(f, " [{text}]")?;
        }
        writeln!(f)
    }

    /// What came of it.
    fn completion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, completed)) = self.0.completed else { return Ok(()) };
        if !self.0.has_completion() {
            let why = if completed.flags.contains(CompletedFlags::QUIET) {
                "it ended well and was not signaled"
            } else if completed.flags.contains(CompletedFlags::FORGOTTEN) {
                "the queue pair was reset or destroyed"
            } else {
                "the completion queue was full, and it is lost"
            };
            return writeln!(f, "  CQE: none, {why}");
        }
        writeln!(f, "  CQE")?;
        writeln!(f, "    Work Request ID: {:#018x}", completed.id)?;
        writeln!(f, "    Status: {} ({})", completed.status, completed.status.code())?;
        writeln!(f, "    Opcode: {:?} ({})", completed.kind, completed.kind.code())?;
        if let Some(code) = completed.vendor_code {
            writeln!(f, "    Vendor Error: {:#06x} ({code})", code.code())?;
        }
        writeln!(f, "    Byte Length: {}", completed.byte_len)?;
        if completed.flags.contains(CompletedFlags::IMM) {
            writeln!(f, "    Immediate Data: {:#010x}", completed.imm)?;
        }
        if completed.flags.contains(CompletedFlags::INVALIDATED) {
            writeln!(f, "    Invalidated Key: {}", completed.invalidated)?;
        }
        writeln!(f, "    QP Number: {}", completed.qpn)?;
        if completed.source_qp != 0 {
            writeln!(f, "    Source QP: {:#08x}", completed.source_qp)?;
        }
        Ok(())
    }

    /// The states and when they began.
    fn states(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = self.0;
        let after = |time: u64| After(time.saturating_sub(work.posted_at));
        write!(f, "  states: POSTED")?;
        if let Some(time) = work.begun_at() {
            write!(f, ", PROCESSING {}", after(time))?;
        }
        if let Some((time, _)) = work.completed {
            let name = if work.state() == WorkState::Error { "ERROR" } else { "COMPLETED" };
            write!(f, ", {name} {}", after(time))?;
            if work.has_completion() {
                write!(f, "; PENDING {}", after(time))?;
                match (work.polled_at, work.processed_at) {
                    (None, _) => write!(f, ", never polled")?,
                    (Some(polled), None) => write!(f, ", POLLED {}", after(polled))?,
                    (Some(polled), Some(processed)) => {
                        write!(f, ", POLLED {}, PROCESSED {}", after(polled), after(processed))?;
                    }
                }
            }
        }
        writeln!(f)
    }
}

/// What is said of a packet besides what is in it.
pub(crate) const FATES: [(PacketFlags, &str); 8] = [
    (PacketFlags::LOCAL, "in this process"),
    (PacketFlags::REPEAT, "sent again"),
    (PacketFlags::TAKEN, "taken by fault injection"),
    (PacketFlags::DOUBLED, "doubled by fault injection"),
    (PacketFlags::DELAYED, "held back by fault injection"),
    (PacketFlags::DAMAGED, "damaged by fault injection"),
    (PacketFlags::REFUSED, "refused"),
    (PacketFlags::CONGESTION, "marked for congestion"),
];

/// The flags as `ibv_send_flags` has them.
fn ibv_flags(flags: PostedFlags) -> u8 {
    let pairs = [
        (PostedFlags::FENCE, 1),
        (PostedFlags::SIGNALED, 2),
        (PostedFlags::SOLICITED, 4),
        (PostedFlags::INLINE, 8),
    ];
    pairs.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, bit)| bit).sum()
}

/// The names of flags, in brackets.
fn names(flags: &PostedFlags) -> String {
    let names: Vec<String> = flags.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// Whether work names memory of the peer.
const fn has_remote(op: WorkOp) -> bool {
    matches!(
        op,
        WorkOp::Write
            | WorkOp::WriteImm
            | WorkOp::Read
            | WorkOp::CompareSwap
            | WorkOp::FetchAdd
            | WorkOp::AtomicWrite
            | WorkOp::MaskedCompareSwap
            | WorkOp::MaskedFetchAdd
    )
}

#[cfg(test)]
mod tests;
