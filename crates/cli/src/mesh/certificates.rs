//! `ferroce mesh certificates`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ferroce_meshd::tls::{Authority, CredentialFiles, Validity};
use serde_json::{Value, json};

use super::AFTER_LONG_HELP;

/// Make certificates for a trial: a CA, and a certificate and a key for each name
///
/// A certificate for NAME allows to be the agent of that name, and a server at NAME and at its addresses. The
/// controller's certificate carries the address that agents connect to; the analyzer's, too, and the name
/// `analyzer`. The CA in DIR is made if there is none. Nothing is overwritten, and keys can be read by their
/// owner alone (mode 0600).
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(super) struct Args {
    /// The directory of the CA and of all that it makes
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Names, each with the addresses that it is a server at, if it is one
    #[arg(value_name = "NAME[=ADDRESS,...]", required = true)]
    names: Vec<Named>,

    /// Days that the certificates are good, 1 to 3650
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,

    /// One JSON object with the files of each name
    #[arg(long)]
    json: bool,
}

/// A name, with addresses.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    addresses: Vec<IpAddr>,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let read = |text: &str| text.parse().map_err(|_| format!("{text:?} is no address"));
        let addresses =
            rest.into_iter().flat_map(|rest| rest.split(',')).map(read).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), addresses })
    }
}

/// How long a CA is good.
const CA: Duration = Duration::from_hours(24 * 3650);

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let names: BTreeSet<&str> = args.names.iter().map(|named| named.name.as_str()).collect();
    ensure!(names.len() == args.names.len(), "a name stands there twice");
    let authority = Authority::open(&args.out, Validity::starting_now(CA))?;
    // All of them, or none.
    authority.check(names)?;
    let validity = Validity::starting_now(Duration::from_hours(24 * u64::from(args.days)));
    let mut made = Vec::new();
    for Named { name, addresses } in &args.names {
        let files = authority.issue(name, addresses, validity);
        made.push((name, files.with_context(|| format!("{name} has no certificate"))?));
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", to_json(args, &authority, &made))?;
    } else {
        print(&mut out, args, &authority, &made)?;
    }
    Ok(out.flush()?)
}

fn to_json(args: &Args, authority: &Authority, made: &[(&String, CredentialFiles)]) -> Value {
    let of = |(name, files): &(&String, CredentialFiles)| {
        let CredentialFiles { certificate, key, .. } = files;
        json!({ "name": name, "certificate": certificate, "key": key })
    };
    let (certificate, key) = (args.out.join("ca.pem"), args.out.join("ca.key"));
    json!({
        "ca": { "certificate": certificate, "key": key, "is_new": authority.is_new() },
        "certificates": made.iter().map(of).collect::<Vec<_>>(),
    })
}

fn print(
    out: &mut impl Write,
    args: &Args,
    authority: &Authority,
    made: &[(&String, CredentialFiles)],
) -> io::Result<()> {
    let directory = args.out.display();
    let what = if authority.is_new() { "a new CA" } else { "the CA that was there" };
    writeln!(out, "{what} is in {directory}; its key {directory}/ca.key makes more of them, and stays here")?;
    for (name, files) in made {
        writeln!(out, "{name}: {} and {}, mode 0600", files.certificate.display(), files.key.display())?;
    }
    writeln!(out, "copy to each host: {directory}/ca.pem, and NAME.pem and NAME.key of its own name alone")?;
    writeln!(out, "then run there: ferroce mesh ... --tls DIR/NAME")
}
