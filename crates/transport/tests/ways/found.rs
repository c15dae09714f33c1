//! Where the ways once differed.

use ferroce_sim::Action;
use ferroce_transport::{
    Access, AttributeMask, Attributes, Data, Event, Remote, SendFlags, SendOp, SendRequest, Sge, State,
    Status, Window,
};
use ferroce_wire::{Imm, Lkey, PathMtu, Psn, Rkey};

use crate::drive::{Course, Way};
use crate::rig::{Setup, Two};

const NO_KEY: u32 = 0xdead_0001;

fn request<'a>(id: u64, op: SendOp, sges: &'a [Sge]) -> SendRequest<'a> {
    SendRequest { id, op, data: Data::Gather(sges), flags: SendFlags::SIGNALED, dest: None }
}

fn unknown(sge: Sge) -> Sge {
    Sge { lkey: Lkey(NO_KEY), ..sge }
}

/// How the receives of the side that answers ended.
fn receives(two: &mut Two) -> Vec<(u64, Status)> {
    two.completions(1).iter().map(|one| (one.id, one.status)).collect()
}

/// Moves the side that asks through RESET, as a program does with a queue pair that failed.
fn start_anew(two: &mut Two) {
    let peer = two.pairs[1].qpn();
    let steps = [
        Attributes::to(State::Reset),
        Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::all()),
        Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B1024)
            .with_dest_qpn(peer)
            .with_rq_psn(Psn::new(100))
            .with_max_dest_rd_atomic(4)
            .with_min_rnr_timer(1),
        Attributes::to(State::Rts)
            .with_sq_psn(Psn::new(100))
            .with_timeout(14)
            .with_retry_count(7)
            .with_rnr_retry(7)
            .with_max_rd_atomic(4),
    ];
    for step in &steps {
        two.pairs[0].modify(step, &mut Window::new(), &mut two.devices.0[0]).expect("a legal step");
    }
}

/// It was: a SEND whose own memory was at fault had taken a receive directly, failed, and left it behind;
/// and the next plain WRITE completed it, as if it had been one with immediate data.
#[test]
fn a_plain_write_completes_no_receive_that_an_earlier_message_left() {
    for way in Way::ALL {
        let mut course = Course::new(&Setup::default(), way);
        let into = [course.two.sge(1, 0, 100)];
        course.two.post_receive(50, &into);
        let (good, remote) = ([course.two.sge(0, 0, 10)], course.two.remote(1, 0x4000));
        course.send(&request(1, SendOp::Send, &good.map(unknown)));
        assert_eq!(course.two.ends(0), [(1, Status::LocalProtection, 0)], "{way:?}");
        assert_eq!(course.two.pairs[1].receives_taken(), 0, "{way:?}");
        start_anew(&mut course.two);
        course.send(&request(2, SendOp::Write(remote), &good));
        assert_eq!(course.two.ends(0), [(2, Status::Success, 10)], "{way:?}");
        assert_eq!(receives(&mut course.two), [], "{way:?}");
        course.send(&request(3, SendOp::Send, &good));
        assert_eq!(receives(&mut course.two), [(50, Status::Success)], "{way:?}");
    }
}

/// It was: the receive was taken first, and rights, keys and lengths were looked at later.
#[test]
fn a_message_that_cannot_be_done_directly_takes_no_receive() {
    let no_rights = Setup { rights: Access::empty(), ..Setup::default() };
    let all = Setup::default();
    let place = |two: &Two| two.remote(1, 0);
    let wrong = |two: &Two| Remote { rkey: Rkey(NO_KEY), ..two.remote(1, 0) };
    type Case<'a> = (&'a str, &'a Setup, &'a dyn Fn(&Two) -> SendOp, u32, bool);
    let cases: [Case<'_>; 5] = [
        ("without rights", &no_rights, &|two| SendOp::WriteImm(place(two), Imm(1)), 8, true),
        ("a key that opens nothing", &all, &|two| SendOp::WriteImm(wrong(two), Imm(1)), 8, true),
        ("longer than the receive", &all, &|_| SendOp::Send, 101, true),
        ("memory of its own at fault", &all, &|_| SendOp::Send, 8, false),
        ("a key that cannot be invalidated", &all, &|_| SendOp::SendInvalidate(Rkey(NO_KEY)), 8, true),
    ];
    for (what, setup, op, length, readable) in cases {
        for shared in [false, true] {
            let mut two = Two::new(&Setup { shared, ..*setup });
            let into = [two.sge(1, 0, 100)];
            two.post_receive(50, &into);
            let (op, sge) = (op(&two), two.sge(0, 0, length));
            let sges = [if readable { sge } else { unknown(sge) }];
            two.post(1, op, Data::Gather(&sges));
            assert_eq!(two.execute(Course::new(setup, Way::Queued).now, 10, 1 << 20), 0, "{what}");
            let (pair, shared) = (&two.pairs[1], two.devices.0[1].shared[0].len());
            assert_eq!((pair.receives_waiting() + shared, pair.receives_taken()), (1, 0), "{what}");
            assert_eq!((two.ends(0), two.ends(1)), (vec![], vec![]), "{what}");
        }
    }
}

/// It was: a WRITE with immediate data of several packets takes its receive with the last of them. One that
/// was refused at the first had taken it directly before, and ended it with the status of the fault.
#[test]
fn a_receive_that_no_packet_has_taken_is_flushed_on_every_way() {
    for rights in [Access::all(), Access::empty()] {
        for way in Way::ALL {
            let mut course = Course::new(&Setup { rights, ..Setup::default() }, way);
            course.two.post_receive(50, &[]);
            let place = course.two.remote(1, 0);
            let key = if rights.is_empty() { place.rkey } else { Rkey(NO_KEY) };
            let sges = [course.two.sge(0, 0, 3000)];
            course.send(&request(1, SendOp::WriteImm(Remote { rkey: key, ..place }, Imm(1)), &sges));
            assert_eq!(receives(&mut course.two), [(50, Status::Flushed)], "{way:?}");
        }
    }
}

/// It was: a receive that a WRITE with immediate data took together with a wrong key ended differently from
/// that of packets. One packet takes its receive before its key is looked at.
#[test]
fn a_receive_of_one_packet_ends_with_the_fault_on_every_way() {
    let wrong = |remote| Remote { rkey: Rkey(NO_KEY), ..remote };
    for way in Way::ALL {
        let mut course = Course::new(&Setup::default(), way);
        course.two.post_receive(50, &[]);
        let (place, sges) = (course.two.remote(1, 0), [course.two.sge(0, 0, 8)]);
        course.send(&request(1, SendOp::WriteImm(wrong(place), Imm(1)), &sges));
        assert_eq!(receives(&mut course.two), [(50, Status::LocalAccess)], "{way:?}");
        assert_eq!(course.two.ends(0), [(1, Status::RemoteAccess, 0)], "{way:?}");
    }
}

/// How often the side that answers was told that its peer is there, and after how many completions.
fn told(course: &mut Course) -> Vec<usize> {
    let mut log = Vec::new();
    course.two.devices.0[1].take_log(&mut log);
    let (mut completions, mut told) = (0, Vec::new());
    for action in log {
        match action {
            Action::ReceiveDone(_) => completions += 1,
            Action::Event(_, Event::Established) => told.push(completions),
            _ => {}
        }
    }
    told
}

/// It was: work that sends nothing, and a message that failed before it was sent, told the peer of a
/// connection.
#[test]
fn only_what_reaches_the_peer_establishes_a_connection() {
    for way in Way::ALL {
        let mut course = Course::new(&Setup { in_rtr: true, ..Setup::default() }, way);
        let window = course.two.devices.0[0].memory.make_window(crate::rig::DOMAIN);
        let region = course.two.sge(0, 0, 0);
        let bind = ferroce_transport::Bind {
            window: Rkey(window),
            new_key: Rkey(window + 1),
            region: region.lkey,
            address: region.address,
            length: 64,
            access: Access::REMOTE_WRITE,
        };
        course.send(&request(1, SendOp::BindWindow(bind), &[]));
        course.send(&request(2, SendOp::LocalInvalidate(Rkey(window + 1)), &[]));
        assert_eq!(course.two.ends(0).len(), 2, "{way:?}: both are done");
        assert_eq!(told(&mut course), [], "{way:?}");
        let into = [course.two.sge(1, 0, 100)];
        course.two.post_receive(50, &into);
        let good = [course.two.sge(0, 0, 10)];
        course.send(&request(3, SendOp::Send, &good));
        assert_eq!(told(&mut course), [0], "{way:?}: once, and before the message is");
        course.send(&request(4, SendOp::Write(course.two.remote(1, 0)), &good));
        assert_eq!(told(&mut course), [], "{way:?}");
        let mut failed = Course::new(&Setup { in_rtr: true, ..Setup::default() }, way);
        failed.send(&request(1, SendOp::Write(failed.two.remote(1, 0)), &good.map(unknown)));
        assert_eq!(failed.two.ends(0), [(1, Status::LocalProtection, 0)], "{way:?}");
        assert_eq!(told(&mut failed), [], "{way:?}");
    }
}

/// It was: several empty pieces were asked for their keys, and so was an empty WRITE or READ for that of
/// its place.
#[test]
fn nothing_needs_no_key_on_any_way() {
    for way in Way::ALL {
        let mut course = Course::new(&Setup::default(), way);
        let place = Remote { rkey: Rkey(NO_KEY), ..course.two.remote(1, 0) };
        let empty = [0, 8].map(|offset| unknown(course.two.sge(0, offset, 0)));
        course.two.post_receive(50, &[]);
        course.two.post_receive(51, &[unknown(course.two.sge(1, 0, 0))]);
        let ops = [SendOp::Write(place), SendOp::Read(place), SendOp::WriteImm(place, Imm(1)), SendOp::Send];
        for (id, op) in (1..).zip(ops) {
            course.send(&request(id, op, &empty));
        }
        assert_eq!(course.two.ends(0), [1, 2, 3, 4].map(|id| (id, Status::Success, 0)), "{way:?}");
        assert_eq!(receives(&mut course.two), [50, 51].map(|id| (id, Status::Success)), "{way:?}");
        let direct = course.two.pairs[1].counters().direct_responses;
        assert_eq!(direct, if way.is_direct() { 4 } else { 0 }, "{way:?}");
    }
}
