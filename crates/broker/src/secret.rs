//! A secret that all members share, and the form in which it is written down.

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// A secret that all members of a mesh share: 128 bits that the operating system has drawn.
///
/// `ferroce secret` prints one. A secret that a person has thought of is refused: whatever meets a member can
/// try guesses on what the member says, as many as it has time for, and only a drawn secret is safe from
/// that.
///
/// ```
/// use ferroce_broker::Secret;
///
/// let secret = Secret::generate()?;
/// let again: Secret = secret.reveal().parse()?;
/// assert_eq!(again.reveal(), secret.reveal());
/// assert!("open sesame".parse::<Secret>().is_err());
/// # Ok::<(), ferroce_broker::SecretError>(())
/// ```
#[derive(Clone)]
pub struct Secret([u8; Self::LEN]);

/// Why something is no secret for a mesh. None of the cases tells what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It was not made by the command.
    #[error(
        "a secret of {given} characters that does not begin with {}; what people think of can be guessed, so \
         make one with `ferroce secret`",
        Secret::PREFIX
    )]
    NotMade {
        /// Characters given.
        given: usize,
    },
    /// A part is missing, or there is more than one.
    #[error(
        "a secret of {given} characters, and those of `ferroce secret` have {}; copy all of it",
        Secret::TEXT
    )]
    Length {
        /// Characters given.
        given: usize,
    },
    /// A character that is not part of a secret.
    #[error("character {place} of the secret is not what `ferroce secret` writes there; copy it again")]
    Character {
        /// Which, from 1 on.
        place: usize,
    },
    /// A character was changed.
    #[error("the checksum of the secret is wrong; copy it again, or make another one with `ferroce secret`")]
    Checksum,
    /// The file cannot be read.
    #[error("the file with the secret cannot be read: {0}; `ferroce secret --file` writes one")]
    File(io::ErrorKind),
    /// Every user of the machine can read or change the file.
    #[error("the file with the secret has the mode {mode:03o}, so every user gets at it; chmod it to 600")]
    Exposed {
        /// The mode of the file.
        mode: u32,
    },
    /// The operating system draws no numbers.
    #[error("the operating system gave no random numbers: {0}")]
    System(io::ErrorKind),
}

impl Secret {
    /// Bytes of a secret.
    const LEN: usize = 16;

    /// What its text begins with, so that people and programs recognise it.
    const PREFIX: &str = "ferroce-secret-";

    /// Digits of the bytes, and of the checksum that follows.
    const DIGITS: usize = 2 * Self::LEN;
    const SUM: usize = 8;

    /// Characters of its text.
    const TEXT: usize = Self::PREFIX.len() + Self::DIGITS + 1 + Self::SUM;

    /// Draws a new one.
    ///
    /// # Errors
    /// The operating system gives no random numbers.
    pub fn generate() -> Result<Self, SecretError> {
        let mut secret = Self([0; Self::LEN]);
        // Unlike /dev/urandom it waits, early after the start of a machine, until there is chance to draw
        // from.
        let drawn = File::open("/dev/random").and_then(|mut file| file.read_exact(&mut secret.0));
        drawn.map_err(|error| SecretError::System(error.kind()))?;
        Ok(secret)
    }

    /// Reads what `ferroce secret --file` wrote, from a file that is not open to every user.
    ///
    /// # Errors
    /// The file cannot be read, every user can read or change it, or it has no secret.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, SecretError> {
        let read = || {
            let file = File::open(path)?;
            let mode = file.metadata()?.permissions().mode() & 0o777;
            let mut text = String::new();
            // What is longer is no secret, however much there is.
            file.take(1024).read_to_string(&mut text)?;
            Ok((mode, text))
        };
        let (mode, text) = read().map_err(|error: io::Error| SecretError::File(error.kind()))?;
        if mode & 0o007 != 0 {
            return Err(SecretError::Exposed { mode });
        }
        text.parse()
    }

    /// Its text, for a file or for another server. Everything that sees it can be a member.
    #[must_use]
    pub fn reveal(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{}{}-{}", Self::PREFIX, hex(&self.0), hex(&self.checksum()))
    }

    pub(crate) const fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Tells a secret that was made from one that was thought of or mistyped; it protects nothing.
    fn checksum(&self) -> [u8; Self::SUM / 2] {
        let hash: [u8; 32] =
            Sha256::new().chain_update("ferroce secret ").chain_update(self.0).finalize().into();
        let [a, b, c, d, ..] = hash;
        [a, b, c, d]
    }
}

/// Blanks and ends of lines around it do not count.
impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        let given = text.chars().count();
        let rest = text.strip_prefix(Self::PREFIX).ok_or(SecretError::NotMade { given })?;
        if given != Self::TEXT {
            return Err(SecretError::Length { given });
        }
        let (mut secret, mut sum) = (Self([0; Self::LEN]), [0; Self::SUM / 2]);
        for (place, found) in rest.chars().enumerate() {
            let wrong = SecretError::Character { place: Self::PREFIX.len() + place + 1 };
            let byte = match place.checked_sub(Self::DIGITS) {
                None => &mut secret.0[place / 2],
                Some(0) if found == '-' => continue,
                Some(0) => return Err(wrong),
                Some(after) => &mut sum[(after - 1) / 2],
            };
            let digit = found.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = *byte << 4 | digit.ok_or(wrong)?;
        }
        if sum == secret.checksum() { Ok(secret) } else { Err(SecretError::Checksum) }
    }
}

impl TryFrom<&str> for Secret {
    type Error = SecretError;

    fn try_from(text: &str) -> Result<Self, SecretError> {
        text.parse()
    }
}

impl TryFrom<String> for Secret {
    type Error = SecretError;

    fn try_from(text: String) -> Result<Self, SecretError> {
        text.parse()
    }
}

impl From<&Self> for Secret {
    fn from(secret: &Self) -> Self {
        secret.clone()
    }
}

impl From<Infallible> for SecretError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Its memory may be seen by others later: the bytes do not stay there.
impl Drop for Secret {
    fn drop(&mut self) {
        self.0 = [0; Self::LEN];
        // Zeros that are looked at are written.
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::OpenOptionsExt;

    const TEXT: &str = "ferroce-secret-00112233445566778899aabbccddeeff-f07506ba";

    fn refused(text: &str) -> SecretError {
        text.parse::<Secret>().unwrap_err()
    }

    #[test]
    fn a_secret_is_the_same_after_it_was_written_down() {
        let secret: Secret = TEXT.parse().unwrap();
        assert_eq!(secret.bytes()[..4], [0x00, 0x11, 0x22, 0x33]);
        assert_eq!(secret.reveal(), TEXT);
        let padded: Secret =
            format!(" {}\n", TEXT.to_uppercase().replace("FERROCE-SECRET", "ferroce-secret"))
                .parse()
                .unwrap();
        assert_eq!(padded.reveal(), TEXT);
    }

    #[test]
    fn two_secrets_that_were_drawn_are_not_alike() {
        let [one, other] = [(), ()].map(|()| Secret::generate().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert_ne!(one.bytes(), [0; Secret::LEN]);
    }

    #[test]
    fn what_no_command_has_made_is_refused_and_not_repeated() {
        for text in ["", "open sesame", "00112233445566778899aabbccddeeff"] {
            let error = refused(text);
            assert_eq!(error, SecretError::NotMade { given: text.len() });
            assert!(error.to_string().contains("`ferroce secret`"), "{error}");
            assert!(text.is_empty() || !error.to_string().contains(text), "{error}");
        }
        assert_eq!(refused(&TEXT[..50]), SecretError::Length { given: 50 });
        assert_eq!(refused(&format!("{TEXT}0")), SecretError::Length { given: Secret::TEXT + 1 });
    }

    #[test]
    fn a_changed_character_is_found() {
        for place in Secret::PREFIX.len()..Secret::TEXT {
            let mut changed = TEXT.as_bytes().to_vec();
            changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
            let is_dash = place == Secret::PREFIX.len() + Secret::DIGITS;
            let expected =
                if is_dash { SecretError::Character { place: place + 1 } } else { SecretError::Checksum };
            assert_eq!(refused(std::str::from_utf8(&changed).unwrap()), expected, "character {place}");
            changed[place] = b'x';
            let expected = SecretError::Character { place: place + 1 };
            assert_eq!(refused(std::str::from_utf8(&changed).unwrap()), expected);
        }
        assert!(matches!(refused(&TEXT.replace("00", "0\u{e9}")), SecretError::Character { .. }));
    }

    #[test]
    fn a_file_that_every_user_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("ferroce-secret-{}", std::process::id()));
        let file = |mode| fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).unwrap();
        for (mode, is_taken) in [(0o600, true), (0o640, true), (0o604, false)] {
            io::Write::write_all(&mut file(mode), format!("{TEXT}\n").as_bytes()).unwrap();
            let read = Secret::from_file(&path);
            fs::remove_file(&path).unwrap();
            match read {
                Ok(secret) => assert!(is_taken && secret.reveal() == TEXT),
                Err(error) => assert_eq!((error, is_taken), (SecretError::Exposed { mode }, false)),
            }
        }
        assert_eq!(Secret::from_file(&path).unwrap_err(), SecretError::File(io::ErrorKind::NotFound));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret: Secret = TEXT.parse().unwrap();
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(..) Some(Secret(..))");
    }
}
