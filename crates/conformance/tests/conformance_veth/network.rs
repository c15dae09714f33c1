//! Two network namespaces with a link between them.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use ferroce_verbs::{Context, PortState};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Set for the process that runs inside.
const INSIDE: &str = "FERROCE_CONFORMANCE_INSIDE";

/// The far namespace; the near one is that of this process.
const FAR: &str = "far";

const INTERFACES: [&str; 2] = ["veth_near", "veth_far"];

/// Which addresses are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// The address of the near end (1) or the far one (2).
    pub(crate) fn address(self, end: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 77, 0, end).into(),
            Self::V6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, end.into()).into(),
        }
    }
}

/// Whether this process has namespaces of its own.
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs this program again in namespaces of its own, where every interface may be a device.
pub(crate) fn run_inside() -> ExitCode {
    for program in ["unshare", "dumpcap", "tshark"] {
        if !ferroce_testkit::judge::is_here(program) {
            return ExitCode::SUCCESS;
        }
    }
    let root = rustix::process::geteuid().is_root();
    let mut words = vec!["--net", "--mount"];
    if !root {
        words.extend(["--user", "--map-root-user"]);
    }
    let possible = Command::new("unshare").args(&words).args(["ip", "link"]).stdout(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        return skip("no network namespaces here, or no `ip`; `cargo xtask setup` installs it", root);
    }
    let status = Command::new("unshare")
        .args(&words)
        .arg(env::current_exe().unwrap())
        .args(env::args_os().skip(1))
        .envs([("FERROCE_NETDEV", "all"), (INSIDE, "1")])
        .status()
        .unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Skips, or fails where skipping is failing.
fn skip(why: &str, root: bool) -> ExitCode {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let must_run = set("FERROCE_REQUIRE_ALL").map_or(root || set("CI").is_some(), |value| value != "0");
    let word = if must_run { "FAILED" } else { "SKIPPED" };
    let _ = io::stderr().write_all(format!("{word}: {why}\n").as_bytes());
    if must_run { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Two namespaces with a link between them. They are gone with this process, whatever ends it.
pub(crate) struct Network {
    mtu: u32,
}

impl Network {
    pub(crate) fn new(mtu: u32) -> Self {
        if !std::path::Path::new("/run/netns").join(FAR).exists() {
            // Only this process sees what is mounted here.
            run("mount -t tmpfs tmpfs /run");
            run(&format!("ip netns add {FAR}"));
            // As on any machine: without it, the kernel finds no way for multicast over IPv6 that comes in.
            run("ip link set lo up");
            run(&format!("ip -n {FAR} link set lo up"));
        }
        let [near, far] = INTERFACES;
        run(&format!("ip link add {near} type veth peer name {far} netns {FAR}"));
        let network = Self { mtu };
        for (name, end) in [(near, 1), (far, 2)] {
            let ip = if end == 1 { "ip".to_owned() } else { format!("ip -n {FAR}") };
            // A run of packets is cut apart before the link, so that what is captured is what a wire would
            // see.
            run(&format!("{ip} link set {name} mtu {mtu} gso_max_segs 1"));
            run(&format!("{ip} addr add {}/30 dev {name}", Family::V4.address(end)));
            run(&format!("{ip} addr add {}/64 dev {name} nodad", Family::V6.address(end)));
            run(&format!("{ip} link set {name} up"));
        }
        // The kernel knows the way of multicast over IPv6 a while after a link is up. Each look starts two
        // programs.
        assert!((0..5000).any(|_| Self::carries_multicast()), "both ends know the way of multicast");
        network
    }

    /// Whether the kernel would take in multicast over IPv6 at both ends.
    fn carries_multicast() -> bool {
        let routes = |command: &mut Command| {
            let output = command.args(["-6", "route", "show", "table", "local"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("multicast ff00::/8")
        };
        routes(&mut Command::new("ip")) && routes(Command::new("ip").args(["-n", FAR]))
    }

    pub(crate) const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// A device in the near namespace.
    pub(crate) fn open_near(&self, family: Family) -> (Context, IpAddr) {
        open(family, 1)
    }

    /// A device in the far namespace.
    pub(crate) fn open_far(&self, family: Family) -> (Context, IpAddr) {
        in_far(move || open(family, 2))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        run(&format!("ip link del {}", INTERFACES[0]));
    }
}

fn open(family: Family, end: u8) -> (Context, IpAddr) {
    let address = family.address(end);
    let interface = INTERFACES[usize::from(end) - 1];
    let context = Context::builder(interface).address(address).open().unwrap();
    assert_eq!(context.port().state, PortState::Active);
    assert_eq!(context.query().interface, interface);
    (context, address)
}

/// The command that runs a program in the far namespace.
pub(crate) fn far_command(program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", FAR, program]);
    command
}

/// The name of the near interface.
#[allow(dead_code, reason = "one of the binaries uses it")]
pub(crate) const fn near_interface() -> &'static str {
    INTERFACES[0]
}

/// The name of the far interface.
pub(crate) const fn far_interface() -> &'static str {
    INTERFACES[1]
}

/// Does something in a thread of the far namespace.
fn in_far<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(|| {
        let namespace = File::open(format!("/run/netns/{FAR}")).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        action()
    });
    thread.join().unwrap()
}

fn run(line: &str) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
