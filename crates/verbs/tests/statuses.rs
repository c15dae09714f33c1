//! Every way in which work can end, each provoked by what a program or a peer does, and the page that explains them
//! (docs/statuses.md).
//!
//! Each status of the table below is the result of a function in `provoke`; the page names the very same tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "statuses/codes.rs"]
mod codes;
mod common;
#[path = "statuses/liar.rs"]
mod liar;
#[path = "statuses/page.rs"]
mod page;
#[path = "statuses/provoke.rs"]
mod provoke;

use ferroce_verbs::{Status, VendorCode};

/// Writes down each status once, with the test that provokes it. The compiler sees that none is missing.
macro_rules! statuses {
    ($($status:ident $(($code:ident))? => $test:ident,)*) => {
        /// The test that provokes a status.
        const fn test_of(status: Status) -> &'static str {
            match status {
                $(Status::$status => stringify!($test),)*
            }
        }

        /// The codes that these tests provoke too.
        const WITH_STATUSES: &[(VendorCode, &str)] = &[$($((VendorCode::$code, stringify!($test)),)?)*];

        $(
            #[test]
            fn $test() {
                let completion = provoke::$test();
                assert_eq!(completion.status, Status::$status, "{completion:?}");
                assert_eq!(completion.result().is_ok(), Status::$status == Status::Success);
                let code: Option<VendorCode> = None$(.or(Some(VendorCode::$code)))?;
                assert_eq!(completion.vendor_code, code, "{completion:?}");
            }
        )*
    };
}

statuses! {
    Success => a_write_that_arrives_is_a_success,
    LocalLength(ReceiveTooShort) => a_message_longer_than_its_receive_is_a_local_length_error,
    LocalQpOperation(InvalidateRefused) => invalidating_what_is_no_window_is_a_local_qp_operation_error,
    LocalProtection(LocalRights) => a_receive_into_read_only_memory_is_a_local_protection_error,
    Flushed(FlushedUnderWay) => work_of_a_queue_pair_in_error_is_flushed,
    WindowBind(BindRights) => a_window_over_memory_without_bind_window_is_a_bind_error,
    BadResponse(AnswerLength) => a_read_answered_with_too_few_bytes_is_a_bad_response,
    LocalAccess(AccessRights) => a_message_that_takes_away_a_region_is_a_local_access_error,
    RemoteInvalidRequest(NakInvalidRequest) => a_read_that_the_queue_pair_does_not_allow_is_a_remote_invalid_request,
    RemoteAccess(NakRemoteAccess) => a_write_into_read_only_memory_is_a_remote_access_error,
    RemoteOperation(NakRemoteOperation) => a_message_for_a_receive_that_fails_is_a_remote_operation_error,
    RetryExceeded(NeverAnswered) => a_peer_that_is_gone_exceeds_the_retries,
    RnrRetryExceeded(NoReceiveThere) => a_peer_without_receives_exceeds_the_rnr_retries,
}

/// Writes down each other vendor code once, with the test that provokes it.
macro_rules! vendor_codes {
    ($($code:ident => $test:ident,)*) => {
        /// The codes that have tests of their own.
        const ALONE: &[(VendorCode, &str)] = &[$((VendorCode::$code, stringify!($test)),)*];

        $(
            #[test]
            fn $test() {
                let completion = codes::$test();
                assert_eq!(completion.vendor_code, Some(VendorCode::$code), "{completion:?}");
                assert_eq!(completion.status, VendorCode::$code.status());
                let text = completion.result().unwrap_err().to_string();
                assert!(text.contains(VendorCode::$code.text()), "{text}");
            }
        )*
    };
}

vendor_codes! {
    PacketLength => a_packet_that_is_too_long_ends_a_receive,
    MessageBrokenOff => a_message_that_is_broken_off_ends_a_receive,
    LocalKeyUnknown => a_send_with_a_local_key_of_nothing,
    LocalRange => a_send_from_beyond_a_region,
    LocalDomain => a_send_from_memory_of_another_domain,
    PostedInError => work_that_is_posted_in_error,
    BindKeyUnknown => a_window_over_a_region_that_is_not_there,
    BindRange => a_window_that_is_wider_than_its_region,
    BindDomain => a_window_over_memory_of_another_domain,
    AnswerKind => a_read_answered_as_an_atomic,
    AccessKeyUnknown => a_peer_writes_with_a_key_of_nothing,
    AccessRange => a_peer_writes_beyond_a_region,
    AccessDomain => a_peer_writes_into_memory_of_another_domain,
    AnswersStopped => a_peer_that_answered_and_is_gone,
}
