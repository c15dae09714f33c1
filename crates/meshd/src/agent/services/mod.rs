//! What services of this host do: asked of their processes, beside the probing.

mod book;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_probe::Stamp;
use ferroce_verbs::processes::{Told, stats};

use self::book::{Book, Seen, borrow, peers};
use super::state::Shared;
use crate::controller::LOCATED;
use crate::proto::v1;
use crate::proto::v1::mesh_client::MeshClient;
use crate::window::{address, bytes};
use crate::{client, clock};

/// How often processes are asked, but twice in each window.
const LOOK: Duration = Duration::from_secs(2);

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(200);

/// How often the controller is asked for an RNIC that is in no list of ours.
const LOCATE: Duration = Duration::from_secs(5);

/// Runs until it is dropped.
pub(super) async fn run(shared: &Shared) {
    let own: Vec<IpAddr> = shared.rnics.iter().map(|rnic| rnic.address.to_canonical()).collect();
    let (mut book, mut peers) = (Book::default(), Peers::default());
    loop {
        let window = Duration::from_nanos(*shared.window.borrow());
        let wait = if window.is_zero() { LOOK } else { (window / 2).clamp(SHORTEST, LOOK) };
        tokio::time::sleep(wait).await;
        if shared.is_stopped() {
            continue;
        }
        // A process that is silent keeps this waiting for seconds, and nothing else.
        let Ok(told) = tokio::task::spawn_blocking(|| stats(&[])).await else { continue };
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                shared.change(|state| state.services_trouble = error.to_string());
                continue;
            }
        };
        peers.find(shared, &own, &told).await;
        let seen = book.look(&told, &own, |address| peers.responder(shared, address).is_some());
        take(shared, &own, &peers, seen);
    }
}

/// Tells the window what was seen, and probes the same ways.
fn take(shared: &Shared, own: &[IpAddr], peers: &Peers, seen: Seen) {
    let of_rnic = |from: &IpAddr| borrow(&seen.flows, *from, |address| peers.responder(shared, address));
    let all: Vec<_> = own.iter().map(of_rnic).collect();
    let borrowed = all.iter().flat_map(|wanted| wanted.values()).map(|pair| pair.ports.len()).sum();
    shared.borrow_ports(all);
    shared.change(|state| {
        (state.services, state.borrowed) = (seen.flows.len(), borrowed);
        state.services_left_out = seen.left_out;
        state.services_trouble.clear();
    });
    shared.tally().serve(seen.flows, seen.left_out);
}

/// The responders of RNICs that services talk to.
#[derive(Debug, Default)]
struct Peers {
    /// Those that are in no list of ours, as the controller told them.
    located: HashMap<IpAddr, u32>,
    asked: Option<Stamp>,
    /// Those that it was asked for.
    wanted: BTreeSet<IpAddr>,
}

impl Peers {
    /// The queue pair of the responder of an RNIC; none if it is no RNIC of the mesh.
    fn responder(&self, shared: &Shared, address: IpAddr) -> Option<u32> {
        shared.target(address).or_else(|| self.located.get(&address).copied())
    }

    /// Asks the controller for RNICs that are not known; without services, it is never asked.
    async fn find(&mut self, shared: &Shared, own: &[IpAddr], told: &[Told]) {
        let mut unknown: BTreeSet<IpAddr> = peers(told, own);
        unknown.retain(|address| shared.target(*address).is_none());
        while unknown.len() > LOCATED {
            unknown.pop_last();
        }
        let is_due = self.asked.is_none_or(|asked| clock::now() >= asked.plus(LOCATE));
        if unknown.is_empty() || !is_due && unknown.is_subset(&self.wanted) {
            return;
        }
        (self.asked, self.wanted) = (Some(clock::now()), unknown);
        // Where the controller is away, what it said before holds.
        if let Some(located) = locate(shared, &self.wanted).await {
            self.located = located;
        }
    }
}

async fn locate(shared: &Shared, addresses: &BTreeSet<IpAddr>) -> Option<HashMap<IpAddr, u32>> {
    let config = &shared.config;
    let url = shared.controller.borrow().clone();
    let channel = client::connect(&url, config.credentials.as_ref(), None).await.ok()?;
    let addresses = addresses.iter().map(|address| bytes(*address)).collect();
    let request = v1::LocateRequest { agent: config.name.clone(), addresses };
    let mut client = MeshClient::new(channel);
    let reply = tokio::time::timeout(client::PATIENCE, client.locate(request)).await.ok()?.ok()?;
    let found = |one: &v1::Located| {
        let is_responder = (2..1 << 24).contains(&one.qpn);
        is_responder.then(|| Some((address(&one.address).ok()?, one.qpn))).flatten()
    };
    Some(reply.into_inner().rnics.iter().take(LOCATED).filter_map(found).collect())
}
