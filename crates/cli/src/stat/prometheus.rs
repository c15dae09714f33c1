//! The text format of Prometheus, version 0.0.4.
//!
//! It is written by hand: the figures are those of other processes, taken in one look, and not counters of
//! this one that a library could keep; and the format is three kinds of lines. `promtool` judges it in the
//! tests.

use std::fmt::{Display, Write as _};

use ferroce::{Completions, Level, Status};
use ferroce_device::switchboard::{ProcessStats, WorkStats};

use super::Look;
use super::ledger::{Ledger, Place, Sums, place};

/// What a scrape is told that the text is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of it: sums of each process, and unless only those are wanted, its queue pairs and queues.
pub(super) fn text(ledger: &Ledger, look: &Look, only_totals: bool) -> String {
    let mut text = Text(String::new());
    about_looking(&mut text, ledger, look);
    of_processes(&mut text, ledger);
    if !only_totals {
        of_queue_pairs(&mut text, look);
        of_queues(&mut text, look);
    }
    text.0
}

/// A counter of [`WorkStats`], how it is called here, and what it says.
const COUNTS: [(&str, &str, &str); 12] = [
    ("sends_posted", "sends_posted", "Sends that were posted"),
    ("sends_done", "sends_done", "Sends that are done, with or without a completion"),
    ("receives_posted", "receives_posted", "Receives that were posted to queue pairs, not to shared queues"),
    ("packets_sent", "packets_sent", "Packets that were sent"),
    ("packets_received", "packets_received", "Packets that were taken"),
    ("direct", "direct_messages", "Messages between queue pairs of one process that took no packets"),
    ("retransmitted", "packets_retransmitted", "Packets that were sent again"),
    ("rnr_received", "rnr_received", "Times that a peer had no receive posted"),
    ("rnr_sent", "rnr_sent", "Times that no receive was posted here"),
    ("timeouts", "timeouts", "Times that a peer did not answer in time"),
    ("errors", "errors", "Requests refused, here or by a peer, and messages dropped"),
    ("waits", "waits", "Times that a message waited for window, credits, depth or rate"),
];

/// The name of a status in labels and in JSON.
pub(super) const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLength => "local_length",
        Status::LocalQpOperation => "local_qp_operation",
        Status::LocalProtection => "local_protection",
        Status::Flushed => "flushed",
        Status::WindowBind => "window_bind",
        Status::BadResponse => "bad_response",
        Status::LocalAccess => "local_access",
        Status::RemoteInvalidRequest => "remote_invalid_request",
        Status::RemoteAccess => "remote_access",
        Status::RemoteOperation => "remote_operation",
        Status::RetryExceeded => "retry_exceeded",
        Status::RnrRetryExceeded => "rnr_retry_exceeded",
    }
}

/// Labels and their values.
type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// The text as far as it is written.
struct Text(String);

impl Text {
    /// A metric with all its samples; nothing if it has none.
    fn metric<V: Display>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            self.0.push_str(name);
            let mut before = '{';
            for (label, text) in labels {
                let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(&text));
                before = ',';
            }
            let end = if before == ',' { "}" } else { "" };
            let _ = writeln!(self.0, "{end} {value}");
        }
    }
}

/// A value of a label: programs choose their names, and these three letters would end it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn about_looking(text: &mut Text, ledger: &Ledger, look: &Look) {
    let nothing = Labels::new;
    let processes = ("ferroce_processes", Kind::Gauge, "Processes with an open device, once for each device");
    text.metric(processes, [(nothing(), ledger.live.len())]);
    let silent =
        ("ferroce_processes_silent", Kind::Gauge, "Those that did not answer: what they last said stands");
    text.metric(silent, [(nothing(), look.silent.len())]);
    let help =
        "Processes that ended since the first look; what they last said is in the series with pid=\"ended\"";
    text.metric(("ferroce_processes_ended_total", Kind::Counter, help), [(nothing(), ledger.ended_count)]);
    let engines = |of: fn(&ProcessStats) -> u8| {
        look.all.iter().map(move |process| (labels_of(process), of(process))).collect::<Vec<_>>()
    };
    text.metric(("ferroce_engines", Kind::Gauge, "Engines of a process"), engines(|process| process.engines));
    let busy = ("ferroce_engines_busy", Kind::Gauge, "Engines that did not answer in time");
    text.metric(busy, engines(|process| process.busy));
}

/// What processes have done, also what they had done when they ended.
fn of_processes(text: &mut Text, ledger: &Ledger) {
    let live = ledger.live.iter().map(|(place, account)| (labels(place, &account.program), account.sums));
    let ended = ledger.ended.iter().map(|((interface, address), sums)| {
        let labels = vec![
            ("pid", "ended".to_owned()),
            ("program", String::new()),
            ("interface", interface.clone()),
            ("address", address.clone()),
        ];
        (labels, *sums)
    });
    let all: Vec<(Labels, Sums)> = live.chain(ended).collect();
    let made = |(labels, sums): &(Labels, Sums)| (labels.clone(), sums.queue_pairs_made);
    text.metric(
        ("ferroce_queue_pairs_made_total", Kind::Counter, "Queue pairs that were made"),
        all.iter().map(made),
    );
    let work: Vec<_> = all.iter().map(|(labels, sums)| (labels.clone(), sums.totals)).collect();
    counts(text, "ferroce_", &work);
    completions(text, "ferroce_completions_total", &work, true);
    let refused = all.iter().flat_map(|(labels, sums)| {
        let with = |(reason, count): (&'static str, u64)| {
            let mut labels = labels.clone();
            labels.push(("reason", reason.to_owned()));
            (labels, count)
        };
        sums.refused.iter().map(with).collect::<Vec<_>>()
    });
    text.metric(("ferroce_refused_total", Kind::Counter, "What was refused, by reason"), refused);
}

fn of_queue_pairs(text: &mut Text, look: &Look) {
    let count = |process: &ProcessStats| (labels_of(process), process.report.queue_pairs);
    text.metric(
        ("ferroce_queue_pairs", Kind::Gauge, "Queue pairs that there are; not all of very many are told"),
        look.all.iter().map(count),
    );
    let work: Vec<(Labels, WorkStats)> = look
        .all
        .iter()
        .flat_map(|process| {
            process.report.rows.iter().map(|row| {
                let mut labels = labels_of(process);
                labels.push(("qpn", row.qpn.to_string()));
                labels.push(("type", row.service.name().to_owned()));
                (labels, row.work)
            })
        })
        .collect();
    counts(text, "ferroce_qp_", &work);
    completions(text, "ferroce_qp_completions_total", &work, false);
}

/// A part of a level.
type Part = fn(&Level) -> u32;

/// How full queues are.
fn of_queues(text: &mut Text, look: &Look) {
    let (mut levels, mut overruns) = (Vec::new(), Vec::new());
    for process in &look.all {
        let with = |queue: &str, number: String| {
            let mut labels = labels_of(process);
            labels.push(("queue", queue.to_owned()));
            labels.push(("number", number));
            labels
        };
        for row in &process.report.rows {
            levels.push((with("send", row.qpn.to_string()), row.send_queue));
            if row.shared_queue.is_none() {
                levels.push((with("receive", row.qpn.to_string()), row.receive_queue));
            }
        }
        for queue in &process.report.completion_queues {
            levels.push((with("completion", queue.id.to_string()), queue.level));
            overruns.push((with("completion", queue.id.to_string()), u8::from(queue.overrun)));
        }
        for queue in &process.report.shared_queues {
            levels.push((with("shared_receive", queue.id.to_string()), queue.level));
        }
    }
    let parts: [(&str, &str, Part); 3] = [
        ("ferroce_queue_entries", "Entries that a queue holds", |level| level.now),
        ("ferroce_queue_entries_most", "The most entries that a queue held so far", |level| level.most),
        ("ferroce_queue_capacity", "Entries that a queue has room for", |level| level.capacity),
    ];
    for (name, help, part) in parts {
        let samples = levels.iter().map(|(labels, level)| (labels.clone(), part(level)));
        text.metric((name, Kind::Gauge, help), samples);
    }
    let help = "Whether completions were lost because the queue was full";
    text.metric(("ferroce_queue_overrun", Kind::Gauge, help), overruns);
}

/// The plain counters, each as a metric.
fn counts(text: &mut Text, prefix: &str, all: &[(Labels, WorkStats)]) {
    for (count, name, help) in COUNTS {
        let of =
            |work: &WorkStats| work.counts().find(|(name, _)| *name == count).map_or(0, |(_, value)| value);
        let samples = all.iter().map(|(labels, work)| (labels.clone(), of(work)));
        text.metric((&format!("{prefix}{name}_total"), Kind::Counter, help), samples);
    }
}

/// Completions of one queue that ended so.
type ByStatus = fn(&Completions, Status) -> u64;

/// Completions by queue and status; those that never happened are left out of long lists.
fn completions(text: &mut Text, name: &str, all: &[(Labels, WorkStats)], with_zeros: bool) {
    let queues: [(&str, ByStatus); 2] = [("send", Completions::sends), ("receive", Completions::receives)];
    let samples = all.iter().flat_map(|(labels, work)| {
        queues.into_iter().flat_map(move |(queue, of)| {
            Status::ALL.into_iter().filter_map(move |status| {
                let count = of(&work.completions, status);
                let is_told = with_zeros || count > 0 || status == Status::Success;
                is_told.then(|| {
                    let mut labels = labels.clone();
                    labels.push(("queue", queue.to_owned()));
                    labels.push(("status", status_name(status).to_owned()));
                    (labels, count)
                })
            })
        })
    });
    text.metric((name, Kind::Counter, "Completions of work, by queue and status"), samples);
}

fn labels_of(process: &ProcessStats) -> Labels {
    labels(&place(process), &process.program)
}

fn labels((pid, interface, address): &Place, program: &str) -> Labels {
    vec![
        ("pid", pid.to_string()),
        ("program", program.to_owned()),
        ("interface", interface.clone()),
        ("address", address.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ferroce_device::switchboard::{QpStats, QueueStats};
    use ferroce_wire::{Qpn, Service};

    use super::super::ledger::tests::{look, process};
    use super::*;

    fn scene() -> (Ledger, Look) {
        let mut one = process(7, 0, 3);
        one.report.queue_pairs = 1;
        one.report.totals.completions.set(Status::Flushed, 1, 2);
        let level = Level::new(1, 2, 4);
        one.report.completion_queues.push(QueueStats { id: 5, level, overrun: true });
        one.report.rows.push(QpStats {
            qpn: Qpn::new(0x01_0203),
            engine: 0,
            service: Service::Rc,
            state: ferroce::State::Rts,
            path: None,
            peer: None,
            from: None,
            completion_queues: (5, 5),
            shared_queue: None,
            send_queue: level,
            receive_queue: Level::new(3, 3, 8),
            work: one.report.totals,
        });
        let mut ledger = Ledger::default();
        ledger.enter(&look(vec![process(6, 0, 40), one.clone()]));
        let look = look(vec![one]);
        ledger.enter(&look);
        (ledger, look)
    }

    #[test]
    fn every_counter_has_a_name_here() {
        let names: Vec<_> = WorkStats::default().counts().map(|(name, _)| name).collect();
        assert_eq!(names, COUNTS.map(|(count, ..)| count));
        let statuses: HashSet<_> = Status::ALL.map(status_name).into_iter().collect();
        assert_eq!(statuses.len(), Status::ALL.len());
    }

    #[test]
    fn samples_carry_their_labels_and_sums_those_that_ended() {
        let (ledger, look) = scene();
        let text = text(&ledger, &look, false);
        let here = "pid=\"7\",program=\"a \\\"program\\\"\",interface=\"lo\",address=\"127.0.0.1\"";
        for line in [
            "ferroce_processes 1".to_owned(),
            "ferroce_processes_ended_total 1".to_owned(),
            "# TYPE ferroce_sends_posted_total counter".to_owned(),
            format!("ferroce_sends_posted_total{{{here}}} 3"),
            "ferroce_sends_posted_total{pid=\"ended\",program=\"\",interface=\"lo\",address=\"127.0.0.1\"} 40".to_owned(),
            format!("ferroce_completions_total{{{here},queue=\"send\",status=\"flushed\"}} 1"),
            format!("ferroce_completions_total{{{here},queue=\"receive\",status=\"success\"}} 0"),
            format!("ferroce_refused_total{{{here},reason=\"strays\"}} 6"),
            format!("ferroce_qp_sends_posted_total{{{here},qpn=\"0x010203\",type=\"RC\"}} 3"),
            "# TYPE ferroce_queue_entries gauge".to_owned(),
            format!("ferroce_queue_entries{{{here},queue=\"receive\",number=\"0x010203\"}} 3"),
            format!("ferroce_queue_entries_most{{{here},queue=\"completion\",number=\"5\"}} 2"),
            format!("ferroce_queue_overrun{{{here},queue=\"completion\",number=\"5\"}} 1"),
        ] {
            assert!(text.lines().any(|told| told == line), "{line}\n{text}");
        }
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let series: HashSet<_> = samples.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(series.len(), samples.len(), "no series is told twice");
    }

    #[test]
    fn totals_do_not_grow_with_queue_pairs() {
        let (ledger, look) = scene();
        let text = text(&ledger, &look, true);
        assert!(text.contains("ferroce_completions_total") && !text.contains("qpn="), "{text}");
        assert!(!text.contains("ferroce_queue_entries"), "{text}");
    }

    #[test]
    fn a_program_cannot_write_series_by_its_name() {
        assert_eq!(escaped("a\"} 1\nb\\"), "a\\\"} 1\\nb\\\\");
    }

    #[test]
    fn without_processes_there_is_still_an_answer() {
        let text = text(&Ledger::default(), &look(Vec::new()), false);
        assert!(text.contains("\nferroce_processes 0\n"), "{text}");
        assert!(!text.contains("ferroce_sends_posted_total"), "{text}");
    }
}
