//! UCX: everything that `ucx_perftest` has for its upper layer, over connections and over datagrams.

use std::fs;
use std::path::Path;

use ferroce_testkit::judge;

use crate::pair::Pair;
use crate::support::{LOSS, Unprivileged, is_long};

/// The tests of the upper layer, and the sizes that take different ways: with the header, copied, from the memory of
/// the program, and read by the receiver.
const TESTS: &[(&str, &[&str])] = &[
    ("tag_lat", &["8", "1024", "8192", "300000"]),
    ("tag_bw", &["8", "1024", "8192", "300000"]),
    ("tag_sync_lat", &["8", "8192", "300000"]),
    ("tag_sync_bw", &["8", "8192", "300000"]),
    ("ucp_put_lat", &["8", "8192", "300000"]),
    ("ucp_put_bw", &["8", "8192", "300000"]),
    ("ucp_get", &["8", "8192", "300000"]),
    ("ucp_add", &["4", "8"]),
    ("ucp_fadd", &["4", "8"]),
    ("ucp_swap", &["4", "8"]),
    ("ucp_cswap", &["4", "8"]),
    ("stream_bw", &["8", "8192", "300000"]),
    ("stream_lat", &["8", "8192", "300000"]),
    ("ucp_am_lat", &["8", "8192", "300000"]),
    ("ucp_am_bw", &["8", "8192", "300000"]),
];

/// Other ways through the same tests: lists of pieces, unexpected messages, wild cards, other forms of receiving, memory
/// that was registered before, and programs that sleep until the card wakes them.
const WAYS: &[&str] = &[
    "tag_lat -D iov,iov -s 16,48,8192",
    "tag_bw -D iov,iov -s 16,48,8192",
    "tag_lat -U -s 8192",
    "tag_bw -C -s 1024",
    "stream_bw -r recv_data -s 8192",
    "ucp_am_bw -H 32 -s 8192",
    "tag_lat -E sleep -s 8",
    "tag_bw -E sleep -s 65536",
    "tag_bw -z -s 300000",
];

/// All of them, a line each, as `-b` reads them. Large messages are sent less often.
fn batch(iterations: u32) -> String {
    let mut lines = String::new();
    for (test, sizes) in TESTS {
        for size in *sizes {
            let times = if size.len() > 5 { iterations.div_ceil(10) } else { iterations };
            lines += &format!("{test}_{size} -t {test} -s {size} -n {times} -w 5\n");
        }
    }
    for (number, way) in WAYS.iter().enumerate() {
        lines += &format!("way{number} -t {way} -n {iterations} -w 5\n");
    }
    lines
}

/// Runs the batch over a transport of UCX. A program that is stuck is ended by its time limit.
fn every_test_passes(transport: &str, address: &str, variables: &[(&str, &str)], iterations: u32) {
    if !judge::has_file("/usr/bin/ucx_perftest") {
        return;
    }
    let lines = batch(iterations);
    let count = lines.lines().count();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ucx-{address}"));
    fs::write(&file, lines).unwrap();
    let both = format!("ucx_perftest -b {} -f -v -p PORT", file.display());
    let pair = Pair::new(&both, &format!("{both} 127.0.0.1"), address)
        .with(&[("UCX_TLS", transport), ("UCX_NET_DEVICES", "ferroce_lo:1")])
        .with(variables);
    let (client, server) = pair.run();
    // The name of the test and its figures, with commas between them.
    let figures = client.lines().filter(|line| line.matches(',').count() > 5 && !line.contains("iterations"));
    assert_eq!(figures.count(), count, "{client}\n{server}");
    let complaints = [&client, &server].map(|text| text.contains("ERROR") || text.contains("Assertion"));
    assert_eq!(complaints, [false, false], "{client}\n{server}");
}

#[test]
fn ucx_works_for_a_user_without_any_right() {
    let program = "/usr/bin/ucx_perftest";
    if !judge::has_file(program) {
        return;
    }
    let Some(user) = Unprivileged::become_with(Path::new(program)) else { return };
    for transport in ["rc_v", "ud_v"] {
        let both = "ucx_perftest -f -p PORT -t tag_bw -s 65536 -w 5 -n 50";
        let pair = Pair::new(both, &format!("{both} 127.0.0.1"), "127.0.92.5")
            .with(&[("UCX_TLS", transport), ("UCX_NET_DEVICES", "ferroce_lo:1")])
            .by(&user);
        let (client, server) = pair.run();
        assert!(client.contains("Final:") || client.contains(" 50 "), "{client}\n{server}");
        assert!(![&client, &server].iter().any(|text| text.contains("ERROR")), "{client}\n{server}");
    }
}

/// How often each test sends.
fn iterations() -> u32 {
    if is_long() { 2_000 } else { 20 }
}

#[test]
fn ucx_does_every_test_over_connections() {
    every_test_passes("rc_v", "127.0.92.1", &[], iterations());
}

#[test]
fn ucx_does_every_test_over_datagrams() {
    every_test_passes("ud_v", "127.0.92.2", &[], iterations());
}

#[test]
fn ucx_does_every_test_where_packets_are_lost() {
    let times = if is_long() { 500 } else { 10 };
    every_test_passes("rc_v", "127.0.92.3", &[LOSS], times);
    every_test_passes("ud_v", "127.0.92.4", &[LOSS], times);
}
