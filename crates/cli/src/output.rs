//! What output looks like: colours where they are wanted, and numbers for people.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU8, Ordering};

/// When output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always, also in a pipe.
    Always,
    /// Never.
    Never,
}

static COLOR: AtomicU8 = AtomicU8::new(0);

/// Said once, by the command line.
pub(crate) fn set_color(color: Color) {
    COLOR.store(color as u8, Ordering::Relaxed);
}

/// Whether standard output gets colours.
pub(crate) fn is_colored() -> bool {
    match COLOR.load(Ordering::Relaxed) {
        code if code == Color::Always as u8 => true,
        code if code == Color::Never as u8 => false,
        // The convention (no-color.org): set and not empty.
        _ => io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// How a word looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// A heading.
    Title,
    /// What was asked for.
    Request,
    /// What went well.
    Good,
    /// What may not have.
    Doubtful,
    /// What did not.
    Bad,
    /// What matters less.
    Faint,
}

impl Style {
    /// The text in this style, if there are colours at all.
    pub(crate) const fn of<T>(self, text: T) -> Styled<T> {
        Styled { style: self, text }
    }

    const fn code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Request => "36",
            Self::Good => "32",
            Self::Doubtful => "33",
            Self::Bad => "1;31",
            Self::Faint => "2",
        }
    }
}

/// Text in a style.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Styled<T> {
    style: Style,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Styled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !is_colored() {
            return self.text.fmt(f);
        }
        write!(f, "\x1b[{}m", self.style.code())?;
        self.text.fmt(f)?;
        f.write_str("\x1b[0m")
    }
}

/// Text as it may be shown: names of programs and files may be anything, and a terminal obeys what is not text.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect()
}

/// Bytes, in the largest unit of which they are a whole number: 64 B, 4 KiB, 1 MiB.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        0 => "0 B".into(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Reads a number of bytes such as 64, 4k, 1MiB.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        unit => return Err(format!("no unit {unit:?}; use B, K, M or G, which are powers of 1024")),
    };
    let number: usize = digits.parse().map_err(|_| "a number of bytes, such as 64, 4K or 1M".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more bytes than any machine has".to_owned())
}

/// Three figures that matter: 1.23, 12.3, 123.
pub(crate) fn figure(value: f64) -> String {
    match value {
        _ if value > 0.0 && value < 0.000_995 => format!("{value:.6}"),
        _ if value > 0.0 && value < 0.00995 => format!("{value:.5}"),
        _ if value < 0.0995 => format!("{value:.3}"),
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for bytes in [1, 64, 1000, 1024, 4096, 1 << 20, 3 << 20, 1 << 30] {
            assert_eq!(parse_size(&size(bytes).replace(' ', "")), Ok(bytes));
        }
        assert_eq!(parse_size("4k"), Ok(4096));
        assert!(parse_size("4x").unwrap_err().contains("no unit"));
        assert!(parse_size("").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("99999999999G").is_err());
    }

    #[test]
    fn figures_keep_three_digits() {
        let figures = [0.0, 0.001_234, 0.012, 1.234, 9.999, 12.34, 99.99, 1234.5].map(figure);
        assert_eq!(figures, ["0.000", "0.00123", "0.012", "1.23", "10.0", "12.3", "100", "1234"]);
    }
}
