//! What shows that a member knows the secret, for one moment of one handshake.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::hello::Greeting;
use crate::secret::Secret;

/// Bytes of a proof.
pub(crate) const PROOF: usize = 32;

/// Which step of the handshake a proof is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The member that asked shows that it knows the secret, before it is told anything.
    Asking,
    /// The member that was asked tells of itself.
    Answering,
    /// The member that asked has heard that, and tells of itself.
    Confirming,
}

impl Step {
    /// The words that a proof is made for, so that none can stand for another.
    const fn words(self) -> &'static [u8] {
        match self {
            Self::Asking => b"ferroce broker asks",
            Self::Answering => b"ferroce broker answers",
            Self::Confirming => b"ferroce broker confirms",
        }
    }
}

/// The proofs of one handshake.
///
/// Each is a keyed hash of its step, both greetings, its frame and the one before it. The greetings have both
/// numbers that were drawn for this handshake alone, both members, their lives and the lane; so a proof is
/// worth nothing on another connection, in the other direction, or on another lane.
pub(crate) struct Proofs<'a> {
    /// Without one there are zeros instead of proofs, and everything is one.
    secret: Option<&'a Secret>,
    asked: [u8; Greeting::LEN],
    answered: [u8; Greeting::LEN],
}

impl<'a> Proofs<'a> {
    pub(crate) fn new(secret: Option<&'a Secret>, asked: &Greeting, answered: &Greeting) -> Self {
        Self { secret, asked: asked.emit(), answered: answered.emit() }
    }

    /// A frame with its proof at the end; `before` is the frame of the other side that it answers.
    pub(crate) fn seal(&self, step: Step, before: &[u8], frame: &[u8]) -> Vec<u8> {
        let mac = self.mac(step, before, frame);
        let proof = mac.map_or([0; PROOF], |mac| mac.finalize().into_bytes().into());
        [frame, &proof].concat()
    }

    /// Whether this is the proof of a frame, in a time that does not tell where it differs.
    pub(crate) fn verify(&self, step: Step, before: &[u8], frame: &[u8], proof: &[u8]) -> bool {
        self.mac(step, before, frame).is_none_or(|mac| mac.verify_slice(proof).is_ok())
    }

    fn mac(&self, step: Step, before: &[u8], frame: &[u8]) -> Option<Hmac<Sha256>> {
        // A key of any length is one.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret?.bytes()).ok()?;
        for part in [step.words(), &self.asked, &self.answered, before, frame] {
            // The length goes before each part, so that no two lists of parts are alike.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Some(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::VERSION;

    fn secret() -> Secret {
        "ferroce-secret-00112233445566778899aabbccddeeff-f07506ba".parse().unwrap()
    }

    fn greeting(from: u32, to: u32) -> Greeting {
        let (incarnation, nonce) = (9, [from.to_be_bytes()[3]; 16]);
        Greeting { version: VERSION, has_secret: true, lane: 3, from, to, incarnation, nonce }
    }

    const BEFORE: &[u8] = b"hello";
    const FRAME: &[u8] = b"ready";

    fn proof(secret: &Secret, [asked, answered]: [Greeting; 2]) -> Vec<u8> {
        let sealed = Proofs::new(Some(secret), &asked, &answered).seal(Step::Confirming, BEFORE, FRAME);
        sealed.strip_prefix(FRAME).unwrap().to_vec()
    }

    /// Whether the proof of one handshake is one of another.
    fn serves(proof: &[u8], secret: &Secret, [asked, answered]: [Greeting; 2]) -> bool {
        Proofs::new(Some(secret), &asked, &answered).verify(Step::Confirming, BEFORE, FRAME, proof)
    }

    #[test]
    fn a_proof_is_bound_to_both_nonces() {
        let (secret, said) = (secret(), [greeting(2, 1), greeting(1, 2)]);
        let proof = proof(&secret, said);
        assert!(serves(&proof, &secret, said));
        for side in [0, 1] {
            for byte in 0..16 {
                let mut other = said;
                other[side].nonce[byte] ^= 1;
                assert!(!serves(&proof, &secret, other), "byte {byte} of side {side}");
            }
        }
    }

    #[test]
    fn a_proof_is_bound_to_both_members_their_lives_and_the_lane() {
        let (secret, said) = (secret(), [greeting(2, 1), greeting(1, 2)]);
        let proof = proof(&secret, said);
        let changes: [fn(&mut Greeting); 5] = [
            |greeting| greeting.from += 1,
            |greeting| greeting.to += 1,
            |greeting| greeting.incarnation += 1,
            |greeting| greeting.lane += 1,
            |greeting| greeting.has_secret = false,
        ];
        for (number, change) in changes.iter().enumerate() {
            for side in [0, 1] {
                let mut other = said;
                change(&mut other[side]);
                assert!(!serves(&proof, &secret, other), "change {number} of side {side}");
            }
        }
    }

    #[test]
    fn a_proof_does_not_serve_in_the_other_direction() {
        let (secret, [asked, answered]) = (secret(), [greeting(2, 1), greeting(1, 2)]);
        let proof = proof(&secret, [asked, answered]);
        assert!(!serves(&proof, &secret, [answered, asked]));
        let proofs = Proofs::new(Some(&secret), &asked, &answered);
        let steps = [Step::Asking, Step::Answering, Step::Confirming];
        for (made, given) in steps.iter().flat_map(|made| steps.map(|given| (*made, given))) {
            let sealed = proofs.seal(made, BEFORE, FRAME);
            let is_one = proofs.verify(given, BEFORE, FRAME, &sealed[FRAME.len()..]);
            assert_eq!(is_one, made == given, "{made:?} as {given:?}");
        }
    }

    #[test]
    fn a_proof_is_bound_to_its_secret_and_to_all_that_was_said() {
        let (ours, other, said) = (secret(), Secret::generate().unwrap(), [greeting(2, 1), greeting(1, 2)]);
        let proof = proof(&ours, said);
        assert!(!serves(&proof, &other, said));
        assert!(!serves(&[0; PROOF], &ours, said));
        assert!(!serves(&[], &ours, said));
        assert!(!serves(&proof[..PROOF - 1], &ours, said));
        let proofs = Proofs::new(Some(&ours), &said[0], &said[1]);
        for (before, frame) in [("hell", "oready"), ("helloready", ""), ("", "helloready"), ("hello", "read")]
        {
            let is_one = proofs.verify(Step::Confirming, before.as_bytes(), frame.as_bytes(), &proof);
            assert!(!is_one, "{before:?}, {frame:?}");
        }
    }

    #[test]
    fn without_a_secret_there_is_nothing_to_prove() {
        let proofs = Proofs::new(None, &greeting(2, 1), &greeting(1, 2));
        assert_eq!(proofs.seal(Step::Asking, &[], &[]), [0; PROOF]);
        assert!(proofs.verify(Step::Asking, &[], &[], &[]));
    }
}
