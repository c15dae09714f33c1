//! Members that share a secret, and strangers that would like to have it.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod rig;

use ferroce_broker::*;
use rig::stranger::{End, Greeting, HELLO, PROOF, Stranger, WRONG_SECRET};
use rig::{SOON, builder, eventually, members};

/// As `ferroce secret` might have printed it.
const SECRET: &str = "ferroce-secret-00112233445566778899aabbccddeeff-f07506ba";

/// The request and the proof of member 1, which takes a stranger for member 0.
fn overhear(members: &Members) -> (Broker, End, Vec<u8>, Vec<u8>) {
    let zero = members.get(0).unwrap();
    let stranger = Stranger::at(zero.address.ip());
    let listener = stranger.listen(zero.address.port());
    let one = builder(members, 1).secret(SECRET).launch().unwrap();
    let greeting = Greeting { has_secret: true, ..Greeting::new(0, 1) };
    loop {
        let request = listener.accept(SOON).unwrap();
        let asked = request.private_data()[..Greeting::LEN].to_vec();
        // On a busy machine the member may have given up meanwhile, and asks again.
        let Ok(end) = stranger.accept(request, &greeting.bytes()) else { continue };
        let Some(proof) = end.hear() else { continue };
        assert_eq!((proof[0], proof.len()), (PROOF, 33));
        return (one, end, asked, proof);
    }
}

#[test]
fn a_guessable_secret_is_refused() {
    let members = members(203, 2);
    let almost = SECRET.replace("f07506ba", "f07506bb");
    for guessable in ["", "open sesame", "00112233445566778899aabbccddeeff", &almost, &SECRET[..40]] {
        let error = builder(&members, 0).secret(guessable).launch().expect_err("it can be guessed");
        assert!(matches!(error, StartError::Secret(_)), "{error}");
        assert!(error.to_string().contains("`ferroce secret`"), "{error}");
    }
    builder(&members, 0).secret(Secret::generate().unwrap()).launch().unwrap();
    builder(&members, 0).secret(SECRET).launch().unwrap();
}

#[test]
fn a_stranger_that_asks_gets_no_proof() {
    let members = members(204, 2);
    let zero = builder(&members, 0).secret(SECRET).launch().unwrap();
    let one = Stranger::at(members.get(1).unwrap().address.ip());
    let greeting = Greeting { has_secret: true, ..Greeting::new(1, 0) };
    let end = one.ask(members.get(0).unwrap(), &greeting.bytes()).unwrap();
    // It is greeted, and there is nothing behind the greeting.
    let after = &end.greeted()[Greeting::LEN..];
    assert!(after.iter().all(|byte| *byte == 0), "{after:?}");
    // What it says instead of a proof gets no proof either.
    end.say(&[&[PROOF], &[9; 32][..]].concat());
    assert_eq!(end.hear().unwrap(), [WRONG_SECRET]);
    assert_eq!(end.hear(), None, "the connection ends");
    eventually(&zero, |zero| zero.refusals().wrong_secret == 1);
}

#[test]
fn a_proof_does_not_serve_on_another_connection() {
    let members = members(206, 2);
    let (one, end, asked, proof) = overhear(&members);
    // Without the member and the stranger, their addresses are free for others.
    drop((one, end));
    let zero = builder(&members, 0).secret(SECRET).launch().unwrap();
    let replaying = Stranger::at(members.get(1).unwrap().address.ip());
    let end = replaying.ask(members.get(0).unwrap(), &asked).unwrap();
    end.say(&proof);
    assert_eq!(end.hear().unwrap(), [WRONG_SECRET]);
    eventually(&zero, |zero| zero.refusals().wrong_secret == 1);
    assert!(!zero.is_connected(1));
}

#[test]
fn a_proof_that_is_sent_back_opens_nothing() {
    let members = members(207, 2);
    for is_verbatim in [true, false] {
        let (one, end, _, proof) = overhear(&members);
        let hello = end.hello(HELLO, &members, &proof[1..]);
        end.say(if is_verbatim { &proof } else { &hello });
        assert_eq!(end.hear().unwrap(), [WRONG_SECRET]);
        eventually(&one, |one| one.refusals().wrong_secret == 1);
        assert!(!one.is_connected(0));
    }
}

#[test]
fn a_member_hands_no_proof_to_what_has_no_secret() {
    let members = members(208, 2);
    let zero = members.get(0).unwrap();
    let stranger = Stranger::at(zero.address.ip());
    let listener = stranger.listen(zero.address.port());
    let one = builder(&members, 1).secret(SECRET).launch().unwrap();
    // Each of these is an answer that no member 0 with a secret would give to lane 0 of member 1.
    let answers = [
        Greeting::new(0, 1),
        Greeting { has_secret: true, ..Greeting::new(5, 1) },
        Greeting { has_secret: true, ..Greeting::new(0, 5) },
        Greeting { has_secret: true, lane: 5, ..Greeting::new(0, 1) },
    ];
    for answer in answers {
        let accept = || stranger.accept(listener.accept(SOON).unwrap(), &answer.bytes());
        // On a busy machine the member may have given up meanwhile, and asks again.
        let end = std::iter::repeat_with(accept).find_map(Result::ok).unwrap();
        assert_eq!(end.hear(), None, "{answer:?}");
    }
    eventually(&one, |one| one.refusals().lane > 0);
    let Refusals { secret_missing, other_member, .. } = one.refusals();
    assert!(secret_missing >= 1 && other_member >= 2, "{:?}", one.refusals());
}
