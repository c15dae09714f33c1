//! Messages between two queue pairs of one process, done without packets.

mod rig;

use std::time::Duration;

use ferroce_transport::{Access, Data, Remote, SendFlags, SendOp, SendRequest, Status, Time, WorkKind};
use ferroce_wire::{Imm, PathMtu, Rkey};
use rig::{Setup, Two};

const NOW: Time = Time::from_nanos(1000);

/// As much as there is.
const ALL: (u32, u64) = (u32::MAX, u64::MAX);

fn two() -> Two {
    let mut two = Two::new(&Setup::default());
    fill(&mut two, 0, 1);
    two
}

/// Bytes that are all different from those of the other tag.
fn fill(two: &mut Two, side: usize, tag: u8) {
    for (index, byte) in two.memory(side)[..4096].iter_mut().enumerate() {
        *byte = pattern(index, tag);
    }
}

/// The bytes that [`fill`] leaves there.
fn filled(at: usize, len: usize, tag: u8) -> Vec<u8> {
    (at..at + len).map(|index| pattern(index, tag)).collect()
}

fn pattern(index: usize, tag: u8) -> u8 {
    (index % 119).to_le_bytes()[0] * 2 + tag
}

fn run(two: &mut Two) -> u32 {
    two.execute(NOW, ALL.0, ALL.1)
}

#[test]
fn writes_of_every_form_arrive_and_are_counted() {
    let mut two = two();
    let whole = [two.sge(0, 0, 3000)];
    let pieces = [two.sge(0, 5, 10), two.sge(0, 0, 0), two.sge(0, 100, 7), two.sge(0, 1000, 1)];
    two.post(1, SendOp::Write(two.remote(1, 0)), Data::Gather(&whole));
    two.post(2, SendOp::Write(two.remote(1, 4000)), Data::Gather(&pieces));
    two.post(3, SendOp::Write(two.remote(1, 5000)), Data::Inline(b"inline"));
    two.post(4, SendOp::Write(two.remote(1, 5100)), Data::Inline(b""));
    two.post_receive(50, &[]);
    two.post(5, SendOp::WriteImm(two.remote(1, 6000), Imm(9)), Data::Gather(&whole[..1]));
    assert_eq!(run(&mut two), 5);
    let pieced = [filled(5, 10, 1), filled(100, 7, 1), filled(1000, 1, 1), vec![0]].concat();
    let memory = two.memory(1);
    assert_eq!(memory[..3000], filled(0, 3000, 1));
    assert_eq!(memory[4000..4019], pieced);
    assert_eq!(memory[5000..5007], *b"inline\0");
    assert_eq!(memory[5100..6000], [0; 900]);
    assert_eq!(memory[6000..9000], filled(0, 3000, 1));
    let sends = [(1, 3000), (2, 18), (3, 6), (4, 0), (5, 3000)];
    assert_eq!(two.ends(0), sends.map(|(id, len)| (id, Status::Success, len)));
    let receives = two.completions(1);
    assert_eq!(receives.len(), 1);
    let one = &receives[0];
    let seen = (one.id, one.kind, one.byte_len, one.imm, one.solicited);
    assert_eq!(seen, (50, WorkKind::ReceiveWithImm, 3000, Some(9), true));
    assert_eq!(two.pairs[0].counters().direct_requests, 5);
    assert_eq!(two.pairs[1].counters().direct_responses, 5);
    assert_eq!(two.pairs[0].totals(), ((5, 5), (0, 0)));
    assert_eq!(two.pairs[1].totals(), ((0, 0), (1, 1)));
}

#[test]
fn a_send_is_scattered_over_the_pieces_of_its_receive() {
    for inline in [false, true] {
        let mut two = two();
        let pieces = [two.sge(1, 10, 4), two.sge(1, 100, 20), two.sge(1, 200, 100)];
        two.post_receive(50, &pieces);
        let sges = [two.sge(0, 0, 3), two.sge(0, 3, 27)];
        let bytes = filled(0, 30, 1);
        let data = if inline { Data::Inline(&bytes) } else { Data::Gather(&sges) };
        two.post(1, SendOp::SendImm(Imm(3)), data);
        assert_eq!(run(&mut two), 1);
        let memory = two.memory(1);
        assert_eq!(memory[10..15], [filled(0, 4, 1), vec![0]].concat());
        assert_eq!(memory[100..121], [filled(4, 20, 1), vec![0]].concat());
        assert_eq!(memory[200..207], [filled(24, 6, 1), vec![0]].concat());
        let one = two.completions(1)[0];
        let seen = (one.id, one.kind, one.byte_len, one.imm, one.status);
        assert_eq!(seen, (50, WorkKind::Receive, 30, Some(3), Status::Success));
        assert_eq!(two.ends(0), [(1, Status::Success, 30)]);
    }
}

#[test]
fn reads_and_atomics_bring_their_answers() {
    let mut two = two();
    fill(&mut two, 1, 0);
    let pieces = [two.sge(0, 5000, 10), two.sge(0, 6000, 0), two.sge(0, 7000, 5)];
    two.post(1, SendOp::Read(two.remote(1, 20)), Data::Gather(&pieces));
    two.memory(1)[8192..8200].copy_from_slice(&40_u64.to_ne_bytes());
    let answer = [two.sge(0, 8000, 3), two.sge(0, 8100, 5)];
    let remote = two.remote(1, 8192);
    two.post(2, SendOp::FetchAdd { remote, add: 2 }, Data::Gather(&answer));
    let swap = [two.sge(0, 8200, 8)];
    two.post(3, SendOp::CompareSwap { remote, compare: 42, swap: 7 }, Data::Gather(&swap));
    assert_eq!(run(&mut two), 3);
    let found = 40_u64.to_ne_bytes();
    let memory = two.memory(0);
    assert_eq!(memory[5000..5011], [filled(20, 10, 0), vec![0]].concat());
    assert_eq!(memory[7000..7006], [filled(30, 5, 0), vec![0]].concat());
    assert_eq!((&memory[8000..8003], &memory[8100..8105]), (&found[..3], &found[3..]));
    assert_eq!(memory[8200..8208], 42_u64.to_ne_bytes());
    assert_eq!(two.memory(1)[8192..8200], 7_u64.to_ne_bytes());
    assert_eq!(two.ends(0), [(1, Status::Success, 15), (2, Status::Success, 8), (3, Status::Success, 8)]);
}

/// What one call does is limited by messages, and by bytes: the message that reaches the limit is done.
#[test]
fn a_call_ends_at_its_limits() {
    let mut two = two();
    let sge = [two.sge(0, 0, 100)];
    let op = SendOp::Write(two.remote(1, 0));
    for id in 0..8 {
        two.post(id, op, Data::Gather(&sge));
    }
    assert_eq!(two.execute(NOW, 2, ALL.1), 2);
    assert_eq!(two.execute(NOW, ALL.0, 100), 1);
    assert_eq!(two.execute(NOW, ALL.0, 101), 2);
    assert_eq!(two.execute(NOW, 0, ALL.1), 0);
    assert_eq!(two.pairs[0].sends_waiting(), 3);
    assert_eq!(run(&mut two), 3);
    let flags = SendFlags::SIGNALED;
    let requests = [0, 1, 2].map(|id| SendRequest { id, op, data: Data::Gather(&sge), flags, dest: None });
    assert_eq!(two.post_directly(NOW, &requests, 101), 2);
    assert_eq!(two.post_directly(NOW, &requests, 0), 0);
    assert_eq!(two.pairs[0].totals().0, (10, 10));
    assert_eq!(two.pairs[0].counters().direct_requests, 10);
}

/// Both ways keep to the rate, and a pause is counted once.
#[test]
fn a_rate_limit_holds_for_messages_without_packets() {
    let rate = 8; // A byte in a millisecond.
    let mut two = Two::new(&Setup { rate, ..Setup::default() });
    let sge = [two.sge(0, 0, 4000)];
    let op = SendOp::Write(two.remote(1, 0));
    for id in 0..4 {
        two.post(id, op, Data::Gather(&sge));
    }
    let mut now = NOW;
    let mut calls = [0; 4];
    for call in &mut calls {
        *call = two.execute(now, ALL.0, ALL.1);
        now = now + Duration::from_secs(1);
    }
    let first = calls[0];
    assert!((1..4).contains(&first), "the bucket lets some pass at once: {calls:?}");
    assert_eq!(calls[1..], [0, 0, 0], "a message takes four seconds");
    assert_eq!(two.pairs[0].counters().rate_waits, 1);
    now = now + Duration::from_secs(100);
    let left = 4 - first;
    for _ in 0..left {
        two.execute(now, 1, ALL.1);
        now = now + Duration::from_secs(100);
    }
    let request = SendRequest { id: 9, op, data: Data::Gather(&sge), flags: SendFlags::SIGNALED, dest: None };
    let before = two.pairs[0].counters().rate_waits;
    let posted = two.post_directly(now, &[request; 4], ALL.1);
    assert!((1..4).contains(&posted), "{posted}");
    assert_eq!(two.pairs[0].counters().rate_waits, before + 1);
    assert_eq!(two.post_directly(now, &[request], ALL.1), 0);
}

/// What a step of the responder would not let pass is left for packets, and nothing has happened.
#[test]
fn what_would_be_refused_is_not_done_directly() {
    let bad = |remote: Remote| Remote { rkey: Rkey(remote.rkey.0 ^ 0x5500_0000), ..remote };
    let past = |two: &Two| two.remote(1, 64 * 1024 - 8);
    let ops: [fn(&Two) -> SendOp; 4] = [
        |two| SendOp::Write(two.remote(1, 0)),
        |two| SendOp::Read(two.remote(1, 0)),
        |two| SendOp::FetchAdd { remote: two.remote(1, 0), add: 1 },
        |two| SendOp::WriteImm(two.remote(1, 0), Imm(1)),
    ];
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC, Access::REMOTE_WRITE];
    for (op, needed) in ops.iter().zip(rights) {
        let mut two = Two::new(&Setup { rights: Access::all() - needed, ..Setup::default() });
        let op = op(&two);
        refuse(&mut two, op, 8);
    }
    for pieces in [1, 2] {
        let places = |two: &Two| [bad(two.remote(1, 0)), past(two)];
        for remote in places(&two()) {
            refuse_pieces(&mut two(), SendOp::Write(remote), pieces);
            refuse_pieces(&mut two(), SendOp::Read(remote), pieces);
        }
    }
    let mut two = two();
    let op = SendOp::FetchAdd { remote: two.remote(1, 4), add: 1 };
    refuse(&mut two, op, 8);
    let mut small = Two::new(&Setup::default());
    let short = [small.sge(1, 0, 7)];
    small.post_receive(50, &short);
    refuse(&mut small, SendOp::Send, 8);
    refuse(&mut Two::new(&Setup::default()), SendOp::Send, 8);
}

/// READs need a place among those that the responder holds, even though they leave nothing there.
#[test]
fn a_responder_that_holds_no_reads_does_none_directly() {
    for op in [|remote| SendOp::Read(remote), |remote| SendOp::FetchAdd { remote, add: 1 }] {
        let mut two = Two::new(&Setup { depth: 0, ..Setup::default() });
        let op = op(two.remote(1, 0));
        refuse(&mut two, op, 8);
    }
}

#[test]
fn only_two_that_are_connected_to_each_other_meet() {
    let mut other_mtu = Two::new(&Setup { mtus: [PathMtu::B1024, PathMtu::B2048], ..Setup::default() });
    let op = SendOp::Write(other_mtu.remote(1, 0));
    refuse(&mut other_mtu, op, 8);
    let (mut two, stranger) = (two(), Two::new(&Setup::default()));
    // Its peer has another number.
    let [first, _] = stranger.pairs;
    two.pairs[1] = first;
    let op = SendOp::Write(two.remote(1, 0));
    refuse(&mut two, op, 8);
}

#[track_caller]
fn refuse(two: &mut Two, op: SendOp, length: u32) {
    let sge = [two.sge(0, 0, length)];
    refuse_data(two, op, &sge);
}

#[track_caller]
fn refuse_pieces(two: &mut Two, op: SendOp, pieces: usize) {
    let sges = [two.sge(0, 0, 10), two.sge(0, 20, 10)];
    refuse_data(two, op, &sges[..pieces]);
}

#[track_caller]
fn refuse_data(two: &mut Two, op: SendOp, sges: &[ferroce_transport::Sge]) {
    let before = [0, 1].map(|side| two.memory(side).to_vec());
    two.post(1, op, Data::Gather(sges));
    assert_eq!(run(two), 0, "{op:?}");
    assert_eq!(two.pairs[0].sends_waiting(), 1);
    assert_eq!(two.ends(0), []);
    assert_eq!(two.ends(1), []);
    assert_eq!(two.pairs[1].counters().direct_responses, 0);
    for side in [0, 1] {
        assert_eq!(two.memory(side), before[side], "{op:?} changed side {side}");
    }
}
