//! Every way in which work can end, each provoked by what a program or a peer does, and the page that explains them
//! (docs/statuses.md).
//!
//! Each status of the table below is the result of a function in `provoke`; the page names the very same tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "statuses/liar.rs"]
mod liar;
#[path = "statuses/page.rs"]
mod page;
#[path = "statuses/provoke.rs"]
mod provoke;

use ferroce_verbs::Status;

/// Writes down each status once, with the test that provokes it. The compiler sees that none is missing.
macro_rules! statuses {
    ($($status:ident => $test:ident,)*) => {
        /// The test that provokes a status.
        const fn test_of(status: Status) -> &'static str {
            match status {
                $(Status::$status => stringify!($test),)*
            }
        }

        $(
            #[test]
            fn $test() {
                let completion = provoke::$test();
                assert_eq!(completion.status, Status::$status, "{completion:?}");
                assert_eq!(completion.result().is_ok(), Status::$status == Status::Success);
            }
        )*
    };
}

statuses! {
    Success => a_write_that_arrives_is_a_success,
    LocalLength => a_message_longer_than_its_receive_is_a_local_length_error,
    LocalQpOperation => invalidating_what_is_no_window_is_a_local_qp_operation_error,
    LocalProtection => a_receive_into_read_only_memory_is_a_local_protection_error,
    Flushed => work_of_a_queue_pair_in_error_is_flushed,
    WindowBind => a_window_over_memory_without_bind_window_is_a_bind_error,
    BadResponse => a_read_answered_with_too_few_bytes_is_a_bad_response,
    LocalAccess => a_message_that_takes_away_a_region_is_a_local_access_error,
    RemoteInvalidRequest => a_read_that_the_queue_pair_does_not_allow_is_a_remote_invalid_request,
    RemoteAccess => a_write_into_read_only_memory_is_a_remote_access_error,
    RemoteOperation => a_message_for_a_receive_that_fails_is_a_remote_operation_error,
    RetryExceeded => a_peer_that_is_gone_exceeds_the_retries,
    RnrRetryExceeded => a_peer_without_receives_exceeds_the_rnr_retries,
}
