//! The agent: answers probes, probes what it is told to, and reports windows.
//!
//! Threads, for each RNIC: one answers probes, one sends them and counts how they end. One more, for all, talks to
//! the controller and to the analyzer. What breaks is begun again, with longer and longer waits; probing goes on
//! meanwhile, with what was to be probed last.

mod probing;
mod report;
mod schedule;
mod services;
mod session;
mod state;
mod tally;
mod tracing;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ferroce_mesh::agent::TracePlanConfig;
use ferroce_probe::net::{ProbeEndError, ProberEnd, ResponderEnd};
use ferroce_probe::{ProberConfig, ResponderConfig};
use ferroce_verbs::Context;
use thiserror::Error;

use self::state::Shared;
use crate::backoff::BackoffConfig;
use crate::client::{self, UrlError};
use crate::clock;
use crate::service::Service;
use crate::tls::Credentials;

pub use self::state::AgentState;

/// A card that an agent probes with.
#[derive(Clone, Debug)]
pub struct AgentRnic {
    /// The card.
    pub context: Context,
    /// Its address.
    pub address: IpAddr,
    /// The ToR that it hangs on.
    pub tor: String,
    /// Its name in the host.
    pub device: String,
}

/// What an agent is.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its name, which no other agent has.
    pub name: String,
    /// The host.
    pub host: String,
    /// Where controllers are: one of them leads, and the others stand by.
    pub controllers: Vec<String>,
    /// What it shows of itself; without it, the controller and the analyzer are on this machine.
    pub credentials: Option<Credentials>,
    /// Windows that are kept until the analyzer has them; the oldest make room.
    pub queue: usize,
    /// Probes of one RNIC in a second at most, whatever the controller says.
    pub rate: u32,
    /// How long to wait before what failed is tried again.
    pub backoff: BackoffConfig,
    /// How probes are sent.
    pub prober: ProberConfig,
    /// How probes are answered.
    pub responder: ResponderConfig,
    /// How often paths are traced.
    pub traces: TracePlanConfig,
}

impl AgentConfig {
    /// The usual agent of this name, on this host, with this controller.
    #[must_use]
    pub fn new(name: &str, host: &str, controller: &str) -> Self {
        Self {
            name: name.to_owned(),
            host: host.to_owned(),
            controllers: vec![controller.to_owned()],
            credentials: None,
            queue: 180,
            rate: 1000,
            backoff: BackoffConfig::default(),
            prober: ProberConfig::default(),
            responder: ResponderConfig::default(),
            traces: TracePlanConfig::default(),
        }
    }
}

/// Why an agent does not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// It has nothing to probe with.
    #[error("an agent needs an RNIC to probe with")]
    NoRnic,
    /// The address of a controller is none.
    #[error("it is not known where the controller is")]
    Controller(#[from] UrlError),
    /// Its certificate is another's.
    #[error("the certificate is for {}, so it cannot be agent {name}", carried.join(" and "))]
    Name {
        /// The name of the agent.
        name: String,
        /// Those that the certificate carries.
        carried: Vec<String>,
    },
    /// A card does not give what probes need.
    #[error("cannot probe at {address}")]
    Probe {
        /// The address of the card.
        address: IpAddr,
        /// Why.
        source: ProbeEndError,
    },
    /// The system gives no thread.
    #[error("cannot start the threads of the agent")]
    Thread(#[from] io::Error),
}

/// An agent that runs, until it is dropped.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    service: Service,
}

impl Agent {
    /// Begins to answer probes with these cards, and to look for the controller.
    ///
    /// # Errors
    /// A card does not give what it needs, or the controller's address is none. That the controller is not there
    /// is no error: it is looked for until it is.
    pub fn start(config: AgentConfig, rnics: Vec<AgentRnic>) -> Result<Self, AgentError> {
        let Some(first) = rnics.first() else { return Err(AgentError::NoRnic) };
        let controllers = client::all_normal(&config.controllers, config.credentials.as_ref())?;
        if let Some(credentials) = &config.credentials
            && !credentials.names().contains(&config.name)
        {
            return Err(AgentError::Name { name: config.name, carried: credentials.names().to_vec() });
        }
        let config = AgentConfig { controllers, ..config };
        let seed = u64::from_ne_bytes(first.context.random_bytes());
        let shared = Arc::new(Shared::new(config, rnics, clock::unix_nanos(), seed));
        let mut ends = Vec::new();
        for (place, rnic) in shared.rnics.iter().enumerate() {
            let AgentRnic { context, address, .. } = rnic;
            let wrong = |source| AgentError::Probe { address: *address, source };
            let responder =
                ResponderEnd::open(context, *address, None, shared.config.responder).map_err(wrong)?;
            let prober = ProberEnd::open(context, *address, shared.config.prober).map_err(wrong)?;
            shared.set_qpn(place, responder.qpn());
            ends.push((place, responder, prober));
        }
        let talks = Arc::clone(&shared);
        let service = Service::start("mesh agent", move || session::run(talks))?;
        let mut agent = Self { shared, threads: Vec::new(), service };
        for (place, responder, prober) in ends {
            let shared = Arc::clone(&agent.shared);
            agent.thread("mesh responder", move || probing::answer(&shared, place, responder))?;
            let shared = Arc::clone(&agent.shared);
            agent.thread("mesh prober", move || probing::probe(&shared, place, prober))?;
        }
        Ok(agent)
    }

    /// How it is.
    #[must_use]
    pub fn state(&self) -> AgentState {
        self.shared.state()
    }

    /// Sends no more probes, and waits until the analyzer has all windows, the last one too, but no longer than this.
    /// Probes that are under way are given up: no window tells of them.
    #[must_use = "it says whether windows were left behind"]
    pub fn stop(mut self, limit: Duration) -> AgentState {
        self.end_threads();
        self.shared.close_window(clock::unix_nanos());
        self.shared.outbox.wait(Some(limit), |outbox| (outbox.waiting() == 0).then_some(()));
        self.shared.state()
    }

    fn thread(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        self.threads.push(thread);
        Ok(())
    }

    fn end_threads(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A panic in there was printed by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end_threads();
        self.service.stop();
    }
}

#[cfg(test)]
mod tests {
    use ferroce_verbs::time::{now, park};

    use super::*;
    use crate::ledger::Mark;
    use crate::{Controller, ControllerConfig, Listener};

    #[test]
    fn another_queue_pair_of_a_responder_is_another_life_of_the_agent() {
        let listener = Listener::bind("127.0.144.11:0".parse().unwrap()).unwrap();
        let config = ControllerConfig { settle: Duration::from_millis(10), ..ControllerConfig::default() };
        let controller = Controller::start(listener, config).unwrap();
        let address: IpAddr = "127.0.144.12".parse().unwrap();
        let context = Context::builder("ferroce_lo").address(address).open().unwrap();
        let rnic = AgentRnic { context, address, tor: "t".to_owned(), device: "d".to_owned() };
        let config = AgentConfig::new("a", "h", &controller.address().to_string());
        let agent = Agent::start(config, vec![rnic]).unwrap();
        let limit = now() + Duration::from_secs(20);
        let registered = |times: u64| {
            while controller.counters().registered < times || !agent.state().is_registered {
                assert!(now() < limit, "still waiting for {times} registrations: {:?}", agent.state());
                park(Some(Duration::from_millis(5)));
            }
        };
        registered(1);
        let before = agent.shared.outbox.change(|outbox| outbox.push(crate::WindowReport::default()));
        agent.shared.set_qpn(0, 0x1234);
        registered(2);
        let after = agent.shared.outbox.change(|outbox| outbox.push(crate::WindowReport::default()));
        assert!(after > before && after.epoch > before.epoch && after.number == 1, "{before:?} {after:?}");
        assert_eq!(
            agent.shared.outbox.look(|outbox| outbox.after(Mark::default()).map(|(mark, _)| mark)),
            Some(before)
        );
        assert_eq!((controller.size(), controller.counters().old_epochs), ((1, 1), 0));
    }
}
