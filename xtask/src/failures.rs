//! What the tests said of their failures, in short: a run prints thousands of lines, and its end is what is read.

use std::fmt;

/// How many lines of what a failed test says are kept.
const LINES_OF_ONE: usize = 6;
/// How many lines are kept in all.
const LINES: usize = 60;
/// How much of a line is kept.
const WIDTH: usize = 300;

/// What was seen so far in the output of the tests.
#[derive(Default)]
pub(crate) struct Failures {
    kept: Vec<String>,
    /// So many of the next lines belong to what a failed test says.
    following: usize,
    left_off: usize,
}

impl Failures {
    /// Looks at one line of the output.
    pub(crate) fn see(&mut self, line: &str) {
        let line = line.trim_end();
        let heads = line.starts_with("---- ") || line.contains(" panicked at ");
        if heads {
            self.following = LINES_OF_ONE;
            self.keep(line);
        } else if is_verdict(line) {
            self.following = 0;
            self.keep(line);
        } else if line.trim_start().starts_with("stack backtrace:") {
            self.following = 0;
        } else if self.following > 0 && !line.is_empty() {
            self.following -= 1;
            self.keep(line);
        }
    }

    fn keep(&mut self, line: &str) {
        if self.kept.len() < LINES {
            self.kept.push(line.chars().take(WIDTH).collect());
        } else {
            self.left_off += 1;
        }
    }
}

/// Whether cargo or a test program says with this line what failed.
fn is_verdict(line: &str) -> bool {
    let of_a_test = line.starts_with("test ") && line.ends_with(" FAILED");
    let of_a_program = line.starts_with("error: test failed") || line.starts_with("error: doctest failed");
    of_a_test || of_a_program || line.trim_start().starts_with("process didn't exit successfully")
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.iter().try_for_each(|line| write!(f, "\n  | {line}"))?;
        match self.left_off {
            0 => Ok(()),
            lines => write!(f, "\n  | ({lines} more lines of this kind stand above)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(output: &str) -> String {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.see(line));
        failures.to_string()
    }

    #[test]
    fn of_a_run_the_failures_are_left() {
        let output = "
running 2 tests
test a_thing_that_works ... ok
test a_thing_that_fails ... FAILED

failures:

---- a_thing_that_fails stdout ----
waiting for: the other side

thread 'a_thing_that_fails' (7) panicked at src/lib.rs:1:2:
left and right differ
stack backtrace:
   0: deep
   1: deeper

test result: FAILED. 1 passed; 1 failed
error: test failed, to rerun pass `-p ferroce-wire --lib`
";
        let expected = "
  | test a_thing_that_fails ... FAILED
  | ---- a_thing_that_fails stdout ----
  | waiting for: the other side
  | thread 'a_thing_that_fails' (7) panicked at src/lib.rs:1:2:
  | left and right differ
  | error: test failed, to rerun pass `-p ferroce-wire --lib`";
        assert_eq!(seen(output), expected);
    }

    #[test]
    fn a_run_without_failures_leaves_nothing() {
        assert_eq!(seen("test one ... ok\nrunning 0 tests\n"), "");
    }

    #[test]
    fn a_flood_is_cut() {
        let text = seen(&"test it ... FAILED\n".repeat(LINES + 5));
        assert_eq!(text.lines().count(), LINES + 2);
        assert!(text.ends_with("(5 more lines of this kind stand above)"));
        let text = seen(&format!("error: test failed {}", "x".repeat(10_000)));
        assert!(text.len() < WIDTH + 10);
    }
}
