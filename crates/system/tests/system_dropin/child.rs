//! Each test is a process of its own: with an address of its own, an environment, and a time after which it hangs.

use std::env;
use std::path::Path;

use ferroce_system::Library;
use ferroce_testkit::dropin;

/// Set for the process of a test.
const CHILD: &str = "FERROCE_SYSTEM_TEST";
/// A number that no other program of tests has.
const NET: u8 = 180;

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
    run_on(&dropin::folder().join("libibverbs.so.1"), test, variables, body);
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
    let mut command = dropin::command_with(library, &dropin::own_program(), &dropin::address(NET, name));
    command.env(CHILD, name).envs(variables.iter().copied());
    Some(dropin::passes(command, name))
}

/// The address of this process's device.
pub(crate) fn own_address() -> std::net::Ipv4Addr {
    dropin::own_address().parse().unwrap()
}
