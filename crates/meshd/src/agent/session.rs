//! The agent's talk with the controller: it registers, keeps its lease, and hears what to probe.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_probe::net::QKEY;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::schedule::{PAIRS, Pair};
use super::state::Shared;
use super::{report, services};
use crate::backoff::Backoff;
use crate::client::Round;
use crate::proto::v1;
use crate::proto::v1::mesh_client::MeshClient;
use crate::{client, clock};

/// Ports of a pair at most.
const PORTS: usize = ferroce_mesh::controller::ports::MOST;

/// The shortest lease and the shortest window that are believed.
const LEAST: Duration = Duration::from_millis(50);

/// A thread that wakes so much later than it wanted stood still.
const STALL: Duration = Duration::from_millis(50);

/// Between two controllers, an agent waits this long at most.
const NEXT: Duration = Duration::from_millis(200);

/// While the analyzer is not known, a lease is asked for again as if it were this long.
const NO_ANALYZER: Duration = Duration::from_secs(3);

/// Windows at most that are told one by one after the host stood still.
const MISSED: u64 = 16;

/// Runs until it is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    tokio::join!(talk(&shared), close_windows(&shared), report::run(&shared), services::run(&shared));
}

/// Registers, and again and again when that is over.
async fn talk(shared: &Shared) {
    let mut backoff = Backoff::new(shared.config.backoff, shared.seed);
    let mut epoch = shared.outbox.look(|outbox| outbox.epoch());
    let mut round = Round::new(shared.config.controllers.clone());
    loop {
        shared.controller.send_replace(round.url().to_owned());
        let why = match life(shared, round.url(), &mut epoch, &mut backoff).await {
            Ok(End::Anew) => continue,
            Err(why) => why,
        };
        shared.change(|state| {
            state.is_registered = false;
            state.controller_trouble = why;
        });
        // Another controller may have taken over already; not all agents ask it at once.
        let wait = if round.pass() { backoff.wait() } else { backoff.draw(NEXT) };
        tokio::time::sleep(wait).await;
    }
}

/// Why a lease is over without anything being wrong.
enum End {
    /// A queue pair is another one, or the clock was set back: another life begins at once.
    Anew,
}

/// From a registration to the end of the lease.
async fn life(shared: &Shared, url: &str, epoch: &mut u64, backoff: &mut Backoff) -> Result<End, String> {
    let channel = client::connect(url, shared.config.credentials.as_ref(), None).await;
    let channel = channel.map_err(|trouble| trouble.told("controller", url))?;
    let mut client = MeshClient::new(channel).max_decoding_message_size(16 << 20);
    let mut qpns = shared.qpns.subscribe();
    let registration = registration(shared, &qpns.borrow_and_update(), *epoch);
    let lease = match limited(client.register(registration)).await {
        Ok(lease) => lease.into_inner(),
        Err(status) => {
            if let Some(known) = known_epoch(&status) {
                *epoch = next_epoch(known);
            }
            return Err(format!("the controller refuses the agent: {}", status.message()));
        }
    };
    let lease_time = take_lease(shared, &lease);
    let request = v1::WatchRequest { agent: shared.config.name.clone(), epoch: *epoch };
    let mut lists = limited(client.watch(request)).await.map_err(|status| said(&status))?.into_inner();
    backoff.worked();
    shared.change(|state| {
        state.is_registered = true;
        state.controller_trouble.clear();
    });
    let mut renewal_due = Box::pin(tokio::time::sleep(renewal(shared, lease_time, backoff)));
    loop {
        tokio::select! {
            list = lists.message() => take_list(shared, list)?,
            _ = qpns.changed() => {
                *epoch = next_epoch(*epoch);
                shared.outbox.change(|outbox| outbox.begin(*epoch));
                return Ok(End::Anew);
            }
            () = &mut renewal_due => {
                let lease_time = renew(shared, &mut client, *epoch).await?;
                renewal_due.set(tokio::time::sleep(renewal(shared, lease_time, backoff)));
            }
        }
    }
}

async fn renew(shared: &Shared, client: &mut MeshClient<Channel>, epoch: u64) -> Result<Duration, String> {
    let request = v1::RenewRequest { agent: shared.config.name.clone(), epoch };
    let lease = limited(client.renew(request)).await.map_err(|status| said(&status))?;
    Ok(take_lease(shared, &lease.into_inner()))
}

/// A question that is answered at once, or not at all.
async fn limited<T>(question: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Err(Status::deadline_exceeded("it takes too long to answer"));
    tokio::time::timeout(client::PATIENCE, question).await.unwrap_or_else(late)
}

fn said(status: &Status) -> String {
    client::said("controller", status)
}

/// The life that is known, of an agent that is told that its own is over.
fn known_epoch(status: &Status) -> Option<u64> {
    let known = status.metadata().get("known-epoch")?.to_str().ok()?.parse().ok();
    known.filter(|_| status.code() == Code::FailedPrecondition)
}

/// A life after this one, which is also later than all lives of before, if the clock is right.
fn next_epoch(epoch: u64) -> u64 {
    clock::unix_nanos().max(epoch.saturating_add(1))
}

/// The next renewal is in the second third of a lease, not at the same time for all agents; sooner if it is not known
/// yet where the analyzer is.
fn renewal(shared: &Shared, lease: Duration, backoff: &mut Backoff) -> Duration {
    let lease = if shared.analyzer.borrow().is_empty() { lease.min(NO_ANALYZER) } else { lease };
    lease / 3 + backoff.draw(lease / 3)
}

fn take_lease(shared: &Shared, lease: &v1::Lease) -> Duration {
    take_analyzer(shared, &lease.analyzer);
    let window = clock::nanos(Duration::from_millis(lease.window_ms).max(LEAST));
    shared.window.send_if_modified(|known| std::mem::replace(known, window) != window);
    Duration::from_millis(lease.lease_ms).max(LEAST)
}

/// Windows go there from now on. A controller that has just begun does not know it yet: the one before it did.
fn take_analyzer(shared: &Shared, url: &str) {
    if let Ok(url) = client::normal(url, shared.config.credentials.as_ref()) {
        shared.analyzer.send_if_modified(|known| {
            let is_new = *known != url;
            *known = url;
            is_new
        });
    }
}

fn registration(shared: &Shared, qpns: &[u32], epoch: u64) -> v1::RegisterRequest {
    let rnic = |(rnic, qpn): (&super::AgentRnic, &u32)| v1::Rnic {
        address: rnic.address.to_string(),
        gid: String::new(),
        qpn: *qpn,
        qkey: QKEY.0,
        tor: rnic.tor.clone(),
        device: rnic.device.clone(),
    };
    v1::RegisterRequest {
        agent: shared.config.name.clone(),
        epoch,
        host: shared.config.host.clone(),
        rnics: shared.rnics.iter().zip(qpns).map(rnic).collect(),
    }
}

/// What the stream of pinglists says.
fn take_list(shared: &Shared, list: Result<Option<v1::Pinglist>, Status>) -> Result<(), String> {
    let list = list.map_err(|status| said(&status))?;
    let list = list.ok_or_else(|| "the controller ended the stream of pinglists".to_owned())?;
    take_analyzer(shared, &list.analyzer);
    shared.want(|all| {
        if list.whole {
            all.values_mut().for_each(|wanted| wanted.clear());
        }
        for pair in &list.removed {
            let Some((from, to)) = self::pair(&pair.from, &pair.to) else { continue };
            if let Some(wanted) = all.get_mut(&from) {
                wanted.remove(&to);
            }
        }
        for target in &list.set {
            let Some((from, to)) = pair(&target.from, &target.to) else { continue };
            let Some(wanted) = all.get_mut(&from).filter(|wanted| wanted.len() < PAIRS) else { continue };
            let ports = ports(&target.ports);
            let answer_ports = self::ports(&target.answer_ports);
            // Packets with another key would reach nothing, and some queue pairs are no responder's.
            if target.qkey == QKEY.0 && (2..1 << 24).contains(&target.qpn) && from != to {
                let interval = Duration::from_nanos(target.interval_ns);
                wanted.insert(to, Pair { qpn: target.qpn, interval, ports, answer_ports });
            }
        }
    });
    Ok(())
}

/// Those that are ports.
fn ports(told: &[u32]) -> Vec<u16> {
    let ports = told.iter().filter_map(|port| u16::try_from(*port).ok()).take(PORTS);
    ports.filter(|port| *port != 0).collect()
}

fn pair(from: &str, to: &str) -> Option<(IpAddr, IpAddr)> {
    Some((from.parse().ok()?, to.parse::<IpAddr>().ok()?.to_canonical()))
}

/// Closes a window whenever the clock of the wall shows a multiple of its length.
async fn close_windows(shared: &Shared) {
    let mut window = shared.window.subscribe();
    loop {
        let length = *window.borrow_and_update();
        if length == 0 {
            let _ = window.changed().await;
            continue;
        }
        let (now, before) = (clock::unix_nanos(), clock::now());
        let rest = Duration::from_nanos(length - now % length);
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = window.changed() => continue,
        }
        let late = clock::now().since(before).saturating_sub(rest);
        for end in ends(clock::unix_nanos(), length, now - now % length, late) {
            if late >= STALL {
                // Nothing in here ran: this explains what others miss of each window that has passed
                // meanwhile.
                shared.stalled(late);
            }
            if !shared.is_stopped() {
                shared.close_window(end);
            }
        }
    }
}

/// When windows end that are over now, after one that ended then: the last, and those before it that were
/// slept through by so much. None if the thread woke a little too early.
fn ends(now: u64, length: u64, before: u64, late: Duration) -> impl Iterator<Item = u64> {
    let last = now - now % length;
    let over = last.saturating_sub(before) / length;
    let missed = if late < STALL { 0 } else { (clock::nanos(late) / length + 1).min(MISSED) };
    let count = over.min(missed + 1);
    (0..count).rev().map(move |number| last - number * length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_stood_still_tells_each_window_that_it_slept_through() {
        let all = |now, late| ends(now, 100, 1000, Duration::from_nanos(late)).collect::<Vec<_>>();
        let stall = clock::nanos(STALL);
        assert!(all(1099, 0).is_empty(), "too early");
        assert_eq!(all(1100, 0), [1100]);
        assert_eq!(all(1199, 99), [1100]);
        // The clock of the wall was set forward: nothing was slept through.
        assert_eq!(all(9000, 0), [9000]);
        let all = |now, late| ends(now, stall, 10 * stall, Duration::from_nanos(late)).collect::<Vec<_>>();
        assert_eq!(all(13 * stall + 1, 2 * stall), [11 * stall, 12 * stall, 13 * stall]);
        assert_eq!(all(1000 * stall, 990 * stall).len(), 17);
        assert!(all(9 * stall, 2 * stall).is_empty(), "it was set back");
    }
}
