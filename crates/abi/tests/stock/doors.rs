//! The libraries that programs ask for, and the one behind them.

use std::process::Command;

use crate::library::can_compile;
use crate::library::{are_here, compiled, compiled_with, folder, succeeds, with_library};

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
fn both_doors_lead_to_one_engine_which_outlives_them() {
    if !can_compile() {
        return;
    }
    let program = compiled_with("doors", &[]);
    for orders in [["vc", "vc"], ["vc", "cv"], ["cv", "vc"], ["cv", "cv"]] {
        let mut command = with_library(&program, "127.0.88.55");
        command.args(orders);
        assert_eq!(succeeds(command), "one engine\n", "{orders:?}");
    }
}

#[test]
fn nothing_happens_before_the_first_call() {
    if !are_here(&["strace"]) {
        return;
    }
    let doors = ["libibverbs.so.1", "librdmacm.so.1"].map(|door| folder().join(door).display().to_string());
    for preload in [doors[0].clone(), doors[1].clone(), doors.join(" ")] {
        let output = Command::new("strace")
            .args(["-f", "-e", "trace=socket,clone,clone3,eventfd2,bind", "true"])
            .env("LD_PRELOAD", &preload)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("cannot be preloaded"), "{preload}: {said}");
        let calls = ["socket(", "clone(", "clone3(", "eventfd2(", "bind("];
        assert!(!calls.iter().any(|call| said.contains(call)), "{preload}: {said}");
    }
}
