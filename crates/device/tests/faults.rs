//! Seeded faults, seen by the fabric behind them.

mod pipe;

use ferroce_device::fabric::faults::{FaultCounts, FaultPlan, Faults};
use ferroce_device::fabric::{Fabric, Inbox, Outbox, Route, Sent};

use pipe::{Pipe, flow, psn, push, route};

const NEVER_LATER_THAN: usize = 8;

fn faults(plan: &str) -> Faults<Pipe> {
    Faults::new(FaultPlan::parse(plan).expect("a plan"), Pipe::default())
}

fn way() -> Route {
    route("127.0.0.1", "127.0.0.2")
}

/// Sends packets with these PSNs, one call each.
fn send(faults: &mut Faults<Pipe>, psns: std::ops::Range<u32>) -> Sent {
    let mut total = Sent::default();
    let mut outbox = Outbox::new(8192, 4);
    for psn in psns {
        push(&mut outbox, &way(), psn, 5, faults.run_limits());
        let sent = faults.send(&mut outbox);
        assert!(outbox.is_empty());
        total.packets += sent.packets;
        total.no_room += sent.no_room;
    }
    total
}

fn psns(faults: &Faults<Pipe>) -> Vec<u32> {
    faults.inner().sent.iter().map(|(_, _, packet)| psn(packet)).collect()
}

#[test]
fn an_empty_plan_changes_nothing() {
    let mut faults = faults("seed=4");
    assert!(faults.coalesces());
    assert_eq!(faults.run_limits(), Pipe::default().run_limits());
    let mut outbox = Outbox::new(8192, 4);
    for psn in 0..3 {
        push(&mut outbox, &way(), psn, 5, faults.run_limits());
    }
    assert_eq!(faults.send(&mut outbox), Sent { packets: 3, calls: 1, ..Sent::default() });
    let places: Vec<usize> = faults.inner().sent.iter().map(|(_, place, _)| *place).collect();
    assert_eq!((psns(&faults), places), (vec![0, 1, 2], vec![0, 1, 2]));
    assert_eq!(faults.counts(), FaultCounts::default());
}

#[test]
fn a_seed_is_a_run() {
    let run = |seed| {
        let mut faults = faults(&format!("loss=0.1,dup=0.1,reorder=0.2,corrupt=0.1,seed={seed}"));
        send(&mut faults, 0..500);
        faults.flush();
        (faults.inner().sent.clone(), faults.counts())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

#[test]
fn rates_are_shares_of_all_packets() {
    let mut faults = faults("loss=0.1,dup=0.2,reorder=0.3,corrupt=0.05,seed=1");
    send(&mut faults, 0..20_000);
    let FaultCounts { lost, duplicated, reordered, corrupted } = faults.counts();
    // The other three hit those that were not lost.
    for (count, expected) in [(lost, 2_000), (duplicated, 3_600), (reordered, 5_400), (corrupted, 900)] {
        assert!(count.abs_diff(expected) < expected / 8, "{count} instead of about {expected}");
    }
}

#[test]
fn lost_packets_are_gone_and_the_sender_does_not_see_it() {
    let mut faults = faults("loss=1");
    assert_eq!(send(&mut faults, 0..20).packets, 20);
    assert_eq!(psns(&faults), []);
    assert_eq!(faults.counts().lost, 20);
}

#[test]
fn duplicates_follow_each_other() {
    let mut faults = faults("dup=1");
    assert_eq!(send(&mut faults, 0..3).packets, 6);
    assert_eq!(psns(&faults), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn a_duplicate_that_is_held_back_leaves_now_and_late() {
    let mut faults = faults("dup=1,reorder=1");
    send(&mut faults, 0..1);
    assert_eq!(psns(&faults), [0]);
    assert_eq!(faults.flush().packets, 1);
    assert_eq!(psns(&faults), [0, 0]);
}

#[test]
fn held_packets_all_arrive_and_at_most_eight_overtake_them() {
    for seed in 0..100 {
        let mut faults = faults(&format!("reorder=0.3,seed={seed}"));
        send(&mut faults, 0..200);
        let mut inbox = Inbox::new(1);
        for _ in 0..NEVER_LATER_THAN {
            faults.receive(&mut inbox).unwrap();
        }
        let arrived = psns(&faults);
        assert!(!arrived.is_sorted(), "seed {seed}");
        for (place, psn) in arrived.iter().enumerate() {
            let overtaken_by = arrived[..place].iter().filter(|earlier| *earlier > psn).count();
            assert!(overtaken_by <= NEVER_LATER_THAN, "seed {seed}: {overtaken_by} before {psn}");
        }
        let mut sorted = arrived.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..200).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn calls_without_packets_free_what_is_held() {
    for seed in 0..50 {
        for receiving in [true, false] {
            let mut faults = faults(&format!("reorder=1,seed={seed}"));
            assert_eq!(send(&mut faults, 0..1).packets, 0);
            let (mut inbox, mut nothing) = (Inbox::new(1), Outbox::new(64, 1));
            let mut calls = 0;
            while psns(&faults).is_empty() {
                calls += 1;
                assert!(calls <= NEVER_LATER_THAN);
                if receiving {
                    faults.receive(&mut inbox).unwrap();
                } else {
                    faults.send(&mut nothing);
                }
            }
            // What left during a `receive` is told with the next `send`.
            let told = faults.send(&mut nothing).packets;
            assert_eq!(told, u64::from(receiving));
        }
    }
}

#[test]
fn the_icrc_catches_every_corruption() {
    let mut faults = faults("corrupt=1,seed=3");
    send(&mut faults, 0..2000);
    let sent = &faults.inner().sent;
    assert_eq!((sent.len(), faults.counts().corrupted), (2000, 2000));
    for (psn, (_, _, packet)) in (0..).zip(sent) {
        let before = pipe::sealed(&way(), psn, 5, 0);
        let changed: u32 = before.iter().zip(packet).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(changed, 1);
        assert_eq!(flow(&way()).solve_ip_id(packet), None);
    }
}

#[test]
fn packets_of_a_run_get_a_fate_each_and_leave_together() {
    let mut faults = faults("dup=1");
    let limits = faults.run_limits();
    assert!(faults.coalesces() && limits.0 > 1, "{limits:?}");
    let mut outbox = Outbox::new(8192, 4);
    for psn in 0..3 {
        push(&mut outbox, &way(), psn, 5, limits);
    }
    assert_eq!(outbox.runs().len(), 1);
    assert_eq!(faults.send(&mut outbox).packets, 6);
    assert_eq!(psns(&faults), [0, 0, 1, 1, 2, 2]);
    for (expected, (_, place, packet)) in faults.inner().sent.iter().enumerate() {
        assert_eq!(*place, expected, "all in one run");
        let sealed_for = u16::try_from(*place).unwrap();
        assert_eq!(
            flow(&way()).solve_ip_id(packet),
            Some(sealed_for),
            "packets that moved up are sealed again"
        );
    }
}

/// Streams under loss were slow because every packet left alone, not because of the loss.
#[test]
fn those_behind_a_lost_packet_move_up_in_their_run() {
    let mut faults = faults("loss=0.2,seed=7");
    let limits = faults.run_limits();
    let mut outbox = Outbox::new(65_536, 4);
    for psn in 0..20 {
        push(&mut outbox, &way(), psn, 5, limits);
    }
    faults.send(&mut outbox);
    let lost = usize::try_from(faults.counts().lost).unwrap();
    let sent = &faults.inner().sent;
    assert!((1..10).contains(&lost) && sent.len() == 20 - lost, "{lost} lost");
    for (expected, (_, place, packet)) in sent.iter().enumerate() {
        assert_eq!(*place, expected);
        assert!(flow(&way()).verify(packet, u16::try_from(*place).unwrap()).is_ok());
    }
}

#[test]
fn what_is_not_lost_arrives_as_it_was_whatever_its_run_loses() {
    for seed in 0..200 {
        let mut faults = faults(&format!("loss=0.4,seed={seed}"));
        let limits = faults.run_limits();
        let mut outbox = Outbox::new(65_536, 16);
        // Runs that end with a shorter packet, and one after which none may follow.
        for (psn, len) in (0..).zip([64, 64, 64, 8, 200, 200, 16, 16, 16, 16, 4, 300]) {
            push(&mut outbox, &way(), psn, len, limits);
        }
        let runs = outbox.runs().len();
        let sent = faults.send(&mut outbox);
        assert!(outbox.is_empty() && sent.packets == 12 && runs == 4, "{runs} runs");
        let (lost, arrived) = (faults.counts().lost, &faults.inner().sent);
        assert_eq!(arrived.len() as u64, 12 - lost);
        assert!(psns(&faults).is_sorted());
        for (_, place, packet) in arrived {
            assert!(flow(&way()).verify(packet, u16::try_from(*place).unwrap()).is_ok(), "seed {seed}");
        }
    }
}

#[test]
fn more_than_fits_at_once_leaves_in_parts() {
    let mut faults = faults("dup=1");
    let mut outbox = Outbox::new(2_000_000, 400);
    for psn in 0..400 {
        push(&mut outbox, &way(), psn, 4096, faults.run_limits());
    }
    let sent = faults.send(&mut outbox);
    assert_eq!((sent.packets, sent.too_long), (800, 0));
    assert!(sent.calls > 1);
    assert!(psns(&faults).is_sorted());
}

#[test]
fn a_packet_whose_port_is_gone_is_not_sent_from_another() {
    let plan = FaultPlan::parse("dup=1").unwrap();
    let mut faults = Faults::new(plan, Pipe { only_port: Some(1), ..Pipe::default() });
    let sent = send(&mut faults, 0..2);
    assert_eq!((sent.packets, sent.no_room), (0, 4));
}

#[test]
fn a_box_is_a_fabric_too() {
    let plan = FaultPlan::parse("dup=1").unwrap();
    let mut fabric: Box<dyn Fabric> = Box::new(Faults::new(plan, Box::new(Pipe::default())));
    let mut outbox = Outbox::new(8192, 4);
    push(&mut outbox, &way(), 0, 5, fabric.run_limits());
    assert_eq!(fabric.send(&mut outbox).packets, 2);
    assert!(fabric.coalesces() && fabric.descriptors().is_empty());
}
