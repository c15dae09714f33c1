//! `ferroce decode`: the RoCEv2 frames of a capture, in words.

mod capture;
mod json;
mod link;
mod seen;

use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ferroce_wire::{Long, Qpn};

use capture::{Capture, Record};
use seen::{Envelope, Reason, Seen, Undecoded};

/// Show the RoCEv2 frames of a capture file
///
/// Reads a capture as tcpdump or Wireshark write it (pcap or pcapng), and prints every RoCEv2
/// frame in it with all its headers. Connection management messages are decoded too, and the
/// invariant CRC (ICRC) of every frame is checked.
///
/// A RoCEv2 frame is a UDP datagram to port 4791. Other frames are counted, not shown.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// The capture, or - for standard input
    file: PathBuf,

    /// One line per frame: number, time, addresses, operation
    #[arg(short, long, conflicts_with = "json")]
    short: bool,

    /// One JSON object per frame and line
    ///
    /// Every header is an object under its key, with its fields in wire order; the message is
    /// "payload", as {"length":N,"bytes":"hex"}, with as many bytes as the capture kept. What
    /// is odd about a frame is in "notes", a list of strings. A frame that cannot be decoded has
    /// "error" with the reason instead. "time" is a string: seconds since 1970 with every
    /// digit that the capture has, or null if it has none.
    ///
    /// Bits are true or false. Fields of up to 32 bits are numbers. Longer ones, such as virtual
    /// addresses, are strings "0x...", because many programs keep only 53 bits of a
    /// number. A field whose value has a name is a number too, and the name stands
    /// beside it: "opcode":4,"opcode_name":"SEND Only".
    #[arg(long)]
    json: bool,

    /// Only frames for this destination queue pair: 17 or 0x11
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair)]
    qp: Option<Qpn>,

    /// Only frames that tell of trouble
    ///
    /// Those with a wrong ICRC, malformed ones, NAK and RNR NAK, and connection management that
    /// refuses: REJ, and SIDR_REP with a status other than 0.
    #[arg(long)]
    errors: bool,

    /// Stop after N shown frames
    #[arg(short, long, value_name = "N", value_parser = count)]
    count: Option<u64>,

    /// No summary at the end
    #[arg(short, long)]
    quiet: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce decode trace.pcap
          Every header of every frame, as tcpdump -v would show it.
  ferroce decode --short --qp 0x11 trace.pcap
          What went to one queue pair, one line per frame.
  ferroce decode --short --errors trace.pcap
          Only what went wrong.
  ferroce decode --json trace.pcap | jq -r 'select(.aeth) | .aeth.syndrome_name'
          For other programs.
  tcpdump -i any -U -w - udp port 4791 | ferroce decode --short -
          As it happens.

Times are UTC, in microseconds, or in nanoseconds if the capture has them.

At the end a summary goes to standard error, here that of udp_smoke.pcap in testdata/captures:
  5 frames, 5 RoCEv2, 1 wrong ICRC, 0 malformed, 0 cut, 0 other
A frame is either RoCEv2 or other. Those with a wrong ICRC, the malformed and the cut ones are
RoCEv2 frames too.

Of a frame that the capture cut short (tcpdump -s) the headers are shown, if they were kept; its
ICRC cannot be checked.

What a receiver would not look at, or drop without a word, is shown with a note: a wrong IPv4
header checksum (on the sending machine the network card has still to fill it in), reserved
bits that are set, pad bytes that are not zero.

On the sending machine a capture may also show one UDP datagram of up to 64 KiB that is split into
packets later (UDP segmentation offload). It holds several RoCEv2 packets and is not taken
apart: it comes out as malformed, or as one packet with a wrong ICRC.

Link types:
  Ethernet (1) with up to two VLAN tags, raw IP (12, 14, 101, 228, 229), Linux cooked (113, 276),
  BSD loopback (0, 108)

A file that announces a frame of more than 256 KiB is taken for damaged.

Exit codes:
  0  the capture was read to its end, or as far as --count asked, whatever its frames say
  1  the capture is truncated, damaged, foreign or unreadable; what could be read was
     shown, and one line on standard error says what is wrong
  2  the command line is wrong";

/// Decodes a capture to standard output.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let summary = decode(args, &mut out)?;
    if !args.quiet {
        // The frames are out; a closed standard error is no reason to fail.
        let _ = writeln!(io::stderr(), "{summary}");
    }
    Ok(())
}

/// Prints the frames of a capture. Those in front of an error are out when it is returned.
fn decode(args: &Args, out: &mut impl Write) -> anyhow::Result<Summary> {
    let mut capture = Capture::open(&args.file).with_context(|| name(&args.file))?;
    let mut summary = Summary::default();
    let mut text = String::new();
    let end = loop {
        // Frames must not wait here for the next ones, which may be seconds away.
        if capture.may_block() {
            out.flush().context(OUTPUT)?;
        }
        let record = match capture.next() {
            Ok(Some(record)) => record,
            Ok(None) => break Ok(summary),
            Err(error) => break Err(error).with_context(|| name(&args.file)),
        };
        let seen = Seen::judge(&record);
        summary.count(&seen);
        if !args.wants(&seen) {
            continue;
        }
        text.clear();
        args.print(&record, &seen, summary.shown, &mut text).context("a frame could not be printed")?;
        out.write_all(text.as_bytes()).context(OUTPUT)?;
        summary.shown += 1;
        if args.count == Some(summary.shown) {
            break Ok(summary);
        }
    };
    out.flush().context(OUTPUT)?;
    end
}

const OUTPUT: &str = "standard output";

/// What messages call the file.
fn name(path: &Path) -> String {
    if path == "-" { "standard input".into() } else { path.display().to_string() }
}

impl Args {
    fn wants(&self, seen: &Seen<'_>) -> bool {
        !matches!(seen, Seen::Other)
            && (!self.errors || seen.is_error())
            && self.qp.is_none_or(|qp| seen.dest_qp() == Some(qp))
    }

    /// Prints a frame in the form that was asked for, after so many others.
    fn print(&self, record: &Record<'_>, seen: &Seen<'_>, shown: u64, text: &mut String) -> fmt::Result {
        match seen {
            Seen::Roce(captured) if self.json => json::frame(record, captured, text),
            Seen::Roce(captured) if self.short => {
                writeln!(text, "{:>5} {} {captured}", record.number, clock(record))
            }
            Seen::Roce(captured) => write!(text, "{}{} {}", gap(shown), clock(record), Long(captured)),
            Seen::Undecoded(undecoded) if self.json => json::undecoded(record, undecoded, text),
            Seen::Undecoded(Undecoded { envelope: Envelope { source, dest, .. }, reason }) if self.short => {
                write!(text, "{:>5} {} {} > {} ", record.number, clock(record), source.ip(), dest.ip())?;
                writeln!(text, "{} RoCEv2 frame: {reason}", reason.kind())
            }
            Seen::Undecoded(Undecoded { envelope: Envelope { source, dest, .. }, reason }) => {
                let family = if source.is_ipv4() { "IP" } else { "IP6" };
                let (from, to) = (source.ip(), dest.ip());
                write!(text, "{}{} {family} {from}.{} > ", gap(shown), clock(record), source.port())?;
                writeln!(text, "{to}.{}: {} RoCEv2 frame: {reason}", dest.port(), reason.kind())
            }
            Seen::Other => Ok(()),
        }
    }
}

/// The empty line between frames of the long form.
fn gap(shown: u64) -> &'static str {
    if shown == 0 { "" } else { "\n" }
}

fn clock(record: &Record<'_>) -> impl fmt::Display {
    fmt::from_fn(|f| match record.time {
        Some(time) => write!(f, "{}", time.clock()),
        None => f.write_str("--:--:--.------"),
    })
}

/// Reads the number of a queue pair.
fn queue_pair(text: &str) -> Result<Qpn, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    match u32::from_str_radix(digits, radix) {
        // The standard library takes a sign, people do not write one.
        Ok(number @ 0..=0xff_ffff) if !digits.starts_with('+') => Ok(Qpn::new(number)),
        Ok(0x100_0000..) => Err("queue pair numbers have 24 bits, at most 0xffffff".into()),
        _ => Err("expected a number such as 17 or 0x11".into()),
    }
}

/// Reads how many frames to show.
fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count @ 1..) if !text.starts_with('+') => Ok(count),
        _ => Err("expected a number of frames, at least 1".into()),
    }
}

/// What a capture held.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    roce: u64,
    wrong_icrc: u64,
    malformed: u64,
    cut: u64,
    other: u64,
    /// Frames printed.
    shown: u64,
}

impl Summary {
    fn count(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Roce(captured) => {
                self.roce += 1;
                self.cut += u64::from(captured.is_cut());
                self.wrong_icrc += u64::from(seen::has_wrong_icrc(captured));
            }
            Seen::Undecoded(undecoded) => {
                self.roce += 1;
                match undecoded.reason {
                    Reason::Bytes(_) => self.malformed += 1,
                    Reason::Cut { .. } => self.cut += 1,
                }
            }
            Seen::Other => self.other += 1,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { roce, wrong_icrc, malformed, cut, other, .. } = self;
        let frames = roce + other;
        let noun = if frames == 1 { "frame" } else { "frames" };
        write!(f, "{frames} {noun}, {roce} RoCEv2, {wrong_icrc} wrong ICRC, ")?;
        write!(f, "{malformed} malformed, {cut} cut, {other} other")
    }
}
