use ferroce_record::{PacketFlags, QueuePair, Step, Wait, WaitReason, WorkOp};
use ferroce_transport::{Access, VendorCode};

use super::*;
use crate::scene::{ACK, NAK_ACCESS, NAK_INVALID, NAK_OPERATION, NAK_SEQUENCE, RNR, Scene, answer, told};

fn explain(scenes: &[&Scene]) -> Explanation {
    let record = |number: usize| Record {
        name: format!("run.{number}.ftrace"),
        lost: 0,
        overwritten: 0,
        is_cut: false,
        sample: 1,
    };
    let mut explainer = Explainer::of((1..=scenes.len()).map(record).collect());
    told(scenes, |told| explainer.take(&told));
    explainer.finish()
}

/// Our end and that of the peer, connected.
fn both() -> [Scene; 2] {
    let (mut here, mut there) = (Scene::new(0x11, 0x22), Scene::new(0x22, 0x11));
    here.connected();
    there.connected();
    [here, there]
}

/// A request that ends like this, after the answer.
fn failed(scene: &mut Scene, op: WorkOp, syndrome: u8, status: Status) {
    scene.post(7, op, 64).out(7, op, 5, PacketFlags::empty());
    scene.after(100_000).answer(7, 5, syndrome).end(7, op, status);
}

#[track_caller]
fn says(explanation: &Explanation, texts: &[&str]) {
    let all = explanation.to_string();
    for text in texts {
        assert!(all.contains(text), "{text:?} is not in:\n{all}");
    }
}

#[test]
fn a_run_in_which_all_went_well_has_no_findings() {
    let [mut here, mut there] = both();
    there.post(0, WorkOp::Receive, 64).request(WorkOp::Send, 5).respond(5, ACK).end(
        0,
        WorkOp::Receive,
        Status::Success,
    );
    here.good(0, WorkOp::Send, 5);
    let explanation = explain(&[&here, &there]);
    assert_eq!(explanation.findings(), []);
    assert!(!explanation.has_error());
    says(&explanation, &["All work ended well"]);
    assert_eq!(explanation.to_json()["has_error"], false);
}

#[test]
fn refused_memory_is_explained_by_the_record_of_the_other_end() {
    let write = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let reason = |prepare: &dyn Fn(&mut Scene)| {
        let [mut here, mut there] = both();
        prepare(&mut there);
        there.after(60_000).request(WorkOp::Write, 5).respond(5, NAK_ACCESS);
        failed(&mut here, WorkOp::Write, NAK_ACCESS, Status::RemoteAccess);
        let explanation = explain(&[&here, &there]);
        assert!(explanation.has_error());
        says(
            &explanation,
            &[
                "error: RDMA WRITE 7 (id 0x107) of queue pair 0x000011 of record 1 failed at 0.000",
                "remote access error",
                "because: vendor error 0xa1: the peer answered: remote access error\n",
                "because: the peer refused packet 0x000005 with NAK Remote Access Error, 110.000 us after the first packet left\n",
            ],
        );
        explanation.findings()[0].because.last().unwrap().clone()
    };
    assert_eq!(reason(&|_| {}), "at the other end, no memory has rkey 0x00000077");
    assert_eq!(
        reason(&|there| _ = there.region(Step::Made, 0x1f_f000, 4096 + 52, write)),
        "at the other end, rkey 0x00000077 opens 4148 bytes at 0x1ff000: the WRITE of 64 bytes at 0x200000 ended 12 bytes \
         behind"
    );
    assert_eq!(
        reason(&|there| _ = there.region(Step::Made, 0x20_0010, 4096, write)),
        "at the other end, rkey 0x00000077 opens 4096 bytes at 0x200010: the WRITE of 64 bytes at 0x200000 began 16 bytes \
         before"
    );
    assert_eq!(
        reason(&|there| _ = there.region(Step::Earlier, 0x20_0000, 4096, Access::REMOTE_READ)),
        "at the other end, rkey 0x00000077 opens 4096 bytes at 0x200000, but does not allow remote writes"
    );
    let domain = reason(&|there| _ = there.region(Step::Made, 0x20_0000, 4096, write));
    assert!(domain.contains("another protection domain"), "{domain}");
    let gone = reason(&|there| {
        there.region(Step::Made, 0x20_0000, 4096, write).region(Step::Gone, 0x20_0000, 4096, write);
    });
    assert_eq!(
        gone,
        "at the other end, rkey 0x00000077 opened 4096 bytes at 0x200000, but was deregistered 80.000 us before"
    );
}

#[test]
fn memory_that_is_registered_too_late_is_told() {
    let [mut here, mut there] = both();
    there.request(WorkOp::Write, 5).respond(5, NAK_ACCESS).region(
        Step::Made,
        0x20_0000,
        64,
        Access::REMOTE_WRITE,
    );
    failed(&mut here, WorkOp::Write, NAK_ACCESS, Status::RemoteAccess);
    says(&explain(&[&here, &there]), &["rkey 0x00000077 was registered only 10.000 us later"]);
}

#[test]
fn without_the_record_of_the_other_end_it_is_said_what_that_would_tell() {
    for (syndrome, status, what) in [
        (NAK_ACCESS, Status::RemoteAccess, "would tell which memory its key opens, and for what"),
        (NAK_INVALID, Status::RemoteInvalidRequest, "would tell which of these it was"),
        (NAK_OPERATION, Status::RemoteOperation, "would tell what failed there"),
        (ACK, Status::RetryExceeded, "would tell whether its packets came there"),
        (RNR, Status::RnrRetryExceeded, "would tell when receives were posted there"),
        (ACK, Status::BadResponse, "would tell what it was asked"),
    ] {
        let [mut here, _] = both();
        failed(&mut here, WorkOp::Write, syndrome, status);
        let explanation = explain(&[&here]);
        says(&explanation, &["the record of the other end (queue pair 0x000022 at 10.0.0.34)", what]);
        says(&explanation, &[status.text()]);
    }
}

#[test]
fn every_status_and_vendor_code_is_explained() {
    for code in VendorCode::ALL {
        let [mut here, _] = both();
        for op in [WorkOp::Write, WorkOp::Receive, WorkOp::BindWindow, WorkOp::Read, WorkOp::FetchAdd] {
            let mut completed = here.completed(9, op, code.status());
            completed.vendor_code = Some(*code);
            let posted = here.posted(9, op, 64);
            here.then(posted).then(completed);
        }
        let explanation = explain(&[&here]);
        if code.status() == Status::Flushed {
            says(&explanation, &["5 request(s) of queue pair 0x000011 were flushed"]);
            continue;
        }
        let failures = explanation.findings().iter().filter(|finding| finding.severity == Severity::Error);
        for finding in failures.clone() {
            assert!(!finding.because.is_empty() && finding.because[0].contains(code.text()), "{finding:?}");
        }
        assert_eq!(failures.count(), 5, "{code:?}");
    }
}

#[test]
fn an_invalid_request_points_at_the_error_of_the_other_end() {
    let [mut here, mut there] = both();
    there.post(3, WorkOp::Receive, 16).request(WorkOp::Send, 5).respond(5, NAK_INVALID);
    let completed = there.completed(3, WorkOp::Receive, Status::LocalLength);
    there.then(completed);
    failed(&mut here, WorkOp::Send, NAK_INVALID, Status::RemoteInvalidRequest);
    says(
        &explain(&[&here, &there]),
        &[
            "because: the receive has 16 bytes in 1 piece(s), and 64 bytes of the message had come\n",
            "because: the peer refused packet 0x000005 with NAK Invalid Request",
            "because: at the other end, RECEIVE 3 had failed",
            "local length error",
        ],
    );
}

/// A SEND that nothing answers.
fn unanswered(here: &mut Scene, more: PacketFlags) {
    let qpn = here.qpn;
    here.post(7, WorkOp::Send, 64).out(7, WorkOp::Send, 5, PacketFlags::empty());
    if !more.is_empty() {
        here.out(7, WorkOp::Send, 5, more);
    }
    let kind = TimerKind::Acknowledgement;
    here.after(4_000_000).then(Timer { qpn, kind, psn: 5, work: 7, tries: 1, most: 7 });
    here.out(7, WorkOp::Send, 5, PacketFlags::REPEAT).after(4_000_000);
    here.then(Timer { qpn, kind, psn: 5, work: 7, tries: 7, most: 7 }).end(
        7,
        WorkOp::Send,
        Status::RetryExceeded,
    );
}

#[test]
fn silence_of_the_peer_is_explained() {
    let [mut here, mut there] = both();
    unanswered(&mut here, PacketFlags::TAKEN);
    says(
        &explain(&[&here, &there]),
        &[
            "because: its packets left 2 time(s) in 8.050 ms, and no answer to the last came\n",
            "because: time-out 7 of 7 in a row was the last\n",
            "because: fault injection took 1 of its packets: they never left\n",
            "because: nothing was ever answered on this queue pair\n",
            "because: at the other end, none of them came: the network lost them\n",
            "note: 1 packet(s) of 2 that left queue pair 0x000011 of record 1 had left before",
            "because: 2 time(s) no answer came in time\n",
            "because: 1 packet(s) were taken by fault injection\n",
        ],
    );
    there.after(1_000_000).request(WorkOp::Send, 5);
    says(&explain(&[&here, &there]), &["at the other end, packets came, the last", "its answers were lost"]);
    there.state(State::Rts, State::Err, true);
    says(
        &explain(&[&here, &there]),
        &["queue pair 0x000022 of record 2 is in ERR since", "the program there asked for it"],
    );
    let Event::QueuePair(made) = there.events[0].event else { panic!() };
    there.then(QueuePair { step: Step::Gone, ..made });
    says(&explain(&[&here, &there]), &["queue pair 0x000022 of record 2 is gone since"]);
}

#[test]
fn packets_that_were_refused_there_are_told() {
    let [mut here, mut there] = both();
    unanswered(&mut here, PacketFlags::empty());
    let code = u32::from(Refusal::WrongPeer.code());
    let headers = answer(there.qpn, 5, ACK);
    there.after(1_000_000).raw(PacketFlags::REFUSED, code, 64, &headers);
    says(
        &explain(&[&here, &there]),
        &[
            "because: 1 packet(s) were refused there: the queue pair is connected to another peer\n",
            "warning: 1 packet(s) that came of record 2 were refused, the last for queue pair 0x000022\n",
        ],
    );
}

#[test]
fn packets_for_a_queue_pair_that_is_gone_are_no_reason_to_worry() {
    let [mut here, there] = both();
    here.good(0, WorkOp::Send, 5);
    let gone = QueuePair {
        qpn: here.qpn,
        step: Step::Gone,
        service: ferroce_wire::Service::Rc,
        state: State::Rts,
        send_cq: 1,
        receive_cq: 1,
        shared: None,
        sends: 8,
        receives: 8,
    };
    let headers = answer(here.qpn, 5, ACK);
    here.then(gone).raw(PacketFlags::REFUSED, u32::from(Refusal::UnknownQp.code()), 0, &headers);
    says(
        &explain(&[&here, &there]),
        &[
            "note: 1 packet(s) that came of record 1 were refused, the last for queue pair 0x000011\n",
            "because: it was destroyed before they came\n",
        ],
    );
}

#[test]
fn a_peer_without_receives_is_explained() {
    let [mut here, mut there] = both();
    let qpn = here.qpn;
    here.post(7, WorkOp::Send, 64);
    for _ in 0..3 {
        here.out(7, WorkOp::Send, 5, PacketFlags::empty()).answer(7, 5, RNR);
        there.request(WorkOp::Send, 5).respond(5, RNR);
    }
    let kind = TimerKind::ReceiverNotReady;
    here.then(Timer { qpn, kind, psn: 5, work: 7, tries: 3, most: 3 });
    let without = explain(&[&here, &there]);
    says(
        &without,
        &[
            "warning: queue pair 0x000011 of record 1 has 1 send(s) that are not over, the oldest (SEND 7)",
            "because: the peer has posted no receive: it has answered RNR NAK 3 time(s) since 0.000",
            "because: at the other end, no receive was ever posted to the receive queue of queue pair 0x000022\n",
            "warning: queue pair 0x000022 of record 2 answered RNR NAK 3 time(s)",
            "because: messages came while no receive was posted\n",
        ],
    );
    assert!(!without.has_error());
    there.post(1, WorkOp::Receive, 64).end(1, WorkOp::Receive, Status::Flushed);
    here.end(7, WorkOp::Send, Status::RnrRetryExceeded);
    let explanation = explain(&[&here, &there]);
    assert!(explanation.has_error());
    says(
        &explanation,
        &[
            "because: the peer answered RNR NAK 3 time(s) in 60.000 us: no receive was posted there\n",
            "because: try 3 of 3 in a row was the last\n",
            "1 receive(s) were posted to the receive queue of queue pair 0x000022, the last",
            "before, of which 0 were left",
        ],
    );
}

#[test]
fn flushed_work_points_at_what_its_queue_pair_failed_for() {
    let [mut here, _] = both();
    failed(&mut here, WorkOp::Write, NAK_ACCESS, Status::RemoteAccess);
    here.state(State::Rts, State::Err, false);
    here.post(8, WorkOp::Write, 64).end(8, WorkOp::Write, Status::Flushed);
    let explanation = explain(&[&here]);
    says(
        &explanation,
        &[
            "note: 1 request(s) of queue pair 0x000011 were flushed, the first at 0.000",
            "because: RDMA WRITE 7 had failed at 0.000",
        ],
    );
    assert!(explanation.findings()[0].text.contains("RDMA WRITE 7"), "the first error comes first");
    // Also after the queue pair was reset, and lives on.
    here.state(State::Err, State::Reset, true).state(State::Reset, State::Rts, true).good(9, WorkOp::Send, 9);
    says(&explain(&[&here]), &["because: RDMA WRITE 7 had failed at 0.000"]);

    let [mut here, _] = both();
    here.state(State::Rts, State::Err, true).post(8, WorkOp::Write, 64).end(
        8,
        WorkOp::Write,
        Status::Flushed,
    );
    let explanation = explain(&[&here]);
    assert!(!explanation.has_error());
    says(&explanation, &["because: the program moved the queue pair to ERR at 0.000"]);

    let [mut here, _] = both();
    here.state(State::Rts, State::Err, false).post(8, WorkOp::Write, 64).end(
        8,
        WorkOp::Write,
        Status::Flushed,
    );
    says(&explain(&[&here]), &["warning: 1 request(s)", "a request of the peer was refused"]);

    let [mut here, _] = both();
    let connection = Connection {
        step: ConnectionStep::Ended,
        number: 1,
        qpn: 0x11,
        service: 0,
        remote: [10, 0, 0, 2].into(),
        reason: 0,
    };
    here.then(connection).post(8, WorkOp::Write, 64).end(8, WorkOp::Write, Status::Flushed);
    says(&explain(&[&here]), &["because: the connection was ended by the peer at 0.000"]);
    here.then(Connection { step: ConnectionStep::Refused, reason: 28, ..connection });
    here.then(Connection { step: ConnectionStep::Unanswered, ..connection });
    says(
        &explain(&[&here]),
        &[
            "warning: 1 connection(s) were refused, the first with 10.0.0.2, for reason 28\n",
            "warning: 1 connection(s) got no answer, the first to 10.0.0.2\n",
        ],
    );
}

#[test]
fn a_local_key_that_opens_nothing_is_explained() {
    let [mut here, _] = both();
    here.region(Step::Made, 0x1000, 40, Access::LOCAL_WRITE).post(7, WorkOp::Send, 64).end(
        7,
        WorkOp::Send,
        Status::LocalProtection,
    );
    says(
        &explain(&[&here]),
        &[
            "because: piece 0 of its memory: lkey 0x00000005 opens 40 bytes at 0x1000: the piece of 64 bytes at 0x1000 ended 24 \
         bytes behind\n",
        ],
    );
    let [mut here, _] = both();
    here.region(Step::Made, 0x1000, 64, Access::empty()).post(7, WorkOp::Read, 64).end(
        7,
        WorkOp::Read,
        Status::LocalProtection,
    );
    says(&explain(&[&here]), &["opens 64 bytes at 0x1000, but does not allow local writes\n"]);
}

#[test]
fn memory_that_a_peer_wanted_in_vain_is_explained() {
    let [mut here, _] = both();
    here.post(7, WorkOp::Receive, 64).request(WorkOp::Write, 5).end(7, WorkOp::Receive, Status::LocalAccess);
    says(&explain(&[&here]), &["because: no memory has rkey 0x00000077\n"]);
}

#[test]
fn what_waits_is_told_with_what_it_waits_for() {
    let [mut here, _] = both();
    let qpn = here.qpn;
    here.post(7, WorkOp::Read, 64).then(Wait { qpn, reason: WaitReason::ReadDepth, work: 7, until: 0 });
    says(
        &explain(&[&here]),
        &[
            "note: queue pair 0x000011 has 1 send(s) that are not over, the oldest (RDMA READ 7) for 20.000 us\n",
            "because: it waits for the depth of READs and atomics since 0.000",
        ],
    );

    let mut silent = Scene::new(0x11, 0x22);
    silent
        .connected()
        .post(7, WorkOp::Send, 64)
        .out(7, WorkOp::Send, 5, PacketFlags::empty())
        .after(2_000_000_000);
    silent.good(9, WorkOp::Send, 6);
    let mut other = Scene::new(0x33, 0x44);
    other.connected().post(1, WorkOp::Send, 64).state(State::Rts, State::Sqe, false);
    let explanation = explain(&[&silent, &other]);
    says(
        &explanation,
        &[
            "warning: queue pair 0x000011 of record 1 has 1 send(s) that are not over, the oldest (SEND 7) for 2.000 s\n",
            "warning: queue pair 0x000033 of record 2 has 1 send(s)",
            "because: it is in SQE since 0.000",
        ],
    );

    let [mut here, _] = both();
    unanswered(&mut here, PacketFlags::empty());
    here.events.truncate(here.events.len() - 2);
    says(
        &explain(&[&here]),
        &[
            "because: no answer came in time, 2 time(s) since 0.004",
            ", now try 7 of 7\n",
            "would tell what it does with them",
        ],
    );
}

#[test]
fn completions_that_nobody_takes_and_queues_that_are_full_are_told() {
    let [mut here, _] = both();
    let completed = here.completed(7, WorkOp::Write, Status::Success);
    here.post(7, WorkOp::Write, 64).then(completed).after(2_000_000_000);
    here.post(0, WorkOp::Receive, 64).post(8, WorkOp::Write, 64);
    let overrun =
        Completed { flags: CompletedFlags::OVERRUN, ..here.completed(8, WorkOp::Write, Status::Success) };
    here.then(overrun);
    let explanation = explain(&[&here]);
    assert!(explanation.has_error());
    says(
        &explanation,
        &[
            "error: completion queue 1 was full: 1 completion(s) are lost\n",
            "warning: 1 completion(s) of completion queue 1 were never taken, the oldest for 2.000 s\n",
            "note: 1 receive(s) were still waiting for messages at the end\n",
        ],
    );
}

#[test]
fn repeats_have_their_reasons() {
    let [mut here, _] = both();
    here.post(7, WorkOp::Send, 64).out(7, WorkOp::Send, 5, PacketFlags::empty()).answer(7, 5, NAK_SEQUENCE);
    here.out(7, WorkOp::Send, 5, PacketFlags::REPEAT).answer(7, 5, ACK).end(7, WorkOp::Send, Status::Success);
    let explanation = explain(&[&here]);
    assert!(!explanation.has_error());
    says(
        &explanation,
        &["1 time(s) the peer answered that packets before are missing (NAK sequence error)\n"],
    );
}

#[test]
fn a_record_with_gaps_says_so() {
    let record = Record { name: "x".to_owned(), lost: 3, overwritten: 4, is_cut: true, sample: 5 };
    let mut explainer = Explainer::of(vec![record]);
    let odd = crate::Oddity::PartUnknown(Queue::Shared(2), 4);
    explainer.take(&Told::Odd(0, odd.clone()));
    explainer.take(&Told::Odd(0, odd));
    says(
        &explainer.finish(),
        &[
            "warning: x lacks 3 event(s)",
            "note: x lacks 4 event(s): later ones took their places",
            "warning: x was cut off",
            "note: x has one of 5 requests\n",
            "note: 2 thing(s) in the record do not fit together: the first is that work 4 of shared receive queue 2",
        ],
    );
}

#[test]
fn many_failures_are_counted() {
    let [mut here, _] = both();
    for work in 0..60 {
        here.post(work, WorkOp::Write, 64).end(work, WorkOp::Write, Status::RetryExceeded);
    }
    let explanation = explain(&[&here]);
    let errors = explanation.findings().iter().filter(|finding| finding.severity == Severity::Error);
    assert_eq!(errors.count(), FAILURES + 1);
    says(&explanation, &["error: 10 more request(s) failed: retry exceeded"]);
    let json = explanation.to_json();
    assert_eq!((&json["has_error"], &json["findings"][1]["qpn"]), (&true.into(), &0x11.into()));
    assert_eq!(json["findings"][1]["evidence"][0]["text"], "posted");
}
