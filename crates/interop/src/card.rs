//! The conformance suite of verbs in the guest, over the kernel's soft-RoCE as a card, by the guest's own `libibverbs`.
//!
//! Each case passes, or misses what the card says that it does not have, or is listed here with what the kernel does otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use crate::doctor::bring;
use crate::far::Far;
use crate::{Args, Result};

/// The program of the suite in the guest.
const PROGRAM: &str = "conformance_system";

/// What becomes of a case.
enum Outcome {
    Passed,
    /// The card does not have this, and says so.
    Misses(String),
    /// What it said.
    Failed(String),
}

/// What rdma_rxe of Linux 6.1 does otherwise than our own device and the IBA.
const OTHERWISE: &[(&str, &str)] = &[
    ("a_group_gets_copies", MULTICAST),
    ("a_region_changes_under_load", STATUS),
    ("a_shared_queue_changes_its_size", ROOM),
    ("a_shared_queue_takes_a_list", ROOM),
    ("a_window_of_type_2_bound_again_gets_a_tag_that_its_old_key_does_not_tell", WINDOWS),
    ("attributes_come_back", "it rounds the number of READs under way up"),
    ("bindings_follow_each_other", "a window of type 2 must be closed before it is bound again"),
    ("datagram_longer_than_the_receive", STATUS),
    (
        "datagrams_use_their_own_qkey",
        "the Q_Key of the queue pair is not shown for one with the highest bit set",
    ),
    ("datagram_header_shows_class_and_hops", "datagrams to itself have 64 hops"),
    ("the_forty_bytes_are_the_ip_header", "datagrams to itself have 64 hops"),
    ("draining_is_told", DRAINING),
    ("full_queues_say_so", ROOM),
    ("failed_work_flushes_the_rest", "sends that were posted before the error are not flushed"),
    ("first_packet_establishes", EVENTS),
    ("illegal_changes_change_nothing", "it takes some of the changes that the IBA forbids"),
    ("last_receive_reached", EVENTS),
    ("message_longer_than_the_receive", STATUS),
    ("misaligned_atomics", "it refuses them when they are posted"),
    ("nothing_changes_while_draining", DRAINING),
    ("overrun_ends_the_queue_pair", ROOM),
    ("peer_errors_are_events", EVENTS),
    ("receive_into_read_only_memory", STATUS),
    ("send_with_a_key_that_cannot_be_invalidated", "it does not look at the key"),
    ("shared_queue_runs_low", ROOM),
    ("the_traffic_class_goes_along_and_can_change", DRAINING),
    ("type_2_window_belongs_to_one_queue_pair", WINDOWS),
    ("type_2_window_is_closed_by_the_peer", WINDOWS),
    ("type_2_window_opens_a_part", WINDOWS),
    ("what_the_device_does_not_have", "it takes a second path, and does nothing with it"),
];

const DRAINING: &str = "queue pairs do not stop in SQD";
const EVENTS: &str = "it has no such event";
const MULTICAST: &str = "a group is not heard without joining it by `rdma_cm`";
const ROOM: &str = "queues have more room than was asked for";
const STATUS: &str = "the receiver's status is a general one (local QP operation error)";
const WINDOWS: &str =
    "keys of windows of type 2 are not those that the program has chosen, or are not looked at";

/// Runs it: how many cases passed, and which surprised us.
pub(crate) fn run(args: &Args, program: &Path) -> Result<()> {
    bring::bring(args.guest, program, PROGRAM)?;
    let names = Far::connect(args.guest)?.run(&format!("{PROGRAM} --cases"))?;
    let wanted =
        |name: &&str| args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()));
    let (mut passed, mut missed) = (0, BTreeMap::<String, Vec<&str>>::new());
    let (mut otherwise, mut wrong) = (Vec::new(), Vec::new());
    for name in names.lines().map(str::trim).filter(|name| !name.is_empty()).filter(wanted) {
        let known = OTHERWISE.iter().find(|(case, _)| *case == name).map(|(_, why)| *why);
        let outcome = one(args, name)?;
        let told = match (&outcome, known) {
            (Outcome::Passed, None) => "ok".to_owned(),
            (Outcome::Passed, Some(why)) => format!("ok, though {why}"),
            (Outcome::Misses(what), _) => format!("the card has no {what}"),
            (Outcome::Failed(_), Some(why)) => format!("differs: {why}"),
            (Outcome::Failed(said), None) => format!("FAILED\n{said}"),
        };
        eprintln!("system_rxe::{name} ... {told}");
        match (outcome, known) {
            (Outcome::Passed, _) => passed += 1,
            (Outcome::Misses(what), _) => missed.entry(what).or_default().push(name),
            (Outcome::Failed(_), Some(_)) => otherwise.push(name),
            (Outcome::Failed(_), None) => wrong.push(name),
        }
    }
    let missing: usize = missed.values().map(Vec::len).sum();
    println!(
        "system_rxe: {passed} cases passed, {missing} miss something, {} differ as is known, {} surprise: {wrong:?}",
        otherwise.len(),
        wrong.len()
    );
    if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?} surprise us").into()) }
}

/// Runs one case in a process of its own.
fn one(args: &Args, name: &str) -> Result<Outcome> {
    let mut far = Far::connect(args.guest)?;
    let guest = args.guest;
    far.start(&format!(
        "ulimit -l unlimited; FERROCE_SYSTEM_CASE={name} FERROCE_CARD=rxe0 FERROCE_ADDRESS={guest} FERROCE_PROVIDER=system \
         timeout 60 {PROGRAM} 2>&1"
    ))?;
    let (status, said) = far.finish()?;
    let lacks = said.split("capability: ").nth(1);
    let lacks = lacks.and_then(|rest| rest.split([' ', '\n', '"']).next());
    Ok(match (status, lacks) {
        (0, _) => Outcome::Passed,
        (_, Some(what)) => Outcome::Misses(what.to_owned()),
        _ => Outcome::Failed(said),
    })
}
