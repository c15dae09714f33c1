//! libfabric: `fi_pingpong` over each kind of endpoint of its provider `verbs`, contents checked.

use ferroce_lab::namespaces::command_inside;
use ferroce_testkit::{judge, namespaces};

use crate::pair::Pair;
use crate::support::{is_long, libraries, succeeds};

/// Both ends of a `fi_pingpong` with data of all sizes, each byte of which is compared.
pub(crate) fn pingpong(provider: &str, kind: &str, address: &str, iterations: u32) -> Pair {
    let both = format!("fi_pingpong -p {provider} -e {kind} -c -S all -I {iterations}");
    Pair::new(&format!("{both} -B PORT"), &format!("{both} -P PORT ADDRESS"), address)
}

fn iterations() -> u32 {
    if is_long() { 500 } else { 10 }
}

/// A line of figures for each size.
fn passes(provider: &str, kind: &str, address: &str, sizes: usize, variables: &[(&str, &str)]) {
    if !judge::has_file("/usr/bin/fi_pingpong") {
        return;
    }
    let (client, server) = pingpong(provider, kind, address, iterations()).with(variables).run();
    for said in [&client, &server] {
        let lines = said.lines().filter(|line| line.ends_with(|end: char| end.is_ascii_digit()));
        assert!(lines.count() >= sizes, "{provider} {kind}: {client}\n{server}");
        assert!(!said.contains("error"), "{provider} {kind}: {client}\n{server}");
    }
}

#[test]
fn libfabric_sends_datagrams() {
    passes("verbs", "dgram", "127.0.92.21", 5, &[]);
}

#[test]
fn libfabric_makes_reliable_datagrams_of_datagrams() {
    passes("verbs;ofi_rxd", "rdm", "127.0.92.23", 15, &[]);
}

/// The interface of the tests in a namespace, and its address.
const INTERFACE: (&str, &str) = ("mw0", "10.92.0.1");

/// libfabric does not use loopback interfaces for connections. So these need another one.
///
/// It was: a part of an answer of `rdma_getaddrinfo` that libfabric had made was freed as if it were ours, and nothing
/// could be bound to the address of `localhost`, which is any address.
#[test]
fn libfabric_makes_connections_over_an_interface() {
    if !judge::has_file("/usr/bin/fi_pingpong") {
        return;
    }
    if namespaces::is_inside() {
        over_the_interface();
        return;
    }
    let possible = command_inside(&["--net"]).args(["ip", "link"]).output();
    if judge::has_namespaces(possible.is_ok_and(|output| output.status.success())) {
        let mut command = command_inside(&["--net"]);
        let name = "fabric::libfabric_makes_connections_over_an_interface";
        command.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
        // The libraries are linked once, and not in there.
        command.env("FERROCE_ABI", libraries());
        assert!(succeeds(command).contains("1 passed"));
    }
}

/// Two processes on one interface of a namespace.
fn over_the_interface() {
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
    let there = ("FERROCE_NETDEV", name);
    passes("verbs", "msg", address, 15, &[there]);
    // At its end it looks for completions, then for news of connections, and gives up what it has when the peer has left: a
    // completion that comes in between is lost to it, and it waits for it. Beside other work that happens now and then.
    if is_long() {
        passes("verbs;ofi_rxm", "rdm", address, 15, &[there]);
    }
    passes("verbs", "dgram", address, 5, &[there]);
    passes("verbs;ofi_rxd", "rdm", address, 15, &[there]);
}
