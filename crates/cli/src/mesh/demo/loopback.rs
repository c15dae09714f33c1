//! The mesh on loopback addresses: no network is between the agents, so that a card goes bad instead of a link.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use ferroce::{Context, FaultPlan};
use ferroce_meshd::proto::v1::FindingsReply;
use ferroce_meshd::{Agent, AgentRnic, AnalyzerServer, AnalyzerServerConfig, Controller, Listener};

use ferroce_meshd::page::PageListener;

use super::parts;
use super::story::Stage;
use crate::addresses::LOOPBACK;

/// Agents, two below each ToR.
const AGENTS: u8 = 8;

/// The one whose card goes bad.
const BAD: u8 = 6;

/// The rate of packets that are lost then.
const LOSS: f64 = 0.2;

/// Any port of this machine.
const ANYWHERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// A mesh on this machine alone.
pub(super) struct Loopback {
    // In this order: agents say what they have, and then the others end.
    agents: Vec<Option<Agent>>,
    analyzer: AnalyzerServer,
    _controller: Controller,
    url: String,
}

impl Loopback {
    pub(super) fn start(page: PageListener) -> anyhow::Result<Self> {
        let controller = Controller::start(Listener::bind(ANYWHERE.into())?, parts::controller())?;
        let url = controller.address().to_string();
        let listener = Listener::bind(ANYWHERE.into())?;
        let analyzer = AnalyzerServer::start_with_page(listener, page, AnalyzerServerConfig::new(&url))?;
        let mut stage = Self { agents: Vec::new(), analyzer, _controller: controller, url };
        for number in 1..=AGENTS {
            let agent = stage.agent(number, FaultPlan::default())?;
            stage.agents.push(Some(agent));
        }
        Ok(stage)
    }

    fn agent(&self, number: u8, faults: FaultPlan) -> anyhow::Result<Agent> {
        let address = IpAddr::from([127, 0, 153, number]);
        let context = Context::builder(LOOPBACK).address(address).faults(faults).open();
        let context = context.with_context(|| format!("cannot open {address}"))?;
        let device = context.query().name;
        let tor = format!("rack{}", number.div_ceil(2));
        let config = parts::agent(&name(number), &self.url);
        Ok(Agent::start(config, vec![AgentRnic { context, address, tor, device }])?)
    }

    /// Gives a host another card.
    fn exchange(&mut self, number: u8, faults: FaultPlan) -> anyhow::Result<()> {
        let place = usize::from(number - 1);
        // The address is free when the old one is gone.
        drop(self.agents[place].take());
        self.agents[place] = Some(self.agent(number, faults)?);
        Ok(())
    }
}

fn name(number: u8) -> String {
    format!("host{number}")
}

impl Stage for Loopback {
    fn scene(&self) -> String {
        "8 hosts below 4 racks, each an address of 127.0.153.0/24, with no routers between them".to_owned()
    }

    fn fails(&mut self) -> anyhow::Result<String> {
        self.exchange(BAD, FaultPlan { loss: LOSS, seed: 1, ..FaultPlan::default() })?;
        Ok(format!("{} gets a card that loses {} % of its packets", name(BAD), LOSS * 100.0))
    }

    fn is_mended(&mut self) -> anyhow::Result<String> {
        self.exchange(BAD, FaultPlan::default())?;
        Ok(format!("{} gets a good card again", name(BAD)))
    }

    fn culprit(&self) -> String {
        format!("127.0.153.{BAD}")
    }

    fn findings(&self) -> FindingsReply {
        self.analyzer.findings()
    }
}
