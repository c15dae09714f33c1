//! Tests over our own drop-in library as a card: each is a process of its own, with an address, an environment and a time
//! after which it hangs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where the drop-in library is, set by `cargo xtask test`. Without it the library is linked here.
const FOLDER_VARIABLE: &str = "FERROCE_ABI";
/// Set for the process of a test.
const CHILD: &str = "FERROCE_CARD_TEST";
/// Seconds after which a test hangs; the variable says another number, for tests that are run for long.
const PATIENCE: &str = "120";
const PATIENCE_VARIABLE: &str = "FERROCE_PATIENCE";

/// Runs a test in a process in which the devices of our drop-in library are the cards, and there are no others. `name` is the
/// path of the test in its program (`module::test`), and `net` a number that no other program of tests has.
///
/// # Panics
/// The process failed, and what it said; or there is no such test.
pub fn on_a_card(net: u8, name: &str, body: impl FnOnce()) {
    on_a_card_with(net, name, &[], body);
}

/// The same with these variables of the environment, too.
///
/// # Panics
/// As [`on_a_card`].
pub fn on_a_card_with(net: u8, name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if env::var_os(CHILD).is_some() {
        return body();
    }
    let mut command = command(&own_program(), &address(net, name));
    command.env(CHILD, name).envs(variables.iter().copied());
    let _said = passes(command, name);
}

/// Runs one test of this program by a command that starts it: what it said.
///
/// # Panics
/// It failed, and what it said; or there is no such test.
#[must_use]
pub fn passes(mut command: Command, name: &str) -> String {
    let output = command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .output()
        .expect("`timeout` is a program of every Linux machine");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    assert!(said.contains("1 passed"), "{name} is not the name of a test\n{said}");
    said
}

/// A program with the drop-in library as its card, at this address, that is ended if it hangs.
#[must_use]
pub fn command(program: &Path, address: &str) -> Command {
    command_with(&folder().join("libibverbs.so.1"), program, address)
}

/// The same with another library of verbs, which has its `librdmacm.so.1` beside it.
#[must_use]
pub fn command_with(library: &Path, program: &Path, address: &str) -> Command {
    let patience = env::var(PATIENCE_VARIABLE).unwrap_or_else(|_| PATIENCE.to_owned());
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", &patience])
        .arg(program)
        .env("FERROCE_PROVIDER", "system")
        .env("FERROCE_ADDRESS", address)
        .env("FERROCE_LIBIBVERBS", library)
        .env("FERROCE_LIBRDMACM", library.with_file_name("librdmacm.so.1"))
        .stdin(Stdio::null());
    for name in ["FERROCE_FAULTS", "FERROCE_PCAP", "FERROCE_PATH", "FERROCE_SHARED", "FERROCE_NETDEV"] {
        command.env_remove(name);
    }
    command
}

/// The address of the device of this process.
///
/// # Panics
/// This is no process of such a test.
#[must_use]
pub fn own_address() -> String {
    env::var("FERROCE_ADDRESS").expect("a process of a test over the drop-in library")
}

/// The name of the device of this process: that of our library, unless `FERROCE_CARD` names another that the tests are run over.
#[must_use]
pub fn own_card() -> String {
    env::var("FERROCE_CARD").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "ferroce_lo".to_owned())
}

/// An address that few tests share.
#[must_use]
pub fn address(net: u8, name: &str) -> String {
    let number = name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("127.0.{net}.{}", number % 250 + 1)
}

/// This program.
///
/// # Panics
/// The system does not tell.
#[must_use]
pub fn own_program() -> PathBuf {
    env::current_exe().expect("the system tells every program where it is")
}

/// The folder of our own library.
#[must_use]
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| env::var_os(FOLDER_VARIABLE).map_or_else(link, PathBuf::from))
}

fn link() -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args(["xtask", "link-abi"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdout(Stdio::null())
        .status()
        .expect("cargo is there where tests are run");
    assert!(status.success(), "`cargo xtask link-abi` failed");
    // The program of a test is in <target>/<profile>/deps.
    own_program().ancestors().nth(2).map(|profile| profile.join("abi")).unwrap_or_default()
}
