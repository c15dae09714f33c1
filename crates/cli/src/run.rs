//! `ferroce run`: any verbs program, unchanged, on our network card.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use ferroce_device::PathPolicy;
use ferroce_device::discovery::Opening;
use ferroce_device::fabric::faults::FaultPlan;
use ferroce_device::switchboard::check_service_name;

use crate::files;

/// Run a verbs program on Ferroce's network card
///
/// The program and everything that it starts find our libibverbs.so.1 and librdmacm.so.1 instead of the
/// system's. They see a device, ferroce_lo, also on a machine without any RDMA; nothing is installed or
/// changed. The program takes the place of this one, so its exit status and signals are its own.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_LONG_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The library that `--sockets` preloads.
const SOCKETS: &str = "libferroce_sockets.so";

/// What `rdma` of iproute2 cannot show.
const NO_NETLINK: &str = "\
ferroce run: rdma asks the kernel by netlink, and the kernel does not know our devices: `ferroce devices` and
ferroce run: `ferroce stat` show them, and what is open on them";

const AFTER_LONG_HELP: &str = "\
Examples:
  ferroce run -- ibv_devinfo -v
  ferroce run -- ib_write_bw -x 0 & ferroce run -- ib_write_bw -x 0 127.0.0.1
          A server and a client; -x 0 chooses the first address.
  ferroce run --faults loss=0.02,seed=1 --pcap trace.pcap -- ./my-program
          With packets lost on purpose, and all of them written down.
  ferroce run --netdev eth0 -- ./my-program
          To other machines: RDMA exposes memory to every machine that can send a packet to it.";

/// How the card is opened; the same for `run` and `env`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Settings {
    /// Interfaces to open instead of the loopback interface, with commas between them, or all
    #[arg(long, value_name = "NAMES")]
    netdev: Option<String>,

    /// Faults to inject, such as loss=0.02,dup=0.01,reorder=0.02,seed=1
    #[arg(long, value_name = "PLAN")]
    faults: Option<String>,

    /// Write all packets into this file, and those of further processes into files beside it
    ///
    /// The first process that opens the card has FILE itself. Each further one, also after it, has a file with
    /// its process number in the name: trace.pcap, trace.1234.pcap. With %p in FILE all have the number there.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,

    /// Which paths packets take: prefer, require, shared or forbid
    ///
    /// Queue pairs of one process meet directly, those of two processes of one user and address share memory, and all others use
    /// the network. With prefer each takes the shortest that is possible; with require those that would use the network fail;
    /// with shared all but those that share memory; with forbid all use the network.
    #[arg(long, value_name = "POLICY")]
    path: Option<String>,

    /// What the service is called that the program is a part of, instead of what its file is called
    ///
    /// `ferroce stat` shows it, and findings of `ferroce mesh` say which services they concern.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,

    /// Do not show the program the kernel's files of RDMA devices
    ///
    /// Many programs look for /dev/infiniband/uverbs0 and read /sys/class/infiniband. The program finds files of our
    /// devices there, by a library in LD_PRELOAD, which leaves all other files as they are.
    #[arg(long)]
    no_files: bool,

    /// Let the program's TCP connections go over RDMA
    ///
    /// Stream sockets of IPv4 and IPv6 are rsockets then, by a library in LD_PRELOAD; both ends must use it, or rsockets of
    /// their own. Connections to addresses that no device leads to stay as they are.
    #[arg(long)]
    sockets: bool,

    /// Say on standard error why a call failed
    #[arg(long)]
    log: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let [program, rest @ ..] = args.program.as_slice() else { bail!("no program was given") };
    let mut command = Command::new(program);
    command.args(rest).envs(args.settings.variables()?);
    args.settings.clear_old_capture()?;
    if Path::new(program).file_name() == Some(OsStr::new("rdma")) {
        eprintln!("{NO_NETLINK}");
    }
    // Returns only if the program cannot be started.
    let error = command.exec();
    let hint =
        if error.kind() == io::ErrorKind::NotFound { "; is it installed, and on the path?" } else { "" };
    bail!("{} cannot be run: {error}{hint}", Path::new(program).display())
}

impl Settings {
    /// The variables that make a program use our library, and the library do what was asked for.
    pub(crate) fn variables(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        let own = self.own_variables()?;
        let mut variables = self.library_variables()?;
        variables.extend(own);
        Ok(variables)
    }

    /// The variables that make a program use our library, and find the files of our devices.
    pub(crate) fn library_variables(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        let mut variables = vec![library_variable()?];
        match self.files() {
            Ok(files) => variables.extend(files),
            // Many programs do without them.
            Err(error) => {
                let _ = writeln!(io::stderr(), "ferroce: the program sees no files of devices: {error:#}");
            }
        }
        if self.sockets {
            let library = libraries()?.join(SOCKETS);
            if !library.is_file() {
                bail!("--sockets: {} is missing", library.display());
            }
            let known = variables.iter().position(|(name, _)| *name == "LD_PRELOAD");
            let before = match known {
                Some(index) => variables.remove(index).1,
                None => env::var_os("LD_PRELOAD").unwrap_or_default(),
            };
            variables.push(("LD_PRELOAD", preloaded(library.as_os_str(), &before)?));
        }
        Ok(variables)
    }

    /// The variables that lead the program to the files of our devices.
    fn files(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        let library = libraries()?.join(files::LIBRARY);
        if self.no_files || !library.is_file() {
            return Ok(Vec::new());
        }
        let folder = files::written(self.netdev.as_deref())?;
        let before = env::var_os("LD_PRELOAD").unwrap_or_default();
        Ok(vec![("LD_PRELOAD", preloaded(library.as_os_str(), &before)?), (files::FOLDER, folder.into())])
    }

    /// The variables that say what the card does, for programs that have it built in, too.
    pub(crate) fn own_variables(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        let mut variables = Vec::new();
        if let Some(names) = &self.netdev {
            Opening::parse(names)?;
            variables.push(("FERROCE_NETDEV", names.into()));
        }
        if let Some(plan) = &self.faults {
            FaultPlan::parse(plan)?;
            variables.push(("FERROCE_FAULTS", plan.into()));
        }
        if let Some(file) = &self.pcap {
            variables.push(("FERROCE_PCAP", whole_path(file)?.into()));
        }
        if let Some(policy) = &self.path {
            policy.parse::<PathPolicy>()?;
            variables.push(("FERROCE_PATH", policy.into()));
        }
        if let Some(name) = &self.service {
            check_service_name(name)?;
            variables.push(("FERROCE_SERVICE", name.into()));
        }
        if self.log {
            variables.push(("FERROCE_LOG", "warn".into()));
        }
        Ok(variables)
    }

    /// The library writes over nothing: what a run before this one has left is taken away here, unless a program
    /// writes to it just now. What another user put there is left to the library, which says so.
    pub(crate) fn clear_old_capture(&self) -> anyhow::Result<()> {
        let Some(file) = &self.pcap else { return Ok(()) };
        let path = whole_path(file)?;
        let is_left = |found: &Metadata| found.is_file() && found.uid() == own_uid() && found.nlink() == 1;
        if !fs::symlink_metadata(&path).is_ok_and(|found| is_left(&found)) {
            return Ok(());
        }
        let Ok(old) = File::open(&path) else { return Ok(()) };
        if is_left(&old.metadata()?) && old.try_lock().is_ok() {
            fs::remove_file(&path).with_context(|| format!("{} cannot be replaced", path.display()))?;
        }
        Ok(())
    }
}

/// The program may go to another folder before it opens the device. Behind a link is the file that is meant, if the
/// link is this user's or the system's: one of another user is not followed, and the library refuses it.
fn whole_path(file: &Path) -> io::Result<PathBuf> {
    let mut name = std::path::absolute(file)?;
    for _ in 0..MOST_LINKS {
        let is_ours = |found: &Metadata| found.is_symlink() && [0, own_uid()].contains(&found.uid());
        // Links in `/proc` lead to what a program has open, which need not have a name.
        if name.starts_with("/proc") || !fs::symlink_metadata(&name).is_ok_and(|found| is_ours(&found)) {
            break;
        }
        let target = fs::read_link(&name)?;
        name = name.parent().unwrap_or(Path::new("/")).join(target);
    }
    Ok(name)
}

/// Links that are followed, one after another.
const MOST_LINKS: usize = 8;

/// The user of this process; root's, which none is mistaken for, if that is not known.
pub(crate) fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(0, |process| process.uid())
}

/// The variable that makes a program use our library.
fn library_variable() -> anyhow::Result<(&'static str, OsString)> {
    Ok(("LD_LIBRARY_PATH", search_path(&libraries()?)?))
}

/// What the loader looks for: the libraries that programs ask for, and the one behind both.
const LIBRARIES: [&str; 3] = ["libibverbs.so.1", "librdmacm.so.1", "libferroce.so.0"];

/// The first library that is not in a folder.
fn missing_in(folder: &Path) -> Option<&'static str> {
    LIBRARIES.into_iter().find(|library| !folder.join(library).is_file())
}

/// The folder of our libraries: the one that FERROCE_LIBRARIES names, or one beside this program.
fn libraries() -> anyhow::Result<PathBuf> {
    if let Some(folder) = env::var_os("FERROCE_LIBRARIES").filter(|folder| !folder.is_empty()) {
        let folder = PathBuf::from(folder);
        let Some(missing) = missing_in(&folder) else { return Ok(std::path::absolute(folder)?) };
        bail!("FERROCE_LIBRARIES is {}, but there is no {missing} in it", folder.display());
    }
    let program = env::current_exe().context("this program cannot find itself")?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = [folder.join("abi"), folder.join("../lib/ferroce")];
    let found = places.iter().find(|place| missing_in(place).is_none());
    let Some(place) = found else {
        let [beside, installed] = places.each_ref().map(|place| place.display().to_string());
        bail!(
            "{} are neither in {beside} nor in {installed}; link them with `cargo xtask link-abi`, or say in \
             FERROCE_LIBRARIES where they are",
            LIBRARIES.join(", ")
        );
    };
    Ok(place.canonicalize()?)
}

/// Our library behind those that are preloaded already: some, such as ASan's, end a program in which they are not the first.
fn preloaded(library: &OsStr, before: &OsStr) -> anyhow::Result<OsString> {
    let is_apart = |byte: &u8| matches!(byte, b' ' | b':');
    if library.as_bytes().iter().any(is_apart) {
        bail!(
            "{} has a colon or a space in its path, and cannot be preloaded; see --no-files",
            library.display()
        );
    }
    let others = before.as_bytes().split(is_apart).filter(|other| !other.is_empty());
    let mut all = OsString::new();
    for other in others.filter(|other| *other != library.as_bytes()) {
        all.push(OsStr::from_bytes(other));
        all.push(":");
    }
    all.push(library);
    Ok(all)
}

/// Our folder before those that are searched already.
fn search_path(folder: &Path) -> anyhow::Result<OsString> {
    let before = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let others = env::split_paths(&before).filter(|other| !other.as_os_str().is_empty() && other != folder);
    env::join_paths(std::iter::once(folder.to_owned()).chain(others))
        .context("a folder with a colon in its name cannot be searched for libraries")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn settings(pcap: &Path) -> Settings {
        Settings { pcap: Some(pcap.to_owned()), ..Settings::default() }
    }

    /// It was: ours came first, and ASan ended every program that it was preloaded into.
    #[test]
    fn our_library_comes_behind_those_that_are_preloaded_already() {
        let all = |before: &str| preloaded("/ours.so".as_ref(), before.as_ref()).expect("a list");
        assert_eq!(all(""), "/ours.so");
        assert_eq!(all("libasan.so.8 /b.so"), "libasan.so.8:/b.so:/ours.so");
        assert_eq!(all(":/ours.so:/a.so"), "/a.so:/ours.so");
        assert!(preloaded("/a folder/ours.so".as_ref(), "".as_ref()).is_err());
    }

    #[test]
    fn a_link_of_another_user_takes_away_nothing() {
        if own_uid() != 0 {
            println!("SKIPPED: only root can make files of another user");
            return;
        }
        let folder = env::temp_dir().join(format!("ferroce-run-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (precious, name, second) =
            (folder.join("precious"), folder.join("a.pcap"), folder.join("b.pcap"));
        fs::write(&precious, "precious").expect("a file");
        symlink(&precious, &name).expect("a link");
        lchown(&name, Some(54_321), Some(54_321)).expect("another user's");
        // Nor behind a link of our own.
        symlink("a.pcap", &second).expect("a link");
        for wanted in [&name, &second] {
            settings(wanted).clear_old_capture().expect("it is left");
            assert_eq!(fs::read_to_string(&precious).expect("it is there"), "precious");
            assert_eq!(whole_path(wanted).expect("a path"), name);
        }
        // What is our own is replaced.
        lchown(&name, Some(0), Some(0)).expect("our own");
        assert_eq!(whole_path(&second).expect("a path"), precious);
        settings(&second).clear_old_capture().expect("it is taken away");
        assert!(!precious.exists());
        fs::remove_dir_all(&folder).expect("an end");
    }
}
