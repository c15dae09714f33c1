//! Silence: transport time-outs and how often they are survived (IBA 9.7.6.1).

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Setup, Side, Verdict};
use ferroce_transport::{
    Access, Acks, AttributeMask, Attributes, Data, DomainId, QpConfig, QueuePair, SendFlags, SendOp,
    SendRequest, State, Status, Time, Window,
};
use ferroce_wire::{NakCode, PathMtu, Psn, Qpn, Service};

/// A time-out below the shortest patience of a probe: 4.096 us * 2^7.
const SHORT: u8 = 7;

const fn timeout(code: u8) -> Duration {
    Duration::from_nanos(4096 << code)
}

/// When A sent each of its packets, from `start`.
fn sending_times(pair: &Pair, start: Time) -> Vec<Duration> {
    pair.sent.iter().filter(|sent| sent.from == Side::A).map(|sent| sent.at.since(start)).collect()
}

/// Every count of retries, 7 included, is that many; each wait is one time-out.
#[test]
fn retry_exceeded_comes_after_exactly_retry_count_retries() {
    for retry_count in 0..=7 {
        let mut pair = pair(|setup| {
            setup.timeout = SHORT;
            setup.retry_count = retry_count;
        });
        cut(&mut pair, Side::A);
        post_receive(&mut pair, Side::A, 60, 0, 10);
        post_write(&mut pair, 1, 10);
        post_write(&mut pair, 2, 10);
        let start = pair.now();
        pair.run();
        let waits = u32::from(retry_count) + 1;
        assert_eq!(pair.now().since(start), timeout(SHORT) * waits, "retry_cnt {retry_count}");
        assert_eq!(pair.counters(Side::A).timeouts, u64::from(waits));
        assert_sends(&mut pair, Side::A, &[(1, Status::RetryExceeded, 0), (2, Status::Flushed, 0)]);
        assert_receives(&mut pair, Side::A, &[(60, Status::Flushed, 0)]);
        assert_states(&pair, State::Err, State::Rts);
        assert_events(&mut pair, &[], &[]);
        let mut times = sending_times(&pair, start);
        times.dedup();
        let wanted: Vec<_> = (0..waits).map(|round| timeout(SHORT) * round).collect();
        assert_eq!(times, wanted, "the oldest packet leaves once per round");
        assert_eq!(pair.counters(Side::A).probes, 0);
    }
}

#[test]
fn the_time_out_is_4096_ns_times_a_power_of_two() {
    for code in 1..=20 {
        let mut pair = pair(|setup| {
            setup.timeout = code;
            setup.retry_count = 0;
        });
        cut(&mut pair, Side::A);
        post_write(&mut pair, 1, 10);
        let start = pair.now();
        pair.run();
        assert_eq!(pair.now().since(start), timeout(code), "code {code}");
        assert_sends(&mut pair, Side::A, &[(1, Status::RetryExceeded, 0)]);
        assert_eq!(pair.counters(Side::A).timeouts, 1);
    }
}

#[test]
fn a_time_out_of_0_never_expires() {
    let mut pair = pair(|setup| {
        setup.timeout = 0;
        setup.retry_count = 0;
    });
    cut(&mut pair, Side::A);
    fill(&mut pair, Side::A, 0, 5000, 1);
    post_write(&mut pair, 1, 5000);
    pair.run_for(Duration::from_secs(100));
    assert_sends(&mut pair, Side::A, &[]);
    assert_states(&pair, State::Rts, State::Rts);
    assert_eq!(pair.counters(Side::A).timeouts, 0);

    heal(&mut pair);
    pair.run();
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 5000)]);
    assert_filled(&mut pair, Side::B, 0, 5000, 1);
    assert_at_peace(&mut pair);
}

/// Probes ask again without counting, and never more than the time-out would have taken.
#[test]
fn probes_are_not_retries() {
    let mut pair = pair(|setup| setup.retry_count = 2);
    cut(&mut pair, Side::A);
    post_write(&mut pair, 1, 10);
    let start = pair.now();
    pair.run();
    assert_eq!(pair.now().since(start), timeout(14) * 3);
    assert_eq!(pair.counters(Side::A).timeouts, 3);
    assert!(pair.counters(Side::A).probes > 3);
    assert_sends(&mut pair, Side::A, &[(1, Status::RetryExceeded, 0)]);
}

/// The count is for one packet: progress renews it.
#[test]
fn progress_renews_the_retries() {
    let mut pair = pair(|setup| {
        setup.timeout = SHORT;
        setup.retry_count = 1;
    });
    fill(&mut pair, Side::A, 0, 3072, 1);
    // Of each packet the first copy is lost, one packet after the other.
    let mut last = None;
    pair.filter(move |sent| {
        let psn = sent.packet().psn;
        if sent.from == Side::B || last.is_some_and(|last| !psn.is_after(last)) {
            return Verdict::Deliver;
        }
        last = Some(psn);
        Verdict::Drop
    });
    for id in 0..5 {
        post_write(&mut pair, id, 3072);
        pair.run();
        assert_sends(&mut pair, Side::A, &[(id, Status::Success, 3072)]);
    }
    assert!(pair.counters(Side::A).timeouts >= 5);
    assert_filled(&mut pair, Side::B, 0, 3072, 1);
    assert_at_peace(&mut pair);
}

/// A peer that refuses the same PSN again and again wins no time: only the first refusal counts
/// as a retry, and the time-out goes on as if the others had not come.
#[test]
fn repeated_sequence_naks_do_not_put_off_the_time_out() {
    let mut pair = pair(|setup| setup.retry_count = 3);
    cut_both(&mut pair);
    post_write(&mut pair, 1, 10);
    pair.step();
    let start = pair.now();
    let timeout = Duration::from_nanos(4096 << Setup::default().timeout);
    while pair.queue_pair(Side::A).state() == State::Rts {
        assert!(pair.now().since(start) <= 4 * timeout + Duration::from_millis(2), "put off");
        inject_response(&mut pair, START, nak(NakCode::SequenceError, 0));
        pair.run_for(Duration::from_millis(2));
    }
    assert_sends(&mut pair, Side::A, &[(1, Status::RetryExceeded, 0)]);
    assert_states(&pair, State::Err, State::Rts);
    assert_eq!(pair.counters(Side::A).timeouts, 3);
}

/// A lost ACK costs a repetition, which is acknowledged again and not executed again.
#[test]
fn a_lost_ack_is_recovered() {
    let mut pair = pair(|_| {});
    post_receive(&mut pair, Side::B, 50, 0, 100);
    post_receive(&mut pair, Side::B, 51, 0, 100);
    post_message(&mut pair, 1, 100);
    lose(&mut pair, Side::B, &[0]);
    pair.run();
    assert_wire(&pair, &["A SEND Only 10 ask", "B ACK 10 msn=1", "A SEND Only 10 ask", "B ACK 10 msn=1"]);
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 100)]);
    assert_receives(&mut pair, Side::B, &[(50, Status::Success, 100)]);
    assert_eq!(pair.counters(Side::B).duplicate_requests, 1);
    assert_at_peace(&mut pair);
}

/// A device that was kept from running does not take its own absence for the peer's.
#[test]
fn restarted_timers_have_their_full_time_again() {
    let mut pair = pair(|_| {});
    let host = &mut pair.node(Side::A).device;
    let mut window = Window::new();
    let mut alone = QueuePair::new(QpConfig {
        qpn: Qpn::new(0x77),
        service: Service::Rc,
        domain: DomainId(1),
        caps: Setup::default().caps,
        signal_all: false,
        shared_queue: None,
    });
    let steps = [
        Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::empty()),
        Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B1024)
            .with_dest_qpn(Qpn::new(1))
            .with_rq_psn(Psn::new(0))
            .with_max_dest_rd_atomic(1)
            .with_min_rnr_timer(1),
        Attributes::to(State::Rts)
            .with_sq_psn(Psn::new(0))
            .with_timeout(SHORT)
            .with_retry_count(0)
            .with_rnr_retry(0)
            .with_max_rd_atomic(1),
    ];
    for step in steps {
        alone.modify(&step, &mut window, host).unwrap();
    }
    let data = Data::Inline(b"x");
    let send = SendRequest { id: 1, op: SendOp::Send, data, flags: SendFlags::SIGNALED, dest: None };
    alone.post_send(&send, host).unwrap();
    let start = Time::from_nanos(1_000);
    assert!(alone.poll_transmit(start, Acks::Send, &mut window, host).is_some());
    assert_eq!(alone.poll_timeout(), Some(start + timeout(SHORT)));

    let back = start + Duration::from_secs(5);
    alone.restart_timers(back, &mut window, host);
    alone.handle_timeout(back, &mut window, host);
    assert_eq!(alone.counters().timeouts, 0);
    assert_eq!(alone.poll_timeout(), Some(back + timeout(SHORT)));
    alone.handle_timeout(back + timeout(SHORT), &mut window, host);
    assert_eq!((alone.counters().timeouts, alone.state()), (1, State::Err));
}
