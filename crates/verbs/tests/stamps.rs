//! Completions with the kernel's times.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use ferroce_verbs::*;

const SOON: Duration = Duration::from_secs(20);
const QKEY: QKey = QKey(0x1111_1111);

/// A device and a queue pair for datagrams that is stamped, whose packets always go over sockets.
struct End {
    memory: MemoryRegion,
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

const SLOT: usize = 256;

fn end(host: u8) -> End {
    let context = Context::builder("lo").address([127, 0, 130, host]).open().unwrap();
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(512).unwrap();
    let qp = pd
        .queue_pair(Service::Ud)
        .send_queue(&cq, 128)
        .receive_queue(&cq, 128)
        .path(PathPolicy::Forbid)
        .stamps()
        .build()
        .unwrap();
    qp.activate(QKEY).unwrap();
    let memory = pd.allocate(128 * SLOT, Access::LOCAL_WRITE).unwrap();
    End { memory, qp, cq, pd }
}

impl End {
    fn receive(&self, slot: usize) {
        let place = self.memory.slice(slot * SLOT..(slot + 1) * SLOT);
        self.qp.receive(place).id(slot as u64).post().unwrap();
    }

    fn handle_of(&self, other: &Self) -> AddressHandle {
        self.pd.address_handle(&AddressVector::new(other.qp.local_address().gid, 0)).unwrap()
    }

    fn done(&self) -> Completion {
        let done = self.cq.wait(SOON).unwrap();
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }
}

#[test]
fn times_are_those_of_the_packets() {
    let (a, b) = (end(1), end(2));
    let to_b = a.handle_of(&b);
    for round in 0..200 {
        b.receive(0);
        let before = time::now();
        a.qp.send_inline_to(&to_b, b.qp.qpn(), QKEY, b"probe").id(round).post().unwrap();
        let (sent, came) = (a.done(), b.done());
        let after = time::now();
        assert_eq!(
            (sent.id, sent.time_source, came.time_source),
            (round, TimeSource::Kernel, TimeSource::Kernel)
        );
        let order = [before, sent.time, came.time, after];
        assert!(order.is_sorted(), "{order:?}");
    }
}

#[test]
fn many_sends_complete_in_order_each_with_its_own_time() {
    let (a, b) = (end(3), end(4));
    let to_b = a.handle_of(&b);
    let mut last = Time::ZERO;
    for round in 0..20 {
        (0..64).for_each(|slot| b.receive(slot));
        for id in 0..64 {
            a.qp.send_inline_to(&to_b, b.qp.qpn(), QKEY, &[7; 40]).id(id).post().unwrap();
        }
        for id in 0..64 {
            let sent = a.done();
            assert_eq!((sent.id, sent.time_source), (id, TimeSource::Kernel), "round {round}");
            assert!(sent.time > last, "each left after the one before it");
            last = sent.time;
        }
        let came: Vec<Completion> = (0..64).map(|_| b.done()).collect();
        assert!(came.iter().all(|came| came.time_source == TimeSource::Kernel));
    }
}

#[test]
fn a_source_port_that_cannot_be_is_refused_with_the_reason() {
    let (a, b) = (end(6), end(7));
    let mut vector = AddressVector::new(b.qp.local_address().gid, 0);
    vector.source_port = SourcePort::Require(50_000);
    let error = a.pd.address_handle(&vector).unwrap_err();
    let why = PortRefusal::Fixed { port: 4791 };
    assert_eq!(error, CreateError::Address(RouteError::SourcePort { port: 50_000, why }));
    assert!(error.to_string().contains("port 4791 alone"), "{error}");
    vector.source_port = SourcePort::Require(4791);
    a.pd.address_handle(&vector).unwrap();
    vector.source_port = SourcePort::Prefer(50_000);
    let preferred = a.pd.address_handle(&vector).unwrap();
    assert_eq!(preferred.source_port(), 4791);
}

#[test]
fn connections_have_no_stamps() {
    let a = end(8);
    for service in [Service::Rc, Service::Uc] {
        let refused = a.pd.queue_pair(service).completion_queue(&a.cq).stamps().build().unwrap_err();
        assert!(refused.to_string().contains("are for datagrams"), "{refused}");
    }
}

#[test]
fn a_reset_leaves_no_send_waiting() {
    let (a, b) = (end(9), end(10));
    let to_b = a.handle_of(&b);
    for _ in 0..50 {
        a.qp.send_inline_to(&to_b, b.qp.qpn(), QKEY, b"one").id(1).post().unwrap();
        a.qp.modify(&Attributes::to(State::Reset), None).unwrap();
        while a.cq.poll_one().is_some() {}
        a.qp.activate(QKEY).unwrap();
        a.qp.send_inline_to(&to_b, b.qp.qpn(), QKEY, b"two").id(2).post().unwrap();
        let done = a.done();
        assert_eq!((done.id, done.time_source), (2, TimeSource::Kernel));
    }
}
