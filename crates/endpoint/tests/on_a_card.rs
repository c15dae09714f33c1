//! Endpoints over cards: our own drop-in library is one. Each test is a process of its own.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::io::{Read as _, Write as _};
use std::time::Duration;

use ferroce_endpoint::*;
use ferroce_testkit::dropin::{on_a_card, own_address, own_card};
use ferroce_verbs::time::now;
use ferroce_verbs::{Capability, Provider, ProviderReason};

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(30);
const NET: u8 = 183;

/// Two ends of a connection.
fn pair() -> (Connection, Connection) {
    pair_with(&Options::default(), &Options::default())
}

fn pair_with(ours: &Options, theirs: &Options) -> (Connection, Connection) {
    let listener = Listener::bind_with((own_address().as_str(), 0), theirs).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().wait_for(SOON).unwrap());
        let connected = Connection::connect_with(address, ours).wait().unwrap();
        (connected, accepted.join().unwrap())
    })
}

#[test]
fn the_device_is_a_card_and_says_why() {
    on_a_card(NET, "the_device_is_a_card_and_says_why", || {
        let context = Context::open(&own_card()).unwrap();
        assert_eq!((context.provider(), context.reason()), (Provider::System, ProviderReason::Wanted));
        assert!(context.can(Capability::Connections) && !context.can(Capability::MaskedAtomics));
    });
}

#[test]
fn connections_that_follow_each_other_in_one_domain_register_their_rings_once() {
    on_a_card(NET, "connections_that_follow_each_other_in_one_domain_register_their_rings_once", || {
        let context = Context::open(&own_card()).unwrap();
        let domain = context.protection_domain().unwrap();
        let options = Options::default().protection_domain(&domain);
        let mut made = Vec::new();
        for _ in 0..4 {
            let (ann, bob) = pair_with(&options, &options);
            ann.send(b"hello").wait_for(SOON).unwrap();
            assert_eq!(bob.recv().wait_for(SOON).unwrap().unwrap().into_vec(), b"hello");
            made.push(context.registrations().made);
            drop((ann, bob));
            // Two rings of each end come back, as soon as the connection is over.
            let end = now() + SOON;
            while domain.kept().regions < 4 {
                assert!(now() < end, "{:?}", domain.kept());
                std::thread::yield_now();
            }
        }
        assert_eq!(made, [made[0]; 4], "{:?}", domain.kept());
        assert!(domain.kept().reused >= 12);
        // A connection with a domain of its own leaves nothing there.
        drop(pair());
        assert_eq!(domain.kept().regions, 4);
    });
}

#[test]
fn messages_of_all_sizes_arrive() {
    on_a_card(NET, "messages_of_all_sizes_arrive", || {
        let (ann, bob) = pair();
        for len in [0, 1, 100, 20_000, 2_000_000] {
            let message: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            std::thread::scope(|scope| {
                let sent = scope.spawn(|| ann.send(&message).wait_for(SOON).unwrap());
                assert_eq!(bob.recv().wait_for(SOON).unwrap().unwrap().into_vec(), message);
                sent.join().unwrap();
            });
        }
        ann.shutdown().wait_for(SOON).unwrap();
        assert!(bob.recv().wait_for(SOON).unwrap().is_none());
    });
}

#[test]
fn many_messages_go_both_ways_at_once() {
    on_a_card(NET, "many_messages_go_both_ways_at_once", || {
        let (ann, bob) = pair();
        std::thread::scope(|scope| {
            for (from, to) in [(&ann, &bob), (&bob, &ann)] {
                scope.spawn(move || {
                    for number in 0..2000_u32 {
                        from.send(&number.to_le_bytes()).wait_for(SOON).unwrap();
                    }
                });
                scope.spawn(move || {
                    for number in 0..2000_u32 {
                        let got = to.recv().wait_for(SOON).unwrap().unwrap();
                        assert_eq!(got.into_vec(), number.to_le_bytes());
                    }
                });
            }
        });
    });
}

#[test]
fn a_stream_carries_bytes() {
    on_a_card(NET, "a_stream_carries_bytes", || {
        let (ann, bob) = pair();
        let (mut ann, mut bob) = (ann.into_stream(), bob.into_stream());
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 253) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ann.write_all(&bytes).unwrap();
                ann.flush().unwrap();
            });
            let mut got = vec![0; bytes.len()];
            bob.read_exact(&mut got).unwrap();
            assert!(got == bytes);
        });
    });
}

#[test]
fn a_port_without_a_listener_says_so() {
    on_a_card(NET, "a_port_without_a_listener_says_so", || {
        let peer = format!("{}:9", own_address());
        let error = Connection::connect(peer.as_str()).wait().unwrap_err();
        let told = ferroce_verbs::Chain::of(&error).to_string();
        assert!(told.contains("no program listens"), "{told}");
    });
}

#[test]
fn a_port_is_taken_once() {
    on_a_card(NET, "a_port_is_taken_once", || {
        let first = Listener::bind((own_address().as_str(), 0)).unwrap();
        let second = Listener::bind(first.local_addr()).unwrap_err();
        let told = ferroce_verbs::Chain::of(&second).to_string();
        assert!(told.contains("listened to already"), "{told}");
    });
}

#[test]
fn a_peer_that_is_dropped_ends_what_waits() {
    on_a_card(NET, "a_peer_that_is_dropped_ends_what_waits", || {
        let (ann, bob) = pair();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| bob.recv().wait_for(SOON));
            drop(ann);
            // In peace or not: it does not wait on.
            assert!(!matches!(waits.join().unwrap(), Ok(Some(_))));
        });
    });
}
