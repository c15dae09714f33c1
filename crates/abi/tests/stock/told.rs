//! What the library tells: in its limits, in completions, in its log and in its captures.

use std::fs;
use std::path::Path;

use crate::library::{are_here, can_compile, compiled, succeeds, with_library};
use crate::pairs::Pair;

#[test]
fn a_capture_with_the_process_number_in_its_name_leaves_no_empty_file_beside_it() {
    if !can_compile() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numbered-captures");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut command = with_library(compiled("opens"), "127.0.88.60");
    command.env("FERROCE_PCAP", folder.join("x-%p.pcap"));
    assert!(succeeds(command).contains("open"));
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let name = file.file_name().unwrap().to_str().unwrap();
    let number = name.strip_prefix("x-").and_then(|name| name.strip_suffix(".pcap"));
    assert!(number.is_some_and(|number| number.parse::<u32>().is_ok()), "{name}");
    assert!(file.metadata().unwrap().len() > 0, "{name} is empty");
}

#[test]
fn limits_of_groups_and_rates_are_told() {
    if !are_here(&["ibv_devinfo"]) {
        return;
    }
    let mut command = with_library("ibv_devinfo", "127.0.88.61");
    command.arg("-v");
    let said = succeeds(command);
    let number = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.trim_end_matches("kbps").parse::<u64>().ok())
    };
    assert_eq!(number("max_mcast_grp:"), Some(1024), "{said}");
    assert_eq!(number("max_mcast_qp_attach:"), Some(4096), "{said}");
    assert_eq!(number("qp_rate_limit_max:"), Some(u32::MAX.into()), "{said}");
}

#[test]
fn an_empty_channel_that_does_not_block_is_no_refusal_and_a_refused_xrc_domain_is_one() {
    if !can_compile() {
        return;
    }
    let said = succeeds(with_library(compiled("mistakes"), "127.0.88.62"));
    assert!(!said.contains("temporarily unavailable"), "{said}");
    assert!(said.lines().any(|line| line == "ferroce: ibv_open_xrcd: XRC: not supported"), "{said}");
}

/// Flags and the kind of packet, as cards and the kernel's own device report them.
#[test]
fn completions_of_receives_say_that_they_came_with_a_global_address() {
    if !can_compile() {
        return;
    }
    let program = compiled("received");
    for (address, kind) in [("127.0.88.63", 2), ("::1", 1)] {
        for path in ["wire", "local"] {
            let mut command = with_library(&program, address);
            command.arg(kind.to_string()).env("FERROCE_PATH", path);
            assert_eq!(succeeds(command), "0 surprises\n", "{address} {path}");
        }
    }
}

/// More datagrams at once than a socket between processes keeps. They may be lost all the same, as on any network, where a
/// process is kept waiting for long, and this tool waits for all: so it may try again.
#[test]
fn a_burst_to_a_group_reaches_the_server_of_ib_send_bw_mcg() {
    if !are_here(&["ib_send_bw"]) {
        return;
    }
    let args = ["-F", "-x", "0", "-d", "ferroce_lo", "-c", "UD", "-g", "-s", "1024", "-n", "100"];
    let v4 = ["-M", "0:0:0:0:0:0:0:0:0:0:255:255:239:8:8:8"];
    for (address, group) in [("127.0.88.65", &v4[..]), ("::1", &[])] {
        let args = [&args[..], group].concat();
        let pair = Pair { program: "ib_send_bw", args: &args, address, variables: &[] };
        let ends = (0..3).map(|_| pair.try_run()).find(Result::is_ok);
        assert!(ends.is_some(), "{pair}: a datagram was lost, three times");
    }
}
