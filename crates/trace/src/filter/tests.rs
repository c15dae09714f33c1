use ferroce_record::{Completed, CompletedFlags, Posted, PostedFlags, Queue};
use ferroce_transport::WorkKind;
use ferroce_wire::{Lkey, Rkey};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Work that was posted at a time, took so long, and ended like this.
fn work(number: u32, op: WorkOp, posted_at: u64, took: Option<u64>, status: Status) -> Work {
    let queue = Queue::Send(Qpn::new(number));
    let posted = Posted {
        queue,
        work: number,
        id: u64::from(number) + 100,
        op,
        flags: PostedFlags::empty(),
        pieces: 1,
        length: 8,
        address: 0,
        lkey: Lkey(0),
        remote: 0,
        key: Rkey(0),
        imm: 0,
    };
    let mut work = Work::new(posted_at, posted);
    work.completed = took.map(|took| {
        let completed = Completed {
            queue,
            work: number,
            id: posted.id,
            status,
            vendor_code: None,
            kind: WorkKind::Send,
            flags: CompletedFlags::empty(),
            byte_len: 0,
            imm: 0,
            cq: 0,
            qpn: Qpn::new(number),
            source_qp: 0,
            invalidated: Rkey(0),
        };
        (posted_at + took, completed)
    });
    work
}

#[test]
fn every_part_of_a_filter_leaves_something_out() {
    let all = [
        work(1, WorkOp::Write, 1_000, Some(500), Status::Success),
        work(2, WorkOp::Send, 2_000, Some(500), Status::RemoteAccess),
        work(3, WorkOp::FetchAdd, 3_000, None, Status::Success),
        work(4, WorkOp::WriteImm, 4_000, Some(5), Status::Flushed),
    ];
    let found = |filter: Filter| {
        let wanted = all.iter().filter(|work| filter.wants(work));
        wanted.map(|work| work.posted.work).collect::<Vec<_>>()
    };
    let any = Filter::default();
    assert_eq!(found(any.clone()), [1, 2, 3, 4]);
    assert_eq!(found(Filter { qpn: Some(Qpn::new(2)), ..any.clone() }), [2]);
    assert_eq!(found(Filter { id: Some(103), ..any.clone() }), [3]);
    assert_eq!(found(Filter { status: Some(Status::Flushed), ..any.clone() }), [4]);
    assert_eq!(found(Filter { status: Some(Status::Success), ..any.clone() }), [1], "one is not over");
    assert_eq!(found(Filter { kinds: vec![OpKind::Write, OpKind::Atomic], ..any.clone() }), [1, 3, 4]);
    assert_eq!(found(Filter { only_errors: true, ..any.clone() }), [2, 4]);
    assert_eq!(found(Filter { from: Some(2_500), to: Some(3_500), ..any.clone() }), [2, 3]);
    assert_eq!(found(Filter { from: Some(2_501), to: Some(2_999), ..any }), [0; 0]);
}

#[test]
fn kinds_and_statuses_have_names_of_their_own() {
    let names = OpKind::ALL.map(OpKind::name);
    assert!(names.iter().enumerate().all(|(at, name)| !names[..at].contains(name)));
    let names = Status::ALL.map(status_name);
    assert!(names.iter().enumerate().all(|(at, name)| !names[..at].contains(name)));
    assert!(WorkOp::ALL.iter().all(|op| OpKind::ALL.contains(&OpKind::of(*op))));
}

proptest! {
    #[test]
    fn the_slowest_are_kept(took in vec(proptest::option::weighted(0.9, 0_u64..1_000), 0..60), most in 0_usize..12) {
        let mut slowest = Slowest::new(most);
        for took in &took {
            slowest.add(3, work(1, WorkOp::Write, 7, *took, Status::Success));
        }
        let mut expected: Vec<u64> = took.into_iter().flatten().collect();
        expected.sort_by_key(|took| Reverse(*took));
        expected.truncate(most);
        let found: Vec<u64> = slowest.finish().iter().filter_map(|(_, work)| work.took()).collect();
        prop_assert_eq!(found, expected);
    }
}
