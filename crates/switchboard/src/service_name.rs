//! What the service is called that a process is a part of.

use std::env;
use std::path::Path;

use thiserror::Error;

/// Bytes of the name of a service at most.
pub const MOST_SERVICE: usize = 64;

/// The variable that says what the service is called.
const VARIABLE: &str = "FERROCE_SERVICE";

/// Why a text is no name of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ServiceNameError {
    /// It is empty, or longer than a name may be.
    #[error("the name of a service has 1 to {MOST_SERVICE} bytes, and this one has {bytes}")]
    Length {
        /// How long it is.
        bytes: usize,
    },
    /// It has a sign that a terminal would obey.
    #[error("the name of a service has no control characters, and this one has {letter:?}")]
    Control {
        /// The first of them.
        letter: char,
    },
}

/// Whether a service may be called so.
///
/// # Errors
/// It may not: it is too long, or not all of it is text.
pub fn check_service_name(name: &str) -> Result<(), ServiceNameError> {
    if name.is_empty() || name.len() > MOST_SERVICE {
        return Err(ServiceNameError::Length { bytes: name.len() });
    }
    match name.chars().find(|letter| letter.is_control()) {
        Some(letter) => Err(ServiceNameError::Control { letter }),
        None => Ok(()),
    }
}

/// What the service of this process is called: as the variable says, or else as the file of its program, or else as
/// the system calls the program.
pub(super) fn service_name(program: &str) -> String {
    let said = env::var_os(VARIABLE).map(|name| name.to_string_lossy().into_owned());
    let file = || {
        let first = env::args_os().next()?;
        Some(Path::new(&first).file_name()?.to_string_lossy().into_owned())
    };
    let names = [said.filter(|name| !name.is_empty()), file(), Some(program.to_owned())];
    let name = names.into_iter().flatten().map(|name| tidied(&name)).find(|name| !name.is_empty());
    name.unwrap_or_else(|| "?".to_owned())
}

/// As much of a name as is told, with nothing in it that a terminal obeys.
fn tidied(name: &str) -> String {
    let mut tidied = super::survey::printable(name.trim());
    tidied.truncate(tidied.floor_char_boundary(MOST_SERVICE));
    tidied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_text() {
        assert_eq!(check_service_name("train-7 (blue)"), Ok(()));
        assert_eq!(check_service_name(&"x".repeat(MOST_SERVICE)), Ok(()));
        assert_eq!(check_service_name(""), Err(ServiceNameError::Length { bytes: 0 }));
        assert_eq!(check_service_name(&"x".repeat(65)), Err(ServiceNameError::Length { bytes: 65 }));
        assert_eq!(check_service_name("a\u{1b}[2J"), Err(ServiceNameError::Control { letter: '\u{1b}' }));
    }

    #[test]
    fn whatever_a_program_is_called_its_service_has_a_name() {
        for name in ["ib_write_bw", " a\nb ", &"long ".repeat(40), &"\u{1f980}".repeat(30)] {
            assert_eq!(check_service_name(&tidied(name)), Ok(()), "{name:?}");
        }
        assert_eq!(tidied(&"\u{1f980}".repeat(30)).len(), 64, "no sign is cut");
        assert_eq!(tidied(" \n"), "");
    }
}
