//! The kernel's soft-RoCE, `rdma_rxe`. `cargo xtask interop --card` shows the differences each time by a C program over the kernel alone.

use ferroce_verbs::Capability;

use super::{Difference, Driver, Lack, lack};
use crate::Missing;

/// What a case says of a request that should have been refused.
const NOT_REFUSED: &str = "status: Success";

/// The status of work that meets memory it cannot use.
pub static STATUS: Difference = Difference {
    why: "work that meets memory it cannot use ends with a general status (local QP operation error), and the peer's is that of an \
          operation that failed",
    says: &["left: LocalQpOperation", "left: (1, LocalQpOperation)"],
};

/// SENDs that invalidate the keys of regions.
pub static INVALIDATION: Difference = Difference {
    why: "a SEND that invalidates the key of a region is acknowledged before the key is looked at: the sender succeeds, the \
          receiver fails",
    says: &[NOT_REFUSED],
};

/// Windows and what lies behind them.
pub static BOUNDS: Difference = Difference {
    why: "it does not look at the bounds of a window: peers reach what lies behind it in the region",
    says: &[NOT_REFUSED],
};

/// Windows and the queue pairs they belong to.
pub static OWNER: Difference = Difference {
    why: "any queue pair closes a window, also one that it does not belong to",
    says: &["a queue pair closes a window of another one"],
};

/// Completion queues that have run over.
pub static OVERRUN: Difference = Difference {
    why: "queue pairs go on when their completion queue has run over, and their completions are lost",
    says: &["what must hold in the end"],
};

/// What is known of it.
pub static RXE: Driver = Driver {
    name: "rxe",
    tried: "Linux 6.1 and rdma-core 44",
    differs: &[
        ("a_region_changes_under_load", &STATUS),
        ("datagram_longer_than_the_receive", &STATUS),
        ("message_longer_than_the_receive", &STATUS),
        ("overrun_ends_the_queue_pair", &OVERRUN),
        ("receive_into_read_only_memory", &STATUS),
        ("send_with_a_key_that_cannot_be_invalidated", &INVALIDATION),
        ("type_2_window_belongs_to_one_queue_pair", &OWNER),
        ("type_2_window_opens_a_part", &BOUNDS),
    ],
    lacks: &[
        lack(
            Capability::MaskedAtomics,
            "the IBA has no masked atomics",
            &["masked_compare_and_swap", "masked_fetch_and_add"],
        ),
        lack(Capability::AtomicWrites, "it has no ATOMIC WRITE in Linux 6.1", &["atomic_write"]),
        lack(
            Capability::BindingAtOnce,
            "it has no memory windows of type 1",
            &[
                "a_refused_change_changes_nothing",
                "a_window_of_type_1_bound_again_cannot_be_opened_by_guessing_from_its_old_key",
                "bad_bindings",
                "type_1_window_belongs_to_its_domain",
                "type_1_window_is_not_closed_by_a_peer",
                "windows_are_no_wider_than_they_say",
            ],
        ),
        lack(
            Capability::KeysAhead,
            "it has no memory windows of type 1, and the key of one would not be known before it is bound",
            &["bindings_of_type_1_follow_each_other"],
        ),
        lack(
            Capability::Timestamps,
            "its completions have no times",
            &["completions_are_timed", "datagrams_keep_the_rate_limit", "the_rate_limit_is_kept"],
        ),
        lack(Capability::RateLimits, "it has no limits for queue pairs", &["nothing_changes_while_draining"]),
        lack(Capability::Moderation, "it does not put off events", &["events_wait_for_several_completions"]),
        lack(Capability::PeerEvents, "it has no events of what peers do", &["peer_errors_are_events"]),
        Lack {
            what: Missing::RawRequests,
            why: "the API never makes such requests, and only Ferroce's own card takes them by another way",
            cases: &[
                "atomic_into_read_only_memory",
                "binding_a_window_that_is_none",
                "limits_are_named",
                "local_key_of_another_domain",
                "local_range_outside",
                "read_into_read_only_memory",
                "uc_failed_send_stops_sending",
                "unknown_local_key",
            ],
        },
    ],
};
