//! `ferroce mesh findings`.

use std::io::{self, Write};

use ferroce_meshd::Inquiry;
use ferroce_meshd::proto::v1::{Affected, Finding, FindingsReply, ServiceState, Tuple};
use serde_json::{Value, json};

use super::tls::TlsArgs;
use super::{AFTER_LONG_HELP, ANALYZER, count};
use crate::output::Style;

/// Show what is bad
///
/// A finding opens when two windows in a row speak for it, and closes when three do not. Suspects that no probe
/// tells apart are named together. P0: a service's own packets, or probes on their very way, are lost or slow; P1: a
/// service crosses what is bad; P2: none is known to.
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
        let priority =
            if finding.priority.is_empty() { String::new() } else { format!("{} ", finding.priority) };
        writeln!(out, "  {priority}{severity} {trouble}: {suspects}")?;
        writeln!(out, "      {losses:.0} of {crossings:.0} packets, {expected:.1} without it")?;
        for Affected { service, priority, flows, examples } in &finding.services {
            let example =
                examples.first().map(|Tuple { from, to, port }| format!(", as {from} to {to} port {port}"));
            let flows = count(*flows as usize, "queue pair");
            writeln!(out, "      {priority} service {service}: {flows}{}", example.unwrap_or_default())?;
        }
        if finding.services_left_out > 0 {
            writeln!(out, "      and {} more", count(finding.services_left_out as usize, "service"))?;
        }
    }
    if !reply.over.is_empty() {
        writeln!(out, "{} over", count(reply.over.len(), "finding"))?;
    }
    if !reply.services.is_empty() {
        let all = reply.services.len() + reply.services_left_out as usize;
        let well = reply.services.iter().filter(|one| one.priority.is_empty()).count();
        let well = well + reply.services_left_out as usize;
        writeln!(out, "{}, {well} of them cross nothing bad", count(all, "service"))?;
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
            "priority": Some(&finding.priority).filter(|priority| !priority.is_empty()),
            "services": finding.services.iter().map(affected).collect::<Vec<_>>(),
            "services_left_out": finding.services_left_out,
        })
    };
    json!({
        "windows": reply.windows,
        "agents": reply.agents,
        "through_unix_ns": reply.through_unix_ns,
        "open": reply.open.iter().map(finding).collect::<Vec<_>>(),
        "over": reply.over.iter().map(finding).collect::<Vec<_>>(),
        "services": reply.services.iter().map(service).collect::<Vec<_>>(),
        "services_left_out": reply.services_left_out,
    })
}

fn affected(Affected { service, priority, flows, examples }: &Affected) -> Value {
    let example = |Tuple { from, to, port }: &Tuple| json!({ "from": from, "to": to, "port": port });
    json!({
        "service": service,
        "priority": priority,
        "flows": flows,
        "examples": examples.iter().map(example).collect::<Vec<_>>(),
    })
}

fn service(one: &ServiceState) -> Value {
    json!({
        "service": one.service,
        "hosts": one.hosts,
        "some_hosts": one.some_hosts,
        "flows": one.flows,
        "sent": one.sent,
        "again": one.again,
        "priority": Some(&one.priority).filter(|priority| !priority.is_empty()),
        "findings": one.findings,
    })
}
