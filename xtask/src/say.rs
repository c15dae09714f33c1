//! Printing that outlives its reader, as in `cargo xtask tidy --list | head -1`.
//!
//! `println!` panics once the other end of the pipe is closed. Here a line that no process can read is
//! dropped: the work goes on, and the exit code tells how it went.

use std::fmt;
use std::io::{self, IsTerminal, Write};

/// As `println!`.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::to_stdout(format_args!($($text)*)) };
}

/// As `eprintln!`.
macro_rules! complain {
    ($($text:tt)*) => { $crate::say::to_stderr(format_args!($($text)*)) };
}

pub(crate) use {complain, say};

#[expect(clippy::print_stdout, reason = "in a test, only the macro is captured by the harness")]
pub(crate) fn to_stdout(text: fmt::Arguments<'_>) {
    if cfg!(test) { println!("{text}") } else { line(&mut io::stdout().lock(), text) }
}

#[expect(clippy::print_stderr, reason = "in a test, only the macro is captured by the harness")]
pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    if cfg!(test) { eprintln!("{text}") } else { line(&mut io::stderr().lock(), text) }
}

/// A line to stderr that the next one takes the place of, if it is a terminal. An empty one takes it away.
pub(crate) fn progress(text: fmt::Arguments<'_>) {
    let mut to = io::stderr().lock();
    if to.is_terminal() {
        let _ = write!(to, "\r\x1b[K{text}").and_then(|()| to.flush());
    } else if text.as_str() != Some("") {
        line(&mut to, text);
    }
}

/// One line, at once: what a command prints itself must come after it.
fn line(to: &mut impl Write, text: fmt::Arguments<'_>) {
    let _ = writeln!(to, "{text}").and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe whose reader leaves after some bytes.
    struct Pipe {
        read: Vec<u8>,
        left: usize,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            self.read.extend(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_leaves_stops_nothing() {
        let mut pipe = Pipe { read: Vec::new(), left: 7 };
        for n in 1..=3 {
            line(&mut pipe, format_args!("line {n}"));
        }
        assert_eq!(pipe.read, b"line 1\n");
    }
}
