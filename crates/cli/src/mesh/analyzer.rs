//! `ferroce mesh analyzer`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ferroce_meshd::{AnalyzerServer, AnalyzerServerConfig, Keeping, StoreConfig};

use super::database::DatabaseArgs;
use super::outlets::{self, OutletArgs};
use super::tls::TlsArgs;
use super::{AFTER_LONG_HELP, ANALYZER, CONTROLLER, listen, print_counters, say, tell};
use crate::interrupt;

/// Take what agents measure and work out what is bad, until Ctrl-C
///
/// It tells the controller where it is, and agents find it there. A window is looked at when all agents have told
/// theirs, or ten seconds after its end. `ferroce mesh findings` shows what it finds. With --store, findings outlive
/// the analyzer, and what it acknowledges to agents is on the disk. With --database, several analyzers know the same
/// findings: one of them leads, and when it is gone, another goes on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    /// The address to listen on, without certificates a loopback address; port 0 is any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = ANALYZER)]
    listen: SocketAddr,

    /// Where the controller is; named again, or after a comma, where others are that stand by
    #[arg(long, value_name = "URL", default_value = CONTROLLER, value_delimiter = ',')]
    controller: Vec<String>,

    /// A topology file: switches with tier, addresses and what they are cabled to; without one, all that is above ToRs
    /// is one thing
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,

    /// Serve a page for browsers, its numbers as JSON, and /metrics for Prometheus here: a loopback address, port 0 is
    /// any that is free
    #[arg(long, value_name = "ADDR:PORT")]
    page: Option<SocketAddr>,
    /// Keep findings, and what came from agents, in this file, so that they outlive the analyzer; without one, all is
    /// in memory
    #[arg(long, value_name = "FILE", conflicts_with = "database")]
    store: Option<PathBuf>,

    /// Where agents find it, if that is not where it listens: such as https://HOST:50052 for an analyzer on 0.0.0.0
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    outlets: OutletArgs,

    #[command(flatten)]
    tls: TlsArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    interrupt::listen()?;
    let credentials = args.tls.credentials()?;
    let listener = listen(args.listen, credentials.as_ref())?;
    let topology = args.topology.as_deref().map(read).transpose()?;
    let file = args.store.as_ref().map(StoreConfig::new).map(Keeping::File);
    let store = file.or_else(|| args.database.config().map(Keeping::Database));
    let config = AnalyzerServerConfig {
        topology,
        store,
        page: args.page,
        outlets: args.outlets.config(),
        url: args.url.clone(),
        controllers: args.controller.clone(),
        ..AnalyzerServerConfig::new(CONTROLLER)
    };
    let analyzer = AnalyzerServer::start(listener, config).context("cannot start the analyzer")?;
    let address = analyzer.address();
    say(&format!(
        "the analyzer listens on {address} until Ctrl-C; now run: ferroce mesh agent --controller {}",
        args.controller.join(",")
    ))?;
    if let Some(page) = analyzer.page() {
        say(&format!("the page: http://{page}/"))?;
    }
    tell(|| match (analyzer.trouble(), analyzer.store_trouble()) {
        (trouble, store) if trouble.is_empty() && store.is_empty() => {
            format!("the controller is heard{}", outlets::troubles(&analyzer.outlets()))
        }
        (trouble, store) if store.is_empty() => format!("{trouble}; it is tried again"),
        (_, store) if !analyzer.leads() => format!("it stands by: {store}"),
        (_, store) => format!("{store}; agents keep what they have, and it is tried again"),
    })?;
    outlets::print(&analyzer.outlets())?;
    print_counters(analyzer.counters().iter())
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
