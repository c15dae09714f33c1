//! C programs of our own.

use std::env;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use ferroce_testkit::judge;

use crate::library::{are_here, compiled, folder, said, succeeds, with_library};

fn can_compile() -> bool {
    judge::is_here("gcc") && judge::has_file("/usr/include/infiniband/verbs.h")
}

#[test]
fn functions_are_found_by_name_and_version() {
    if !can_compile() {
        return;
    }
    let program = compiled("versions");
    for name in ["libibverbs.so.1", "libibverbs.so"] {
        let mut command = with_library(&program, "127.0.88.30");
        command.arg(name);
        assert_eq!(succeeds(command).trim(), "ferroce_lo");
    }
}

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
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.split_whitespace().take(2).eq(["Uid:", "0"]));
    let program = compiled("mistakes");
    if !root {
        assert!(succeeds(with_library(&program, "127.0.88.34")).contains("0 surprises"));
        return;
    }
    // Where that user may read it.
    let open = env::temp_dir().join(format!("ferroce-stock-{}", std::process::id()));
    fs::create_dir_all(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(folder().join("libibverbs.so.1"), open.join("libibverbs.so.1")).unwrap();
    fs::copy(&program, open.join("mistakes")).unwrap();
    let mut command = with_library("setpriv", "127.0.88.34");
    // The loader forgets the path of libraries where rights change, so it is set behind that.
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]);
    command.args(["--inh-caps=-all", "env"]);
    command.arg(format!("LD_LIBRARY_PATH={}", open.display())).arg(open.join("mistakes"));
    let output = command.output().unwrap();
    fs::remove_dir_all(&open).unwrap();
    assert!(output.status.success() && said(&output).contains("0 surprises"), "{}", said(&output));
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

#[test]
fn nothing_happens_before_the_first_call() {
    if !are_here(&["strace"]) {
        return;
    }
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=socket,clone,clone3,eventfd2,bind", "true"])
        .env("LD_PRELOAD", folder().join("libibverbs.so.1"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let calls = ["socket(", "clone(", "clone3(", "eventfd2(", "bind("];
    assert!(!calls.iter().any(|call| said.contains(call)), "{said}");
}
