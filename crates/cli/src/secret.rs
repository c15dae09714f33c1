//! `ferroce secret`: a secret for the members of a mesh.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ferroce::broker::Secret;

/// Make a secret that the members of a mesh know each other by
///
/// It is 128 bits that the operating system has drawn, and a checksum, in one line. Brokers take no other
/// secrets: what people think of can be guessed. Everything that has read it can be a member, so keep it in a
/// file that only the members can read.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    /// Write it to a new file that only you can read (mode 0600), instead of standard output
    #[arg(long, short, value_name = "PATH")]
    file: Option<PathBuf>,
}

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce secret --file mesh.secret
          Then copy the file to all members; a program reads it with Secret::from_file.
  ferroce secret
          Prints one: ferroce-secret-, 32 digits and 8 more that find mistakes.";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let secret = Secret::generate()?;
    match &args.file {
        None => {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", secret.reveal())?;
            Ok(out.flush()?)
        }
        Some(path) => write(path, &secret).with_context(|| {
            format!(
                "cannot write {}; a file that is there is left alone, so give another name",
                path.display()
            )
        }),
    }
}

fn write(path: &Path, secret: &Secret) -> io::Result<()> {
    // From its beginning it is open to its owner alone, and it is never a file or link that was there before.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", secret.reveal())?;
    file.sync_all()
}
