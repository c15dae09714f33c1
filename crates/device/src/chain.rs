//! An error with all that caused it, in one line.

use std::error::Error;
use std::fmt;
use std::iter;

/// Prints an error and all of its causes, from what failed down to the reason: `this: that: and that`.
///
/// Errors here print what failed, and give the cause as their [`source`](Error::source): `{error}` alone
/// tells half of the story. Programs that do not print causes by themselves, as `anyhow` does with
/// `{error:#}`, print the chain.
///
/// ```
/// use std::io;
/// use ferroce_device::{Chain, NicOpenError};
///
/// let error = NicOpenError::System { what: "a thread", error: io::ErrorKind::OutOfMemory.into() };
/// assert_eq!(error.to_string(), "the operating system refused a thread");
/// assert_eq!(Chain::of(&error).to_string(), "the operating system refused a thread: out of memory");
/// assert_eq!(Chain::of(&error).causes().count(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(&'a (dyn Error + 'static));

impl<'a> Chain<'a> {
    /// The error, and what is behind it.
    #[must_use]
    pub const fn of(error: &'a (dyn Error + 'static)) -> Self {
        Self(error)
    }

    /// What caused the error, what caused that, and so on; the error itself is not among them.
    pub fn causes(self) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
        iter::successors(self.0.source(), |&error| error.source())
    }
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        self.causes().try_for_each(|cause| write!(f, ": {cause}"))
    }
}
