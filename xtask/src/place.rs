//! Where a part of `cargo xtask test` runs its commands: in front, or beside another part.
//!
//! The tests wait for clocks, packets and each other for much of their time, and leave half a machine idle. What only
//! compiles runs meanwhile, on what they leave: at the idle priority of the kernel, in folders of its own, so that
//! neither waits for the other's lock, and with its output kept until it has ended.

use std::cell::RefCell;

use anyhow::{Result, bail};

use crate::say::{complain, say};
use crate::shell::{Cmd, on_path};

/// Where a part runs its commands.
pub(crate) enum Place {
    /// Its output is ours, line by line.
    Front,
    /// Its output is kept.
    Beside(RefCell<String>),
}

impl Place {
    pub(crate) fn beside() -> Self {
        Self::Beside(RefCell::default())
    }

    /// What was kept.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Front => String::new(),
            Self::Beside(text) => text.into_inner(),
        }
    }

    /// Prints a line, now or at the end.
    pub(crate) fn say(&self, line: &str) {
        match self {
            Self::Front => say!("{line}"),
            Self::Beside(text) => text.borrow_mut().extend([line, "\n"]),
        }
    }

    /// Prints what went wrong, now or at the end.
    pub(crate) fn complain(&self, line: &str) {
        match self {
            Self::Front => complain!("{line}"),
            Self::Beside(_) => self.say(line),
        }
    }

    /// Runs a command; anything but success is an error.
    pub(crate) fn run(&self, cmd: &Cmd) -> Result<()> {
        if matches!(self, Self::Front) {
            return cmd.run();
        }
        self.say(&format!("$ {cmd}"));
        let (worked, printed) = at_idle_priority(cmd).captured()?;
        self.say(printed.trim_end());
        if !worked {
            bail!("`{cmd}` failed");
        }
        Ok(())
    }
}

/// The same command on what others leave of the processors, where the program that asks for it is installed.
fn at_idle_priority(cmd: &Cmd) -> Cmd {
    if on_path("chrt") { cmd.wrapped("chrt", &["--idle", "0"]) } else { cmd.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_beside_keeps_its_output_and_its_failure() {
        let place = Place::beside();
        place.say("first");
        place.run(&Cmd::new("sh").args(["-c", "echo one; echo two >&2"])).unwrap();
        let error = place.run(&Cmd::new("sh").args(["-c", "echo three; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("failed"));
        let expected =
            "first\n$ sh -c 'echo one; echo two >&2'\none\ntwo\n$ sh -c 'echo three; exit 3'\nthree\n";
        assert_eq!(place.into_text(), expected);
    }
}
