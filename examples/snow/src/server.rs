//! The server: callbacks only. Its own thread just waits until it is told to stop.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use ferroce::Context;
use ferroce::endpoint::{Acceptor, CompletionHub, Connection, Handler, Listener, Reactor, ReactorOptions};
use serde_json::json;

use crate::settings::Settings;
use crate::talk::Talk;

/// Completions that all connections together may have under way: each may have 1,200 or so.
const COMPLETIONS: u32 = 65_536;

/// Options of `ferroce-snow server`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Where it listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.121.1:7471")]
    address: SocketAddr,
    /// The processor that its thread stays on
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    #[command(flatten)]
    settings: Settings,
}

/// Tells the process that started this one.
pub(crate) fn say(line: &str) {
    // If it is gone, standard input has ended as well, and the server stops.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Settings { seed, .. } = args.settings;
    let ip = args.address.ip();
    let context = Context::builder("ferroce_lo").address(ip).open();
    let context = context.with_context(|| format!("cannot open a device at {ip}"))?;
    // All connections share one completion queue.
    let hub = CompletionHub::new(&context, COMPLETIONS)?;
    let options = args.settings.options().context(&context).completion_hub(&hub);
    let mut how = ReactorOptions::new().polling(args.settings.polling());
    if let Some(cpu) = args.cpu {
        how = how.cpu(cpu);
    }
    let reactor = Reactor::start(how)?;
    let listener = Listener::bind_with(args.address, &options)
        .with_context(|| format!("cannot listen at {}", args.address))?;
    let acceptor = Acceptor::new(move |connection: &Connection| connected(seed, connection))
        .on_error(|error| say(&format!("refused {error}")));
    let listening = reactor.listen(listener, acceptor)?;
    say(&format!("listening {}", listening.local_addr()));

    for line in std::io::stdin().lock().lines() {
        if line?.trim() == "stop" {
            break;
        }
    }
    listening.stop();
    let accepted = listening.counters().accepted;
    let panics = reactor.counters().panics;
    drop(reactor);
    say(&format!("report {}", json!({"accepted": accepted, "panics": panics})));
    if panics > 0 {
        bail!("{panics} callbacks panicked");
    }
    Ok(())
}

/// A client is there: what is to be done when something happens.
fn connected(seed: u64, connection: &Connection) -> Handler {
    say(&format!("connected {}", connection.peer_addr()));
    let talk = Arc::new(Mutex::new(Talk::new(seed)));
    let of = |talk: &Arc<Mutex<Talk>>| {
        let talk = Arc::clone(talk);
        // The functions are called one at a time, so this never waits.
        move |act: &mut dyn FnMut(&mut Talk)| act(&mut talk.lock().unwrap_or_else(PoisonError::into_inner))
    };
    let (received, written, read, closed) = (of(&talk), of(&talk), of(&talk), of(&talk));
    Handler::new(move |connection, message| received(&mut |talk| talk.received(connection, &message)))
        .on_written(move |connection, done| written(&mut |talk| talk.written(connection, &done)))
        .on_read(move |connection, done| read(&mut |talk| talk.read(connection, &done)))
        .on_closed(move |_, how| closed(&mut |talk| talk.closed(&how)))
}
