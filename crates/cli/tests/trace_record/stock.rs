//! Programs of Debian's packages, which know nothing of records.

use std::ffi::OsStr;
use std::fs::File;

use ferroce_testkit::judge;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::support::{Folder, Out, command, trace};

/// Runs a tool of perftest, its server and its client, under one command.
fn run_both(tool: &str, address: &str, port: u16, words: &[&dyn AsRef<OsStr>]) -> Out {
    let tool = format!("timeout -k 5 90 {tool} -F -u 17 -x 0 -d ferroce_lo -p {port}");
    // The client comes when the server listens.
    let listens = format!("grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6");
    let script =
        format!("{tool} & until {listens}; do kill -0 $! || exit 9; done; {tool} 127.0.0.1 && wait $!");
    let mut command = command(words);
    let output = command.args(["--", "sh", "-c", &script]).env("FERROCE_ADDRESS", address).output();
    Out::of(output.unwrap())
}

/// A port that the system gives to no program that asks for any.
fn port(number: u32) -> u16 {
    20_000 + u16::try_from((std::process::id().wrapping_mul(61).wrapping_add(number)) % 12_000).unwrap()
}

#[test]
fn both_ends_of_a_stock_program_are_recorded_and_explained() {
    if !judge::has_file("/usr/bin/ib_write_bw") {
        return;
    }
    let folder = Folder::new("stock");
    let file = folder.path("run.ftrace");
    let ran = run_both("ib_write_bw -n 300 -s 8192", "127.0.159.1", port(0), &[&"-o", &file]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(folder.names(), ["run.2.ftrace", "run.ftrace"], "{ran:?}");
    assert!(ran.err.contains("run.2.ftrace: ") && ran.err.contains("ib_write_bw"), "{ran:?}");

    let told = trace(&[&"explain", &file]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(!told.out.contains("error:") && !told.out.contains("warning:"), "{told:?}");
    let told = trace(&[&"stats", &"--json", &file]);
    let json = told.json();
    let operations = json["operations"].as_array().unwrap();
    let counts: Vec<_> = operations.iter().map(|found| (&found["operation"], &found["count"])).collect();
    assert_eq!(counts, [(&"RDMA WRITE".into(), &300.into())], "{json}");

    // Each packet of the capture says which request it belongs to.
    let capture = folder.path("run.pcapng");
    let told = trace(&[&"export", &file, &"-o", &capture, &"--json"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let mut reader = PcapNgReader::new(File::open(&capture).unwrap()).unwrap();
    let (mut packets, mut writes) = (0, 0);
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
        let comment = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(text) => Some(text.to_string()),
            _ => None,
        });
        let comment = comment.unwrap_or_else(|| panic!("packet {packets} has no comment"));
        packets += 1;
        writes += u64::from(comment.contains(": RDMA WRITE, id "));
    }
    // Two packets for each, which both ends saw.
    assert_eq!(Some(packets), told.json()["packets"].as_u64());
    assert!(writes >= 4 * 300, "{writes} of {packets} packets");
}

#[test]
fn a_stock_program_that_sends_is_recorded_at_both_ends() {
    if !judge::has_file("/usr/bin/ib_send_lat") {
        return;
    }
    let folder = Folder::new("sends");
    let file = folder.path("run.ftrace");
    let ran = run_both("ib_send_lat -n 100 -s 64", "127.0.159.2", port(1), &[&"--json", &"-o", &file]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // What the program said is before it.
    let json: serde_json::Value = serde_json::from_str(&ran.out[ran.out.find("\n{").unwrap()..]).unwrap();
    assert_eq!((json["records"].as_array().unwrap().len(), &json["exit_code"]), (2, &0.into()), "{json}");
    let json = trace(&[&"stats", &"--json", &file]).json();
    let found = |name: &str| {
        let of_it = json["operations"].as_array().unwrap().iter().filter(|found| found["operation"] == name);
        of_it.map(|found| found["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(found("SEND"), 200, "each end sends as often: {json}");
    assert!(found("RECEIVE") >= 200, "{json}");
    let told = trace(&[&"explain", &file]);
    assert_eq!(told.code, Some(0), "{told:?}");
}
