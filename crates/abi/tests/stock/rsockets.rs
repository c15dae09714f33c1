//! C programs of our own that call rsockets: every mistake that one can make with them, and strangers.

use ferroce_testkit::judge;

use crate::library::{are_here, compiled_with, said, succeeds, with_library};

/// `rpoll` tells of the end of an attempt to connect, and `errno` of the reason. It was: whatever `errno` had been before,
/// so that a refusal looked like a connection that was lost.
#[test]
fn a_refused_stream_says_why() {
    if !are_here(&["rstream"]) {
        return;
    }
    let mut command = with_library("rstream", "127.0.90.17");
    command.env_remove("FERROCE_LOG").args(["-s", "127.0.90.17", "-p", "7190"]);
    let client = command.output().unwrap();
    assert!(said(&client).contains("rpoll: Connection refused"), "{}", said(&client));
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
