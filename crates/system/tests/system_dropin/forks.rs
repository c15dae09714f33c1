//! What a forked child may do with the objects of its parent: nothing but drop them.
#![allow(unsafe_code, reason = "a fork is what is tested")]

use ferroce_system::{
    Bytes, CallError, CardCompletion, Library, Operation, PostWorkError, ReceiveWork, SendWork,
};
use ferroce_wire::Service;

use crate::child::over_dropin;
use crate::connected::{Bench, is_held};

over_dropin! {
    fn a_child_cannot_harm_the_objects_of_its_parent(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        let queue = bench.domain.shared_receive_queue(4, 1).unwrap();
        let connections = library.connection_channel().unwrap();
        let id = connections.id().unwrap();
        let pieces = [region.all()];
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &pieces }]).unwrap();
        let send = SendWork::new(2, Operation::Send, Bytes::Inline(b"hello"));
        let in_child = || {
            let refused = |error: CallError| error.code == CallError::FORKED;
            let posted = |error| matches!(error, PostWorkError::Refused(error) if refused(error));
            posted(ann.post_send(&[send]).unwrap_err().error)
                && posted(queue.post(&[ReceiveWork { id: 1, pieces: &[] }]).unwrap_err().error)
                && refused(bench.completions.poll(&mut [CardCompletion::EMPTY]).unwrap_err())
                && refused(bench.context.events().poll().unwrap_err())
                && refused(bench.context.protection_domain().unwrap_err())
                && refused(connections.poll().unwrap_err())
                && refused(id.disconnect().unwrap_err())
        };
        if !forked(in_child) {
            return drop((bench, ann, bob, region, queue, id, connections));
        }
        ann.post_send(&[send]).unwrap();
        assert_eq!(bench.all_done(2), [1, 2]);
        assert!(is_held(&memory));
        drop((bench, ann, bob, region, queue, id, connections));
        assert!(!is_held(&memory));
    }
}

/// Whether this is the parent of a child in which something holds; the child goes on, too, and ends well.
pub(crate) fn forked(holds: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child goes on in a thread of its own, uses no lock that another thread had, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        if !holds() {
            // SAFETY: it ends this process and touches nothing of it.
            unsafe { libc::_exit(1) };
        }
        // What it holds is dropped by the test that returns, and then this process ends like its parent.
        return false;
    }
    let mut status = 0;
    // SAFETY: the pointer is to a number that lives during the call.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
    true
}
