//! What is shown: a line for each probe, and a summary.

use std::io::{self, Write};
use std::time::Duration;

use ferroce_probe::net::{ProberEnd, stamp_now};
use ferroce_probe::paths::{Path, Steering};
use ferroce_probe::{
    Directions, HostFault, Invalid, Outcome, Pace, PaceChange, Peer, ProbeEvent, Report, Stamp,
};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::figures::{Figures, OfPort, all};
use super::search::{Change, Search};
use crate::output::{Style, figure};

/// Where lines go.
pub(super) struct Reporter {
    json: bool,
    quiet: bool,
    /// Ports differ, so each line names its own.
    ports: bool,
}

/// All that there is to sum up.
pub(super) struct Summary<'a> {
    pub(super) end: &'a ProberEnd,
    pub(super) target: Peer,
    pub(super) figures: &'a Figures,
    pub(super) steering: Option<&'a Steering>,
    pub(super) search: &'a Search,
}

/// The shares that the summary shows.
const SHARES: [(&str, f64); 6] =
    [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// Ports that a table shows at most.
const ROWS: usize = 64;

impl Reporter {
    pub(super) const fn new(json: bool, quiet: bool, ports: bool) -> Self {
        Self { json, quiet, ports }
    }

    pub(super) fn begin(&self, host: &str, target: Peer) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let name = format!("PING {host}: queue pair {} at {}", target.qpn, target.address);
        writeln!(out, "{}", Style::Title.of(name))?;
        out.flush()
    }

    pub(super) fn event(&self, event: &ProbeEvent) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        match event {
            ProbeEvent::Ended(report) if self.json => writeln!(out, "{}", probe_json(report))?,
            ProbeEvent::Ended(report) => self.line(&mut out, report)?,
            ProbeEvent::Overdue { sequence, .. } if !self.json => {
                let text = format!("probe {}: no answer yet", sequence.counter() + 1);
                writeln!(out, "{}", Style::Faint.of(text))?;
            }
            ProbeEvent::Overdue { .. } => {}
        }
        out.flush()
    }

    fn line(&self, out: &mut impl Write, report: &Report) -> io::Result<()> {
        let number = report.sequence.counter().wrapping_add(1);
        let port = if self.ports { format!(" from port {}", report.port) } else { String::new() };
        let Some(delays) = report.delays else {
            let text = format!("probe {number}{port}: {}{}", report.outcome.name(), why(report.outcome));
            return writeln!(out, "{}", Style::Bad.of(text));
        };
        let [round_trip, responder, prober] =
            [delays.round_trip, delays.responder, delays.prober].map(|delay| figure(micros(delay)));
        let late = if report.outcome == Outcome::Late { " (late)" } else { "" };
        writeln!(
            out,
            "probe {number}{port}: round trip {round_trip} us, responder {responder} us, prober {prober} us{late}"
        )
    }

    /// Our own host is busy, or not any more.
    pub(super) fn pace(&self, change: &PaceChange) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let text = match change.to {
            Pace::Full => "this host is calm again: probes leave at full pace".to_owned(),
            pace => format!(
                "this host is busy (timers up to {} ms late, packets up to {} ms): probes leave at 1/{} of the pace",
                figure(change.timers.worst.as_secs_f64() * 1e3),
                figure(change.packets.worst.as_secs_f64() * 1e3),
                pace.intervals()
            ),
        };
        writeln!(io::stdout().lock(), "{}", Style::Faint.of(text))
    }

    /// The responder is silent, or answers again.
    pub(super) fn change(&self, change: &Change) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            if !self.quiet {
                writeln!(out, "{}", change_json(change))?;
            }
            return out.flush();
        }
        let text = match change {
            Change::Silent { probe, time, asks } => {
                let then = if *asks { "; asking the host for its responder again" } else { "" };
                format!("no answer since probe {probe}, {} s ago{then}", seconds(*time))
            }
            Change::Back { probe, time } => {
                format!("the responder answers again, {} s after probe {probe} had no answer", seconds(*time))
            }
            Change::Moved { probe, time, from, to } => format!(
                "the responder is another one now, {} s after probe {probe} had no answer: probes go to queue pair \
                 {to} instead of {from}",
                seconds(*time)
            ),
        };
        writeln!(out, "{}", Style::Bad.of(text))?;
        out.flush()
    }

    pub(super) fn summary(&self, summary: &Summary<'_>) -> io::Result<()> {
        let Summary { end, target, figures, steering, search } = *summary;
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", summary_json(summary))?;
            return out.flush();
        }
        let (probes, gone) = (figures.probes(), figures.outcomes.lost());
        let share = if probes == 0 { 0.0 } else { gone as f64 * 100.0 / probes as f64 };
        let pending = match end.pending() {
            0 => String::new(),
            pending => format!(", {pending} not waited for"),
        };
        let title = format!(
            "{}: {probes} probes in {} s, {} ok, {gone} lost ({share:.1} %){pending}",
            target.address,
            figure(figures.time().as_secs_f64()),
            figures.outcomes.ok
        );
        writeln!(out, "{}", Style::Title.of(title))?;
        if !figures.round_trip.is_empty() {
            let names: String = SHARES.iter().map(|(name, _)| format!("{name:>9}")).collect();
            writeln!(out, "{}", Style::Faint.of(format!("{:<12}{names}{:>9}", "in us", "mean")))?;
            for (name, times) in [
                ("round trip", &figures.round_trip),
                ("responder", &figures.responder),
                ("prober", &figures.prober),
            ] {
                let shares: String = SHARES
                    .iter()
                    .map(|(_, share)| format!("{:>9}", figure(quantile(times, *share))))
                    .collect();
                writeln!(out, "{name:<12}{shares}{:>9}", figure(times.mean() / 1000.0))?;
            }
        }
        if figures.outcomes.ok < probes {
            let kinds: Vec<String> = figures
                .outcomes
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| format!("{count} {}", name.replace('_', "-")))
                .collect();
            writeln!(out, "how they ended: {}", kinds.join(", "))?;
        }
        if let Some(text) = by_direction(&figures.directions(end), gone) {
            writeln!(out, "{text}")?;
        }
        if figures.after_call > 0 {
            writeln!(
                out,
                "{} with times taken after the call, as the kernel gave none: too late",
                figures.after_call
            )?;
        }
        if let Some((probe, time)) = search.silence(stamp_now()) {
            writeln!(out, "no answer since probe {probe}, {} s before the end", seconds(time))?;
        }
        let too_long = end.context().counters().send_too_long;
        if too_long > 0 {
            writeln!(out, "{too_long} packets did not leave, as they are longer than the way carries")?;
        }
        if let (refused @ 1.., Some(why)) = &figures.refused_ports {
            writeln!(out, "{refused} ports were left out: {why}")?;
        }
        for complaint in end.complaints() {
            writeln!(out, "{} says of {} probes: {}", complaint.offender, complaint.count, complaint.kind)?;
        }
        let strange: Vec<String> = strange(end).map(|(name, count)| format!("{count} {name}")).collect();
        if !strange.is_empty() {
            writeln!(out, "strange packets: {}", strange.join(", "))?;
        }
        if let Some(steering) = steering {
            paths(&mut out, figures, steering, end)?;
        } else if self.ports {
            ports(&mut out, figures, end)?;
        }
        out.flush()
    }
}

/// Which way probes were lost, if some were.
fn by_direction(directions: &Directions, gone: u64) -> Option<String> {
    let Directions { told, lost_there, lost_back, refused } = *directions;
    if gone == 0 && refused == 0 {
        return None;
    }
    if told == 0 {
        return Some("which way they were lost is not known: no answer told how many probes came".to_owned());
    }
    let mut parts = vec![format!("{lost_there} on the way there"), format!("{lost_back} on the way back")];
    if refused > 0 {
        parts.push(format!("{refused} refused by the responder, as there were too many"));
    }
    if let unknown @ 1.. = gone.saturating_sub(lost_there + lost_back + refused) {
        parts.push(format!("{unknown} not known yet"));
    }
    Some(format!("where they were lost: {}", parts.join(", ")))
}

fn directions_json(directions: &Directions) -> Value {
    let Directions { told, lost_there, lost_back, refused } = *directions;
    json!({ "told": told, "lost_there": lost_there, "lost_back": lost_back, "refused": refused })
}

/// What came and was no answer that was waited for.
fn strange(end: &ProberEnd) -> impl Iterator<Item = (String, u64)> {
    const USUAL: [&str; 7] =
        ["probes", "no_room", "cut_short", "first_acks", "second_acks", "stalls", "clock_steps"];
    let counters: Vec<_> = end.counters().iter().collect();
    let counters = counters.into_iter().filter(|(name, count)| *count > 0 && !USUAL.contains(name));
    counters.map(|(name, count)| (name.replace('_', " "), count))
}

/// Why not one probe was answered, as far as it is known.
pub(super) fn why_no_answer(end: &ProberEnd, target: Peer, probes: u64) -> String {
    let address = target.address;
    if probes == 0 {
        return format!("no probe to {address} came to an end");
    }
    let told: Vec<String> = end
        .complaints()
        .iter()
        .map(|complaint| format!("{} says: {}", complaint.offender, complaint.kind))
        .collect();
    if told.is_empty() {
        return format!(
            "none of {probes} probes was answered; the responder at {address} may have ended (ferroce probe responder), \
             or something in between drops UDP port 4791"
        );
    }
    format!("none of {probes} probes was answered; {}", told.join("; "))
}

fn paths(out: &mut impl Write, figures: &Figures, steering: &Steering, end: &ProberEnd) -> io::Result<()> {
    let kept = steering.kept();
    writeln!(out, "{}", Style::Title.of(format!("{} paths, each by a port of its own", kept.len())))?;
    writeln!(out, "{}", Style::Faint.of(columns("hops  routers")))?;
    for kept in kept {
        let row = row(kept.port, figures.ports.get(&kept.port), end);
        writeln!(out, "{row}{:>6}  {}", kept.path.routers.len() + 1, way(&kept.path))?;
    }
    Ok(())
}

/// The ports with the most loss and the longest round trips.
fn ports(out: &mut impl Write, figures: &Figures, end: &ProberEnd) -> io::Result<()> {
    let mut ports: Vec<(&u16, &OfPort)> = figures.ports.iter().collect();
    ports.sort_by_key(|(_, of)| std::cmp::Reverse((of.outcomes.lost(), of.round_trip.max())));
    let title = format!("{} ports, the worst first", ports.len());
    writeln!(out, "{}", Style::Title.of(title))?;
    writeln!(out, "{}", Style::Faint.of(columns("")))?;
    for (port, of) in ports.iter().take(ROWS) {
        writeln!(out, "{}", row(**port, Some(of), end))?;
    }
    if let Some(more) = ports.len().checked_sub(ROWS).filter(|more| *more > 0) {
        writeln!(out, "{}", Style::Faint.of(format!("and {more} more")))?;
    }
    Ok(())
}

fn columns(more: &str) -> String {
    let counts = format!("{:>7}{:>9}{:>7}{:>7}{:>7}", "port", "probes", "lost", "there", "back");
    format!("{counts}{:>9}{:>9}{:>9}  {more}", "p50 us", "p99 us", "max us")
}

fn row(port: u16, of: Option<&OfPort>, end: &ProberEnd) -> String {
    let Some(of) = of else { return format!("{port:>7}{:>57}", "not probed") };
    let (OfPort { outcomes, round_trip, .. }, directions) = (of, of.directions(port, end));
    // Where nothing was told, nothing is shown.
    let [there, back] = [directions.lost_there, directions.lost_back]
        .map(|lost| if directions.told > 0 { lost.to_string() } else { "-".to_owned() });
    let shares: String =
        [0.5, 0.99, 1.0].iter().map(|share| format!("{:>9}", figure(quantile(round_trip, *share)))).collect();
    format!("{port:>7}{:>9}{:>7}{there:>7}{back:>7}{shares}", all(outcomes), outcomes.lost())
}

fn way(path: &Path) -> String {
    let routers: Vec<String> = path
        .routers
        .iter()
        .map(|router| router.map_or_else(|| "?".into(), |address| address.to_string()))
        .collect();
    let end = if path.reaches { "" } else { " ..." };
    format!("{}{end}", routers.join(" "))
}

/// More about an outcome, if there is more.
const fn why(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Invalid(invalid) => match invalid {
            Invalid::NegativeRoundTrip => {
                ": the round trip is negative, so the responder or a stamp is wrong"
            }
            Invalid::NegativeResponder => ": the responder answered before it was asked",
            Invalid::NegativeProber => ": one of our own stamps is wrong",
            Invalid::Echo => ": an answer repeats another T1",
            Invalid::Contradiction => ": the two answers disagree about T3",
            Invalid::NoSendStamp => ": it is not known when the probe left",
            Invalid::ClockStep => ": the clock was set meanwhile",
            _ => "",
        },
        Outcome::Host(HostFault::Stalled) => ": this host stood still meanwhile",
        Outcome::Host(HostFault::SendFailed) => ": the probe could not be sent",
        Outcome::TimeOut => ": no answer, lost on the way there or back",
        Outcome::Ack1Lost => ": lost on the way back",
        Outcome::Ack2Lost => ": delivered, but the round trip is not known",
        _ => "",
    }
}

fn seconds(time: Duration) -> String {
    figure(time.as_secs_f64())
}

fn change_json(change: &Change) -> Value {
    match change {
        Change::Silent { probe, time, asks } => {
            json!({ "silent": { "since_probe": probe, "seconds": time.as_secs_f64(), "asks": asks } })
        }
        Change::Back { probe, time } => {
            json!({ "back": { "since_probe": probe, "seconds": time.as_secs_f64() } })
        }
        Change::Moved { probe, time, from, to } => json!({ "moved": {
            "since_probe": probe, "seconds": time.as_secs_f64(), "from": from, "to": to,
        } }),
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn quantile(times: &Histogram<u64>, share: f64) -> f64 {
    times.value_at_quantile(share) as f64 / 1000.0
}

fn probe_json(report: &Report) -> Value {
    let nanos = |stamp: Option<Stamp>| stamp.map(Stamp::nanos);
    let times = report.times;
    let delays = report.delays;
    let delay = |of: fn(&ferroce_probe::Delays) -> Duration| {
        delays.as_ref().and_then(|delays| u64::try_from(of(delays).as_nanos()).ok())
    };
    json!({
        "probe": report.sequence.counter().wrapping_add(1),
        "epoch": report.sequence.epoch(),
        "target": report.target.address,
        "qpn": report.target.qpn,
        "port": report.port,
        "answer_port": report.answer_ports.map(|ports| ports.sent),
        "outcome": report.outcome.name(),
        "why": why(report.outcome).trim_start_matches(": "),
        "t1": times.t1.nanos(),
        "t2": nanos(times.t2),
        "t3": nanos(times.t3),
        "t4": nanos(times.t4),
        "t5": nanos(times.t5),
        "t6": nanos(times.t6),
        "t7": nanos(times.t7),
        "stamps": times.source.name(),
        "round_trip_ns": delay(|delays| delays.round_trip),
        "responder_ns": delay(|delays| delays.responder),
        "prober_ns": delay(|delays| delays.prober),
    })
}

fn times_json(times: &Histogram<u64>) -> Value {
    if times.is_empty() {
        return Value::Null;
    }
    let mut shares: Map<String, Value> = SHARES
        .iter()
        .map(|(name, share)| (name.replace('.', "_"), times.value_at_quantile(*share).into()))
        .collect();
    shares.insert("mean".into(), times.mean().into());
    Value::Object(shares)
}

fn summary_json(summary: &Summary<'_>) -> Value {
    let Summary { end, target, figures, steering, search } = *summary;
    let counted = |counters: &mut dyn Iterator<Item = (&'static str, u64)>| {
        Value::Object(counters.map(|(name, count)| (name.to_owned(), count.into())).collect())
    };
    let path_of = |port: u16| {
        steering.into_iter().flat_map(Steering::kept).find(|kept| kept.port == port).map(|kept| &kept.path)
    };
    let ports: Vec<Value> = figures
        .ports
        .iter()
        .map(|(port, of)| {
            json!({
                "port": port,
                "probes": all(&of.outcomes),
                "lost": of.outcomes.lost(),
                "directions": directions_json(&of.directions(*port, end)),
                "round_trip_ns": times_json(&of.round_trip),
                "routers": path_of(*port).map(|path| &path.routers),
                "reaches": path_of(*port).map(|path| path.reaches),
            })
        })
        .collect();
    let complaints: Vec<Value> = end
        .complaints()
        .iter()
        .map(|told| json!({ "from": told.offender, "says": told.kind.to_string(), "probes": told.count }))
        .collect();
    json!({ "summary": {
        "ferroce": env!("CARGO_PKG_VERSION"),
        "target": target.address,
        "qpn": target.qpn,
        "seconds": figures.time().as_secs_f64(),
        "probes": figures.probes(),
        "lost": figures.outcomes.lost(),
        "directions": directions_json(&figures.directions(end)),
        "pending": end.pending(),
        "outcomes": counted(&mut figures.outcomes.iter()),
        "counters": counted(&mut end.counters().iter()),
        "after_call": figures.after_call,
        "too_long": end.context().counters().send_too_long,
        "refused_ports": figures.refused_ports.0,
        "refused_ports_why": figures.refused_ports.1,
        "silences": search.found.silences,
        "lookups": search.found.lookups,
        "moves": search.found.moves,
        "silent_since_probe": search.silence(stamp_now()).map(|(probe, _)| probe),
        "silent_s": search.silence(stamp_now()).map(|(_, time)| time.as_secs_f64()),
        "round_trip_ns": times_json(&figures.round_trip),
        "responder_ns": times_json(&figures.responder),
        "prober_ns": times_json(&figures.prober),
        "ports": ports,
        "complaints": complaints,
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_explained_by_direction_as_far_as_it_is_known() {
        let none = Directions::default();
        assert_eq!(by_direction(&none, 0), None);
        assert_eq!(by_direction(&Directions { told: 5, ..none }, 0), None);
        assert!(by_direction(&none, 2).unwrap().contains("is not known"));
        let some = Directions { told: 90, lost_there: 3, lost_back: 4, refused: 2 };
        assert_eq!(
            by_direction(&some, 10).unwrap(),
            "where they were lost: 3 on the way there, 4 on the way back, 2 refused by the responder, as there were \
             too many, 1 not known yet"
        );
    }
}
