//! `ferroce completions`: what a shell must know to finish words.

use std::io::{self, Write};

use clap_complete::Shell;

/// Print the completions of a shell
///
/// They are made from the definitions that the command line is read with, so they know
/// every command and option.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce completions bash > ~/.local/share/bash-completion/completions/ferroce
  ferroce completions zsh > ~/.zfunc/_ferroce
          With fpath+=~/.zfunc before compinit in ~/.zshrc.
  ferroce completions fish > ~/.config/fish/completions/ferroce.fish";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::definition(), "ferroce", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
