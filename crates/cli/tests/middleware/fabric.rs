//! libfabric: `fi_pingpong` over each kind of endpoint of its provider `verbs`, contents checked.

use std::path::Path;
use std::process::Output;

use ferroce_lab::namespaces::command_inside;
use ferroce_testkit::{judge, namespaces};

use crate::pair::{Pair, has_timed_out};
use crate::support::{LOSS, Unprivileged, is_long, libraries, said, succeeds};

/// Both ends of a `fi_pingpong` with data of all sizes, each byte of which is compared.
pub(crate) fn pingpong(provider: &str, kind: &str, address: &str, iterations: u32) -> Pair {
    let both = format!("fi_pingpong -p {provider} -e {kind} -c -S all -I {iterations}");
    Pair::new(&format!("{both} -B PORT"), &format!("{both} -P PORT ADDRESS"), address)
}

fn iterations() -> u32 {
    if is_long() { 500 } else { 10 }
}

/// A provider, a kind of endpoint, and how many sizes it has figures for.
type Way = (&'static str, &'static str, usize);

const MSG: Way = ("verbs", "msg", 15);
const DGRAM: Way = ("verbs", "dgram", 5);
const RXM: Way = ("verbs;ofi_rxm", "rdm", 15);
const RXD: Way = ("verbs;ofi_rxd", "rdm", 15);

/// A line of figures for each size.
fn passes(way: Way, pair: &Pair) {
    let ends = pair.run_to_ends().unwrap_or_else(|both| panic!("{}\n{both}", pair.client));
    let outputs = [&ends.client, &ends.server];
    assert!(end_well(way, outputs), "{}\n{}", pair.client, ends.told());
    for said in outputs.map(said) {
        assert!(figures(&said) >= way.2 && !said.contains("error"), "{}\n{}", pair.client, ends.told());
    }
}

/// Both have to, unless `ofi_rxd` has the last word. Each end says goodbye and waits until that is acknowledged, and the one that has
/// all it waits for goes. If the acknowledgement that it sent last was lost, the other one repeats its goodbye, and gets no answer any more.
///
/// It was: 64 KiB had gone to and fro where packets are lost, and the run failed once in some dozens, as the client never ended.
fn end_well((provider, ..): Way, outputs: [&Output; 2]) -> bool {
    let well = outputs.iter().filter(|output| output.status.success()).count();
    let left_waiting = outputs.iter().any(|output| has_timed_out(output));
    well == 2 || (provider == RXD.0 && well == 1 && left_waiting)
}

/// Lines that end with a figure.
fn figures(said: &str) -> usize {
    said.lines().filter(|line| line.ends_with(|end: char| end.is_ascii_digit())).count()
}

fn pair(way: Way, address: &str, iterations: u32) -> Pair {
    pingpong(way.0, way.1, address, iterations)
}

fn is_here() -> bool {
    judge::has_file(PROGRAM)
}

const PROGRAM: &str = "/usr/bin/fi_pingpong";

#[test]
fn libfabric_sends_datagrams() {
    if is_here() {
        passes(DGRAM, &pair(DGRAM, "127.0.92.21", iterations()));
    }
}

#[test]
fn libfabric_makes_reliable_datagrams_of_datagrams() {
    if is_here() {
        passes(RXD, &pair(RXD, "127.0.92.23", iterations()));
    }
}

/// The interface of the tests in a namespace, and its address.
const INTERFACE: (&str, &str) = ("mw0", "10.92.0.1");

/// libfabric does not use loopback interfaces for connections. So these need another one.
///
/// It was: a part of an answer of `rdma_getaddrinfo` that libfabric had made was freed as if it were ours, and nothing
/// could be bound to the address of `localhost`, which is any address.
#[test]
fn libfabric_makes_connections_over_an_interface() {
    over_the_interface("libfabric_makes_connections_over_an_interface", || {
        for way in [MSG, RXM, DGRAM, RXD] {
            passes(way, &there(way, iterations()));
        }
    });
}

/// It was: the last acknowledgement was kept back when a connection ended, and the peer waited for it in vain.
#[test]
fn libfabric_where_packets_are_lost() {
    over_the_interface("libfabric_where_packets_are_lost", || {
        let iterations = if is_long() { 50 } else { 1 };
        for way in [MSG, RXM] {
            passes(way, &there(way, iterations).with(&[LOSS]));
        }
        // With small messages fi_pingpong waits for its peer while `ofi_rxd` would have to repeat one.
        let mut large = there(RXD, iterations).with(&[LOSS]);
        for line in [&mut large.server, &mut large.client] {
            *line = line.replace("-S all", "-S 65536");
        }
        passes((RXD.0, RXD.1, 1), &large);
    });
}

#[test]
fn libfabric_works_for_a_user_without_any_right() {
    over_the_interface("libfabric_works_for_a_user_without_any_right", || {
        let Some(user) = Unprivileged::become_with(Path::new(PROGRAM)) else { return };
        for way in [MSG, RXM, RXD] {
            passes(way, &there(way, 1).by(&user));
        }
    });
}

/// Both ends on the interface of this namespace.
fn there(way: Way, iterations: u32) -> Pair {
    pair(way, INTERFACE.1, iterations).with(&[("FERROCE_NETDEV", INTERFACE.0)])
}

/// Does something in a namespace with an interface, as this test.
fn over_the_interface(name: &str, work: impl FnOnce()) {
    if !is_here() {
        return;
    }
    if namespaces::is_inside() {
        make_interface();
        return work();
    }
    let possible = command_inside(&["--net"]).args(["ip", "link"]).output();
    if judge::has_namespaces(possible.is_ok_and(|output| output.status.success())) {
        let mut command = command_inside(&["--net"]);
        let name = format!("fabric::{name}");
        command.arg(std::env::current_exe().unwrap()).args(["--exact", &name, "--nocapture"]);
        // The libraries are linked once, and not in there.
        command.env("FERROCE_ABI", libraries());
        assert!(succeeds(command).contains("1 passed"));
    }
}

fn make_interface() {
    let (name, address) = INTERFACE;
    for line in [
        "ip link set lo up".to_owned(),
        format!("ip link add {name} type veth peer name {name}-peer"),
        format!("ip address add {address}/24 dev {name}"),
        format!("ip link set {name} up"),
        format!("ip link set {name}-peer up"),
    ] {
        namespaces::run(&line);
    }
}
