//! The victim's listener: it accepts one request, or lets it wait.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferroce_device::cm::{Acceptor, ConnectionManager, Inquiry, Watcher};
use ferroce_device::now;
use ferroce_transport::cm::{Accept, Event, Patience, Request};
use ferroce_wire::Qpn;
use ferroce_wire::mad::{CommId, Rep};

/// Takes what comes.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The queue pair to accept with; without one, requests wait.
    pub(crate) accepts_with: Option<Qpn>,
    /// The name of the first request.
    pub(crate) first: OnceLock<CommId>,
}

impl Acceptor for Listener {
    fn requested(&self, manager: &ConnectionManager, request: Box<Request>) -> Arc<dyn Watcher> {
        if let Some(local_qpn) = self.accepts_with {
            let wait = Duration::from_secs(60);
            let patience = Patience {
                response: wait,
                retries: 15,
                deadline: now() + wait,
                time_wait: wait,
                tell_end: false,
                watched: false,
            };
            // If the peer has given up, no connection comes to stand, and that is found.
            let _ =
                manager.accept(request.id, &Accept { rep: Rep { local_qpn, ..Rep::default() }, patience });
        }
        let _ = self.first.set(request.id);
        Arc::new(Quiet)
    }
}

/// Hears everything and does nothing.
///
/// It cannot ask its peer, as a UC connection cannot: each claim is doubted and refuted at once. An RC
/// connection would ask once in a round trip, however many claims come meanwhile.
#[derive(Debug)]
struct Quiet;

impl Watcher for Quiet {
    fn happened(&self, _: &ConnectionManager, _: CommId, _: Event) {}

    fn unreachable(&self, _: io::Error) {}

    fn has_data(&self) -> bool {
        false
    }

    fn ask(&self) -> Inquiry {
        Inquiry::Cannot
    }

    fn signs_of_life(&self) -> u64 {
        0
    }
}
