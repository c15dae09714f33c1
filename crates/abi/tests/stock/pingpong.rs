//! The examples of rdma-core: `ibv_devices`, `ibv_devinfo` and the pingpongs.

use crate::library::{are_here, folder, succeeds, with_library};
use crate::pairs::Pair;

const PROGRAMS: &[&str] = &[
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong",
    "ibv_srq_pingpong",
];

#[test]
fn the_device_is_listed_and_described() {
    if !are_here(PROGRAMS) {
        return;
    }
    let listed = succeeds(with_library("ibv_devices", "127.0.88.1"));
    assert!(listed.contains("ferroce_lo"), "{listed}");
    let mut command = with_library("ibv_devinfo", "127.0.88.1");
    command.arg("-v");
    let described = succeeds(command);
    for words in ["ferroce_lo", "ATOMIC_HCA", "PORT_ACTIVE", "Ethernet", "::ffff:127.0.88.1, RoCE v2"] {
        assert!(described.contains(words), "{words}: {described}");
    }
    // The same through LD_PRELOAD, which every child inherits.
    let mut command = with_library("sh", "127.0.88.1");
    command.args(["-c", "ls / > /dev/null && ibv_devices"]);
    command.env_remove("LD_LIBRARY_PATH").env("LD_PRELOAD", folder().join("libibverbs.so.1"));
    assert!(succeeds(command).contains("ferroce_lo"));
}

fn pingpong(program: &str, args: &[&str], address: &str, variables: &[(&str, &str)]) {
    if !are_here(PROGRAMS) {
        return;
    }
    let args = [&["-g", "0", "-n", "200"], args].concat();
    let (client, _) = Pair { program, args: &args, address, variables }.run();
    assert!(client.contains("200 iters in"), "{client}");
}

#[test]
fn rc_pingpong_validates_its_contents() {
    pingpong("ibv_rc_pingpong", &["-c"], "127.0.88.2", &[]);
}

#[test]
fn rc_pingpong_waits_for_events() {
    pingpong("ibv_rc_pingpong", &["-c", "-e"], "127.0.88.4", &[]);
}

#[test]
fn rc_pingpong_posts_by_the_extended_form_and_reads_timestamps() {
    pingpong("ibv_rc_pingpong", &["-N", "-t"], "127.0.88.6", &[]);
}

/// The process that is done first ends. If both copies of its very last acknowledgement are lost on purpose,
/// no process is left to repeat it, and the other one must fail: by right four runs in ten thousand do. So it
/// may be tried once more.
#[test]
fn rc_pingpong_survives_a_bad_link() {
    if !are_here(PROGRAMS) {
        return;
    }
    let pair = Pair {
        program: "ibv_rc_pingpong",
        args: &["-g", "0", "-n", "200", "-c", "-s", "65536"],
        address: "127.0.88.8",
        variables: &[("FERROCE_FAULTS", "loss=0.02,dup=0.01,reorder=0.02,seed=1")],
    };
    let mut failed = Vec::new();
    while let Err(both) = pair.try_run() {
        assert!(both.contains("transport retry counter exceeded"), "{both}");
        failed.push(both);
        assert!(failed.len() < 2, "twice: {failed:#?}");
    }
}

#[test]
fn uc_and_ud_pingpong() {
    pingpong("ibv_uc_pingpong", &[], "127.0.88.10", &[]);
    pingpong("ibv_ud_pingpong", &["-s", "2048", "-e"], "127.0.88.10", &[]);
}

#[test]
fn rc_pingpong_over_ipv6() {
    pingpong("ibv_rc_pingpong", &["-c"], "::1", &[]);
}

#[test]
fn srq_pingpong() {
    pingpong("ibv_srq_pingpong", &[], "127.0.88.12", &[]);
    pingpong("ibv_srq_pingpong", &["-e"], "127.0.88.12", &[]);
}
