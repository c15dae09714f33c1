//! Libraries that are not as they should be: made by a C compiler, with the symbols that a test wants.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_testkit::judge;

use super::*;

type Symbol = (&'static str, &'static str);

/// A folder of stub libraries, which goes with the test.
struct Stubs(PathBuf);

impl Stubs {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ferroce-system-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A library with these symbols; every function returns 2.
    fn library(&self, name: &str, symbols: &[Symbol]) -> PathBuf {
        let code = symbols.iter().map(|(name, _)| format!("int {name}(void) {{ return 2; }}\n")).collect();
        self.compiled(name, symbols, code)
    }

    /// A library with these symbols, whose functions are these.
    fn compiled(&self, name: &str, symbols: &[Symbol], code: String) -> PathBuf {
        let mut versions: Vec<&str> = symbols.iter().map(|(_, version)| *version).collect();
        versions.sort_unstable();
        versions.dedup();
        let map =
            versions.iter().filter(|version| !version.is_empty()).fold(String::new(), |mut map, version| {
                let of = symbols.iter().filter(|(_, of)| of == version).map(|(name, _)| *name);
                let _ = writeln!(map, "{version} {{ global: {}; }};", of.collect::<Vec<_>>().join("; "));
                map
            });
        let [source, script, library] = ["c", "map", "so"].map(|end| self.0.join(format!("{name}.{end}")));
        fs::write(&source, code).unwrap();
        fs::write(&script, &map).unwrap();
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        if !map.is_empty() {
            command.arg(format!("-Wl,--version-script={}", script.display()));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        library
    }

    fn load(&self, name: &str, symbols: &[Symbol]) -> Result<Library, LibraryError> {
        let verbs = self.library(name, symbols);
        Library::load_from(&Paths { verbs, cm: self.0.join("librdmacm.none") })
    }
}

impl Drop for Stubs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn all() -> Vec<Symbol> {
    [Verbs::REQUIRED, Verbs::OPTIONAL].concat()
}

fn without(name: &str) -> Vec<Symbol> {
    all().into_iter().filter(|(known, _)| *known != name).collect()
}

#[test]
fn a_library_that_is_not_there_is_named_with_the_variable() {
    let path = Path::new("/no/such/folder/libibverbs.so.1");
    let error = Library::load_from(&Paths { verbs: path.into(), cm: path.into() }).unwrap_err();
    let expected = LibraryError::NotThere { library: path.into(), variable: "FERROCE_LIBIBVERBS" };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("FERROCE_LIBIBVERBS"), "{error}");
    let name = Path::new("libibverbs-that-is-nowhere.so.1");
    let error = Library::load_from(&Paths { verbs: name.into(), cm: name.into() }).unwrap_err();
    assert!(matches!(error, LibraryError::NotThere { .. }), "{error}");
    let zero = Path::new("lib\0.so");
    let error = Library::load_from(&Paths { verbs: zero.into(), cm: zero.into() }).unwrap_err();
    assert!(matches!(error, LibraryError::Refused { .. }), "{error}");
}

#[test]
fn what_the_loader_says_is_kept() {
    let stubs = Stubs::new();
    let path = stubs.0.join("libibverbs.so.1");
    fs::write(&path, "no library at all").unwrap();
    let error = Library::load_from(&Paths { verbs: path.clone(), cm: path.clone() }).unwrap_err();
    let LibraryError::Refused { library, message } = error else { panic!("{error}") };
    assert!(library == path && !message.0.is_empty(), "{message}");
}

#[test]
fn a_library_of_either_age_is_loaded_and_says_what_it_has() {
    if !judge::is_here("cc") {
        return;
    }
    let stubs = Stubs::new();
    let mut newer = all();
    newer.extend([("ibv_of_the_future", "IBVERBS_1.99"), ("verbs_register_driver_99", "IBVERBS_PRIVATE_99")]);
    for (name, symbols, care) in [
        ("debian", all(), Some(ForkCare::NotNeeded)),
        ("newer", newer, Some(ForkCare::NotNeeded)),
        ("older", Verbs::REQUIRED.to_vec(), None),
    ] {
        let library = stubs.load(name, &symbols).unwrap();
        assert_eq!((library.is_ours(), library.fork_care()), (false, care), "{name}");
        let verbs = library.verbs();
        assert_eq!(verbs.ibv_reg_mr_iova2.is_some(), name != "older");
        assert_eq!(verbs._ibv_query_gid_table.is_some(), name != "older");
        let connections = library.load_connections().unwrap_err();
        assert!(
            matches!(&connections, LibraryError::NotThere { variable: "FERROCE_LIBRDMACM", .. }),
            "{connections}"
        );
    }
}

#[test]
fn a_missing_symbol_is_named_with_its_version() {
    if !judge::is_here("cc") {
        return;
    }
    let stubs = Stubs::new();
    let error = stubs.load("lacks", &without("ibv_create_srq")).unwrap_err();
    let library = stubs.0.join("lacks.so");
    let lacks = |symbol, version, elsewhere| LibraryError::NoSymbol {
        library: library.clone(),
        symbol,
        version,
        elsewhere,
    };
    assert_eq!(error, lacks("ibv_create_srq", "IBVERBS_1.1", false));
    assert!(error.to_string().contains("has no symbol ibv_create_srq of version IBVERBS_1.1:"), "{error}");
    assert!(
        stubs.load("lacks", &without("ibv_reg_mr_iova2")).is_err(),
        "what failed is not remembered as loaded"
    );
}

#[test]
fn a_symbol_of_an_older_version_is_another_function() {
    if !judge::is_here("cc") {
        return;
    }
    let stubs = Stubs::new();
    let mut symbols = without("ibv_open_device");
    symbols.push(("ibv_open_device", "IBVERBS_1.0"));
    let error = stubs.load("old-node", &symbols).unwrap_err();
    assert!(
        matches!(error, LibraryError::NoSymbol { symbol: "ibv_open_device", elsewhere: true, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("only one of another version"), "{error}");
    // A library without any versions has each, as the loader sees it.
    let plain: Vec<Symbol> = all().into_iter().map(|(name, _)| (name, "")).collect();
    assert!(stubs.load("without-versions", &plain).is_ok());
}

#[test]
fn a_library_of_connections_of_either_age_is_loaded_and_one_that_lacks_a_symbol_is_not() {
    if !judge::is_here("cc") {
        return;
    }
    let stubs = Stubs::new();
    let verbs = stubs.library("verbs", &all());
    let load = |cm: PathBuf| Library::load_from(&Paths { verbs: verbs.clone(), cm }).unwrap();
    let mut newer = [Cm::REQUIRED, Cm::OPTIONAL].concat();
    newer.push(("rdma_of_the_future", "RDMACM_1.99"));
    for (name, symbols) in [("newer", &newer[..]), ("older", Cm::REQUIRED)] {
        let library = load(stubs.library(name, symbols));
        library.load_connections().unwrap();
        assert_eq!(library.cm().unwrap().rdma_establish.is_some(), name == "newer");
    }
    let lacks: Vec<Symbol> = newer.iter().copied().filter(|(name, _)| *name != "rdma_accept").collect();
    let path = stubs.library("lacks", &lacks);
    let library = load(path.clone());
    let expected = LibraryError::NoSymbol {
        library: path,
        symbol: "rdma_accept",
        version: "RDMACM_1.0",
        elsewhere: false,
    };
    assert_eq!(library.load_connections(), Err(expected.clone()));
    let error = library.connection_channel().unwrap_err();
    assert_eq!(error, crate::ConnectionError::Library(expected));
    // Verbs go on without it.
    assert_eq!(library.fork_care(), Some(ForkCare::NotNeeded));
}

#[test]
fn a_user_that_may_not_use_connections_is_told_the_number_of_it() {
    if !judge::is_here("cc") {
        return;
    }
    let stubs = Stubs::new();
    let refuses = "#include <errno.h>\n#include <stddef.h>\n\
        void *rdma_create_event_channel(void) { errno = EACCES; return NULL; }\n";
    let others = Cm::REQUIRED.iter().filter(|(name, _)| *name != "rdma_create_event_channel");
    let others = others.map(|(name, _)| format!("int {name}(void) {{ return 2; }}\n"));
    let cm = stubs.compiled("refuses", Cm::REQUIRED, refuses.to_owned() + &others.collect::<String>());
    let library = Library::load_from(&Paths { verbs: stubs.library("verbs", &all()), cm }).unwrap();
    let error = library.connection_channel().unwrap_err();
    let crate::ConnectionError::Refused(call) = error else { panic!("{error}") };
    assert_eq!((call.call, call.code), ("rdma_create_event_channel", libc::EACCES));
}

#[test]
fn our_own_library_is_known_by_its_engine() {
    if !judge::is_here("cc") {
        return;
    }
    let stubs = Stubs::new();
    let mut symbols = all();
    symbols.push(("ferroce_ibv_open_device", "FERROCE_0"));
    assert!(stubs.load("ours", &symbols).unwrap().is_ours());
}

#[test]
fn the_library_of_this_machine_is_a_library() {
    if !judge::has_file("/usr/include/infiniband/verbs.h") {
        return;
    }
    let usual = Paths { verbs: "libibverbs.so.1".into(), cm: "librdmacm.so.1".into() };
    let library = Library::load_from(&usual).unwrap();
    assert!(!library.is_ours());
    assert_eq!(Library::load_from(&usual), Ok(library));
    // There may be cards or none, and the library may say why not.
    for card in library.cards().unwrap_or_default() {
        assert!(!card.name().is_empty());
    }
    library.load_connections().unwrap();
}
