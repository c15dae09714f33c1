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
