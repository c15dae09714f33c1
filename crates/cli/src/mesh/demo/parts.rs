//! What all demos start: a controller, an analyzer and agents, with settings for people that watch.

use std::time::Duration;

use ferroce_meshd::{AgentConfig, ControllerConfig};

/// How long a window is: short, so that something happens.
const WINDOW: Duration = Duration::from_secs(2);

/// Probes of an RNIC in a second to others below its ToR, and as many again to other ToRs.
const RATE: f64 = 50.0;

pub(super) fn controller() -> ControllerConfig {
    let mut config = ControllerConfig { window: WINDOW, ..ControllerConfig::default() };
    config.pinglist.below = RATE;
    config.pinglist.between = RATE;
    config.pinglist.answered = RATE * 2.0;
    config
}

pub(super) fn agent(name: &str, controller: &str) -> AgentConfig {
    AgentConfig::new(name, name, controller)
}
