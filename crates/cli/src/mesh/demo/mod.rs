//! `ferroce mesh demo`: the whole mesh on one machine, and something that breaks.

mod fabric;
mod loopback;
mod parts;
mod story;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferroce_device::park;
use ferroce_lab::namespaces::{command_inside, is_inside};
use ferroce_meshd::page::PageListener;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use self::fabric::Fabric;
use self::loopback::Loopback;
use self::story::Story;
use super::{LOOK, say};
use crate::interrupt;

/// Watch the mesh find a fault: a network, 8 agents, something that breaks after 20 seconds, and the page
///
/// The network is one of 10 routers and 8 hosts, each a network namespace of this machine with routes of equal cost:
/// 8 paths lead from one half to the other. After a while a link begins to lose 5 % of what crosses it; the mesh names
/// it, the link is mended, and the finding closes. It needs root, or a system that lets users have namespaces, and
/// Linux 6.11. Elsewhere, and with --loopback, the agents are on loopback addresses, with no routers between them, and
/// a card goes bad instead of a link. Whatever ends it, nothing of the network is left.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    /// Where the page is served: a loopback address, port 0 is any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    page: SocketAddr,

    /// Seconds until something breaks, 5 to 3600
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=3600))]
    break_after: u32,

    /// Seconds from the finding until it is mended, 1 to 3600
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    mend_after: u32,

    /// End when the story is told, instead of serving the page until Ctrl-C; fails if the fault is not found in time
    #[arg(long)]
    once: bool,

    /// Loopback addresses instead of namespaces: nothing is asked of the system
    #[arg(long)]
    loopback: bool,

    /// One JSON object for each event
    #[arg(long)]
    json: bool,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce mesh demo
          Then open http://127.0.0.1:8080/ and watch; Ctrl-C ends it.
  ferroce mesh demo --loopback --break-after 5 --mend-after 5 --once
          The shortest form, without a network of its own.";

/// Programs that build the network.
const PROGRAMS: [&str; 4] = ["unshare", "ip", "nft", "mount"];

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.loopback {
        interrupt::listen()?;
        return tell(args, Loopback::start);
    }
    if is_inside() {
        // Should the process outside be killed, this one ends, too, and with it the network.
        set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the process outside")?;
        interrupt::listen()?;
        return tell(args, Fabric::start);
    }
    interrupt::listen()?;
    if let Some(why) = why_not() {
        if !args.json {
            say(&format!(
                "{why}; so the agents are on loopback addresses, and a card goes bad instead of a link"
            ))?;
        }
        return tell(args, Loopback::start);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = command_inside(&[]);
    command.arg(program).args(std::env::args_os().skip(1));
    let status = wait_for(command)?;
    ensure!(status.success(), "the demo ended with {status}");
    Ok(())
}

fn tell<S: story::Stage>(
    args: &Args,
    start: impl FnOnce(PageListener) -> anyhow::Result<S>,
) -> anyhow::Result<()> {
    // Here, where the browser is.
    let page =
        PageListener::bind(args.page).with_context(|| format!("no page at {}; say --page", args.page))?;
    let seconds = |number: u32| Duration::from_secs(number.into());
    let story = Story {
        break_after: seconds(args.break_after),
        mend_after: seconds(args.mend_after),
        once: args.once,
        json: args.json,
    };
    let address = page.address();
    story.tell(start(page)?, address)
}

/// Why there can be no network of namespaces; nothing if there can.
fn why_not() -> Option<String> {
    let is_there = |program: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/usr/sbin", "/sbin"].map(Into::into);
        std::env::split_paths(&path).chain(usual).any(|folder| folder.join(program).is_file())
    };
    if let Some(missing) = PROGRAMS.iter().find(|program| !is_there(program)) {
        return Some(format!("the program `{missing}` is not there"));
    }
    if !Path::new("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists() {
        return Some("this kernel is older than Linux 6.11".to_owned());
    }
    // The first of the namespaces, made in the same way.
    let mut command = command_inside(&[]);
    command.args(["unshare", "--net", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    let possible = command.status().is_ok_and(|status| status.success());
    (!possible).then(|| "this user may not have network namespaces; root may".to_owned())
}

/// Runs a program to its end, which Ctrl-C asks it for.
fn wait_for(mut command: Command) -> anyhow::Result<ExitStatus> {
    let patience = interrupt::be_patient();
    let mut child = command.spawn().context("cannot run `unshare`")?;
    let mut is_asked = false;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for the demo")? {
            break status;
        }
        if interrupt::is_asked() && !is_asked {
            is_asked = true;
            let Ok(pid) = i32::try_from(child.id()) else { bail!("a process without a number") };
            if let Some(pid) = Pid::from_raw(pid) {
                // It may have heard Ctrl-C itself, and be over.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        park(Some(LOOK));
    };
    drop(patience);
    Ok(status)
}
