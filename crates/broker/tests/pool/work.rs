//! Items in posted work: they stay until the work is done.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce_broker::pool::{Freed, Ledger, Pool};
use ferroce_broker::{At, Broker, Members, Piece, Post};
use ferroce_verbs::{CompletionQueue, ProtectionDomain, QueuePair, Service, Status};

use crate::{access, context, domain};

const LIMIT: Duration = Duration::from_secs(20);

struct Pair {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    ann: QueuePair,
    bob: QueuePair,
}

/// Two queue pairs that know each other.
fn pair() -> Pair {
    let (domain, cq) = (domain(), context().completion_queue(64).unwrap());
    let make = || domain.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap();
    let (ann, bob) = (make(), make());
    ann.connect(&bob.local_address()).unwrap();
    bob.connect(&ann.local_address()).unwrap();
    Pair { domain, cq, ann, bob }
}

fn small(domain: &ProtectionDomain) -> Pool {
    Pool::builder().slab_size(1024).allocate(domain, 1024, access()).unwrap()
}

#[test]
fn an_item_that_waits_for_a_message_is_not_dealt_out_again() {
    let Pair { domain, cq, ann, bob } = pair();
    let pool = small(&domain);
    let item = pool.alloc(1, 1024).unwrap();
    let ledger = Ledger::new();
    ledger.post([&item], |[slice], id| bob.receive(slice).id(id).post()).unwrap();
    drop(item);
    assert!(pool.alloc(1, 1024).is_err(), "the receive still has it");
    assert_eq!(pool.usage().partitions[0].classes[0].loans, 1);
    ann.send_inline(b"a message").post().unwrap();
    let completions = [cq.wait(LIMIT).unwrap(), cq.wait(LIMIT).unwrap()];
    let received = completions.iter().find(|completion| completion.qpn == bob.qpn()).unwrap();
    assert_eq!(received.status, Status::Success);
    assert_eq!(ledger.complete(received.id), 1);
    assert_eq!(ledger.complete(received.id), 0, "it completes once");
    let item = pool.alloc(1, 1024).unwrap();
    assert_eq!(item.to_vec(..9).unwrap(), b"a message");
}

#[test]
fn work_without_completions_of_its_own_is_done_when_later_work_is() {
    let Pair { domain, cq, ann, bob: _bob } = pair();
    let pool = small(&domain);
    let target = domain.allocate(64, access()).unwrap();
    let ledger = Ledger::new();
    for byte in 0..8 {
        let item = pool.alloc(1, 64).unwrap();
        item.fill(.., byte).unwrap();
        ledger.post([&item], |[slice], id| ann.write(slice, target.remote()).id(id).post()).unwrap();
    }
    assert_eq!((ledger.len(), pool.usage().items()), (8, 8));
    let mut last = 0;
    for _ in 0..8 {
        let completion = cq.wait(LIMIT).unwrap();
        assert_eq!(completion.status, Status::Success);
        last = completion.id;
    }
    assert_eq!(ledger.complete_through(last - 3), 5);
    assert_eq!((ledger.len(), pool.usage().items()), (3, 3));
    assert_eq!(ledger.complete_through(last), 3);
    assert!(ledger.is_empty());
    assert_eq!((target.to_vec(..).unwrap(), pool.usage().free_slabs), (vec![7; 64], 1));
}

#[test]
fn several_items_of_one_work_go_together() {
    let Pair { domain, cq, ann, bob: _bob } = pair();
    let pool = small(&domain);
    let (ledger, target) = (Ledger::new(), domain.allocate(64, access()).unwrap());
    let (a, b) = (pool.alloc(1, 3).unwrap(), pool.alloc(1, 4).unwrap());
    a.write_at(0, b"one").unwrap();
    b.write_at(0, b" two").unwrap();
    let both = |id| ledger.complete(id);
    ledger.post([&a, &b], |slices, id| ann.write(&slices, target.remote()).id(id).post()).unwrap();
    let other = pool.alloc(1, 1).unwrap();
    ledger.post([&other], |[slice], id| ann.write(slice, target.remote().slice(32..)).id(id).post()).unwrap();
    let (first, second) = (cq.wait(LIMIT).unwrap().id, cq.wait(LIMIT).unwrap().id);
    assert_eq!((both(second), both(first), both(first)), (1, 2, 0), "in any order");
    assert_eq!(target.to_vec(..7).unwrap(), b"one two");
}

#[test]
fn refused_work_holds_nothing() {
    let Pair { domain, ann, bob: _bob, .. } = pair();
    let pool = small(&domain);
    let (ledger, item) = (Ledger::new(), pool.alloc(1, 100).unwrap());
    let short = item.remote().slice(..50);
    ledger.post([&item], |[slice], id| ann.write(slice, short).id(id).post()).unwrap_err();
    assert!(ledger.is_empty());
    drop(item);
    assert_eq!(pool.usage().free_slabs, 1);
}

#[test]
fn ending_the_queue_pair_frees_what_its_work_held() {
    let Pair { domain, ann: _ann, bob, .. } = pair();
    let pool = small(&domain);
    let ledger = Ledger::new();
    for _ in 0..2 {
        let item = pool.alloc(1, 512).unwrap();
        ledger.post([&item], |[slice], id| bob.receive(slice).id(id).post()).unwrap();
    }
    assert!(pool.alloc(2, 1).is_err());
    ledger.end(bob);
    assert_eq!(pool.usage().free_slabs, 1);
}

#[test]
fn a_ledger_that_is_lost_frees_nothing() {
    let Pair { domain, ann: _ann, bob, .. } = pair();
    let pool = small(&domain);
    let (ledger, item) = (Ledger::new(), pool.alloc(1, 1024).unwrap());
    ledger.post([&item], |[slice], id| bob.receive(slice).id(id).post()).unwrap();
    drop((ledger, item));
    assert_eq!((pool.usage().items(), pool.usage().free_slabs), (1, 0));
}

#[test]
fn a_kept_item_that_is_lent_goes_when_the_work_is_done() {
    let Pair { domain, cq, ann, bob } = pair();
    let pool = small(&domain);
    let (ledger, item) = (Ledger::new(), pool.alloc(1, 1024).unwrap());
    ledger.post([&item], |[slice], id| bob.receive(slice).id(id).post()).unwrap();
    let kept = item.keep();
    assert_eq!(pool.free_kept(1), Freed { items: 0, bytes: 0, lent: 1 });
    assert!(pool.take(kept).is_none());
    assert_eq!(pool.usage().free_slabs, 0);
    ann.send_inline(b"x").post().unwrap();
    let completions = [cq.wait(LIMIT).unwrap(), cq.wait(LIMIT).unwrap()];
    let received = completions.iter().find(|completion| completion.qpn == bob.qpn()).unwrap();
    assert_eq!((ledger.complete(received.id), pool.usage().free_slabs), (1, 1));
}

#[test]
fn a_broker_holds_items_until_their_work_is_done() {
    let members: Members = "127.0.152.2:7471,127.0.152.3:7471".parse().unwrap();
    let members = &members;
    let start = move |id| Broker::builder(id, members.clone()).allocate(1, 1024).batch(4).start().unwrap();
    let [ann, bob] = thread::scope(|scope| {
        [0, 1].map(|id| scope.spawn(move || start(id))).map(|broker| broker.join().unwrap())
    });
    let pool = small(ann.domain());
    let item = Arc::new(pool.alloc(1, 1024).unwrap());
    item.write_at(0, b"from a pool").unwrap();
    let post = Post::new().id(9);
    ann.post_write(1, Piece::new(&item, ..11), At::offset(1, 5), post).unwrap();
    drop(item);
    // It is gathered or under way, and the broker has not looked whether it is done.
    assert!(pool.alloc(2, 1).is_err(), "the work still has it");
    let mut done = Vec::new();
    while done.is_empty() {
        ann.wait_sends(LIMIT, |told| done.push((told.id, told.result))).unwrap();
    }
    assert_eq!(done, [(9, Ok(()))]);
    assert_eq!(bob.region(1).unwrap().to_vec(5..16).unwrap(), b"from a pool");
    assert_eq!(pool.usage().free_slabs, 1);
}
