//! `ferroce doctor` where something is really broken: in a network and with files of its own, it names what was
//! broken, and the command that it tells mends it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use ferroce_testkit::judge;
use ferroce_testkit::namespaces::{self, answer_to, run};
use serde_json::Value;

fn main() -> ExitCode {
    if !namespaces::is_inside() {
        // In namespaces of its own every user looks like root: asked here, the answer is true.
        let _ = judge::is_root_for("a process of another user");
        return namespaces::run_inside(&["nft"]);
    }
    let mut passed = 0;
    let mut test = |test: fn()| {
        test();
        passed += 1;
    };
    // The first one: the loopback interface of a new namespace is down.
    test(a_loopback_interface_that_is_down);
    test(a_network_that_is_well);
    test(a_foreign_socket_on_the_port);
    test(rules_that_drop_on_loopback);
    test(rules_that_drop_on_an_interface);
    test(an_interface_that_is_down_or_too_small);
    test(a_strict_rp_filter);
    test(few_descriptors);
    test(a_leader_that_is_stopped);
    if has_other_users() {
        // The last ones: they replace /sys and /dev.
        plant_soft_roce();
        test(little_memory_to_lock);
        test(device_files_that_may_not_be_opened);
        test(an_interface_below_soft_roce_that_is_small);
    }
    let _ = io::stdout().write_all(format!("test result: ok. {passed} passed; 0 failed\n").as_bytes());
    ExitCode::SUCCESS
}

/// Whether this process may become another user: its user namespace is that of the machine.
fn has_other_users() -> bool {
    fs::read_to_string("/proc/self/uid_map").unwrap().split_whitespace().eq(["0", "0", "4294967295"])
}

/// What the doctor says.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    findings: Vec<Value>,
    stderr: String,
}

impl Said {
    fn of(command: &mut Command) -> Self {
        let out = command.stdin(Stdio::null()).output().unwrap();
        let [stdout, stderr] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let json: Value =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
        let mut findings = json["findings"].as_array().unwrap().clone();
        // Root of a user namespace may not read which tables of the older iptables there are.
        findings.retain(|finding| !has(finding, "seen", "tables_names: Permission denied"));
        Self { code: out.status.code(), findings, stderr }
    }

    /// The one finding of this level, with the exit code that belongs to it.
    #[track_caller]
    fn only(&self, level: &str) -> &Value {
        let mut found = self.findings.iter().filter(|finding| finding["level"] == level);
        let first = found.next().unwrap_or_else(|| panic!("no {level}: {self:#?}"));
        assert!(found.next().is_none(), "more than one {level}: {self:#?}");
        assert_eq!(self.code, Some(i32::from(level == "fault")), "{self:#?}");
        assert_eq!(self.stderr.starts_with("ferroce: 1 fault found: "), level == "fault", "{self:#?}");
        first
    }

    #[track_caller]
    fn is_well(&self) {
        let is_fine = |finding: &&Value| matches!(finding["level"].as_str(), Some("ok" | "note"));
        assert!(self.findings.iter().all(|finding| is_fine(&finding)), "{self:#?}");
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
    }
}

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

/// Where every user finds it.
const SHARED: &str = "/mnt/ferroce";

/// The doctor, with cards on these interfaces.
fn doctor(netdev: &str, check: &str) -> Said {
    Said::of(Command::new(FERROCE).args(["doctor", "--json", "--only", check]).env("FERROCE_NETDEV", netdev))
}

/// The same below a shell that has done this first, perhaps as another user.
fn doctor_after(first: &str, prefix: &str, check: &str) -> Said {
    let program = if prefix.is_empty() { FERROCE } else { SHARED };
    let line = format!("{first}; exec {prefix} {program} doctor --json --only {check}");
    Said::of(Command::new("sh").args(["-c", &line]).env("FERROCE_NETDEV", "lo"))
}

/// Does what a finding advises first.
#[track_caller]
fn paste(finding: &Value) {
    let command = finding["commands"][0].as_str().unwrap_or_else(|| panic!("no command: {finding}"));
    // This is root already, perhaps where there is no sudo.
    let line = command.replace("sudo ", "");
    let status = Command::new("sh").args(["-c", &line]).status().unwrap();
    assert!(status.success(), "{line}");
}

fn has(finding: &Value, key: &str, words: &str) -> bool {
    finding[key].to_string().contains(words)
}

fn a_loopback_interface_that_is_down() {
    let said = doctor("", "card");
    let fault = said.only("fault");
    assert!(has(fault, "what", "loopback interface, which is down"), "{fault}");
    paste(fault);
    doctor("", "card").is_well();
}

fn a_network_that_is_well() {
    let said = doctor("", "card,port-4791,switchboard,descriptors,firewall,rp-filter");
    said.is_well();
    let arrived = said.findings.iter().any(|finding| has(finding, "what", "on loopback arrived"));
    assert!(arrived, "{said:#?}");
}

fn a_foreign_socket_on_the_port() {
    let socket = UdpSocket::bind("0.0.0.0:4791").unwrap();
    let said = doctor("", "port-4791");
    let fault = said.only("fault");
    assert!(has(fault, "what", &format!("taken by process {} (", std::process::id())), "{fault}");
    // Nothing is tried on loopback then, and nothing guessed.
    let untried = doctor("", "firewall");
    assert!(has(untried.only("unknown"), "what", "whether a datagram"), "{untried:#?}");
    drop(socket);
    let socket = UdpSocket::bind("127.0.0.9:4791").unwrap();
    assert!(has(doctor("", "port-4791").only("warning"), "what", "on 127.0.0.9"));
    drop(socket);
    doctor("", "port-4791,firewall").is_well();
}

fn nft(rules: &str) {
    run("nft flush ruleset");
    let _ = answer_to("nft -f -", rules);
}

fn rules_that_drop_on_loopback() {
    for (hook, tried) in [("input", "did not arrive"), ("output", "was refused")] {
        nft(&format!(
            "table inet f {{ chain c {{ type filter hook {hook} priority 0; udp dport 4000-5000 drop; }}; }}"
        ));
        let said = doctor("", "firewall");
        assert_eq!(said.code, Some(1));
        let faults: Vec<&Value> =
            said.findings.iter().filter(|finding| finding["level"] == "fault").collect();
        let [lost, rule] = faults.as_slice() else { panic!("{said:#?}") };
        assert!(has(lost, "what", tried), "{hook}: {lost}");
        assert!(has(rule, "seen", "of chain c in table inet f"), "{hook}: {rule}");
        paste(rule);
        doctor("", "firewall").is_well();
    }
    // What drops something else is not blamed.
    nft(
        "table inet f { chain c { type filter hook input priority 0; tcp dport 4791 drop; udp dport 53 drop; }; }",
    );
    doctor("", "firewall").is_well();
    nft("");
}

/// An interface without another end.
fn add_interface(name: &str, address: &str) {
    run(&format!("ip link add {name} type veth peer name {name}-far"));
    run(&format!("ip link set {name}-far up"));
    run(&format!("ip link set {name} up"));
    run(&format!("ip address add {address} dev {name}"));
}

fn rules_that_drop_on_an_interface() {
    add_interface("v0", "192.0.2.1/24");
    nft("table ip f { chain c { type filter hook input priority 0; policy drop; iif lo accept; \
         ct state established,related accept; tcp dport 22 accept; }; }");
    // A closed interface is no card: that is only worth a note.
    let closed = doctor("lo", "firewall");
    assert!(has(closed.only("note"), "about", "v0"), "{closed:#?}");
    let said = doctor("lo,v0", "firewall");
    let fault = said.only("fault");
    assert!(has(fault, "about", "v0") && has(fault, "seen", "the policy of chain c"), "{fault}");
    paste(fault);
    doctor("lo,v0", "firewall").is_well();
    nft("");
}

/// How often it is asked whether an interface has a carrier: for seconds, and the kernel needs one at most.
const MOST_ASKED: u32 = 1000;

fn an_interface_that_is_down_or_too_small() {
    run("ip link set v0 down");
    let said = doctor("v0", "card");
    assert!(has(said.only("fault"), "what", "ferroce_v0 is down"), "{said:#?}");
    paste(said.only("fault"));
    // The kernel tells of a carrier a moment after it has switched the interface on.
    let is_on = (0..MOST_ASKED).any(|_| doctor("v0", "card").code == Some(0));
    assert!(is_on, "{:#?}", doctor("v0", "card"));
    run("ip link set v0 mtu 300");
    let said = doctor("v0", "card");
    assert!(has(said.only("fault"), "seen", "an MTU of at least 352 bytes"), "{said:#?}");
    run("ip link set v0 mtu 1500");
    doctor("v0", "card").is_well();
}

fn a_strict_rp_filter() {
    add_interface("v1", "192.0.2.2/24");
    for name in ["all", "v0", "v1"] {
        fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
        fs::write(format!("/proc/sys/net/ipv4/conf/{name}/arp_ignore"), "1").unwrap();
    }
    doctor("v0,v1", "rp-filter").is_well();
    fs::write("/proc/sys/net/ipv4/conf/v1/rp_filter", "1").unwrap();
    let said = doctor("v0,v1", "rp-filter");
    let fault = said.only("fault");
    assert!(has(fault, "about", "v1") && has(fault, "seen", "subnet 192.0.2.0/24"), "{fault}");
    assert_eq!(fault["commands"][0], "sysctl -w net.ipv4.conf.v1.rp_filter=2");
    assert!(
        has(doctor("lo", "rp-filter").only("note"), "what", "rp_filter is strict"),
        "cards are elsewhere"
    );
    fs::write("/proc/sys/net/ipv4/conf/v1/rp_filter", "2").unwrap();
    doctor("v0,v1", "rp-filter").is_well();
    fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "0").unwrap();
    fs::write("/proc/sys/net/ipv4/conf/v0/arp_ignore", "0").unwrap();
    assert!(has(doctor("v0,v1", "rp-filter").only("warning"), "what", "answer ARP"));
    run("ip link del v1");
}

fn few_descriptors() {
    let said = doctor_after("ulimit -n 100", "", "descriptors");
    assert!(has(said.only("fault"), "seen", "Max open files 100 100"), "{said:#?}");
}

fn a_leader_that_is_stopped() {
    let mut command = Command::new(FERROCE);
    command.args(["probe", "responder", "--bind", "127.0.0.1"]).env("FERROCE_NETDEV", "lo");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let well = doctor("lo", "switchboard,port-4791,firewall");
    well.is_well();
    assert!(has(&well.findings[0], "what", "belongs to processes of this user"), "{well:#?}");
    run(&format!("kill -STOP {}", child.id()));
    let said = doctor("lo", "switchboard");
    let fault = said.only("fault");
    assert!(has(fault, "seen", "State: T"), "{fault}");
    paste(fault);
    doctor("lo", "switchboard").is_well();
    run(&format!("kill -INT {}", child.id()));
    assert!(child.wait().unwrap().success());
}

fn plant(path: &str, text: &str) {
    fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Shows this process and its children a soft-RoCE device, whose files are real files.
fn plant_soft_roce() {
    run("mount -t tmpfs tmpfs /sys");
    let port = "/sys/class/infiniband/rxe0/ports/1";
    plant("/sys/class/infiniband/rxe0/parent", "v0\n");
    plant("/sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
    plant("/sys/class/misc/rdma_cm/dev", "10:121\n");
    plant("/sys/class/net/v0/mtu", "9000\n");
    plant(&format!("{port}/state"), "4: ACTIVE\n");
    plant(&format!("{port}/gids/0"), "0000:0000:0000:0000:0000:ffff:c000:0201\n");
    plant(&format!("{port}/gid_attrs/types/0"), "RoCE v2\n");
    plant(&format!("{port}/gid_attrs/ndevs/0"), "v0\n");
    // Programs need a few of the files that are there now.
    run("mount -t tmpfs tmpfs /mnt");
    for name in ["null", "urandom"] {
        plant(&format!("/mnt/{name}"), "");
        run(&format!("mount --bind /dev/{name} /mnt/{name}"));
    }
    // Another user may have no way to where it was built.
    plant(SHARED, "");
    run(&format!("mount --bind {FERROCE} {SHARED}"));
    run("mount --rbind /mnt /dev");
    for name in ["uverbs0", "rdma_cm"] {
        plant(&format!("/dev/infiniband/{name}"), "");
        set_mode(name, 0o666);
    }
    doctor("lo", "devices,links,gids,mtu,permissions").is_well();
}

fn set_mode(name: &str, mode: u32) {
    fs::set_permissions(format!("/dev/infiniband/{name}"), PermissionsExt::from_mode(mode)).unwrap();
}

/// As a user that is not root, and in no group.
const STRANGER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

fn little_memory_to_lock() {
    let said = doctor_after("ulimit -l 64", STRANGER, "memlock");
    assert!(has(said.only("fault"), "what", "may lock 64 KiB"), "{said:#?}");
    assert!(has(doctor_after("ulimit -l 64", "", "memlock").only("warning"), "what", "CAP_IPC_LOCK"));
}

fn device_files_that_may_not_be_opened() {
    doctor_after(":", STRANGER, "permissions").is_well();
    set_mode("uverbs0", 0o600);
    let said = doctor_after(":", STRANGER, "permissions");
    let fault = said.only("fault");
    assert!(has(fault, "seen", "mode 0600, uid 0, gid 0") && has(fault, "seen", "denied"), "{fault}");
    let root = doctor("lo", "permissions");
    assert!(has(root.only("warning"), "what", "only root may open uverbs0"), "{root:#?}");
    paste(fault);
    doctor_after(":", STRANGER, "permissions").is_well();
    fs::remove_file("/dev/infiniband/rdma_cm").unwrap();
    let said = doctor("lo", "permissions");
    assert!(has(said.only("fault"), "what", "there is no /dev/infiniband/rdma_cm"), "{said:#?}");
}

fn an_interface_below_soft_roce_that_is_small() {
    plant("/sys/class/net/v0/mtu", "1280\n");
    assert!(has(doctor("lo", "mtu").only("warning"), "what", "less than Ethernet's 1500"));
    nft("table inet f { chain c { type filter hook prerouting priority 0; udp dport { 53, 4791 } drop; }; }");
    // Soft-RoCE meets the rules of its interface, though that is no card of Ferroce.
    let said = doctor("", "firewall");
    let named = |finding: &&Value| finding["level"] == "fault" && has(finding, "about", "v0");
    assert!(said.findings.iter().any(|finding| named(&finding)), "{said:#?}");
}
