//! Work that is refused, and what is said about it.

mod common;

use common::*;
use ferroce_verbs::*;

const NET: u8 = 43;

#[test]
fn slices_are_checked_when_posted() {
    let (a, b) = wire(NET);
    let remote = b.region.remote();
    let size = a.region.len();
    let outside = a.qp.send(a.region.slice(size - 1..=size)).post().unwrap_err();
    assert_eq!(outside, PostError::OutsideRegion { start: size - 1, end: size + 1, size });
    let inner = a.region.slice(8000..).slice(100..200);
    assert_eq!(inner.len(), 100);
    let outside = a.qp.send(inner).post().unwrap_err();
    assert_eq!(outside, PostError::OutsideRegion { start: 8100, end: 8200, size });
    let short = a.qp.write(a.region.slice(..10), remote.slice(..9)).post().unwrap_err();
    assert_eq!(short, PostError::RemoteTooShort { local: 10, remote: 9 });
    let many = vec![a.region.slice(..1); 33];
    let many = a.qp.send(&many[..]).post().unwrap_err();
    assert_eq!(many, PostError::TooManyPieces { given: 33, allowed: 32 });
    let misplaced = a.qp.read(&a.region, remote).imm(1).post().unwrap_err();
    assert_eq!(misplaced.to_string(), "immediate data goes with SEND and WRITE, not with READ");
}

#[test]
fn memory_of_another_domain_is_refused() {
    let (a, b) = wire(NET);
    let by = PostTarget::QueuePair(a.qp.qpn());
    let other = open([127, 0, NET, 1]).protection_domain().unwrap().allocate(8, OPEN).unwrap();
    assert_eq!(a.qp.send(&other).post(), Err(PostError::OtherDomain { by }));
    assert_eq!(a.qp.receive(&b.region).post(), Err(PostError::OtherDomain { by }));
    let srq = a.pd.shared_receive_queue(4, 1).unwrap();
    let by = PostTarget::SharedReceiveQueue(srq.id().0);
    assert_eq!(srq.receive(&b.region).post(), Err(PostError::OtherDomain { by }));
}

#[test]
fn the_queue_pair_says_why_it_refuses() {
    let context = open([127, 0, NET, 3]);
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(16).unwrap();
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).max_inline(4).build().unwrap();
    assert_eq!(qp.state(), State::Init);
    let error = qp.send_inline(b"early").post().unwrap_err();
    let wanted = format!(
        "queue pair {} did not take the work: a queue pair in INIT takes no sends; move it to RTS first",
        qp.qpn()
    );
    assert_eq!(Chain::of(&error).to_string(), wanted);
    let peer = pd.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap();
    connect(&qp, &peer);
    let error = qp.send_inline(b"long!").post().unwrap_err();
    assert!(Chain::of(&error).to_string().ends_with("5 inline bytes, at most 4 allowed"), "{error}");
    let error = qp.reset().and_then(|()| qp.flush()).err();
    assert_eq!((error, qp.state()), (None, State::Err));
    qp.receive(&[]).id(6).post().unwrap();
    assert_eq!(cq.wait(SOON).unwrap().status, Status::Flushed);
}

#[test]
fn a_batch_says_how_many_were_taken() {
    let (a, b) = wire(NET);
    let remote = b.region.remote();
    let mut batch = a.qp.batch();
    for part in 0..10_usize {
        a.region.write_at(part, &[part.try_into().unwrap()]).unwrap();
        batch.add(a.qp.write(a.region.slice(part..=part), remote.slice(part as u64..)).id(part as u64));
    }
    batch.add(a.qp.write_inline(b"!", remote.slice(10..)).id(10));
    assert_eq!(batch.len(), 11);
    batch.post().unwrap();
    assert!((0..=10).all(|id| a.done().id == id));
    assert_eq!(b.region.to_vec(..11).unwrap(), b"\0\x01\x02\x03\x04\x05\x06\x07\x08\x09!");

    let mut batch = a.qp.batch();
    batch.add(a.qp.write_inline(b"1", remote).id(1));
    batch.add(a.qp.write(a.region.slice(9000..9001), remote).id(2));
    batch.add(a.qp.write_inline(b"3", remote).id(3));
    let error = batch.post().unwrap_err();
    assert_eq!((error.taken, error.given), (1, 3));
    assert!(matches!(error.error, PostError::OutsideRegion { start: 9000, .. }));
    assert_eq!(a.done().id, 1);

    let mut batch = a.qp.batch();
    batch.add(b.qp.send_inline(b"of another"));
    assert!(matches!(batch.post().unwrap_err().error, PostError::OtherQueuePair { .. }));
}

#[test]
fn a_full_queue_is_named_in_a_batch() {
    let context = open([127, 0, NET, 3]);
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(64).unwrap();
    let new = || pd.queue_pair(Service::Rc).send_queue(&cq, 4).receive_queue(&cq, 0).build().unwrap();
    let (qp, peer) = (new(), new());
    connect(&qp, &peer);
    // The peer has no receive, so nothing completes.
    let mut batch = qp.batch();
    for id in 0..6 {
        batch.add(qp.send_inline(b"x").id(id));
    }
    let error = batch.post().unwrap_err();
    assert_eq!((error.taken, error.given), (4, 6));
    assert!(Chain::of(&error).to_string().contains("the send queue is full"), "{error}");
}

#[test]
fn unsignaled_work_completes_in_silence() {
    let context = open([127, 0, NET, 3]);
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(64).unwrap();
    let region = pd.allocate(64, OPEN).unwrap();
    let new = || pd.queue_pair(Service::Rc).completion_queue(&cq).signal_all(false).build().unwrap();
    let (qp, peer) = (new(), new());
    connect(&qp, &peer);
    qp.write_inline(b"quiet", region.remote()).id(1).post().unwrap();
    qp.write_inline(b"loud", region.remote().slice(32..)).id(2).signaled().post().unwrap();
    assert_eq!(cq.wait(SOON).unwrap().id, 2);
    assert!(cq.poll_one().is_none());
    assert_eq!(region.to_vec(..5).unwrap(), b"quiet");
}
