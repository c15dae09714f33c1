//! The conformance suite: what RDMA must do, through the public API, whatever way packets take.
//!
//! A case is a function over a [`Rig`](rig::Rig): two hosts and the way between them. All cases run
//! over every setup; where packets get lost, a case waits for what has to arrive in the end.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

pub(crate) mod rig;

pub(crate) mod changes;
pub(crate) mod corners;
pub(crate) mod datagrams;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod memory;
pub(crate) mod operations;
pub(crate) mod order;
pub(crate) mod receives;
pub(crate) mod refused;
pub(crate) mod remote_errors;
pub(crate) mod sizes;
pub(crate) mod states;
pub(crate) mod unreliable;
pub(crate) mod windows;

use ferroce_trace::Timeline;
use ferroce_verbs::Recording;
use rig::{Rig, Setup};

/// Hands the list of all cases to a macro, behind what it was given.
macro_rules! all_cases {
    ($then:ident! $($given:tt)*) => {
        $then! { $($given)*;
            operations: send_arrives send_with_immediate write_arrives write_with_immediate read_brings
                compare_and_swap fetch_and_add masked_compare_and_swap masked_fetch_and_add atomic_write inline_forms gather_and_scatter;
            sizes: many_lengths zero_length_needs_no_key path_mtu_256 one_mebibyte;
            order: completions_come_in_posting_order unsignaled_work_is_silent a_batch_is_one_list
                sends_arrive_in_order a_read_after_a_write_sees_it a_fence_waits_for_reads
                a_send_tells_of_the_writes_before_it both_directions_at_once four_connections_at_once eight_share_a_window more_reads_than_the_depth;
            errors: unknown_local_key local_key_of_another_domain local_range_outside
                read_into_read_only_memory atomic_into_read_only_memory receive_into_read_only_memory
                message_longer_than_the_receive failed_work_flushes_the_rest flush_ends_both_queues
                binding_a_window_that_is_none invalidating_what_is_no_window;
            remote_errors: unknown_remote_key remote_range_outside remote_key_without_permission
                remote_key_of_another_domain remote_key_that_is_gone queue_pair_without_permission
                misaligned_atomics send_with_a_key_that_cannot_be_invalidated peer_is_gone
                peer_never_posts_a_receive a_failure_stays_with_its_connection;
            receives: rnr_then_success rnr_for_a_write_with_immediate three_share_a_queue
                shared_queue_runs_low shared_queue_runs_dry last_receive_reached receives_posted_one_by_one
                receives_in_one_list a_list_of_receives_is_taken_as_far_as_it_goes a_shared_queue_takes_a_list;
            events: channel_reports_any channel_reports_solicited no_event_unless_armed
                failures_are_solicited overrun_ends_the_queue_pair peer_errors_are_events;
            datagrams: datagram_arrives_with_its_header datagram_with_immediate datagram_lengths
                datagram_with_the_wrong_qkey datagram_without_receive datagram_to_an_absent_queue_pair
                datagram_longer_than_the_receive datagram_longer_than_the_mtu datagrams_use_their_own_qkey
                datagram_header_shows_class_and_hops datagrams_go_to_many the_forty_bytes_are_the_ip_header
                an_answer_goes_back_the_way_that_the_datagram_came;
            unreliable: uc_send uc_write uc_write_with_immediate uc_messages_come_whole_or_not_at_all
                uc_failed_send_stops_sending a_poster_that_waits_for_its_memory_is_served;
            states: attributes_come_back work_waits_for_its_state draining_is_told
                nothing_changes_while_draining what_the_device_does_not_have
                the_rate_limit_is_kept datagrams_keep_the_rate_limit the_traffic_class_goes_along_and_can_change
                completions_are_timed first_packet_establishes reset_and_connect_again illegal_changes_change_nothing;
            refused: bad_sends_change_nothing bad_receives_change_nothing full_queues_say_so
                a_place_is_free_when_its_completion_is_polled
                each_service_refuses_what_it_cannot limits_are_named;
            memory: dropped_region_stays_until_done deregistering_the_target_under_load
                deregistering_the_source_under_load deregistering_what_is_read
                deregistering_a_receive_under_load a_part_is_all_a_peer_gets
                dropped_region_stays_for_shared_receives;
            windows: type_2_window_opens_a_part type_2_window_is_closed_by_its_owner
                type_2_window_is_closed_by_the_peer type_2_window_belongs_to_one_queue_pair
                bindings_follow_each_other type_1_window_belongs_to_its_domain
                type_1_window_is_not_closed_by_a_peer windows_are_no_wider_than_they_say bad_bindings
                bindings_of_type_1_follow_each_other
                a_window_of_type_1_bound_again_cannot_be_opened_by_guessing_from_its_old_key
                a_window_of_type_2_bound_again_gets_a_tag_that_its_old_key_does_not_tell;
            changes: a_region_changes_its_access a_region_changes_its_domain a_region_changes_its_memory
                a_refused_change_changes_nothing a_region_changes_under_load a_shared_queue_changes_its_size
                a_completion_queue_changes_its_size events_wait_for_several_completions a_group_gets_copies
                a_reregistered_region_cannot_be_opened_by_guessing_from_its_old_key;
            corners: two_threads_post_at_once ping_pong_between_sleepers atomics_are_atomic psn_wraps_around
                a_queue_pair_may_be_its_own_peer a_dropped_queue_pair_is_forgotten
                one_completion_queue_for_all;
        }
    };
}
pub(crate) use all_cases;

/// The numbers of the cases, which become parts of their addresses.
macro_rules! names {
    (; $($module:ident: $($case:ident)*;)*) => {
        /// All cases by name.
        pub(crate) const CASES: &[(&str, fn(&Rig))] = &[$($((stringify!($case), $module::$case),)*)*];
    };
}
all_cases!(names!);

/// Runs one case over one setup.
pub(crate) fn run(setup: Setup, name: &str, case: fn(&Rig)) {
    let number = CASES.iter().position(|(known, _)| *known == name).unwrap_or(CASES.len());
    let rig = Rig::open(setup, number);
    run_on(&rig, case);
}

/// As [`run`], with everything written down, and the record looked at: each request has one fate, each completion one origin,
/// each packet with data one request.
pub(crate) fn run_recorded(setup: Setup, name: &str, case: fn(&Rig)) {
    let number = CASES.iter().position(|(known, _)| *known == name).unwrap_or(CASES.len());
    let rig = Rig::open(setup, number);
    let contexts = [&rig.a.context, &rig.b.context];
    let is_one = rig.a.address == rig.b.address;
    let mut recording = Recording::of(if is_one { &contexts[..1] } else { &contexts }).unwrap();
    run_on(&rig, case);
    let Rig { a, b, .. } = rig;
    drop((a, b));
    recording.stop();
    let timeline = Timeline::open(&[recording.path().to_owned()]).unwrap();
    for check in ferroce_trace::check(&timeline) {
        assert!(check.is_clean() && check.outstanding == 0, "{check}\n{}", recording.text().unwrap());
    }
}

/// Runs one case on a rig.
pub(crate) fn run_on(rig: &Rig, case: fn(&Rig)) {
    let before = rig.counters();
    case(rig);
    rig.check(before);
}
