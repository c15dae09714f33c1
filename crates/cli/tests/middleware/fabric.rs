//! libfabric: `fi_pingpong` over each kind of endpoint of its provider `verbs`, contents checked.

use ferroce_testkit::judge;

use crate::pair::Pair;
use crate::support::{LOSS, is_long};

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
fn libfabric_sends_messages_over_connections() {
    passes("verbs", "msg", "127.0.92.20", 15, &[]);
    passes("verbs", "msg", "127.0.92.20", 15, &[LOSS]);
}

#[test]
fn libfabric_sends_datagrams() {
    passes("verbs", "dgram", "127.0.92.21", 5, &[]);
}

#[test]
fn libfabric_makes_reliable_datagrams_of_connections() {
    passes("verbs;ofi_rxm", "rdm", "127.0.92.22", 15, &[]);
    passes("verbs;ofi_rxm", "rdm", "127.0.92.22", 15, &[LOSS]);
}

#[test]
fn libfabric_makes_reliable_datagrams_of_datagrams() {
    passes("verbs;ofi_rxd", "rdm", "127.0.92.23", 15, &[]);
    passes("verbs;ofi_rxd", "rdm", "127.0.92.23", 15, &[LOSS]);
}
