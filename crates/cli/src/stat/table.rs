//! The tables of `ferroce stat`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};

use ferroce_device::Path;
use ferroce_device::switchboard::{ProcessStats, Refusals, Report};
use ferroce_wire::Qpn;

use super::Look;
use super::prometheus::status_name;
use super::rates::{Row, between};
use crate::output::Style;

/// Lines of a process that a terminal shows.
const SHOWN: usize = 20;

/// All processes. A terminal is cleared before, unless this is to end soon.
pub(super) fn text(before: &Look, after: &Look, is_endless: bool, queues: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    let redraws = is_endless && io::stdout().is_terminal();
    if redraws {
        text.push_str("\x1b[H\x1b[J");
    }
    if after.all.is_empty() {
        text.push_str("No process of this user has a device open here any more.\n");
    }
    let most = if redraws { SHOWN } else { usize::MAX };
    for process in &after.all {
        head(&mut text, process)?;
        if queues {
            levels(&mut text, &process.report, most)?;
        } else {
            rates(&mut text, before, process, most)?;
        }
    }
    Ok(text)
}

fn head(text: &mut String, process: &ProcessStats) -> anyhow::Result<()> {
    let ProcessStats { pid, program, service, group, busy, engines, report, .. } = process;
    let Report { queue_pairs, refused, .. } = report;
    let plural = if *queue_pairs == 1 { "" } else { "s" };
    // The system cuts names of programs short; only what a person chose says something new.
    let service = if is_cut(program, service) { String::new() } else { format!(" of service {service}") };
    let title = format!("process {pid} ({program}){service} on {group}: {queue_pairs} queue pair{plural}");
    writeln!(text, "{}", Style::Title.of(title))?;
    if *busy > 0 {
        writeln!(text, "  busy: {busy} of {engines} engines did not answer in time")?;
    }
    if *refused != Refusals::default() {
        writeln!(text, "  refused: {refused}")?;
    }
    for line in summary(report) {
        writeln!(text, "  {line}")?;
    }
    Ok(())
}

/// Whether a service is called as its program, of whose name the system keeps 15 bytes.
fn is_cut(program: &str, service: &str) -> bool {
    program == service || program.len() == 15 && service.starts_with(program)
}

/// What all queue pairs have done so far, also those that are gone.
fn summary(report: &Report) -> Vec<String> {
    let Report { totals, queue_pairs_made, .. } = report;
    if *queue_pairs_made == 0 {
        return Vec::new();
    }
    let done = totals.sends_done;
    let received = totals.completions.all_receives();
    let mut lines = vec![format!(
        "so far: {queue_pairs_made} queue pairs made, {done} sends done, {received} receives completed"
    )];
    let named = |(name, count): (&str, u64)| (count > 0).then(|| format!("{count} {name}"));
    let list = |items: &[(&str, u64)]| items.iter().copied().filter_map(named).collect::<Vec<_>>().join(", ");
    let troubles = list(&[
        ("packets sent again", totals.retransmitted),
        ("time-outs", totals.timeouts),
        ("RNR received", totals.rnr_received),
        ("RNR sent", totals.rnr_sent),
    ]);
    let failures: Vec<_> = totals
        .completions
        .iter()
        .skip(1)
        .map(|(status, sends, receives)| {
            (status_name(status).replace('_', " "), sends.saturating_add(receives))
        })
        .collect();
    let failures: Vec<_> = failures.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    let failures = list(&failures);
    lines.extend((!troubles.is_empty()).then(|| format!("repairs: {troubles}")));
    lines.extend((!failures.is_empty()).then(|| format!("failed: {failures}")));
    lines
}

fn rates(text: &mut String, before: &Look, process: &ProcessStats, most: usize) -> anyhow::Result<()> {
    let rows = between(before, process).rows;
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "{}", Style::Faint.of(HEAD))?;
    for Row { now, rates } in rows.iter().take(most) {
        let path = now.path.map_or("-", path_name);
        let [posted, done, packets, again, rnr, faults] = rates.map_or([const { None }; 6], |rates| {
            let rnr = rates.rnr_received + rates.rnr_sent;
            let faults = rates.errors + rates.timeouts + rates.failed;
            [rates.posted, rates.done(), rates.packets(), rates.retransmitted, rnr, faults].map(Some)
        });
        let short = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), short);
        write!(text, "{} {:2} {:5} {path:5} ", now.qpn, now.service.name(), now.state)?;
        write!(text, "{:18} {:>6} {:>6} ", peer(now.peer), short(posted), short(done))?;
        write!(text, "{:>6} {:>5} {:>4} ", short(packets), short(again), short(rnr))?;
        writeln!(text, "{:>4}", short(faults))?;
    }
    let told = process.report.rows.len();
    more(text, told.saturating_sub(most) + (process.report.queue_pairs as usize).saturating_sub(told))
}

/// How full queues are, the fullest first.
fn levels(text: &mut String, report: &Report, most: usize) -> anyhow::Result<()> {
    let of_pairs = report.rows.iter().flat_map(|row| {
        let own = (row.receive_queue.capacity > 0).then_some(("RQ", row.receive_queue));
        let queues = [("SQ", row.send_queue)].into_iter().chain(own);
        queues.map(|(kind, level)| (kind, row.qpn.to_string(), level, false))
    });
    let others = [("CQ", &report.completion_queues), ("SRQ", &report.shared_queues)];
    let others = others.into_iter().flat_map(|(kind, queues)| {
        queues.iter().map(move |queue| (kind, queue.id.to_string(), queue.level, queue.overrun))
    });
    let mut lines: Vec<_> = of_pairs.chain(others).collect();
    let fullness = |part: u32, whole: u32| 100.0 * f64::from(part) / f64::from(whole.max(1));
    lines.sort_by(|(.., one, _), (.., other, _)| {
        let share = |part: fn(&ferroce::Level) -> u32, of: &ferroce::Level| fullness(part(of), of.capacity);
        let most = share(|of| of.most, other).total_cmp(&share(|of| of.most, one));
        share(|of| of.now, other).total_cmp(&share(|of| of.now, one)).then(most)
    });
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(text, "{}", Style::Faint.of("QUEUE NUMBER         NOW     MOST     ROOM  NOW %  MOST %"))?;
    for (kind, number, level, overrun) in lines.iter().take(most) {
        let [now, peak] = [level.now, level.most].map(|part| fullness(part, level.capacity));
        let lost = if *overrun { "  overrun" } else { "" };
        write!(text, "{kind:5} {number:10} {:>8} {:>8} {:>8} ", level.now, level.most, level.capacity)?;
        writeln!(text, "{now:>6.0} {peak:>7.0}{lost}")?;
    }
    more(text, lines.len().saturating_sub(most))
}

fn more(text: &mut String, hidden: usize) -> anyhow::Result<()> {
    if hidden > 0 {
        writeln!(text, "  and {hidden} more")?;
    }
    Ok(())
}

const HEAD: &str = "QP       TY STATE PATH  PEER                 POST   DONE   PKTS  RETX  RNR  ERR";

pub(super) const fn path_name(path: Path) -> &'static str {
    match path {
        Path::Local => "local",
        Path::Shared => "shm",
        Path::Wire => "wire",
    }
}

/// Where a queue pair is connected to, in 18 columns.
fn peer(peer: Option<(Qpn, std::net::IpAddr)>) -> String {
    let Some((qpn, address)) = peer else { return "-".to_owned() };
    let mut text = format!("{:06x}@{address}", qpn.get());
    if text.len() > 18 {
        text.truncate(17);
        text.push('~');
    }
    text
}

/// A rate in at most 5 columns: 0, 0.25, 17, 9999, 12.3k, 4.56M.
fn short(rate: f64) -> String {
    match rate {
        _ if rate < 0.005 => "0".to_owned(),
        _ if rate < 9.995 => format!("{rate:.2}"),
        _ if rate < 9999.5 => format!("{rate:.0}"),
        _ if rate < 99_950.0 => format!("{:.1}k", rate / 1e3),
        _ if rate < 999_500.0 => format!("{:.0}k", rate / 1e3),
        _ if rate < 9.995e6 => format!("{:.2}M", rate / 1e6),
        _ if rate < 99.95e6 => format!("{:.1}M", rate / 1e6),
        _ => format!("{:.0}M", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use ferroce::{Level, Status};
    use ferroce_device::switchboard::QueueStats;

    use super::*;

    #[test]
    fn rates_are_short() {
        let rates = [0.0, 0.25, 17.2, 9999.0, 12_345.0, 456_700.0, 4_560_000.0, 33_300_000.0, 1e9];
        let texts = rates.map(short);
        assert_eq!(texts, ["0", "0.25", "17", "9999", "12.3k", "457k", "4.56M", "33.3M", "1000M"]);
        assert!(texts.iter().all(|text| text.len() <= 5));
    }

    #[test]
    fn a_service_is_named_if_that_says_something_new() {
        assert!(
            is_cut("ib_write_bw", "ib_write_bw") && is_cut("a-program-with-", "a-program-with-a-long-name")
        );
        assert!(!is_cut("ib_write_bw", "train") && !is_cut("ib", "ib_write_bw"));
    }

    #[test]
    fn a_line_has_80_columns_at_most() {
        assert_eq!(HEAD.len(), 79);
        let long = peer(Some((Qpn::new(0x12_3456), "fd00:1234:5678:9abc::1".parse().unwrap())));
        assert_eq!(long.len(), 18);
        assert_eq!(peer(Some((Qpn::new(5), [127, 0, 0, 2].into()))), "000005@127.0.0.2");
    }

    #[test]
    fn what_went_wrong_is_said_by_name_and_what_did_not_is_not() {
        let mut report = Report { queue_pairs_made: 3, ..Report::default() };
        assert_eq!(summary(&Report::default()), Vec::<String>::new(), "there was never anything");
        assert_eq!(summary(&report).len(), 1);
        report.totals.completions.set(Status::RetryExceeded, 2, 0);
        report.totals.completions.set(Status::Flushed, 4, 5);
        report.totals.completions.set(Status::Success, 100, 7);
        (report.totals.sends_done, report.totals.timeouts) = (200, 8);
        assert_eq!(
            summary(&report),
            [
                "so far: 3 queue pairs made, 200 sends done, 12 receives completed",
                "repairs: 8 time-outs",
                "failed: 9 flushed, 2 retry exceeded",
            ]
        );
    }

    #[test]
    fn the_fullest_queue_comes_first() {
        let queue = |id, now, most, overrun| QueueStats { id, level: Level::new(now, most, 200), overrun };
        let report = Report {
            completion_queues: vec![
                queue(1, 0, 10, false),
                queue(2, 100, 100, false),
                queue(3, 0, 200, true),
            ],
            shared_queues: vec![queue(4, 150, 150, false)],
            ..Report::default()
        };
        let mut text = String::new();
        levels(&mut text, &report, 3).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["SRQ", "4", "150", "150", "200", "75", "75"]);
        assert_eq!(lines[1], ["CQ", "2", "100", "100", "200", "50", "50"]);
        assert_eq!(lines[2], ["CQ", "3", "0", "200", "200", "0", "100", "overrun"]);
        assert_eq!(lines[3], ["and", "1", "more"]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
