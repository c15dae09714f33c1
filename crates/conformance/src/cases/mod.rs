//! The cases, by what they are about, and the list of them all.

mod changes;
mod corners;
mod datagrams;
mod errors;
mod events;
mod memory;
mod operations;
mod order;
mod receives;
mod refused;
mod remote_errors;
mod sizes;
mod states;
mod unreliable;
mod windows;

use crate::Rig;

/// Hands the list of all cases to a macro, behind what it was given.
#[doc(hidden)]
#[macro_export]
macro_rules! all_cases {
    ([$($then:tt)*] $($given:tt)*) => {
        $($then)*! { $($given)*;
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

/// What RDMA must do in one respect.
#[derive(Debug)]
pub struct Case {
    /// What it is about: one of [`GROUPS`].
    pub group: &'static str,
    /// Its name, which says what must be.
    pub name: &'static str,
    pub(crate) run: fn(&Rig),
}

impl Case {
    /// The case of this name.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        Self::find(name).unwrap_or_else(|| panic!("there is no case {name}"))
    }

    /// The case of this name, if there is one.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.name == name)
    }

    /// Its place in the list, which is a part of the addresses of its devices.
    pub(crate) fn number(&self) -> usize {
        CASES.iter().position(|case| case.name == self.name).unwrap_or(CASES.len())
    }
}

macro_rules! list {
    (; $($module:ident: $($case:ident)*;)*) => {
        /// All cases.
        pub const CASES: &[Case] =
            &[$($(Case { group: stringify!($module), name: stringify!($case), run: $module::$case },)*)*];
    };
}
all_cases!([list]);

/// A message of sixteen mebibytes, which takes too long to be sent everywhere.
pub const SIXTEEN_MEBIBYTES: Case =
    Case { group: "sizes", name: "sixteen_mebibytes", run: sizes::sixteen_mebibytes };

/// What the cases are about, and what that is, in the order of the list.
pub const GROUPS: &[(&str, &str)] = &[
    ("operations", "SEND, WRITE, READ and atomics do what they say"),
    ("sizes", "messages of all lengths, and the path MTU"),
    ("order", "what comes before what, and how much may be under way"),
    ("errors", "work that fails at the own end"),
    ("remote_errors", "work that the peer refuses, and peers that are gone"),
    ("receives", "receives, shared receive queues, and receivers that are not ready"),
    ("events", "completion channels, and what else a device tells"),
    ("datagrams", "unreliable datagrams, their headers and answers"),
    ("unreliable", "unreliable connections"),
    ("states", "states of queue pairs, their attributes, and changes of them"),
    ("refused", "requests that are refused when they are posted"),
    ("memory", "regions that go away under load, and parts of regions"),
    ("windows", "memory windows of both types"),
    ("changes", "reregistered regions, resized queues, moderation, multicast"),
    ("corners", "threads, sleepers, wrapped numbers, and other corners"),
];
