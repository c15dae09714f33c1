//! `ferroce env`: the variables that `ferroce run` sets, for shells that set them themselves.

use std::ffi::OsStr;
use std::io::{self, Write};

use crate::run::Settings;

/// Print the variables that make verbs programs use Ferroce's network card
///
/// For a shell: eval "$(ferroce env)". From then on all programs started there see our device.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  eval \"$(ferroce env)\"; ibv_devices
  eval \"$(ferroce env --faults loss=0.01,seed=7)\"";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for (name, value) in args.settings.variables()? {
        writeln!(out, "export {name}={}", quoted(&value))?;
    }
    Ok(out.flush()?)
}

/// A word for a shell, whatever is in it.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for word in ["plain", "two words", "it's", "$HOME `id` \\ \"x\"", ""] {
            let script = format!("printf %s {}", quoted(OsStr::new(word)));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
