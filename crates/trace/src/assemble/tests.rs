use ferroce_record::{CompletedFlags, HEADERS, PostedFlags, WorkOp};
use ferroce_transport::{Sge, Status, WorkKind};
use ferroce_wire::{Lkey, Rkey};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::work::{CompletionState, WorkState};

fn qpn(number: u32) -> Qpn {
    Qpn::new(number)
}

fn posted(queue: Queue, work: u32, op: WorkOp, flags: PostedFlags) -> Posted {
    Posted {
        queue,
        work,
        id: u64::from(work) ^ 0xabcd,
        op,
        flags,
        pieces: 1,
        length: 64,
        address: 0x1000,
        lkey: Lkey(5),
        remote: 0x2000,
        key: Rkey(9),
        imm: 0,
    }
}

fn completed(queue: Queue, qpn: Qpn, work: u32, status: Status, flags: CompletedFlags) -> Completed {
    Completed {
        queue,
        work,
        id: u64::from(work) ^ 0xabcd,
        status,
        vendor_code: None,
        kind: WorkKind::Send,
        flags,
        byte_len: 64,
        imm: 0,
        cq: 1,
        qpn,
        source_qp: 0,
        invalidated: Rkey(0),
    }
}

fn packet(qpn: Qpn, work: u32) -> Packet {
    let flags = PacketFlags::OUT | PacketFlags::WORK;
    Packet { qpn, flags, work, payload: 64, headers_len: 12, repeat: 0, headers: [0; HEADERS] }
}

fn polled(qpn: Qpn, work: u32, is_receive: bool) -> Polled {
    Polled { qpn, cq: 1, id: u64::from(work) ^ 0xabcd, is_receive, is_forgotten: false }
}

/// Events as a device writes them, at times one after the other.
fn stamped(events: Vec<Event>) -> Vec<Stamped> {
    let stamp = |(number, event)| Stamped { time: number * 10, ring: 1, number, event };
    (0..).zip(events).map(stamp).collect()
}

/// What comes of a record: all work, and what is odd.
fn read(mut assembler: Assembler, events: &[Stamped]) -> (Vec<Work>, Vec<Work>, Vec<Oddity>) {
    let mut over = Vec::new();
    for event in events {
        assembler.take(event);
        over.extend(std::iter::from_fn(|| assembler.next_over()));
    }
    assembler.settle();
    over.extend(std::iter::from_fn(|| assembler.next_over()));
    let oddities = assembler.oddities();
    (over, assembler.finish(), oddities)
}

/// All events of one send that ends well, or does not.
fn send(number: u32, work: u32, is_signaled: bool, status: Status) -> Vec<Event> {
    let (qpn, queue) = (qpn(number), Queue::Send(qpn(number)));
    let flags = if is_signaled { PostedFlags::SIGNALED } else { PostedFlags::empty() };
    let is_quiet = !is_signaled && status == Status::Success;
    let end = if is_quiet { CompletedFlags::QUIET } else { CompletedFlags::empty() };
    let mut events: Vec<Event> = vec![
        posted(queue, work, WorkOp::Send, flags).into(),
        Doorbell { queue, first: work, count: 1 }.into(),
        Begun { qpn, work, psn: work * 3, packets: 2 }.into(),
        packet(qpn, work).into(),
        packet(qpn, work).into(),
        completed(queue, qpn, work, status, end).into(),
    ];
    if !is_quiet {
        events.push(polled(qpn, work, false).into());
    }
    events
}

#[test]
fn a_send_is_told_from_the_call_that_posts_it_to_the_one_that_takes_its_completion() {
    let queue = Queue::Send(qpn(7));
    let sge = Sge { address: 0x3000, length: 8, lkey: Lkey(6) };
    let mut events = send(7, 3, true, Status::Success);
    events.insert(1, Piece { queue, work: 3, index: 1, sge }.into());
    let (over, rest, oddities) = read(Assembler::new(), &stamped(events));
    assert!(rest.is_empty() && oddities.is_empty(), "{oddities:?}");
    let [work] = &over[..] else { panic!("{over:?}") };
    assert_eq!(
        (work.posted_at, work.doorbell_at, work.took(), work.polled_at),
        (0, Some(20), Some(60), Some(70))
    );
    assert_eq!((work.packets.len(), work.pieces.len(), work.begun.unwrap().0), (2, 1, 30));
    assert_eq!(
        (work.state(), work.completion_state()),
        (WorkState::Completed, Some(CompletionState::Polled))
    );
}

#[test]
fn states_are_those_that_the_record_ends_with() {
    let all = send(7, 3, true, Status::RemoteAccess);
    let state = |count: usize| {
        let (over, rest, _) = read(Assembler::new(), &stamped(all[..count].to_vec()));
        let work = over.into_iter().chain(rest).next().unwrap();
        (work.state(), work.completion_state())
    };
    assert_eq!(state(1), (WorkState::Posted, None));
    assert_eq!(state(3), (WorkState::Processing, None));
    assert_eq!(state(6), (WorkState::Error, Some(CompletionState::Pending)));
    assert_eq!(state(7), (WorkState::Error, Some(CompletionState::Polled)));
}

#[test]
fn a_receive_of_a_shared_queue_belongs_to_the_queue_pair_that_took_it() {
    let (queue, qpn) = (Queue::Shared(2), qpn(9));
    let events = vec![
        posted(queue, 0, WorkOp::Receive, PostedFlags::empty()).into(),
        Matched { qpn, queue, work: 0, id: 0xabcd, psn: 77 }.into(),
        completed(queue, qpn, 0, Status::Success, CompletedFlags::empty()).into(),
        polled(qpn, 0, true).into(),
    ];
    let (over, rest, oddities) = read(Assembler::new(), &stamped(events));
    assert!(rest.is_empty() && oddities.is_empty(), "{oddities:?}");
    assert_eq!(over[0].arrival, Some(Arrival { time: 10, psn: 77 }));
}

#[test]
fn a_record_without_its_beginning_has_no_oddities_for_that() {
    let events: Vec<Event> = (0..5).flat_map(|work| send(7, work, true, Status::Success)).collect();
    for missing in 0..events.len() {
        let (over, rest, oddities) = read(Assembler::of_the_end(), &stamped(events[missing..].to_vec()));
        assert!(rest.is_empty() && oddities.is_empty(), "{missing}: {oddities:?}");
        assert_eq!(over.len(), 5 - missing.div_ceil(7), "{missing}");
    }
}

#[test]
fn where_events_are_missing_work_does_not_stay_for_ever() {
    let qpn = qpn(7);
    let queue = Queue::Send(qpn);
    let mut assembler = Assembler::of_the_end();
    let mut over = 0;
    let count = u32::try_from(HELD).unwrap() * 3;
    // No end is told of these, and then no poll of those.
    for work in 0..count * 2 {
        let stamp = |event| Stamped { time: work.into(), ring: 1, number: 0, event };
        assembler.take(&stamp(posted(queue, work, WorkOp::Send, PostedFlags::SIGNALED).into()));
        if work >= count {
            let end = completed(queue, qpn, work, Status::Success, CompletedFlags::empty());
            assembler.take(&stamp(end.into()));
        }
        over += std::iter::from_fn(|| assembler.next_over()).count();
        assert!(assembler.open.len() + assembler.unpolled <= 2 * HELD + 1);
    }
    assert_eq!(assembler.ended.values().map(VecDeque::len).sum::<usize>(), assembler.unpolled);
    assert_eq!(over + assembler.finish().len(), count as usize * 2, "nothing is lost");
}

#[test]
fn a_poll_that_is_missing_does_not_hide_those_after_it() {
    let events: Vec<Event> = (0..5).flat_map(|work| send(7, work, true, Status::Success)).collect();
    let is_lost = |event: &Event| matches!(event, Event::Polled(polled) if [0, 2].map(|work| work ^ 0xabcd).contains(&polled.id));
    let kept: Vec<Event> = events.into_iter().filter(|event| !is_lost(event)).collect();
    let (over, rest, oddities) = read(Assembler::of_the_end(), &stamped(kept.clone()));
    assert!(rest.is_empty() && oddities.is_empty(), "{oddities:?}");
    let is_polled: Vec<bool> = over.iter().map(|work| work.polled_at.is_some()).collect();
    assert_eq!(is_polled, [false, true, false, true, true]);
    let (_, _, oddities) = read(Assembler::new(), &stamped(kept));
    assert!(!oddities.is_empty(), "in a record that has everything, it is odd");
}

#[test]
fn completions_from_before_the_record_may_be_taken_until_one_of_its_own_is() {
    let qpn = qpn(7);
    let earlier = QueuePair {
        qpn,
        step: Step::Earlier,
        service: ferroce_wire::Service::Rc,
        state: ferroce_transport::State::Rts,
        send_cq: 1,
        receive_cq: 1,
        shared: None,
        sends: 8,
        receives: 8,
    };
    let mut events: Vec<Event> =
        vec![earlier.into(), polled(qpn, 100, false).into(), polled(qpn, 101, false).into()];
    events.extend(send(7, 3, true, Status::Success));
    let (over, rest, oddities) = read(Assembler::new(), &stamped(events.clone()));
    assert_eq!((over.len(), rest.len(), oddities.len()), (1, 0, 0));
    events.push(polled(qpn, 102, false).into());
    let (_, _, oddities) = read(Assembler::new(), &stamped(events));
    assert_eq!(oddities, [Oddity::PolledUnknown(polled(qpn, 102, false))]);
}

/// Several queues at once: the events of each in their order, as the numbers say.
fn interleaved(mut queues: Vec<VecDeque<Event>>, order: &[usize]) -> Vec<Event> {
    let mut events = Vec::new();
    for choice in order.iter().cycle().take(100_000) {
        queues.retain(|queue| !queue.is_empty());
        let Some(count) = std::num::NonZeroUsize::new(queues.len()) else { break };
        events.extend(queues[*choice % count].pop_front());
    }
    events
}

fn statuses() -> impl Strategy<Value = Status> {
    prop_oneof![4 => Just(Status::Success), 1 => Just(Status::RetryExceeded)]
}

proptest! {
    /// Each request has one fate, each completion one origin, each packet one request; and a mistake in the record
    /// is found.
    #[test]
    fn every_request_has_one_fate_and_mistakes_are_found(
        queues in vec(vec((any::<bool>(), statuses()), 1..8), 1..5),
        order in vec(any::<usize>(), 1..50),
        mistake in any::<proptest::sample::Index>(),
    ) {
        let all: usize = queues.iter().map(Vec::len).sum();
        let of_queue = |(number, works): (u32, &Vec<(bool, Status)>)| {
            let each = |(work, (is_signaled, status)): (u32, &(bool, Status))| send(number, work, *is_signaled, *status);
            (0..).zip(works).flat_map(each).collect::<VecDeque<Event>>()
        };
        let events = interleaved((2..).zip(&queues).map(of_queue).collect(), &order);
        let (over, rest, oddities) = read(Assembler::new(), &stamped(events.clone()));
        prop_assert_eq!((over.len(), rest.len(), oddities.len()), (all, 0, 0));
        prop_assert!(over.iter().all(|work| work.packets.len() == 2));

        // One event is told twice.
        let place = mistake.index(events.len());
        let mut twice = events.clone();
        twice.insert(place, events[place]);
        let (over, rest, oddities) = read(Assembler::new(), &stamped(twice));
        let is_seen = !oddities.is_empty() || over.iter().any(|work| work.packets.len() != 2);
        let is_harmless = matches!(events[place], Event::Doorbell(_) | Event::Begun(_));
        prop_assert!(is_seen || is_harmless, "{:?}", events[place]);
        prop_assert!(rest.is_empty() || !oddities.is_empty());

        // One event is missing.
        let mut without = events.clone();
        let missing = without.remove(place);
        let (over, rest, oddities) = read(Assembler::new(), &stamped(without));
        let is_whole = |work: &Work| {
            work.packets.len() == 2 && work.doorbell_at.is_some() && work.begun.is_some()
        };
        let is_seen = !oddities.is_empty() || !rest.is_empty() || !over.iter().all(is_whole);
        prop_assert!(is_seen, "{:?}", missing);
    }
}
