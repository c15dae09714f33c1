//! The programs of rdmacm-utils that use rsockets, and every mistake that one can make with them.

use std::fs;
use std::path::Path;
use std::process::Command;

use ferroce_testkit::judge;

use crate::library::{are_here, compiled_with, said, succeeds, with_library};
use crate::rdmacm::{meet, started, wait_for_manager};

const PROGRAMS: &[&str] = &["rstream", "riostream", "rcopy", "udpong"];

#[test]
fn streams_carry_every_size_both_ways() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.90.10";
    let both = ["rstream", "rstream"];
    // `-T v` has the programs compare what comes with what was sent.
    for args in ["-S 64 -C 50 -I 20 -T v", "-S 65536 -C 20 -I 5 -T v", "-S 1000000 -C 3 -I 3 -T v -T a"] {
        let (client, _) =
            meet(both, &format!("-b {address} {args}"), &format!("-s {address} {args}"), address);
        assert!(client.contains("custom"), "{client}");
    }
    meet(both, "-b ::1 -S 4096 -C 50 -I 5 -T v", "-s ::1 -S 4096 -C 50 -I 5 -T v", "::1");
}

/// `rpoll` tells of the end of an attempt to connect, and `errno` of the reason. It was: whatever `errno` had been before,
/// so that a refusal looked like a connection that was lost.
#[test]
fn a_refused_stream_says_why() {
    if !are_here(PROGRAMS) {
        return;
    }
    let client = started("rstream", "-s 127.0.90.17 -p 7190", "127.0.90.17").wait_with_output().unwrap();
    assert!(said(&client).contains("rpoll: Connection refused"), "{}", said(&client));
}

/// The forms of waiting: blocking calls, calls that never wait, and calls behind `rpoll`.
#[test]
fn streams_wait_in_all_ways() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.90.11";
    for form in ["b", "n", "a"] {
        let args = format!("-S 8192 -C 100 -I 5 -T v -T {form}");
        meet(
            ["rstream", "rstream"],
            &format!("-b {address} {args}"),
            &format!("-s {address} {args}"),
            address,
        );
    }
}

#[test]
fn mapped_memory_is_written_beside_the_stream() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.90.12";
    for args in ["-S 64 -C 50 -I 10 -T v", "-S 65536 -C 10 -I 5 -T v"] {
        meet(
            ["riostream", "riostream"],
            &format!("-b {address} {args}"),
            &format!("-s {address} {args}"),
            address,
        );
    }
    meet(["riostream", "riostream"], "-b ::1 -S 4096 -C 10 -I 5", "-s ::1 -S 4096 -C 10 -I 5", "::1");
}

/// The server of rcopy does not end by itself.
#[test]
fn a_file_is_copied_whole() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.90.13";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [from, to] = ["rcopy-from", "rcopy-to"].map(|name| folder.join(name));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|number| number.wrapping_mul(31).to_le_bytes()[1]).collect();
    fs::write(&from, &bytes).unwrap();
    let _ = fs::remove_file(&to);
    let mut server = started("rcopy", "", address);
    wait_for_manager(&server);
    let args = format!("{} {address}:{}", from.display(), to.display());
    let mut last = String::new();
    let copied = (0..400).any(|_| {
        let client = started("rcopy", &args, address).wait_with_output().unwrap();
        last = said(&client);
        client.status.success() && fs::read(&to).is_ok_and(|copy| copy == bytes)
    });
    // `timeout` hands the signal on.
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    let _ = server.wait();
    assert!(copied, "{last}");
}

/// Runs udpong to a good end; what the client said. Its server does not end by itself.
fn pong(address: &str, args: &str) -> String {
    let mut server = started("udpong", &format!("-b {address} {args}"), address);
    // A client that comes before its server asks again each second.
    let client = started("udpong", &format!("-s {address} {args}"), address).wait_with_output().unwrap();
    // `timeout` hands the signal on.
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    let _ = server.wait();
    let client_said = said(&client);
    assert!(client.status.success(), "udpong {args}: client {}\n{client_said}", client.status);
    assert!(client_said.contains("custom"), "udpong {args}: {client_said}");
    client_said
}

/// Echoes and streams of datagrams, with calls that wait, calls that never wait, and calls behind `rpoll`.
#[test]
fn datagrams_go_and_come_back() {
    if !are_here(PROGRAMS) {
        return;
    }
    for address in ["127.0.90.15", "::1"] {
        for args in
            ["-S 64 -C 200 -T e", "-S 1500 -C 100 -T e -T b", "-S 1000 -C 100 -T e -T a", "-S 2000 -C 1000"]
        {
            pong(address, args);
        }
    }
}

#[test]
fn strangers_do_nothing_to_a_datagram_socket() {
    if !judge::is_here("gcc") || !judge::has_file("/usr/include/rdma/rsocket.h") {
        return;
    }
    let mut command = with_library(compiled_with("rs_datagrams", &["-lrdmacm"]), "127.0.90.16");
    command.env_remove("FERROCE_LOG").arg("127.0.90.16");
    assert_eq!(succeeds(command), "0 surprises\n");
}

#[test]
fn every_mistake_with_sockets_gets_its_error_number() {
    if !judge::is_here("gcc") || !judge::has_file("/usr/include/rdma/rsocket.h") {
        return;
    }
    let mut command = with_library(compiled_with("rs_mistakes", &["-lrdmacm"]), "127.0.90.14");
    command.env_remove("FERROCE_LOG").arg("127.0.90.14");
    assert_eq!(succeeds(command), "0 surprises\n");
}
