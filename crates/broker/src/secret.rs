//! A secret that all members share: it is shown without being told.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a proof.
pub(crate) const PROOF: usize = 32;

/// The secret of a mesh, or none. Nobody prints it.
#[derive(Clone, Default)]
pub(crate) struct Secret(Option<Vec<u8>>);

impl Secret {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Some(bytes.to_vec()))
    }

    pub(crate) const fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Whether it is one that everybody could guess.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    /// What shows that somebody who knows the secret has said this; zeros without one.
    pub(crate) fn proof(&self, parts: &[&[u8]]) -> [u8; PROOF] {
        self.mac(parts).map_or([0; PROOF], |mac| mac.finalize().into_bytes().into())
    }

    /// Whether it is such a proof, in a time that does not tell where it differs. Without a secret everything is.
    pub(crate) fn verify(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.mac(parts).is_none_or(|mac| mac.verify_slice(proof).is_ok())
    }

    fn mac(&self, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        // A key of any length is one.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_ref()?).ok()?;
        for part in parts {
            // The length goes before each part, so that no two lists of parts are alike.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Some(mac)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Secret(set)" } else { "Secret(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_and_its_words_only() {
        let (ours, other) = (Secret::new(b"open"), Secret::new(b"opem"));
        let proof = ours.proof(&[b"ask", b"12"]);
        assert!(ours.verify(&[b"ask", b"12"], &proof));
        assert!(!ours.verify(&[b"ask1", b"2"], &proof), "the same bytes, cut elsewhere");
        assert!(!other.verify(&[b"ask", b"12"], &proof));
        assert!(!ours.verify(&[b"ask", b"12"], &[0; PROOF]));
        assert!(!ours.verify(&[b"ask", b"12"], &[]));
        assert!(Secret::default().verify(&[b"ask"], &[0; PROOF]));
        assert_eq!(format!("{ours:?}"), "Secret(set)");
    }
}
