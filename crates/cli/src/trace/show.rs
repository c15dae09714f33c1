//! `ferroce trace show`: each work request, with all that happened to it.

use std::io::{self, BufWriter, Write};
use std::num::NonZeroU64;
use std::ops::ControlFlow;

use anyhow::Context;
use ferroce_trace::{Block, Line, Slowest, Told, Work};

use super::files::Files;
use super::reading::read_all;
use super::select::Select;

/// Show each work request: what was posted, its packets, its completion, and when
///
/// Requests are shown in the order in which they were over; those that are not over come last. Times with a plus are
/// counted from the call that posted the request.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    select: Select,

    /// Only the N that took longest, slowest first
    #[arg(long, value_name = "N")]
    slowest: Option<u32>,

    /// Stop after N requests
    #[arg(short, long, value_name = "N", conflicts_with = "slowest")]
    count: Option<NonZeroU64>,

    /// One JSON object per request and line
    ///
    /// Times are nanoseconds since the first record began. Numbers of more than 32 bits, such as addresses, are
    /// strings "0x...", because many programs keep only 53 bits of a number.
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
What a request looks like:
  work 2 of the send queue of queue pair 0x000011, posted at 1.500000000 s
    WQE                 what was posted: work request ID, opcode, flags, memory of both ends
    packets             each packet of it that left or came, when, and what became of it
    CQE                 its completion: status, vendor error, length
    states: POSTED, PROCESSING +700 ns, ERROR +34.300 us; PENDING +34.300 us, POLLED +44.800 us

Examples:
  ferroce trace show run.ftrace
  ferroce trace show --qp 0x11 --op write,read run.ftrace
  ferroce trace show --slowest 10 run.ftrace
  ferroce trace show --from 1.2 --to 1.3 run.ftrace
  ferroce trace show --json --errors run.ftrace | jq -r '.cqe.vendor_error_text'";

/// The most slowest requests that are kept.
const SLOWEST: u32 = 10_000;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = args.files.open()?;
    let filter = args.select.filter();
    let mut out = Out {
        out: BufWriter::with_capacity(1 << 16, io::stdout().lock()),
        args,
        shown: 0,
        has_several: opened.timeline.sources().len() > 1,
        text: String::new(),
    };
    let mut slowest = args.slowest.map(|most| Slowest::new(most.min(SLOWEST) as usize));
    read_all(&opened.timeline, true, |told| {
        let (Told::Over(record, work) | Told::Open(record, work)) = told else {
            return Ok(ControlFlow::Continue(()));
        };
        if !filter.wants(&work) {
            return Ok(ControlFlow::Continue(()));
        }
        match &mut slowest {
            Some(slowest) => slowest.add(record, work),
            None => return out.show(record, &work),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for (record, work) in slowest.map_or_else(Vec::new, Slowest::finish) {
        let _ = out.show(record, &work)?;
    }
    out.out.flush().context("standard output")?;
    drop(out);
    opened.verdict()
}

/// Where requests are shown.
struct Out<'a> {
    out: BufWriter<io::StdoutLock<'static>>,
    args: &'a Args,
    shown: u64,
    has_several: bool,
    text: String,
}

impl Out<'_> {
    /// Shows a request; whether more are wanted.
    fn show(&mut self, record: usize, work: &Work) -> anyhow::Result<ControlFlow<()>> {
        use std::fmt::Write as _;
        self.text.clear();
        if self.args.json {
            writeln!(self.text, "{}", Line { record, work })
        } else {
            let gap = if self.shown == 0 { "" } else { "\n" };
            if self.has_several {
                write!(self.text, "{gap}record {}: {}", record + 1, Block(work))
            } else {
                write!(self.text, "{gap}{}", Block(work))
            }
        }
        .context("a request could not be printed")?;
        self.out.write_all(self.text.as_bytes()).context("standard output")?;
        self.shown += 1;
        let is_enough = self.args.count.is_some_and(|count| self.shown >= count.get());
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
