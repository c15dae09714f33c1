//! A mesh of brokers over cards: our own drop-in library is one.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::time::Duration;

use ferroce_broker::{Broker, Members, Post};
use ferroce_testkit::dropin::{on_a_card, own_address};

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(30);
const NET: u8 = 184;

#[test]
fn members_talk_and_leave() {
    on_a_card(NET, "members_talk_and_leave", || {
        let own = own_address();
        let members: Members = format!("{own}:7471,{own}:7571,{own}:7671").parse().unwrap();
        std::thread::scope(|scope| {
            for me in 0..3_u32 {
                let members = members.clone();
                scope.spawn(move || {
                    let broker = Broker::builder(me, members).start().unwrap();
                    for peer in (0..3).filter(|peer| *peer != me) {
                        broker.send(peer, format!("from {me}").as_bytes(), Post::new()).unwrap();
                    }
                    broker.flush_all();
                    let mut heard = Vec::new();
                    while heard.len() < 2 {
                        broker
                            .wait_receives(SOON, |message| heard.push((message.peer(), message.to_vec())))
                            .unwrap();
                    }
                    heard.sort();
                    let wanted: Vec<_> = (0..3)
                        .filter(|peer| *peer != me)
                        .map(|peer| (peer, format!("from {peer}").into_bytes()))
                        .collect();
                    assert_eq!(heard, wanted);
                    broker.leave(SOON).unwrap();
                });
            }
        });
    });
}
