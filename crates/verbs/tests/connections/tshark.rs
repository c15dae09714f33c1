//! Our handshake, as tshark reads it in the capture of a device.

use std::path::PathBuf;
use std::process::Command;

use ferroce_verbs::cm::{self, DatagramService, Listener};
use ferroce_verbs::{Context, QKey, Service};

use crate::common::{End, SOON, open};
use crate::parties::{Hosts, patient};

/// One line for each message: what it is, its service and its private data, in hexadecimal.
fn told(path: &PathBuf) -> Vec<String> {
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(path)
        .args(["-Y", "infiniband.mad", "-T", "fields", "-E", "separator=|"])
        .args(["-e", "_ws.col.Info", "-e", "infiniband.cm.req.serviceid"])
        .args(["-e", "infiniband.cm.req.serviceid.dport", "-e", "infiniband.cm.req.ip_cm.private"])
        .args(["-e", "infiniband.cm.rep.private", "-e", "infiniband.cm.rej.private"])
        .args(["-e", "_ws.expert.message"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn tshark_understands_our_handshake() {
    if !ferroce_testkit::judge::is_here("tshark") {
        return;
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cm-{}.pcapng", std::process::id()));
    let client = Context::builder("lo").address([127, 0, 133, 2]).capture(&path).open().unwrap();
    let hosts = Hosts { server: open([127, 0, 133, 1]), client, address: [127, 0, 133, 1].into() };
    let listener = Listener::bind(&hosts.server, 7174, 8).unwrap();
    let (asking, asked) = (patient().private_data(b"ask"), patient().private_data(b"answer"));
    let (here, there) = hosts.connect_with(&listener, Service::Rc, &asking, &asked);
    here.link.disconnect();
    here.link.wait_disconnected(SOON).unwrap();
    drop((here, there));
    let end = End::new(&hosts.client, Service::Rc);
    let refused = cm::start_connect(hosts.at(&listener), &end.qp, &patient()).unwrap();
    listener.accept(SOON).unwrap().reject(b"sorry").unwrap();
    refused.wait().unwrap_err();
    let offered = End::new(&hosts.server, Service::Ud);
    let service = DatagramService::bind(&offered.qp, 7174, QKey(5), b"").unwrap();
    let at = (hosts.address, service.port()).into();
    cm::resolve(&hosts.client, [127, 0, 133, 2].into(), at, &patient()).unwrap();
    drop((end, hosts));

    let lines = told(&path);
    // A loaded machine may have sent something twice.
    let mut seen: Vec<&str> = lines.iter().map(|line| line.split('|').next().unwrap()).collect();
    seen.dedup();
    let expected = [
        "CM: ConnectRequest",
        "CM: ConnectReply",
        "CM: ReadyToUse",
        "CM: DisconnectRequest",
        "CM: DisconnectReply",
        "CM: ConnectRequest",
        "CM: ConnectReject",
        "CM: ServiceIDResReq",
        "CM: ServiceIDResReqResp",
    ];
    assert_eq!(seen, expected, "{lines:#?}");
    let line = |kind: &str| lines.iter().find(|line| line.starts_with(kind)).unwrap();
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(line("CM: ConnectRequest").contains("0x0000000001061c06"), "{}", line("CM: ConnectRequest"));
    assert!(line("CM: ConnectRequest").contains(&hex("ask")), "{}", line("CM: ConnectRequest"));
    assert!(line("CM: ConnectReply").contains(&hex("answer")), "{}", line("CM: ConnectReply"));
    assert!(line("CM: ConnectReject").contains(&hex("sorry")), "{}", line("CM: ConnectReject"));
    for line in &lines {
        assert!(!line.contains("alformed"), "{line}");
    }
    std::fs::remove_file(&path).unwrap();
}
