//! Processes that come, go, count on and say nothing.

use ferroce_verbs::processes::{Report, SwitchError, WorkStats};
use ferroce_verbs::{Level, Qpn, Service, Time};

use super::*;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// A queue pair that sent so many packets, and so many of them again.
fn pair(qpn: u32, from: u8, to: u8, sent: u64, again: u64) -> QpStats {
    let work = WorkStats { packets_sent: sent, retransmitted: again, ..WorkStats::default() };
    let level = Level::new(0, 0, 1);
    QpStats {
        qpn: Qpn::new(qpn),
        engine: 0,
        service: Service::Rc,
        state: State::Rts,
        path: Some(Path::Wire),
        peer: Some((Qpn::new(1000 + qpn), address(to))),
        from: Some((address(from), 50_000 + u16::try_from(qpn).unwrap())),
        completion_queues: (1, 1),
        shared_queue: None,
        send_queue: level,
        receive_queue: level,
        work,
    }
}

fn process(pid: u32, service: &str, rows: Vec<QpStats>) -> Told {
    let queue_pairs = u32::try_from(rows.len()).unwrap();
    let told = ProcessStats {
        pid,
        program: "p".to_owned(),
        service: service.to_owned(),
        group: group(),
        since: Time::from_nanos(u64::from(pid)),
        engines: 1,
        busy: 0,
        time: Time::from_nanos(9),
        report: Report { queue_pairs, rows, ..Report::default() },
    };
    Ok(told)
}

fn group() -> ferroce_verbs::processes::Group {
    ferroce_verbs::processes::Group { interface: "lo".to_owned(), address: None }
}

/// Name, number, packets, and packets again.
fn short(seen: &Seen) -> Vec<(&str, u32, u64, u64)> {
    seen.flows.iter().map(|flow| (flow.service.as_str(), flow.qpn, flow.sent, flow.again)).collect()
}

const OWN: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1))];

/// All but 10.0.0.9 are of the mesh.
fn look(book: &mut Book, told: &[Told]) -> Seen {
    book.look(told, &OWN, |to| to != address(9))
}

#[test]
fn counted_is_what_was_done_since_the_look_before() {
    let mut book = Book::default();
    let seen = look(&mut book, &[process(1, "train", vec![pair(5, 1, 2, 1000, 7)])]);
    assert_eq!(short(&seen), [("train", 5, 0, 0)], "what was before is not known");
    let both = || vec![pair(5, 1, 2, 1500, 9), pair(6, 1, 3, 20, 1)];
    let seen = look(&mut book, &[process(1, "train", both())]);
    assert_eq!(short(&seen), [("train", 5, 500, 2), ("train", 6, 20, 1)], "a new one has just begun");
    let seen =
        look(&mut book, &[process(1, "train", both()), process(2, "other", vec![pair(5, 1, 2, 3, 0)])]);
    assert_eq!(short(&seen), [("train", 5, 0, 0), ("train", 6, 0, 0), ("other", 5, 3, 0)]);
    let seen = look(&mut book, &[process(2, "other", vec![pair(5, 1, 4, 30, 0)])]);
    assert_eq!(short(&seen), [("other", 5, 30, 0)], "connected to another one");
    assert_eq!(look(&mut book, &[]), Seen::default());
}

#[test]
fn only_what_goes_from_our_cards_to_the_mesh_is_seen() {
    let unconnected = QpStats { peer: None, from: None, path: None, ..pair(2, 1, 2, 0, 0) };
    let local = QpStats { path: Some(Path::Local), ..pair(3, 1, 2, 0, 0) };
    let ended = QpStats { state: State::Err, ..pair(4, 1, 2, 0, 0) };
    let rows = vec![pair(1, 1, 2, 0, 0), unconnected, local, ended, pair(5, 7, 2, 0, 0), pair(6, 1, 9, 0, 0)];
    let told = [process(1, "train", rows)];
    let mut book = Book::default();
    assert_eq!(short(&look(&mut book, &told)), [("train", 1, 0, 0)]);
    assert_eq!(peers(&told, &OWN), BTreeSet::from([address(2), address(9)]));
}

#[test]
fn a_process_with_a_name_that_is_none_costs_no_window() {
    for name in ["", "bell\u{7}", &"\u{fffd}".repeat(64)] {
        let seen = look(&mut Book::default(), &[process(1, name, vec![pair(1, 1, 2, 0, 0)])]);
        assert_eq!(short(&seen), [("?", 1, 0, 0)]);
    }
}

#[test]
fn a_process_that_says_nothing_for_a_while_is_still_there() {
    let mut book = Book::default();
    let one = |sent| process(1, "train", vec![pair(5, 1, 2, sent, 0)]);
    let _ = look(&mut book, &[one(100)]);
    let silent = || Err((1, SwitchError::ProcessSilent { pid: 1, seconds: 5 }));
    assert_eq!(short(&look(&mut book, &[silent()])), [("train", 5, 0, 0)]);
    assert_eq!(short(&look(&mut book, &[one(130)])), [("train", 5, 30, 0)]);
    let busy = one(130).map(|told| ProcessStats { busy: 1, report: Report::default(), ..told });
    assert_eq!(short(&look(&mut book, &[busy])), [("train", 5, 0, 0)]);
}

#[test]
fn there_are_so_many_and_no_more() {
    let rows = |count: u32| (0..count).map(|qpn| pair(qpn, 1, 2, 1, 0)).collect();
    let seen = look(&mut Book::default(), &[process(1, "a", rows(900)), process(2, "b", rows(900))]);
    assert_eq!((seen.flows.len(), seen.left_out), (1024, 776));
    let wanted = borrow(&seen.flows, address(1), |_| Some(77));
    // The same ports: one in turn of each service.
    let ports: Vec<u16> = (50_000..50_064).collect();
    assert_eq!(wanted.keys().copied().collect::<Vec<_>>(), [address(2)]);
    assert_eq!((wanted[&address(2)].qpn, &wanted[&address(2)].ports), (77, &ports));
    assert!(borrow(&seen.flows, address(8), |_| Some(77)).is_empty(), "none leaves from there");
    assert!(borrow(&seen.flows, address(1), |_| None).is_empty(), "nothing answers");
}
