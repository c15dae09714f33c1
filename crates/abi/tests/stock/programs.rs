//! C programs of our own.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::library::{are_here, can_compile, compiled, folder, is_long, said, succeeds, with_library};

#[test]
fn every_mistake_gets_its_error_number_and_a_line_that_says_why() {
    if !can_compile() {
        return;
    }
    let said = succeeds(with_library(compiled("mistakes"), "127.0.88.31"));
    assert!(said.contains("0 surprises"), "{said}");
    for line in [
        "ferroce: ibv_query_port: port 2: the device has one, with the number 1",
        "ferroce: ibv_create_qp: queue pairs of type 8: not supported",
        "ferroce: ibv_post_recv: 2 pieces, at most 1 allowed",
        "ferroce: ibv_destroy_cq: queue pairs still complete into the queue",
    ] {
        assert!(said.lines().any(|told| told == line), "{line}\n{said}");
    }
}

#[test]
fn a_signal_does_to_a_wait_what_it_does_to_a_read() {
    if !can_compile() {
        return;
    }
    let mut command = with_library(compiled("signals"), "127.0.88.37");
    command.env_remove("FERROCE_LOG");
    assert_eq!(succeeds(command), "0 surprises\n");
}

#[test]
fn nothing_is_said_unless_it_is_asked_for() {
    if !can_compile() {
        return;
    }
    let mut command = with_library(compiled("mistakes"), "127.0.88.32");
    command.env_remove("FERROCE_LOG");
    assert_eq!(succeeds(command), "0 surprises\n");
}

#[test]
fn children_of_a_fork_get_errors_and_do_not_hang() {
    if !can_compile() {
        return;
    }
    let said = succeeds(with_library(compiled("children"), "127.0.88.33"));
    assert!(said.contains("as it should be"), "{said}");
}

#[test]
fn a_user_without_any_right_has_a_device() {
    if !can_compile() || !are_here(&["setpriv"]) {
        return;
    }
    let program = compiled("mistakes");
    if !is_root() {
        assert!(succeeds(with_library(&program, "127.0.88.34")).contains("0 surprises"));
        return;
    }
    let guest = Unprivileged::new(&program);
    let output = guest.command("127.0.88.34").output().unwrap();
    assert!(output.status.success() && said(&output).contains("0 surprises"), "{}", said(&output));
}

/// A user's processes share a port with each other, and with no other user's.
#[test]
fn the_switchboard_of_another_user_is_named() {
    if !can_compile() || !are_here(&["setpriv"]) {
        return;
    }
    if !is_root() {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let (address, program) = ("127.0.88.35", compiled("opens"));
    let guest = Unprivileged::new(&program);
    let mut other = guest.command(address);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "open\n");
    let refused = said(&with_library(&program, address).output().unwrap());
    // It gives the port up when its input ends.
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    let mut told = refused.lines().collect::<Vec<_>>();
    told.sort_unstable();
    let [number, why] = told[..] else { panic!("{refused}") };
    assert_eq!(number, "errno 13", "{refused}");
    let expected = "ferroce: ibv_open_device: UDP port 4791 of ";
    assert!(why.starts_with(expected) && why.contains("belongs to another user (uid 65534"), "{why}");
    assert!(said(&with_library(&program, address).output().unwrap()).contains("open"));
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.split_whitespace().take(2).eq(["Uid:", "0"]))
}

/// A user without any right, and a program with the library where that user may read it.
struct Unprivileged {
    open: PathBuf,
    program: PathBuf,
}

impl Unprivileged {
    fn new(program: &Path) -> Self {
        let name = program.file_name().unwrap();
        let open = format!("ferroce-stock-{}-{}", std::process::id(), name.display());
        let open = env::temp_dir().join(open);
        fs::create_dir_all(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        for library in ["libibverbs.so.1", "libferroce.so.0"] {
            fs::copy(folder().join(library), open.join(library)).unwrap();
        }
        fs::copy(program, open.join(name)).unwrap();
        Self { program: open.join(name), open }
    }

    fn command(&self, address: &str) -> Command {
        let mut command = with_library("setpriv", address);
        // The loader forgets the path of libraries where rights change, so it is set behind that.
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set=-all",
        ]);
        command.args(["--inh-caps=-all", "env"]);
        command.arg(format!("LD_LIBRARY_PATH={}", self.open.display())).arg(&self.program);
        command
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.open);
    }
}

#[test]
fn extended_posting_is_all_or_nothing() {
    if !can_compile() {
        return;
    }
    let program = compiled("all_or_nothing");
    for path in ["wire", "local"] {
        let mut command = with_library(&program, "127.0.88.37");
        command.env("FERROCE_PATH", path);
        assert!(succeeds(command).contains("all or nothing"));
    }
}

#[test]
fn keys_of_type_1_windows_bound_from_c_do_not_follow_from_each_other() {
    if !can_compile() {
        return;
    }
    let program = compiled("windows");
    for path in ["wire", "local"] {
        let mut command = with_library(&program, "127.0.88.54");
        command.env("FERROCE_PATH", path).env_remove("FERROCE_LOG");
        assert_eq!(succeeds(command), "every key opened what it should\n");
    }
}

/// With the log on, so that refusals are written, and with a capture, so that packets are.
#[test]
fn a_thread_with_a_pending_cancel_ends_at_a_cancellation_point_and_not_in_the_library() {
    if !can_compile() {
        return;
    }
    let program = compiled("cancelled");
    let capture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cancelled.pcapng");
    for (path, capture) in [("wire", Some(&capture)), ("wire", None), ("local", None)] {
        let mut command = with_library(&program, "127.0.88.53");
        command.arg("200").env("FERROCE_PATH", path).envs(capture.map(|file| ("FERROCE_PCAP", file)));
        let said = succeeds(command);
        assert!(said.contains("cancelled where it may be"), "{said}");
        let refusals = said.lines().filter(|line| line.starts_with("ferroce: ibv_"));
        assert!(refusals.count() >= 4, "nothing was written: {said}");
    }
}

#[test]
fn every_send_before_a_bad_one_is_posted() {
    post_as_far_as_it_goes("sends", 72, "127.0.88.50");
}

#[test]
fn every_receive_before_a_bad_one_is_posted() {
    post_as_far_as_it_goes("receives", 24, "127.0.88.51");
}

#[test]
fn every_shared_receive_before_a_bad_one_is_posted() {
    post_as_far_as_it_goes("shared", 24, "127.0.88.52");
}

fn post_as_far_as_it_goes(what: &str, lists: u32, address: &str) {
    if !can_compile() {
        return;
    }
    let program = compiled("before_bad");
    for path in ["wire", "local"] {
        let mut command = with_library(&program, address);
        command.arg(what).env("FERROCE_PATH", path).env_remove("FERROCE_LOG");
        assert_eq!(succeeds(command), format!("{lists} lists were posted as far as they go\n"));
    }
}

#[test]
fn a_port_that_another_program_has_is_named() {
    if !are_here(&["ibv_devinfo"]) {
        return;
    }
    let _taken = UdpSocket::bind("127.0.88.36:4791").unwrap();
    let output = with_library("ibv_devinfo", "127.0.88.36").output().unwrap();
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    let line = said.lines().find(|line| line.starts_with("ferroce: ibv_open_device: "));
    assert!(line.is_some_and(|line| line.contains("4791") && line.contains("127.0.88.36")), "{said}");
}

/// Rounds of `parting` that failed. Where nothing is lost a process may be kept waiting for eight seconds by
/// a busy machine; where packets are lost that much time would be spent on each, so it is one second.
fn partings(how: &str, rounds: u32, address: &str, faults: Option<&str>) -> (u32, String) {
    let timeout = if faults.is_some() { "15" } else { "18" };
    let mut command = with_library(compiled("parting"), address);
    command.args([how, &rounds.to_string(), timeout]).envs(faults.map(|plan| ("FERROCE_FAULTS", plan)));
    let said = succeeds(command);
    let failed = said.lines().find_map(|line| line.strip_suffix(&format!(" of {rounds} failed")));
    (failed.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said}")), said)
}

/// A process that ends as soon as it has its last message takes no acknowledgement along.
#[test]
fn a_process_that_ends_at_once_leaves_its_peer_content() {
    if !can_compile() {
        return;
    }
    for how in ["exit", "destroy"] {
        let (failed, said) = partings(how, 50, "127.0.88.38", None);
        assert_eq!(failed, 0, "{how}: {said}");
    }
}

/// With packets lost, the last acknowledgement may be lost too, and no process is there to repeat it. It is
/// sent twice, so that this takes two losses: four rounds of ten thousand, where it was one of fifty.
#[test]
fn a_lost_farewell_is_rare() {
    if !can_compile() {
        return;
    }
    let rounds = if is_long() { 500 } else { 30 };
    for how in ["exit", "destroy"] {
        let (failed, said) = partings(how, rounds, "127.0.88.39", Some("loss=0.02"));
        assert!(failed <= 1 + rounds / 200, "{how}: {said}");
    }
}
