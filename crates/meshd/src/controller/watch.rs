//! Streams of what agents and analyzers are told: everything first, then what is new.

use std::sync::Arc;
use std::time::Duration;

use ferroce_mesh::controller::{Registration, Target};
use ferroce_probe::net::QKEY;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Shared;
use super::desk::Lists;
use crate::clock;
use crate::proto::v1;

/// A stream that takes nothing for so long has no reader at its other end.
const STUCK: Duration = Duration::from_secs(30);

/// How often it is looked whether a lease is over, or another hour has come.
const LOOK: Duration = Duration::from_secs(10);

/// A place for a stream.
pub(super) fn place(shared: &Shared) -> Result<OwnedSemaphorePermit, Status> {
    let place = Arc::clone(&shared.watches).try_acquire_owned();
    shared.at_desk(|desk| {
        let counters = &mut desk.counters;
        *(if place.is_ok() { &mut counters.watches } else { &mut counters.watches_refused }) += 1;
    });
    place.map_err(|_| {
        let most = shared.config.watches;
        Status::resource_exhausted(format!("there are {most} streams, and may not be more; try later"))
    })
}

/// What the RNICs of an agent probe.
pub(super) fn pinglists(
    shared: Arc<Shared>,
    place: OwnedSemaphorePermit,
    agent: String,
    epoch: u64,
    watch: u64,
) -> ReceiverStream<Result<v1::Pinglist, Status>> {
    let (to, from) = mpsc::channel(1);
    tokio::spawn(async move {
        let _place = place;
        let mut news = shared.news.subscribe();
        let mut before: Option<Lists> = None;
        let mut told = String::new();
        loop {
            news.borrow_and_update();
            let hour = clock::unix_nanos() / 3_600_000_000_000;
            let now = clock::now();
            let lists = shared.at_desk(|desk| {
                let (lists, version) = desk.lists(&agent, epoch, watch, now, hour)?;
                Some((lists, version, version != desk.rnic_version(), desk.analyzer().to_owned()))
            });
            let Some((lists, version, is_old, analyzer)) = lists else {
                let over = shared.leads().err().unwrap_or_else(|| {
                    Status::not_found("the lease is over, or a newer stream has taken its place; register")
                });
                let _ = to.send_timeout(Err(over), STUCK).await;
                return;
            };
            let message = difference(before.as_ref(), &lists, version, &analyzer);
            let is_new = message.whole || !message.set.is_empty() || !message.removed.is_empty();
            if (is_new || analyzer != told) && !send(&shared, &to, message).await {
                return;
            }
            (before, told) = (Some(lists), analyzer);
            if !changed(&shared, &mut news, &to, is_old).await {
                return;
            }
        }
    });
    ReceiverStream::new(from)
}

/// All RNICs.
pub(super) fn rosters(
    shared: Arc<Shared>,
    place: OwnedSemaphorePermit,
) -> ReceiverStream<Result<v1::RosterState, Status>> {
    let (to, from) = mpsc::channel(1);
    tokio::spawn(async move {
        let _place = place;
        let mut news = shared.news.subscribe();
        let mut told = None;
        loop {
            news.borrow_and_update();
            let (version, agents) = shared.desk().agents();
            // What is on a desk that was cleared is not told.
            if let Err(stands_by) = shared.leads() {
                let _ = to.send_timeout(Err(stands_by), STUCK).await;
                return;
            }
            if told != Some(version) {
                let members = agents.iter().flat_map(members).collect();
                let window_ms = clock::millis(shared.config.window);
                if !send(&shared, &to, v1::RosterState { version, members, window_ms }).await {
                    return;
                }
                told = Some(version);
            }
            if !changed(&shared, &mut news, &to, false).await {
                return;
            }
        }
    });
    ReceiverStream::new(from)
}

async fn send<T>(shared: &Shared, to: &mpsc::Sender<Result<T, Status>>, message: T) -> bool {
    shared.desk().counters.lists_sent += 1;
    to.send_timeout(Ok(message), STUCK).await.is_ok()
}

/// Waits until there may be something to say, which there is already if what was said is old; false if the other end
/// is gone.
async fn changed<T>(
    shared: &Shared,
    news: &mut tokio::sync::watch::Receiver<u64>,
    to: &mpsc::Sender<Result<T, Status>>,
    is_old: bool,
) -> bool {
    let look = LOOK.min(shared.config.registry.lease);
    tokio::select! {
        () = to.closed() => return false,
        _ = tokio::time::timeout(look, news.changed()), if !is_old => {}
        () = std::future::ready(()), if is_old => {}
    }
    tokio::select! {
        () = to.closed() => false,
        () = tokio::time::sleep(shared.config.settle) => true,
    }
}

fn difference(before: Option<&Lists>, lists: &Lists, version: u64, analyzer: &str) -> v1::Pinglist {
    let mut message = v1::Pinglist {
        version,
        whole: before.is_none(),
        analyzer: analyzer.to_owned(),
        ..v1::Pinglist::default()
    };
    let nothing = ferroce_mesh::controller::Pinglist::default();
    for (from, list) in lists {
        let old = before.and_then(|before| before.get(from)).unwrap_or(&nothing);
        let delta = list.since(old);
        let from = from.to_string();
        message.set.extend(delta.set.iter().map(|target| target_message(&from, target)));
        let gone = |to: std::net::IpAddr| v1::Pair { from: from.clone(), to: to.to_string() };
        message.removed.extend(delta.removed.into_iter().map(gone));
    }
    for (from, list) in before.into_iter().flatten().filter(|(from, _)| !lists.contains_key(from)) {
        let gone = |target: &Target| v1::Pair { from: from.to_string(), to: target.rnic.address.to_string() };
        message.removed.extend(list.targets().map(gone));
    }
    message
}

fn target_message(from: &str, target: &Target) -> v1::Target {
    v1::Target {
        from: from.to_owned(),
        to: target.rnic.address.to_string(),
        qpn: target.rnic.qpn,
        qkey: QKEY.0,
        interval_ns: clock::nanos(target.interval),
        ports: target.ports.iter().map(|port| u32::from(*port)).collect(),
        answer_ports: target.answer_ports.iter().map(|port| u32::from(*port)).collect(),
    }
}

fn members(agent: &Registration) -> impl Iterator<Item = v1::Member> {
    agent.rnics.iter().map(|rnic| v1::Member {
        agent: agent.agent.clone(),
        host: rnic.host.clone(),
        rnic: Some(v1::Rnic {
            address: rnic.address.to_string(),
            gid: String::new(),
            qpn: rnic.qpn,
            qkey: QKEY.0,
            tor: rnic.tor.clone(),
            device: rnic.device.clone(),
        }),
    })
}
