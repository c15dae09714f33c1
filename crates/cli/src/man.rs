//! `ferroce man`: the manual, one page per command.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap_mangen::Man;

/// Print or write the manual pages
///
/// Without a directory the page of ferroce itself goes to standard output. With one, the pages of
/// all commands are written into it: ferroce.1, ferroce-perf.1 and so on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// Where to write all pages; it is made if it is not there
    dir: Option<PathBuf>,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce man | man -l -
          Reads the first page.
  ferroce man ~/.local/share/man/man1
          Writes them to where man looks for them.";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut command = crate::definition();
    command.build();
    match &args.dir {
        None => {
            let mut out = io::stdout().lock();
            out.write_all(&page("ferroce", &command)?)?;
            out.flush()?;
        }
        Some(dir) => {
            fs::create_dir_all(dir)
                .with_context(|| format!("cannot make the directory {}", dir.display()))?;
            write_page(dir, "ferroce", &command)?;
            for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
                write_page(dir, &format!("ferroce-{}", part.get_name()), part)?;
            }
        }
    }
    Ok(())
}

fn write_page(dir: &Path, name: &str, command: &clap::Command) -> anyhow::Result<()> {
    let file = dir.join(format!("{name}.1"));
    fs::write(&file, page(name, command)?).with_context(|| format!("cannot write {}", file.display()))
}

fn page(name: &str, command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone().name(name.to_owned())).manual("Ferroce").render(&mut page)?;
    Ok(page)
}
