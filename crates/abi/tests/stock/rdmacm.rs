//! The programs of rdmacm-utils, and perftest's tools with `-R`: connections by rdma_cm.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use ferroce_testkit::judge;

use crate::library::{are_here, compiled_with, said, succeeds, with_library};

const PROGRAMS: &[&str] = &[
    "rping",
    "ucmatose",
    "udaddy",
    "mckey",
    "cmtime",
    "rdma_server",
    "rdma_client",
    "rdma_xserver",
    "rdma_xclient",
    "ib_write_bw",
];

/// How often a client is started until its server listens.
const TRIES: usize = 400;

/// One side of a pair, on the address that both share.
pub(crate) fn started(program: &str, args: &str, address: &str) -> Child {
    let mut command = with_library(program, address);
    // What a program tries in vain is its own business here.
    command.env_remove("FERROCE_LOG").args(args.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a program has a connection manager: the next thing that it does is to listen. Some clients cannot be
/// refused, they go on with what they have freed.
pub(crate) fn wait_for_manager(timeout: &Child) {
    let children = format!("/proc/{0}/task/{0}/children", timeout.id());
    for _ in 0..1_000_000 {
        let program = fs::read_to_string(&children).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{}/task", program.trim())).into_iter().flatten().flatten();
        let mut names =
            threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
        if names.any(|name| name.trim() == "ferroce-cm") {
            return;
        }
        std::thread::yield_now();
    }
}

/// Whether a client came before its server listened.
fn is_too_early(said: &str) -> bool {
    // In the words of ucmatose, cmtime and udaddy, of rping, of rdma_client, and of perftest's first connection. Its
    // second one is another matter: the server waits for that client alone.
    let words = ["REJECTED, error: 8", "UNREACHABLE, error: 1", "REJECTED, error 8", "Connection refused"];
    words.iter().any(|words| said.contains(words)) || said.contains("Unexpected CM event bl blka 8")
}

/// Runs a server and a client to good ends; what both said.
pub(crate) fn meet(
    program: [&str; 2],
    server_args: &str,
    client_args: &str,
    address: &str,
) -> (String, String) {
    let mut server = started(program[0], server_args, address);
    wait_for_manager(&server);
    for _ in 0..TRIES {
        let client = started(program[1], client_args, address).wait_with_output().unwrap();
        let client_said = said(&client);
        if !client.status.success() && is_too_early(&client_said) && server.try_wait().unwrap().is_none() {
            continue;
        }
        let server: Output = server.wait_with_output().unwrap();
        let server_said = said(&server);
        let is_good = client.status.success() && server.status.success();
        assert!(
            is_good,
            "{program:?} {client_args}: client {}\n{client_said}\nserver {}\n{server_said}",
            client.status, server.status
        );
        return (client_said, server_said);
    }
    let _ = server.kill();
    panic!("{program:?}: the server never listened: {}", said(&server.wait_with_output().unwrap()));
}

#[test]
fn rping_validates_what_comes_back() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.89.10";
    let both = ["rping", "rping"];
    let (_, server) =
        meet(both, &format!("-s -a {address} -C 20 -V -v"), &format!("-c -a {address} -C 20 -V -v"), address);
    assert!(server.contains("rdma-ping-19"), "{server}");
    meet(both, "-s -a ::1 -C 5 -V", "-c -a ::1 -C 5 -V", "::1");
}

#[test]
fn ucmatose_connects_many_times_and_migrates() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.89.11";
    let both = ["ucmatose", "ucmatose"];
    meet(both, &format!("-b {address} -c 5 -C 10"), &format!("-s {address} -c 5 -C 10"), address);
    meet(both, &format!("-b {address} -m"), &format!("-s {address} -m"), address);
    meet(both, "-b ::1", "-s ::1", "::1");
}

#[test]
fn datagrams_find_their_queue_pair() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.89.12";
    let both = ["udaddy", "udaddy"];
    meet(both, &format!("-b {address} -c 3 -C 10"), &format!("-s {address} -c 3 -C 10"), address);
}

#[test]
fn a_group_is_joined_and_hears() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.89.13";
    let group = "239.89.13.1";
    // Datagrams before it listens are lost, so it must say so line by line.
    let mut server = started("stdbuf", &format!("-oL mckey -m {group} -b {address}"), address);
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("receiving data transfers")), "it never listened");
    let client = started("mckey", &format!("-m {group} -b {address} -s"), address);
    let client = client.wait_with_output().unwrap();
    let heard: Vec<String> = lines.collect();
    let server = server.wait_with_output().unwrap();
    assert!(client.status.success() && server.status.success(), "{}\n{heard:?}", said(&client));
    assert!(heard.iter().any(|line| line.contains("data transfers complete")), "{heard:?}");
}

#[test]
fn calls_that_wait_work_without_a_channel() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.89.14";
    let (client, server) =
        meet(["rdma_server", "rdma_client"], "-p 7471", &format!("-s {address} -p 7471"), address);
    assert!(client.contains("end 0") && server.contains("end 0"), "{client}\n{server}");
}

/// `rdma_xclient` asks for a queue pair without inline bytes and sends sixteen: they fit where the gather list would be.
#[test]
fn inline_bytes_that_a_program_did_not_ask_for_fit_into_the_gather_list() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.89.26";
    let (client, server) =
        meet(["rdma_xserver", "rdma_xclient"], "-p 7471", &format!("-s {address} -p 7471"), address);
    assert!(client.contains("end 0") && server.contains("end 0"), "{client}\n{server}");
}

/// The server of cmtime does not end by itself.
#[test]
fn many_connections_at_once_all_stand() {
    if !are_here(PROGRAMS) {
        return;
    }
    let address = "127.0.89.15";
    let mut server = started("cmtime", &format!("-b {address}"), address);
    let run = || {
        let client = started("cmtime", &format!("-s {address} -c 1000"), address);
        let client = client.wait_with_output().unwrap();
        (client.status.success(), said(&client))
    };
    let first = (0..TRIES).map(|_| run()).find(|(_, told)| !is_too_early(told));
    // `timeout` hands the signal on.
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    let _ = server.wait();
    let (is_good, told) = first.unwrap();
    assert!(is_good && !told.contains("error"), "{told}");
}

#[test]
fn perftest_connects_by_rdma_cm() {
    if !are_here(PROGRAMS) {
        return;
    }
    let tools = [
        "ib_write_bw",
        "ib_write_lat",
        "ib_send_bw",
        "ib_send_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_atomic_bw",
        "ib_atomic_lat",
        "ib_send_bw -c UD",
    ];
    let one = |tool: &str, number: usize| {
        let (address, port) = (format!("127.0.89.{}", 20 + number), 18_650 + number);
        let (tool, kind) = tool.split_once(' ').unwrap_or((tool, ""));
        let args = format!("-R -n 100 -p {port} {kind}");
        meet([tool, tool], &args, &format!("{args} {address}"), &address);
    };
    // Both ends of a pair look for completions without a pause: a few of them at once, or a server is kept from opening
    // its second listener for longer than its client may wait.
    let numbered: Vec<_> = tools.into_iter().zip(0..).collect();
    for few in numbered.chunks(3) {
        std::thread::scope(|scope| {
            for (tool, number) in few {
                scope.spawn(move || one(tool, *number));
            }
        });
    }
}

#[test]
fn every_mistake_with_ids_gets_its_error_number() {
    if !can_compile() {
        return;
    }
    surprises_nothing("cm_mistakes", &["127.0.89.30"]);
}

#[test]
fn what_comes_to_nothing_has_its_event_and_its_status() {
    if !can_compile() {
        return;
    }
    surprises_nothing("cm_statuses", &["127.0.91.20", "127.0.91.250"]);
}

#[test]
fn ten_thousand_ids_leave_nothing_behind() {
    if !can_compile() {
        return;
    }
    surprises_nothing("cm_many", &["127.0.91.21"]);
}

/// It was: the end of a connection was told before its last message was taken off, and `ofi_rxm` gave up that message with its
/// queue pair.
#[test]
fn a_goodbye_does_not_overtake_the_last_message() {
    if !can_compile() {
        return;
    }
    surprises_nothing("cm_goodbye", &["127.0.91.22"]);
}

/// It was: a part of an answer of `rdma_getaddrinfo` that libfabric had made was freed as if it were ours. That ids can be
/// bound to `localhost` where no device has its address is tested with libfabric.
#[test]
fn answers_may_be_changed_before_they_are_freed_and_ids_bound_to_any_address() {
    if !can_compile() {
        return;
    }
    surprises_nothing("cm_answers", &["127.0.91.23"]);
}

fn can_compile() -> bool {
    judge::is_here("gcc") && judge::has_file("/usr/include/rdma/rdma_cma.h")
}

/// Runs a C program on its first argument, an address. It prints what is not as it should be.
fn surprises_nothing(program: &str, args: &[&str]) {
    let mut command = with_library(compiled_with(program, &["-lrdmacm", "-libverbs"]), args[0]);
    command.env_remove("FERROCE_LOG").args(args);
    assert_eq!(succeeds(command), "0 surprises\n");
}
