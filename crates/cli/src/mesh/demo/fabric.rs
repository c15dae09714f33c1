//! The mesh on a Clos network of kernel routers.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ferroce::Context;
use ferroce_lab::namespaces::enter;
use ferroce_lab::{Clos, Family, Node, wiring};
use ferroce_meshd::proto::v1::FindingsReply;
use ferroce_meshd::tls::{Authority, Credentials, Validity};
use ferroce_meshd::{
    Agent, AgentConfig, AgentRnic, AnalyzerServer, AnalyzerServerConfig, Controller, Listener,
};

use ferroce_meshd::page::PageListener;

use super::parts;
use super::story::Stage;
use crate::perf::session::device_with;

/// The host of the controller and of the analyzer, which has an agent like any other.
const SERVICES: Node = Node::Host(0, 0, 0);

/// The link that breaks: from an aggregation up to a core.
const LINK: (Node, Node) = (Node::Aggregation(0, 0), Node::Core(1));

/// Of 100 packets that cross it, so many are lost then.
const PERCENT: u32 = 5;

/// Certificates are here: a file system that is this process's own, and is gone with it.
const FOLDER: &str = "/run/ferroce-mesh-demo";

/// A demo lasts no longer.
const LONGEST: Duration = Duration::from_hours(24 * 7);

/// A mesh on a network of namespaces.
pub(super) struct Fabric {
    // In this order: agents say what they have, and then the others end.
    _agents: Vec<Agent>,
    analyzer: AnalyzerServer,
    _controller: Controller,
    clos: Clos,
}

impl Fabric {
    pub(super) fn start(page: PageListener) -> anyhow::Result<Self> {
        let clos = Clos::build(7).context("cannot build the network")?;
        let authority = Authority::open(Path::new(FOLDER), Validity::starting_now(LONGEST))?;
        let address = SERVICES.address(Family::V4);
        let credentials = |name: &str, addresses: &[IpAddr]| -> anyhow::Result<Credentials> {
            let files = authority.issue(name, addresses, Validity::starting_now(LONGEST))?;
            Ok(Credentials::read(&files)?)
        };
        let (ours, theirs) = (credentials("controller", &[address])?, credentials("analyzer", &[address])?);
        let url = format!("https://{address}:50051");
        let controller = enter(&SERVICES.to_string(), || -> anyhow::Result<Controller> {
            let listener = Listener::bind_tls(SocketAddr::new(address, 50051), &ours)?;
            Ok(Controller::start(listener, parts::controller())?)
        })??;
        let config = AnalyzerServerConfig { topology: Some(wiring()), ..AnalyzerServerConfig::new(&url) };
        let analyzer = enter(&SERVICES.to_string(), || -> anyhow::Result<AnalyzerServer> {
            let listener = Listener::bind_tls(SocketAddr::new(address, 50052), &theirs)?;
            Ok(AnalyzerServer::start_with_page(listener, page, config)?)
        })??;
        let mut agents = Vec::new();
        for host in Node::hosts() {
            let Node::Host(pod, tor, _) = host else { continue };
            let (name, tor) = (host.to_string(), Node::Tor(pod, tor).to_string());
            let credentials = Some(credentials(&name, &[])?);
            let config = AgentConfig { credentials, ..parts::agent(&name, &url) };
            let agent = enter(&name, || -> anyhow::Result<Agent> {
                let address = host.address(Family::V4);
                // By its address: interfaces of several hosts have the same name, and one process has them all.
                let context = Context::builder(&device_with(address)?).address(address).open()?;
                let device = context.query().name;
                Ok(Agent::start(config, vec![AgentRnic { context, address, tor, device }])?)
            })?;
            agents.push(agent.with_context(|| format!("no agent on {host}"))?);
        }
        Ok(Self { _agents: agents, analyzer, _controller: controller, clos })
    }
}

impl Stage for Fabric {
    fn scene(&self) -> String {
        "8 hosts below 4 ToRs, 4 aggregations and 2 cores, each a network namespace of this machine"
            .to_owned()
    }

    fn fails(&mut self) -> anyhow::Result<String> {
        let (from, to) = LINK;
        self.clos.filter(
            from,
            &format!(
                "table inet bad {{ chain c {{ type filter hook forward priority 0;\n\
                 oifname \"{to}\" udp dport 4791 numgen random mod 100 < {PERCENT} drop\n }}\n}}\n"
            ),
        )?;
        Ok(format!("the link {from} -> {to} loses {PERCENT} % of the packets that cross it"))
    }

    fn is_mended(&mut self) -> anyhow::Result<String> {
        let (from, to) = LINK;
        self.clos.clear_filter(from)?;
        Ok(format!("the link {from} -> {to} is whole again"))
    }

    fn culprit(&self) -> String {
        let (from, to) = LINK;
        format!("link {from} -> {to}")
    }

    fn findings(&self) -> FindingsReply {
        self.analyzer.findings()
    }
}
