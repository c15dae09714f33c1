//! Members that do not fit together: the error names what both sides have.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod rig;

use std::net::SocketAddr;
use std::time::Duration;

use ferroce_broker::*;
use ferroce_verbs::cm::{self, CmError, CmOptions, Listener};
use ferroce_verbs::{Chain, Service};
use rig::{SOON, builder, device, eventually, members, start_all};

/// A member that waits in vain does not do so for long.
const IN_VAIN: Duration = Duration::from_millis(700);

/// Starts two that do not fit, and gives what each of them says.
fn two(net: u8, with: impl Fn(u32, Builder) -> Builder) -> [StartError; 2] {
    let members = members(net, 2);
    let both = [0, 1].map(|id| with(id, builder(&members, id)));
    start_all(both).into_iter().map(Result::unwrap_err).collect::<Vec<_>>().try_into().unwrap()
}

/// Why a member does not fit, however it came out.
fn refusal(error: &StartError) -> MemberRefusal {
    match error {
        StartError::Refused { refusal, .. } => (**refusal).clone(),
        StartError::Missing { missing, .. } => missing[0].refusal.clone().expect("something is known"),
        error => panic!("{error}"),
    }
}

#[test]
fn messages_of_different_sizes() {
    let [zero, one] = two(170, |id, builder| builder.max_message(100 + id));
    assert_eq!(refusal(&zero), MemberRefusal::MaxMessage { here: 100, there: 101 });
    assert_eq!(refusal(&one), MemberRefusal::MaxMessage { here: 101, there: 100 });
    let text = Chain::of(&zero).to_string();
    assert!(text.contains("member 0 (127.0.170.1:7471) and member 1 (127.0.170.2:7471)"), "{text}");
    assert!(text.contains("100 bytes here and 101 there"), "{text}");
}

#[test]
fn a_region_too_small_or_not_there() {
    let [zero, one] = two(171, |id, builder| match id {
        0 => builder.allocate(5, 1000).deadline(IN_VAIN),
        _ => builder.allocate(5, 2000).require(5, 1500),
    });
    assert_eq!(refusal(&one), MemberRefusal::RegionTooSmall { region: 5, needed: 1500, there: 1000 });
    // The other one would be content; it only sees that its peer hangs up.
    assert_eq!(refusal(&zero), MemberRefusal::HungUp);
    let [zero, one] = two(172, |_, builder| builder.require(7, 1).deadline(IN_VAIN));
    let missing = MemberRefusal::RegionTooSmall { region: 7, needed: 1, there: 0 };
    assert_eq!((refusal(&zero), refusal(&one)), (missing.clone(), missing));
}

#[test]
fn a_wrong_secret() {
    let members = members(173, 2);
    let [zero, one] = [0, 1].map(|id| builder(&members, id).secret(Secret::generate().unwrap()));
    let zero = zero.launch().unwrap();
    let one = one.start().unwrap_err();
    // The side that asks is told by the answer; the side that is asked believes no stranger, and goes on
    // waiting.
    assert!(matches!(one, StartError::Refused { .. }), "{one}");
    assert_eq!(refusal(&one), MemberRefusal::WrongSecret { here: 1, there: 0 });
    eventually(&zero, |zero| zero.refusals().wrong_secret > 0);
    let zero = zero.wait_for_all(Duration::ZERO).unwrap_err();
    assert!(matches!(zero, StartError::Missing { .. }), "{zero}");
    assert_eq!(refusal(&zero), MemberRefusal::WrongSecret { here: 0, there: 1 });
    let text = Chain::of(&one).to_string();
    assert!(text.contains("the secret of member 0 is not that of member 1"), "{text}");
}

#[test]
fn a_secret_on_one_side_only() {
    let [zero, one] = two(174, |id, builder| match id {
        0 => builder.deadline(IN_VAIN),
        _ => builder.secret(Secret::generate().unwrap()),
    });
    assert_eq!(refusal(&zero), MemberRefusal::SecretMissing { here: false, there: true });
    assert_eq!(refusal(&one), MemberRefusal::SecretMissing { here: true, there: false });
    assert!(
        Chain::of(&one).to_string().contains("a secret is set here, and no secret is set there"),
        "{one}"
    );
}

#[test]
fn the_same_secret_lets_members_in() {
    let members = members(175, 3);
    let secret = Secret::generate().unwrap();
    let started = start_all((0..3).map(|id| builder(&members, id).secret(&secret)));
    assert!(started.iter().all(Result::is_ok), "{started:?}");
}

#[test]
fn lists_with_different_addresses() {
    let here = members(176, 3);
    let there = here.iter().map(|member| match member.id {
        2 => (2, SocketAddr::from(([127, 0, 176, 99], 7471))),
        id => (id, member.address),
    });
    let there = Members::new(there).unwrap();
    let started = start_all([builder(&here, 0), builder(&there, 1)]);
    let errors: Vec<_> = started.into_iter().map(Result::unwrap_err).collect();
    let (ours, theirs) = (here.get(2).unwrap(), there.get(2).unwrap());
    assert_eq!(refusal(&errors[0]), MemberRefusal::OtherAddress { here: ours, there: theirs });
    assert_eq!(refusal(&errors[1]), MemberRefusal::OtherAddress { here: theirs, there: ours });
    let text = Chain::of(&errors[0]).to_string();
    assert!(text.contains("127.0.176.3:7471") && text.contains("127.0.176.99:7471"), "{text}");
}

#[test]
fn lists_of_different_length() {
    let (short, long) = (members(177, 2), members(177, 3));
    let started = start_all([builder(&short, 0), builder(&long, 1)]);
    let errors: Vec<_> = started.into_iter().map(Result::unwrap_err).collect();
    let member = long.get(2).unwrap();
    assert_eq!(refusal(&errors[0]), MemberRefusal::Unlisted { member, here: false });
    assert_eq!(refusal(&errors[1]), MemberRefusal::Unlisted { member, here: true });
    // A member that is not on the list at all is told so by the member that it asks.
    let started = start_all([builder(&short, 0).deadline(IN_VAIN), builder(&long, 2)]);
    assert_eq!(refusal(started[1].as_ref().unwrap_err()), MemberRefusal::Unlisted { member, here: true });
}

#[test]
fn another_server_at_the_address() {
    // Both believe that their peer is the one at the other address, under another number.
    let address = |last| SocketAddr::from(([127, 0, 178, last], 7471));
    let here = Members::new([(0, address(1)), (5, address(2))]).unwrap();
    let there = Members::new([(1, address(1)), (5, address(2))]).unwrap();
    let started = start_all([builder(&here, 0).deadline(IN_VAIN), builder(&there, 5)]);
    let one = started[1].as_ref().unwrap_err();
    assert_eq!(refusal(one), MemberRefusal::OtherMember { asked: 1, found: 0 });
    let zero = started[0].as_ref().unwrap_err();
    assert_eq!(refusal(zero), MemberRefusal::OtherMember { asked: 1, found: 0 });
}

#[test]
fn another_version_asks() {
    let members = members(179, 2);
    let (context, domain) = device(&members, 1);
    let zero = builder(&members, 0).launch().unwrap();
    let queue = context.completion_queue(4).unwrap();
    let qp = domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap();
    let greeting = [&b"fbrk\x00\x63"[..], &[0; 34]].concat();
    let options = CmOptions::default().private_data(&greeting);
    let error = cm::connect(members.get(0).unwrap().address, &qp, &options).unwrap_err();
    let CmError::Refused { private_data, .. } = error else { panic!("{error}") };
    assert_eq!(private_data[..12], *b"fbrk\x00\x02\x01\x00\x00\x00\x00\x02", "ours is version 2");
    let error = zero.wait_for_all(IN_VAIN).unwrap_err();
    assert_eq!(refusal(&error), MemberRefusal::Version { here: 2, there: 99 });
    assert!(Chain::of(&error).to_string().contains("version 99"), "{error}");
}

#[test]
fn another_version_answers() {
    let members = members(180, 2);
    let (context, _domain) = device(&members, 0);
    let listener = Listener::bind(&context, members.get(0).unwrap().address.port(), 4).unwrap();
    let error = std::thread::scope(|scope| {
        let starting = scope.spawn(|| builder(&members, 1).start());
        let request = listener.accept(SOON).unwrap();
        request.reject(b"fbrk\x00\x09\x01\x00\x00\x00\x00\x09").unwrap();
        starting.join().unwrap().unwrap_err()
    });
    assert_eq!(refusal(&error), MemberRefusal::Version { here: 2, there: 9 });
}

#[test]
fn what_is_no_broker_is_said_to_be_none() {
    let members = members(181, 2);
    let (context, domain) = device(&members, 0);
    let listener = Listener::bind(&context, members.get(0).unwrap().address.port(), 4).unwrap();
    let queue = context.completion_queue(16).unwrap();
    let one = builder(&members, 1).launch().unwrap();
    eventually(&one, |one| {
        let qp = domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap();
        // It is accepted by a program that knows nothing of brokers.
        let request = listener.accept(SOON).unwrap();
        let accepted = request.accept(&qp, &CmOptions::default());
        drop(accepted);
        one.refusals().no_broker > 0
    });
    let error = one.wait_for_all(Duration::ZERO).unwrap_err();
    let StartError::Missing { missing, .. } = &error else { panic!("{error}") };
    assert!(missing[0].refusal.is_some(), "{error}");
}

#[test]
fn a_silent_member_does_not_stop_the_others() {
    let members = members(182, 3);
    let zero = builder(&members, 0).launch().unwrap();
    // Asks for a connection as member 1 would, and then says nothing.
    let (context, domain) = device(&members, 1);
    let queue = context.completion_queue(4).unwrap();
    let qp = domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap();
    let greeting = [&b"fbrk\x00\x02\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"[..], &[7; 24]].concat();
    let options = CmOptions::default().private_data(&greeting);
    let silent = cm::connect(members.get(0).unwrap().address, &qp, &options).unwrap();
    let started = start_all([builder(&members, 1), builder(&members, 2)]);
    assert!(started.iter().all(Result::is_ok), "{started:?}");
    zero.wait_for_all(SOON).unwrap();
    drop(silent);
}

#[test]
fn a_deadline_names_the_missing_members() {
    let members = members(183, 4);
    let started = start_all([0, 2].map(|id| builder(&members, id).deadline(IN_VAIN)));
    for (error, others) in started.into_iter().map(Result::unwrap_err).zip([[1, 3], [1, 3]]) {
        let StartError::Missing { missing, after, .. } = &error else { panic!("{error}") };
        assert_eq!(*after, IN_VAIN);
        let ids: Vec<_> = missing.iter().map(|absent| absent.member.id).collect();
        assert_eq!(ids, others, "{error}");
    }
}

#[test]
fn settings_and_lists_that_make_no_sense() {
    let members = members(184, 2);
    let error = builder(&members, 0).ring(0).launch().unwrap_err();
    assert!(matches!(error, StartError::Setting { what: "ring", given: 0, least: 1, .. }), "{error}");
    let error = builder(&members, 0).max_message(0).launch().unwrap_err();
    assert!(matches!(error, StartError::Setting { what: "max_message", .. }), "{error}");
    let error = builder(&members, 0).batch(0).launch().unwrap_err();
    assert!(matches!(error, StartError::Setting { what: "batch", .. }), "{error}");
    let error = Broker::builder(9, members.clone()).launch().unwrap_err();
    assert!(matches!(error, StartError::NotListed { me: 9, .. }), "{error}");
    let error = builder(&members, 0).allocate(3, 8).allocate(3, 8).launch().unwrap_err();
    assert!(matches!(error, StartError::DuplicateRegion { region: 3 }), "{error}");
    // A second broker of the same member and lane.
    let _first = builder(&members, 0).launch().unwrap();
    let error = builder(&members, 0).launch().unwrap_err();
    assert!(matches!(error, StartError::Listen { port: 7471, .. }), "{error}");
    assert!(builder(&members, 0).lane(1).launch().is_ok());
}
