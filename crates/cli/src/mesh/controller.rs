//! `ferroce mesh controller`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use ferroce_meshd::{Controller, ControllerConfig};

use super::database::DatabaseArgs;
use super::tls::TlsArgs;
use super::{AFTER_LONG_HELP, CONTROLLER, count, listen, print_counters, say, tell};
use crate::interrupt;

/// Tell agents what to probe, until Ctrl-C
///
/// Agents register with it, and stay for as long as they are heard of. Alone, it keeps nothing on disk: after a restart
/// it learns them again within 30 seconds. With --database, several controllers know the same agents: one of them
/// leads, and when it is gone, another goes on. Agents and the analyzer are told of all of them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    /// The address to listen on, without certificates a loopback address; port 0 is any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = CONTROLLER)]
    listen: SocketAddr,

    /// Seconds after which an agent that says nothing is gone, 1 to 3600
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    lease: u32,

    /// Seconds of a window, 1 to 600: so often agents report, and findings may change
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    window: u32,

    /// Probes of an RNIC in a second to others below its ToR, and as many again to other ToRs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

    /// With --database: where others find it, if that is not where it listens; those that stand by say so
    #[arg(long, value_name = "URL", requires = "database")]
    url: Option<String>,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    tls: TlsArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    let mut config = ControllerConfig { window: seconds(args.window), ..ControllerConfig::default() };
    config.registry.lease = seconds(args.lease);
    config.pinglist.below = f64::from(args.rate);
    config.pinglist.between = f64::from(args.rate);
    config.pinglist.answered = f64::from(args.rate) * 2.0;
    let credentials = args.tls.credentials()?;
    let listener = listen(args.listen, credentials.as_ref())?;
    let controller = match args.database.config() {
        Some(database) => Controller::start_with_database(listener, config, &database, args.url.as_deref())
            .context("cannot start the controller")?,
        None => Controller::start(listener, config).context("cannot start the controller")?,
    };
    let address = controller.address();
    say(&format!(
        "the controller listens on {address} until Ctrl-C; now run: \
         ferroce mesh analyzer --controller {address}"
    ))?;
    tell(|| {
        let (agents, rnics) = controller.size();
        let size = format!("{}, {}", count(agents, "agent"), count(rnics, "RNIC"));
        match (controller.leads(), controller.trouble()) {
            (true, trouble) if trouble.is_empty() => size,
            (true, trouble) => format!("{size}; {trouble}; it is tried again"),
            (false, trouble) => format!("it stands by: {trouble}"),
        }
    })?;
    print_counters(controller.counters().iter())
}

const fn seconds(number: u32) -> Duration {
    Duration::from_secs(number as u64)
}
