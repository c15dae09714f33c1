//! A controller, an analyzer with a page, and agents that probe each other.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce_mesh::controller::{PinglistConfig, RegistryConfig};
use ferroce_meshd::outlet::OutletsConfig;
use ferroce_meshd::{
    Agent, AgentConfig, AgentRnic, AnalyzerServer, AnalyzerServerConfig, BackoffConfig, Controller,
    ControllerConfig, Listener,
};
use ferroce_verbs::Context;

const BACKOFF: BackoffConfig =
    BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(400) };

pub struct Mesh {
    pub agents: Vec<Agent>,
    pub analyzer: AnalyzerServer,
    pub controller: Controller,
}

impl Mesh {
    /// Agents below these ToRs, with addresses from this one on; the one that is bad answers few probes.
    pub fn start(first: [u8; 4], tors: &[&str], bad: usize) -> Self {
        Self::with(first, tors, bad, OutletsConfig::default())
    }

    /// The same, and what leaves the analyzer.
    pub fn with(first: [u8; 4], tors: &[&str], bad: usize, outlets: OutletsConfig) -> Self {
        let config = ControllerConfig {
            registry: RegistryConfig { lease: Duration::from_secs(2), ..RegistryConfig::default() },
            pinglist: PinglistConfig {
                below: 50.0,
                between: 50.0,
                answered: 200.0,
                ..PinglistConfig::default()
            },
            window: Duration::from_millis(500),
            settle: Duration::from_millis(50),
            ..ControllerConfig::default()
        };
        let here = |more: u8| IpAddr::from([first[0], first[1], first[2], first[3] + more]);
        let controller = Controller::start(Listener::bind((here(0), 0).into()).unwrap(), config).unwrap();
        let config = AnalyzerServerConfig {
            backoff: BACKOFF,
            grace: Duration::from_secs(2),
            page: Some((here(1), 0).into()),
            outlets,
            ..AnalyzerServerConfig::new(&controller.address().to_string())
        };
        let analyzer = AnalyzerServer::start(Listener::bind((here(1), 0).into()).unwrap(), config).unwrap();
        let agents = (0_u8..).zip(tors).map(|(number, tor)| {
            let (name, address) = (format!("host{}", number + 1), here(2 + number));
            let context = Context::builder("ferroce_lo").address(address).open().unwrap();
            let mut config = AgentConfig {
                backoff: BACKOFF,
                ..AgentConfig::new(&name, &name, &controller.address().to_string())
            };
            config.prober.timeout = Duration::from_millis(100);
            config.prober.late = Duration::from_millis(200);
            if usize::from(number) == bad {
                (config.responder.rate, config.responder.burst) = (1, 1);
            }
            let rnic =
                AgentRnic { context, address, tor: (*tor).to_owned(), device: "ferroce_lo".to_owned() };
            Agent::start(config, vec![rnic]).unwrap()
        });
        Self { agents: agents.collect(), analyzer, controller }
    }

    /// Where the page is.
    pub fn page(&self) -> SocketAddr {
        self.analyzer.page().unwrap()
    }
}
