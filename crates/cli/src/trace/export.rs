//! `ferroce trace export`: time-lines in the forms of other tools.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use ferroce_trace::export::{
    Choice, HtmlOptions, MOST_PACKETS, Selection, Summary, html, mermaid, pcapng, perfetto, svg,
};
use ferroce_trace::{Source, Timeline};
use ferroce_wire::Qpn;
use serde_json::json;

use super::files::{Files, note};
use super::reading::bar;
use super::record::make_room;
use super::select;

/// Write time-lines in the forms of other tools: Wireshark, Perfetto, a page, a picture
///
/// The form follows from the name of the file: .pcapng for Wireshark, .pftrace for ui.perfetto.dev, .html for a
/// page with a sequence diagram, .svg or .mmd for one work request as a picture or as a diagram of Mermaid.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,

    /// The file to write; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The form, if the name of the file does not tell it
    #[arg(short, long, value_enum)]
    format: Option<Format>,

    /// Only what has to do with this queue pair, at either end: 17 or 0x11
    #[arg(long, value_name = "NUMBER", value_parser = select::queue_pair)]
    qp: Option<Qpn>,

    /// Nothing before this time: 1.5, 300ms or 20us after the record began
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    from: Option<u64>,

    /// Nothing after this time
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    to: Option<u64>,

    /// Pictures: the work request with this ID
    #[arg(long, value_name = "ID", value_parser = select::number)]
    id: Option<u64>,

    /// Pictures: the work request with this number in its queue
    #[arg(long, value_name = "NUMBER")]
    work: Option<u32>,

    /// Pages: packets at most
    #[arg(long, value_name = "N", default_value_t = MOST_PACKETS)]
    packets: usize,

    /// Print what was written as one JSON document
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce trace export run.ftrace -o run.html
          A page for any browser: both ends, arrows for packets, click on one for its headers.
  ferroce trace export run.ftrace -o run.pcapng
          A capture; each packet has its work request as a comment. The payload is not in it.
  ferroce trace export run.ftrace -o run.pftrace
          For ui.perfetto.dev: queues as tracks, requests as slices, flows to packets and to the peer.
  ferroce trace export run.ftrace --qp 0x11 --work 17 -o write.svg
          One request as a picture; .mmd is the same as a diagram of Mermaid.";

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A capture for Wireshark
    Pcapng,
    /// A trace for ui.perfetto.dev
    Perfetto,
    /// A page with a sequence diagram
    Html,
    /// One work request as a picture
    Svg,
    /// One work request as a diagram of Mermaid
    Mermaid,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match ending.as_str() {
            "pcapng" | "pcap" => Self::Pcapng,
            "pftrace" | "perfetto" | "perfetto-trace" => Self::Perfetto,
            "html" | "htm" => Self::Html,
            "svg" => Self::Svg,
            "mmd" | "mermaid" => Self::Mermaid,
            _ => return None,
        })
    }
}

/// Writes the time-line of a record, in the form that the name of the file tells; how to open it.
pub(crate) fn save(record: &Path, output: &Path) -> anyhow::Result<String> {
    let name = output.display();
    let opened = match Format::of(output) {
        Some(Format::Html) => format!("open {name} in a browser"),
        Some(Format::Pcapng) => format!("wireshark {name}"),
        Some(Format::Perfetto) => format!("open {name} at https://ui.perfetto.dev"),
        Some(Format::Svg | Format::Mermaid) | None => {
            make_room(&std::path::absolute(output)?)?;
            fs::copy(record, output).with_context(|| format!("{name} cannot be written"))?;
            return Ok(format!("ferroce trace show {name}"));
        }
    };
    run(&Args {
        files: Files::of(record),
        output: output.to_owned(),
        format: None,
        qp: None,
        from: None,
        to: None,
        id: None,
        work: None,
        packets: MOST_PACKETS,
        json: false,
    })?;
    Ok(opened)
}

/// Reads the name of a file that [`save`] can write.
pub(crate) fn file_to_save(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_record = path.extension().is_some_and(|ending| ending == "ftrace");
    match Format::of(&path) {
        Some(Format::Html | Format::Pcapng | Format::Perfetto) => Ok(path),
        _ if is_record => Ok(path),
        _ => Err("expected a name that ends with .html, .pcapng, .pftrace or .ftrace".into()),
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let Some(format) = args.format.or_else(|| Format::of(&args.output)) else {
        bail!(
            "the name {} tells no form: use .pcapng, .pftrace, .html, .svg or .mmd, or --format",
            args.output.display()
        );
    };
    let opened = args.files.open()?;
    let is_standard = args.output.as_os_str() == "-";
    let summary = if is_standard {
        if io::stdout().is_terminal() && matches!(format, Format::Pcapng | Format::Perfetto) {
            bail!("a terminal cannot show this: write to a file, or into a pipe");
        }
        write(args, format, &opened.timeline, &mut BufWriter::new(io::stdout().lock()))?
    } else {
        let cannot = || format!("{} cannot be written", args.output.display());
        // What a link leads to is written, and not the link.
        let path = fs::canonicalize(&args.output).unwrap_or_else(|_| args.output.clone());
        let is_source = |source: &Source| fs::canonicalize(source.path()).is_ok_and(|source| source == path);
        if opened.timeline.sources().iter().any(is_source) {
            bail!("{} is the record itself: write to another file", args.output.display());
        }
        // Under another name until it is whole: a half file is never taken for one. Pipes and devices stay what they are.
        let is_plain = fs::metadata(&path).map_or(true, |about| about.is_file());
        let part = if is_plain { with_ending(&path, ".part") } else { path.clone() };
        let mut out = BufWriter::new(File::create(&part).with_context(cannot)?);
        let summary = write(args, format, &opened.timeline, &mut out).inspect_err(|_| {
            if is_plain {
                // It is of no use; if it cannot be removed, it does no harm.
                let _ = fs::remove_file(&part);
            }
        })?;
        out.into_inner().map_err(io::IntoInnerError::into_error).with_context(cannot)?;
        if is_plain {
            fs::rename(&part, &path).with_context(cannot)?;
        }
        summary
    };
    tell(args, format, &summary, is_standard);
    opened.verdict()
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn write(args: &Args, format: Format, timeline: &Timeline, out: &mut impl Write) -> anyhow::Result<Summary> {
    let selection = Selection { from: args.from, to: args.to, queue_pair: args.qp };
    let choice = Choice { source: None, queue_pair: args.qp, work: args.work, id: args.id };
    let bar = bar(timeline.len(), args.output.as_os_str() == "-");
    let mut progress = |events| bar.set_position(events);
    let summary = match format {
        Format::Pcapng => pcapng(timeline, &selection, out, &mut progress),
        Format::Perfetto => perfetto(timeline, &selection, out, &mut progress),
        Format::Html => {
            let options = HtmlOptions { selection, packets: args.packets, ..HtmlOptions::default() };
            html(timeline, &options, out, &mut progress)
        }
        Format::Svg => svg(timeline, &choice, out, &mut progress),
        Format::Mermaid => mermaid(timeline, &choice, out, &mut progress),
    };
    bar.finish_and_clear();
    Ok(summary?)
}

/// Says what was written, and what was not.
fn tell(args: &Args, format: Format, summary: &Summary, is_standard: bool) {
    let Summary { events, packets, joined, left_out, works, local } = *summary;
    if args.json && !is_standard {
        let file = args.output.display().to_string();
        println!(
            "{:#}",
            json!({ "file": file, "events": events, "packets": packets, "joined": joined,
                    "left_out": left_out, "works": works, "local": local })
        );
        return;
    }
    note(&format!("{}: {packets} packets, {works} work requests", args.output.display()));
    if local > 0 && format == Format::Pcapng {
        note(&format!(
            "{local} work requests stayed in their process: they have no packets, and are not in it"
        ));
    }
    if left_out > 0 {
        note(&format!("{left_out} packets are left out: --from, --to, --qp and --packets choose which"));
    }
}
