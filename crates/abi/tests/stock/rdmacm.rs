//! C programs of our own that call rdma_cm: mistakes, what comes to nothing, and many ids.

use ferroce_testkit::judge;

use crate::library::{compiled_with, succeeds, with_library};

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

fn can_compile() -> bool {
    judge::is_here("gcc") && judge::has_file("/usr/include/rdma/rdma_cma.h")
}

/// Runs a C program on its first argument, an address. It prints what is not as it should be.
fn surprises_nothing(program: &str, args: &[&str]) {
    let mut command = with_library(compiled_with(program, &["-lrdmacm", "-libverbs"]), args[0]);
    command.env_remove("FERROCE_LOG").args(args);
    assert_eq!(succeeds(command), "0 surprises\n");
}
