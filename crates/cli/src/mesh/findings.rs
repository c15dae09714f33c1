//! `ferroce mesh findings`.

use std::io::{self, Write};

use ferroce_meshd::Inquiry;
use ferroce_meshd::proto::v1::{Finding, FindingsReply};
use serde_json::{Value, json};

use super::tls::TlsArgs;
use super::{AFTER_LONG_HELP, ANALYZER, count};
use crate::output::Style;

/// Show what is bad
///
/// A finding opens when two windows in a row speak for it, and closes when three do not. Suspects that no probe
/// tells apart are named together.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    /// Where the analyzer is
    #[arg(long, value_name = "URL", default_value = ANALYZER)]
    analyzer: String,

    /// One JSON object with all findings, open and over; times are nanoseconds since 1970
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    tls: TlsArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let reply = Inquiry::with(&args.analyzer, args.tls.credentials()?).findings()?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", to_json(&reply))?;
    } else {
        print(&mut out, &reply)?;
    }
    Ok(out.flush()?)
}

fn print(out: &mut impl Write, reply: &FindingsReply) -> io::Result<()> {
    let windows = count(usize::try_from(reply.windows).unwrap_or(usize::MAX), "window");
    let agents = count(reply.agents as usize, "agent");
    let title = match reply.open.len() {
        0 => "nothing bad is known".to_owned(),
        number => count(number, "finding"),
    };
    writeln!(out, "{} after {windows} of {agents}", Style::Title.of(title))?;
    for finding in &reply.open {
        let Finding { trouble, severity, losses, crossings, expected, .. } = finding;
        let suspects = finding.suspects.join(" or ");
        writeln!(out, "  {severity} {trouble}: {suspects}")?;
        writeln!(out, "      {losses:.0} of {crossings:.0} packets, {expected:.1} without it")?;
    }
    if !reply.over.is_empty() {
        writeln!(out, "{} over", count(reply.over.len(), "finding"))?;
    }
    Ok(())
}

fn to_json(reply: &FindingsReply) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "id": finding.id,
            "trouble": finding.trouble,
            "suspects": finding.suspects,
            "severity": finding.severity,
            "since_unix_ns": finding.since_unix_ns,
            "over_unix_ns": (finding.over_unix_ns > 0).then_some(finding.over_unix_ns),
            "crossings": finding.crossings,
            "losses": finding.losses,
            "expected": finding.expected,
            "gain": finding.gain,
        })
    };
    json!({
        "windows": reply.windows,
        "agents": reply.agents,
        "through_unix_ns": reply.through_unix_ns,
        "open": reply.open.iter().map(finding).collect::<Vec<_>>(),
        "over": reply.over.iter().map(finding).collect::<Vec<_>>(),
    })
}
