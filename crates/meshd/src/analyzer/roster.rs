//! Which RNICs there are, from the controller.

use super::Shared;
use crate::backoff::Backoff;
use crate::client::Round;
use crate::proto::v1;
use crate::proto::v1::mesh_client::MeshClient;
use crate::{client, clock};

/// Bytes of a roster at most.
const ROSTER: usize = 64 << 20;

/// Follows the controller's roster, again and again.
pub(super) async fn follow(shared: &Shared) {
    // Few analyzers wait for one controller, so that any seed spreads them.
    let mut backoff = Backoff::new(shared.config.backoff, clock::unix_nanos());
    let mut round = Round::new(shared.config.controllers.clone());
    loop {
        let why = stream(shared, round.url(), &mut backoff).await.err().unwrap_or_default();
        shared.set_trouble(why);
        if round.pass() {
            tokio::time::sleep(backoff.wait()).await;
        }
    }
}

async fn stream(shared: &Shared, url: &str, backoff: &mut Backoff) -> Result<(), String> {
    let said = |status: tonic::Status| client::said("controller", &status);
    let channel = client::connect(url, shared.credentials.as_ref(), None).await;
    let channel = channel.map_err(|trouble| trouble.told("controller", url))?;
    let mut client = MeshClient::new(channel).max_decoding_message_size(ROSTER);
    let request = v1::RosterRequest { analyzer: shared.url.clone(), term: shared.term() };
    let begun = tokio::time::timeout(client::PATIENCE, client.roster(request)).await;
    let late = |_| "the controller does not answer in time".to_owned();
    let mut states = begun.map_err(late)?.map_err(said)?.into_inner();
    while let Some(state) = states.message().await.map_err(said)? {
        backoff.worked();
        shared.set_trouble(String::new());
        shared.assembly().roster(&state, clock::unix_nanos());
    }
    Err("the controller ended the stream of rosters".to_owned())
}
