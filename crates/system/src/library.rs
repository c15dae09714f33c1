//! The machine's libraries for cards, found while the program runs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use thiserror::Error;

use crate::dl::{self, Opened};
use crate::fork;
use crate::symbols::{Cm, Missing, Verbs};

/// The variable that names another library for verbs.
const VERBS_VARIABLE: &str = "FERROCE_LIBIBVERBS";
/// The variable that names another library for connections.
const CM_VARIABLE: &str = "FERROCE_LIBRDMACM";
/// A function of the engine behind our own drop-in library. Nothing else begins with this prefix.
const OURS: &std::ffi::CStr = c"ferroce_ibv_open_device";

/// Where the libraries are: names that the loader looks for, or paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Paths {
    /// The library of verbs.
    pub verbs: PathBuf,
    /// The library of connections.
    pub cm: PathBuf,
}

impl Default for Paths {
    /// What `FERROCE_LIBIBVERBS` and `FERROCE_LIBRDMACM` say, else the names that every machine has.
    fn default() -> Self {
        let named = |variable, usual: &str| {
            let wanted = std::env::var_os(variable).filter(|path| !path.is_empty());
            PathBuf::from(wanted.as_deref().unwrap_or(OsStr::new(usual)))
        };
        Self { verbs: named(VERBS_VARIABLE, "libibverbs.so.1"), cm: named(CM_VARIABLE, "librdmacm.so.1") }
    }
}

/// The libraries of this machine. Copies are the same; they stay loaded for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct Library(&'static Loaded);

#[derive(Debug)]
struct Loaded {
    paths: Paths,
    verbs: Verbs,
    ours: bool,
    cm: OnceLock<Result<Cm, LibraryError>>,
}

/// What was loaded in this process.
static LOADED: Mutex<Vec<&'static Loaded>> = Mutex::new(Vec::new());

impl Library {
    /// Loads the library of this machine, or the one that `FERROCE_LIBIBVERBS` names.
    ///
    /// # Errors
    /// There is none, the loader refuses it, or it lacks a symbol.
    pub fn load() -> Result<Self, LibraryError> {
        Self::load_from(&Paths::default())
    }

    /// Loads these. The library of connections is loaded when it is needed first.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_from(paths: &Paths) -> Result<Self, LibraryError> {
        let mut known = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = known.iter().find(|loaded| loaded.paths == *paths) {
            return Ok(Self(loaded));
        }
        let opened = open(&paths.verbs)?;
        let verbs = Verbs::of(opened).map_err(|missing| LibraryError::lacks(&paths.verbs, missing))?;
        let ours = opened.has(OURS);
        fork::watch();
        let loaded = Box::leak(Box::new(Loaded { paths: paths.clone(), verbs, ours, cm: OnceLock::new() }));
        known.push(loaded);
        Ok(Self(loaded))
    }

    /// Whether it is our own drop-in, so that its devices are soft ones of ours.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        self.0.ours
    }

    /// Where it was found.
    #[must_use]
    pub const fn paths(self) -> &'static Paths {
        &self.0.paths
    }

    /// What the library does so that a forked child does not move pages under the card; nothing if it is too old to say.
    #[must_use]
    pub fn fork_care(self) -> Option<ForkCare> {
        let ask = self.0.verbs.ibv_is_fork_initialized?;
        // SAFETY: a function without arguments.
        Some(match unsafe { ask() } {
            0 => ForkCare::Off,
            1 => ForkCare::On,
            _ => ForkCare::NotNeeded,
        })
    }

    /// Whether memory can be registered under an address of the program's choice.
    #[must_use]
    pub const fn chooses_addresses(self) -> bool {
        self.0.verbs.ibv_reg_mr_iova2.is_some() || self.0.verbs.ibv_reg_mr_iova.is_some()
    }

    /// Loads the library of connections, if it is not yet, to see whether it is there.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_connections(self) -> Result<(), LibraryError> {
        self.cm().map(|_| ())
    }

    pub(crate) fn cm(self) -> Result<&'static Cm, LibraryError> {
        let path = &self.0.paths.cm;
        let table = self
            .0
            .cm
            .get_or_init(|| Cm::of(open(path)?).map_err(|missing| LibraryError::lacks(path, missing)));
        table.as_ref().map_err(Clone::clone)
    }

    pub(crate) const fn verbs(self) -> &'static Verbs {
        &self.0.verbs
    }
}

impl PartialEq for Library {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Library {}

/// What a library of verbs does about forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkCare {
    /// Nothing: after a fork, a write of the parent to registered memory may go to a page that the card does not know.
    Off,
    /// Children do not get the pages of registered memory, with all that lies in them.
    On,
    /// The kernel copies the pages for the child.
    NotNeeded,
}

fn open(library: &Path) -> Result<Opened, LibraryError> {
    dl::open(library).map_err(|message| LibraryError::refused(library, message))
}

/// Why a library of the machine cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// There is none.
    #[error(
        "there is no {}: install the package that has it (libibverbs1, librdmacm1 or rdma-core), or name one in \
         {variable}",
        library.display()
    )]
    NotThere {
        /// What was looked for.
        library: PathBuf,
        /// The variable that names another.
        variable: &'static str,
    },
    /// The loader does not take it.
    #[error("{} cannot be loaded", library.display())]
    Refused {
        /// The library.
        library: PathBuf,
        /// What the loader said.
        #[source]
        message: LoaderMessage,
    },
    /// It does not have what every library of this kind has.
    #[error(
        "{} has no symbol {symbol} of version {version}{}: it is too old, or no library of this kind",
        library.display(),
        if *elsewhere { ", only one of another version" } else { "" }
    )]
    NoSymbol {
        /// The library.
        library: PathBuf,
        /// What it lacks.
        symbol: &'static str,
        /// The version that was looked for.
        version: &'static str,
        /// Whether it has a symbol of this name in another version, or without one.
        elsewhere: bool,
    },
}

/// What the loader of the operating system said.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LoaderMessage(pub String);

impl LibraryError {
    fn lacks(library: &Path, missing: Missing) -> Self {
        let Missing { symbol, version, elsewhere } = missing;
        Self::NoSymbol { library: library.to_owned(), symbol, version, elsewhere }
    }

    /// What the loader says begins with the name of what it could not find: this library, or one that it needs.
    fn refused(library: &Path, message: String) -> Self {
        let missing = format!("{}: cannot open shared object file: No such file", library.display());
        let library = library.to_owned();
        if message.starts_with(&missing) {
            let is_cm = library.to_string_lossy().contains("rdmacm");
            Self::NotThere { library, variable: if is_cm { CM_VARIABLE } else { VERBS_VARIABLE } }
        } else {
            Self::Refused { library, message: LoaderMessage(message) }
        }
    }
}

#[cfg(test)]
mod tests;
