//! A capture file for each process: what one writes down, no other overwrites.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use crate::fork;
use crate::object::lock;

/// Names that are tried for one file: a process that opens and closes its device has a file for each time.
const TRIES: u32 = 10_000;

/// A file that no other process writes to, for as long as the device is open.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    /// Locked, if this process has made it, so that `ferroce run` does not replace it while it is written.
    locked: Option<File>,
}

impl Claim {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The device could not be opened: if no other context of this process has it open either, there is
    /// nothing to keep.
    pub(crate) fn give_up(this: &Arc<Self>) {
        if Arc::strong_count(this) == 1 && this.locked.is_some() {
            // What cannot be removed is an empty file.
            let _ = fs::remove_file(&this.path);
        }
    }
}

/// Devices that write one: the file that was asked for, the interface, and the process.
struct Known {
    wanted: PathBuf,
    interface: String,
    generation: u32,
    claim: Weak<Claim>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The capture file of an interface in this process. The first device that asks for `wanted` gets it; a later
/// one, also when the first is gone, gets one with its process number in the name. Contexts of one device
/// share theirs.
pub(crate) fn claim(wanted: PathBuf, interface: &str) -> Arc<Claim> {
    let mut known = lock(&KNOWN);
    known.retain(|known| known.claim.strong_count() > 0);
    let generation = fork::generation();
    let same = known.iter().find(|known| {
        (&known.wanted, known.interface.as_str(), known.generation) == (&wanted, interface, generation)
    });
    if let Some(claim) = same.and_then(|known| known.claim.upgrade()) {
        return claim;
    }
    let claim = Arc::new(new_file(&wanted, std::process::id()));
    let (interface, weak) = (interface.to_owned(), Arc::downgrade(&claim));
    known.push(Known { wanted, interface, generation, claim: weak });
    claim
}

/// Makes a file that was not there. Where none can be made, the device says why.
fn new_file(wanted: &Path, id: u32) -> Claim {
    for number in 0..TRIES {
        let path = name(wanted, id, number);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                let locked = file.try_lock().is_ok().then_some(file);
                return Claim { path, locked };
            }
            // What is no file, such as a pipe, is written to by all processes that are told to.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && fs::metadata(&path).is_ok_and(|found| found.is_file()) => {}
            Err(_) => return Claim { path, locked: None },
        }
    }
    Claim { path: name(wanted, id, 0), locked: None }
}

/// `a.pcap` itself, then `a.1234.pcap`, `a.1234-2.pcap` and so on. A name with `%p` has the number there
/// anyway.
fn name(wanted: &Path, id: u32, number: u32) -> PathBuf {
    let whole = ferroce_device::fabric::capture::with_process_id(wanted, id);
    let named = whole != wanted;
    let wanted = whole.as_path();
    let part = match (named, number) {
        (_, 0) => return wanted.to_path_buf(),
        (true, _) => format!("{}", number + 1),
        (false, 1) => id.to_string(),
        (false, _) => format!("{id}-{number}"),
    };
    let mut name = wanted.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!(".{part}"));
    if let Some(end) = wanted.extension() {
        name.push(".");
        name.push(end);
    }
    wanted.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_before_the_end_of_the_name() {
        let names = |wanted: &str| [0, 1, 2].map(|number| name(Path::new(wanted), 7, number));
        assert_eq!(names("x/a.pcap"), ["x/a.pcap", "x/a.7.pcap", "x/a.7-2.pcap"].map(PathBuf::from));
        assert_eq!(names("a"), ["a", "a.7", "a.7-2"].map(PathBuf::from));
        assert_eq!(names("%p.pcap"), ["7.pcap", "7.2.pcap", "7.3.pcap"].map(PathBuf::from));
    }

    #[test]
    fn nothing_that_was_written_is_written_over() {
        let folder = std::env::temp_dir().join(format!("ferroce-claim-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let wanted = folder.join("a.pcap");
        let first = claim(wanted.clone(), "lo");
        assert_eq!(first.path(), wanted);
        assert!(
            File::open(&wanted).unwrap().try_lock().is_err(),
            "a file in use can be told from one that is not"
        );
        assert_eq!(claim(wanted.clone(), "lo").path(), wanted, "one device, one file");
        let other = claim(wanted.clone(), "eth0");
        assert_ne!(other.path(), wanted);
        drop(first);
        assert!(File::open(&wanted).unwrap().try_lock().is_ok());
        let again = claim(wanted.clone(), "lo");
        assert!(again.path() != wanted && again.path() != other.path(), "it was closed, and stays as it is");
        assert_eq!(claim("/dev/null".into(), "lo").path(), Path::new("/dev/null"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
