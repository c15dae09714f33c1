//! Each test is a process of its own: with an address of its own, an environment, and a time after which it hangs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ferroce_system::Library;

/// Where the drop-in library is, set by `cargo xtask test`. Without it the library is linked here.
const FOLDER_VARIABLE: &str = "FERROCE_ABI";
/// Set for the process of a test.
const CHILD: &str = "FERROCE_SYSTEM_TEST";
/// Seconds after which a test hangs.
const PATIENCE: &str = "120";

/// Declares tests that get the library.
macro_rules! over_dropin {
    ($($(#[$meta:meta])* fn $name:ident($library:ident: $type:ty) $body:block)*) => {$(
        $(#[$meta])*
        #[test]
        fn $name() {
            $crate::child::run(concat!(module_path!(), "::", stringify!($name)), &[], |$library: $type| $body);
        }
    )*};
}

pub(crate) use over_dropin;

/// Whether this is the process of a test.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs a test in a process of its own, with these variables beside its address.
pub(crate) fn run(test: &str, variables: &[(&str, &str)], body: impl FnOnce(Library)) {
    if is_child() {
        return body(Library::load().unwrap());
    }
    run_on(&folder().join("libibverbs.so.1"), test, variables, body);
}

/// The same with another library of verbs. What its process said, in the one that has started it.
pub(crate) fn run_on(
    library: &Path,
    test: &str,
    variables: &[(&str, &str)],
    body: impl FnOnce(Library),
) -> Option<String> {
    if is_child() {
        body(Library::load().unwrap());
        return None;
    }
    // The name of the test without that of the program.
    let (_, name) = test.split_once("::").unwrap();
    let output = Command::new("timeout")
        .args(["-k", "5", PATIENCE])
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .env("FERROCE_ADDRESS", address(name))
        .env("FERROCE_LIBIBVERBS", library)
        .env("FERROCE_LIBRDMACM", library.with_file_name("librdmacm.so.1"))
        .env_remove("FERROCE_FAULTS")
        .env_remove("FERROCE_PCAP")
        .env_remove("FERROCE_PATH")
        .env_remove("FERROCE_NETDEV")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    assert!(said.contains("1 passed"), "{name} is not the name of a test\n{said}");
    Some(said)
}

/// An address that few tests share, and none elsewhere.
fn address(name: &str) -> String {
    let number = name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("127.0.180.{}", number % 250 + 1)
}

/// The address of this process's device.
pub(crate) fn own_address() -> std::net::Ipv4Addr {
    env::var("FERROCE_ADDRESS").unwrap().parse().unwrap()
}

/// The folder of our own library.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| env::var_os(FOLDER_VARIABLE).map_or_else(link, PathBuf::from))
}

fn link() -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args(["xtask", "link-abi"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "`cargo xtask link-abi` failed");
    // The test binary is in <target>/<profile>/deps.
    env::current_exe().unwrap().ancestors().nth(2).unwrap().join("abi")
}
