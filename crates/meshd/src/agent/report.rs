//! The agent's talk with the analyzer: windows in order, and after a break those that are not settled.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::state::Shared;
use crate::backoff::Backoff;
use crate::ledger::Mark;
use crate::proto::v1;
use crate::proto::v1::analysis_client::AnalysisClient;
use crate::proto::v1::report_request::What;
use crate::spread::report_delay;
use crate::{client, clock};

/// A window that is not settled after so long: the stream is broken.
const STUCK: Duration = Duration::from_secs(20);

/// When the analyzer has moved, agents come to its new place within this time.
const MOVED: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub(super) async fn run(shared: &Shared) {
    let mut backoff = Backoff::new(shared.config.backoff, !shared.seed);
    let mut analyzer = shared.analyzer.subscribe();
    loop {
        let url = analyzer.borrow_and_update().clone();
        if url.is_empty() {
            let _ = analyzer.changed().await;
            continue;
        }
        let end = tokio::select! {
            end = stream(shared, &url, &mut backoff) => end,
            _ = analyzer.changed() => Ok(()),
        };
        shared.change(|state| {
            state.is_reporting = false;
            state.analyzer_trouble = end.err().unwrap_or_default();
        });
        tokio::select! {
            () = tokio::time::sleep(backoff.wait()) => {}
            // It is elsewhere now: there is no use in waiting for what was.
            _ = analyzer.changed() => {
                analyzer.mark_changed();
                tokio::time::sleep(backoff.draw(MOVED)).await;
            }
        }
    }
}

/// One stream, until it breaks.
async fn stream(shared: &Shared, url: &str, backoff: &mut Backoff) -> Result<(), String> {
    let said = |status: tonic::Status| client::said("analyzer", &status);
    let channel = client::connect(url, shared.config.credentials.as_ref(), None).await;
    let channel = channel.map_err(|trouble| trouble.told("analyzer", url))?;
    let (to, from) = mpsc::channel(1);
    let epoch = shared.outbox.look(|outbox| outbox.epoch());
    let hello = v1::Hello { agent: shared.config.name.clone(), epoch };
    let hello = v1::ReportRequest { what: Some(What::Hello(hello)) };
    to.send(hello).await.map_err(|_| String::new())?;
    let mut client = AnalysisClient::new(channel);
    let begun = tokio::time::timeout(STUCK, client.report(ReceiverStream::new(from))).await;
    let late = |_| "the analyzer does not answer in time".to_owned();
    let mut replies = begun.map_err(late)?.map_err(said)?.into_inner();
    let mut cursor: Option<Mark> = None;
    loop {
        let next = cursor.and_then(|cursor| {
            shared
                .outbox
                .look(|outbox| outbox.after(cursor).map(|(mark, window)| (mark, window.to_message(mark))))
        });
        let wait = next.as_ref().map_or(Duration::ZERO, |(_, window)| wait(shared, window.end_unix_ns));
        let is_owed = cursor.is_none_or(|cursor| {
            shared
                .outbox
                .look(|outbox| outbox.after(Mark::default()).is_some_and(|(first, _)| first <= cursor))
        });
        tokio::select! {
            reply = replies.message() => {
                let reply = reply.map_err(said)?.ok_or("the analyzer ended the stream")?;
                let settled = Mark { epoch: reply.epoch, number: reply.number };
                take(shared, &reply, settled, cursor.is_none());
                if cursor.is_none() {
                    backoff.worked();
                    shared.change(|state| {
                        state.is_reporting = true;
                        state.analyzer_trouble.clear();
                    });
                    cursor = Some(settled);
                }
            }
            place = to.reserve(), if next.is_some() && wait.is_zero() => {
                let place = place.map_err(|_| "the analyzer ended the stream")?;
                if let Some((mark, window)) = next {
                    place.send(v1::ReportRequest { what: Some(What::Window(window)) });
                    cursor = Some(mark);
                }
            }
            () = shared.pushed.notified(), if next.is_none() || !wait.is_zero() => {}
            () = tokio::time::sleep(wait), if !wait.is_zero() => {}
            () = tokio::time::sleep(STUCK), if is_owed => {
                return Err("the analyzer settles no windows".to_owned());
            }
        }
    }
}

/// How long a window waits before it is told, so that not all agents tell theirs at once. One that ends waits no more.
fn wait(shared: &Shared, end: u64) -> Duration {
    if shared.is_stopped() {
        return Duration::ZERO;
    }
    let window = Duration::from_nanos(*shared.window.borrow());
    let delay = report_delay(&shared.config.name, window);
    let due = end.saturating_add(clock::nanos(delay));
    Duration::from_nanos(due.saturating_sub(clock::unix_nanos())).min(delay)
}

fn take(shared: &Shared, reply: &v1::ReportReply, settled: Mark, is_first: bool) {
    if !reply.refusal.is_empty() {
        shared.change(|state| {
            state.refused += 1;
            state.refusal.clone_from(&reply.refusal);
        });
    }
    shared.outbox.change(|outbox| {
        if is_first && settled.epoch > outbox.epoch() {
            // Our clock was set back since an earlier life: all that waits would be taken for replays.
            outbox.begin_anew(settled.epoch.saturating_add(1));
        } else {
            outbox.settle(settled);
        }
    });
}
