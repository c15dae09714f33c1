//! The forms that do not wait: futures, wakers and descriptors.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use ferroce_verbs::Service;
use ferroce_verbs::cm::{self, Disconnected, Listener};
use ferroce_verbs::time::this_thread;

use crate::common::{End, SOON};
use crate::parties::{Hosts, patient};

/// The smallest runtime there is.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = this_thread();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn one_task_for_each_side() {
    let hosts = Hosts::new(124);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let (here, there) = (End::new(&hosts.client, Service::Rc), End::new(&hosts.server, Service::Rc));
    thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let request = listener.next().await;
                let link = request.start_accept(&there.qp, &patient()).unwrap().await.unwrap();
                assert_eq!(poll_fn(|cx| link.poll_disconnected(cx)).await, Disconnected::Peer);
            });
        });
        block_on(async {
            let link = cm::start_connect(hosts.at(&listener), &here.qp, &patient()).unwrap().await.unwrap();
            let watched = link.watch_disconnected();
            link.disconnect();
            assert_eq!(watched.await, Disconnected::Here);
        });
    });
}

#[test]
fn a_future_that_is_dropped_gives_the_attempt_up_and_loses_no_request() {
    let hosts = Hosts::new(125);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let here = End::new(&hosts.client, Service::Rc);
    let mut asking = Box::pin(cm::start_connect(hosts.at(&listener), &here.qp, &patient()).unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(asking.as_mut().poll(&mut cx).is_pending());
    // A future began to wait, and was dropped; the next caller gets the request.
    let request = {
        let mut first = Box::pin(listener.next());
        match first.as_mut().poll(&mut cx) {
            Poll::Ready(request) => request,
            Poll::Pending => {
                drop(first);
                listener.accept(SOON).unwrap()
            }
        }
    };
    drop(asking);
    crate::child::eventually("it is known here", || !request.is_pending());
}

#[test]
fn a_listener_is_readable_while_requests_wait() {
    let hosts = Hosts::new(126);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let here = End::new(&hosts.client, Service::Rc);
    let readable =
        |limit| ferroce_device::wait_readable(std::os::fd::AsFd::as_fd(&listener), Some(limit)).unwrap();
    assert!(!readable(std::time::Duration::ZERO));
    let asking = cm::start_connect(hosts.at(&listener), &here.qp, &patient()).unwrap();
    assert!(readable(SOON));
    let request = listener.try_accept().unwrap();
    assert!(!readable(std::time::Duration::ZERO));
    drop((asking, request));
}
