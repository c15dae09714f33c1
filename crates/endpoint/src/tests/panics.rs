//! Handlers that panic: each takes its own connection with it, and nothing else.

use std::panic::panic_any;
use std::sync::mpsc::{self, Receiver, Sender};

use super::*;
use crate::core::State as Stand;
use crate::error::{Cause, Error};
use crate::options::Polling;
use crate::reactor::{Handler, Reactor, ReactorOptions};

const PANICKED: Error = Error::Lost(Cause::HandlerPanicked);
const RESET: Error = Error::Lost(Cause::PeerReset);

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a value that panics when it is dropped, on purpose");
    }
}

fn reactor() -> Reactor {
    Reactor::start(ReactorOptions::new()).unwrap()
}

/// How a connection ended, as its handler heard.
type Heard = (Sender<Result<(), Error>>, Receiver<Result<(), Error>>);

/// A connection that is echoed by this reactor, and works.
struct Echoed {
    connection: Connection,
}

impl Echoed {
    fn start(reactor: &Reactor, net: u8) -> Self {
        let (connection, b) = pair(net);
        let echo = Handler::new(|connection, message| {
            let _ = connection.send(&message.into_vec()).wait_for(SOON);
        });
        reactor.serve(b, echo).unwrap();
        let echoed = Self { connection };
        echoed.check();
        echoed
    }

    fn check(&self) {
        for len in [1, 40_000] {
            self.connection.send(&vec![7; len]).wait_for(SOON).unwrap();
            assert_eq!(self.connection.recv().wait_for(SOON).unwrap().unwrap().len(), len);
        }
    }
}

#[test]
fn a_handler_that_panics_ends_its_own_connection_and_the_others_go_on() {
    for polling in [Polling::Event, Polling::Adaptive(Duration::from_micros(20)), Polling::Busy] {
        let reactor = Reactor::start(ReactorOptions::new().polling(polling)).unwrap();
        let other = Echoed::start(&reactor, 120);
        let (a, b) = pair(120);
        let (tell, told) = mpsc::channel();
        let handler = Handler::new(|_, message| assert!(message.len() < 5, "a long message, on purpose"));
        let held = b.clone();
        reactor.serve(b, handler.on_closed(move |_, how| tell.send(how).unwrap())).unwrap();
        a.send(b"fine").wait_for(SOON).unwrap();
        a.send(b"too long for it").wait_for(SOON).unwrap();
        assert_eq!(told.recv().unwrap(), Err(PANICKED));
        assert_eq!(held.state(), Stand::Lost(Cause::HandlerPanicked));
        assert_eq!(held.send(b"x").wait_for(SOON), Err(PANICKED));
        assert_eq!(a.recv().wait_for(SOON).map(|_| ()), Err(RESET), "the peer hears that it was broken off");
        assert_eq!(reactor.counters().panics, 1);
        other.check();
        Echoed::start(&reactor, 120);
    }
}

#[test]
fn a_handler_that_panics_while_its_peer_goes_away() {
    let reactor = reactor();
    let other = Echoed::start(&reactor, 120);
    let (a, b) = pair(120);
    let (inside, entered) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let handler = Handler::new(move |connection, message| {
        inside.send(()).unwrap();
        goes.recv().unwrap();
        connection.send(&message.into_vec()).wait_for(SOON).unwrap();
    });
    reactor.serve(b, handler.on_closed(move |_, how| tell.send(how).unwrap())).unwrap();
    a.send(b"question").wait_for(SOON).unwrap();
    entered.recv().unwrap();
    a.abort();
    go.send(()).unwrap();
    assert_eq!(told.recv().unwrap(), Err(PANICKED));
    other.check();
}

#[test]
fn what_is_told_of_the_end_may_panic_too() {
    let reactor = reactor();
    let other = Echoed::start(&reactor, 120);
    let (a, b) = pair(120);
    let held = b.clone();
    reactor.serve(b, Handler::new(|_, _| ()).on_closed(|_, _| panic!("at the end, on purpose"))).unwrap();
    // The peer's half has ended in peace: the other half is broken off, perhaps before that is confirmed.
    let _ = a.shutdown().wait_for(SOON);
    assert_eq!(a.recv().wait_for(SOON).map(|_| ()), Err(RESET));
    other.check();
    assert_eq!((held.state(), reactor.counters().panics), (Stand::Lost(Cause::HandlerPanicked), 1));
}

#[test]
fn what_a_handler_throws_or_holds_may_panic_when_it_is_dropped() {
    let reactor = reactor();
    let other = Echoed::start(&reactor, 120);
    let (a, b) = pair(120);
    let (tell, told): Heard = mpsc::channel();
    let held = Bomb;
    let handler = Handler::new(move |_, _| {
        let _bomb = &held;
        panic_any(Bomb);
    });
    reactor.serve(b, handler.on_closed(move |_, how| tell.send(how).unwrap())).unwrap();
    a.send(b"boom").wait_for(SOON).unwrap();
    assert_eq!(told.recv().unwrap(), Err(PANICKED));
    // Its sender is gone when all of the handler is.
    assert!(told.recv().is_err());
    other.check();
    assert_eq!(reactor.counters().panics, 2, "thrown, and held; what a thrown value throws does not count");
}

#[test]
fn a_reactor_that_ends_drops_what_panics() {
    let reactor = reactor();
    let kept: Vec<_> = (0..3)
        .map(|_| {
            let (a, b) = pair(120);
            let held = Bomb;
            let handler = Handler::new(move |_, _| {
                let _bomb = &held;
            });
            reactor.serve(b, handler).unwrap();
            a
        })
        .collect();
    drop(reactor);
    for a in kept {
        // All of them were dropped, and so closed in peace.
        assert!(a.recv().wait_for(SOON).unwrap().is_none());
    }
}
