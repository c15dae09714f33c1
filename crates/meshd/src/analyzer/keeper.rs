//! Keeps what is new in the file, soon: what is acknowledged to an agent is kept.

use std::error::Error;
use std::time::Duration;

use super::Shared;
use crate::clock;
use crate::store::Store;

/// How long news are gathered: one write keeps those of many agents.
pub(super) const GATHER: Duration = Duration::from_millis(50);

/// How long to wait before it is tried again to keep what could not be kept.
const AGAIN: Duration = Duration::from_secs(1);

/// Keeps what is new, again and again.
pub(super) async fn keep(shared: &Shared, mut store: Store) {
    loop {
        shared.news.notified().await;
        tokio::time::sleep(GATHER).await;
        let (news, generation) = shared.assembly().unkept();
        let saving = tokio::task::spawn_blocking(move || {
            let saved = store.save(&news, clock::unix_nanos());
            (store, news, saved)
        });
        // It ends early only if it panics, and has said why; agents then keep what they have.
        let Ok((back, news, saved)) = saving.await else { return };
        store = back;
        match saved {
            Ok(()) => {
                shared.assembly().kept(&news, generation);
                shared.kept.send_replace(generation);
                shared.set_store_trouble(String::new());
                shared.ring();
            }
            Err(error) => {
                let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
                shared.set_store_trouble(format!("{error}{source}"));
                shared.assembly().not_kept(news);
                shared.ring();
                shared.news.notify_one();
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
