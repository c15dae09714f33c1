//! Another user of this machine: one that has no entry, no groups, no rights and no files.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use crate::judge;

/// Where numbers of users are looked for that are not taken.
const FROM: u32 = 61_000;

/// This program again, as another user; as the same one, and said so, where this process may not choose.
///
/// # Panics
/// Where a skipped test would hide something, as [`judge::is_root_for`].
///
/// # Errors
/// The system does not show the program.
pub fn this_program() -> io::Result<(Command, bool)> {
    // By a descriptor that stays open: the folders on the way to it may be closed to others.
    static PROGRAM: OnceLock<fs::File> = OnceLock::new();
    let program = fs::File::open(std::env::current_exe()?)?;
    let program = PROGRAM.get_or_init(|| program);
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    let other = judge::is_root_for("a process of another user");
    if other {
        let taken = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let taken: Vec<_> = taken.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect();
        let user = (FROM..u32::from(u16::MAX)).find(|user| !taken.contains(user)).unwrap_or(FROM);
        // The standard library gives up all groups first, and the system all capabilities.
        command.uid(user).gid(user);
    }
    Ok((command, other))
}

/// Gives up for good what this process could still get, and checks that it has no rights: in the child.
///
/// # Panics
/// If it still has some, unless it was started by one that has none to give up.
pub fn settle_down(other: bool) {
    rustix::thread::set_no_new_privs(true).expect("Linux 3.5 can do it");
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    if other {
        assert!(!field("Uid:").split_whitespace().any(|user| user == "0"), "{status}");
        for rights in ["CapEff:", "CapPrm:", "CapInh:"] {
            assert_eq!(u64::from_str_radix(field(rights), 16), Ok(0), "{status}");
        }
        assert_eq!(field("Groups:"), "", "{status}");
    }
}
