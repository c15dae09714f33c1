//! The names of our sockets. They are abstract: seen by all users of a network namespace, and taken by the first
//! socket that asks, of whatever user.
//!
//! So no name is trusted, and none is needed. A leader has a *usual* name, which a newcomer tries first; if
//! another user's socket is there, it listens at a *spare* name that it draws, as all others are drawn, and that
//! nothing outside can foresee. What listens at a name is asked for its user before anything is said to it.
//!
//! ```text
//! leader      ferroce/switch/<uid>/<interface>[/<address>]      the usual name
//!             ferroce/switch/<uid>/<interface>/[<address>]/<16>  a spare one
//! letters     ferroce/slot/<32>                                  each process; told in the shared file
//! counters    ferroce/stat/<uid>/<pid>/<16>                      each process
//! lanes       ferroce/lane/<16>                                  each process; told in the shared file
//! ```
//!
//! Members learn the leader's name from the shared file, newcomers find a spare one in the kernel's list of names.
//! That there is one leader does not depend on names: a record lock on the shared file says it, and that
//! there is one shared file is said by the port, which is bound alone.
//!
//! A folder of the user's own would be no better: `/run/user` comes and goes with sessions, and is not the same in
//! every container, and two processes that look at different places would be two groups.

use std::fmt::Write;
use std::io;

use super::Group;

/// What every name of a leader begins with; the user follows.
const LEADERS: &str = "ferroce/switch/";

/// What every name at which counters are told begins with; user, process and what was drawn follow.
const COUNTERS: &str = "ferroce/stat/";

/// Where a leader listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Where newcomers look first.
    Usual,
    /// Where it went because the usual name was taken; what was drawn for it.
    Spare(u64),
}

impl Place {
    /// As it stands in the shared file: no spare name is made from zero.
    pub(super) const fn word(self) -> u64 {
        match self {
            Self::Usual => 0,
            Self::Spare(drawn) => drawn,
        }
    }

    pub(super) const fn of_word(word: u64) -> Self {
        match word {
            0 => Self::Usual,
            drawn => Self::Spare(drawn),
        }
    }
}

/// The name that the leader of a group listens at. It carries the user, so that one user's processes do not meet
/// another's by accident.
pub(super) fn of_leader(group: &Group, uid: u32, place: Place) -> String {
    let Group { interface, address } = group;
    let mut name = format!("{LEADERS}{uid}/{interface}");
    if address.is_some() || place != Place::Usual {
        name.push('/');
    }
    // Writing to a text does not fail.
    if let Some(address) = address {
        let _ = write!(name, "{address}");
    }
    if let Place::Spare(drawn) = place {
        let _ = write!(name, "/{drawn:016x}");
    }
    name
}

/// The user, the group and the place of a leader's name.
pub(super) fn read_leader(name: &str) -> Option<(u32, Group, Place)> {
    let mut parts = name.strip_prefix(LEADERS)?.splitn(4, '/');
    let uid = parts.next()?.parse().ok()?;
    // Others may have made the name up.
    let interface = parts.next().filter(|name| is_interface(name))?.to_owned();
    let (address, drawn) = (parts.next(), parts.next());
    let address = match address {
        None => None,
        Some("") if drawn.is_some() => None,
        Some(text) => Some(text.parse().ok()?),
    };
    let place = match drawn {
        None => Place::Usual,
        Some(text) if text.len() == 16 => {
            Place::Spare(u64::from_str_radix(text, 16).ok().filter(|drawn| *drawn != 0)?)
        }
        Some(_) => return None,
    };
    Some((uid, Group { interface, address }, place))
}

/// Whether an interface can have this name.
fn is_interface(name: &str) -> bool {
    !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains(char::is_control)
}

/// The name of the socket that a process gets letters at.
pub(super) fn of_letters(token: [u64; 2]) -> [u8; 45] {
    let mut name = *b"ferroce/slot/00000000000000000000000000000000";
    for (word, half) in token.iter().zip(name[13..].chunks_exact_mut(16)) {
        for (at, digit) in half.iter_mut().enumerate() {
            let byte = word.to_be_bytes()[at / 2];
            let nibble = if at % 2 == 0 { byte >> 4 } else { byte & 0xf };
            *digit = b"0123456789abcdef"[usize::from(nibble)];
        }
    }
    name
}

/// The name that a process takes offers of lanes at.
pub(super) fn of_lanes(drawn: u64) -> String {
    format!("ferroce/lane/{drawn:016x}")
}

/// The name that a process tells its counters at.
pub(super) fn of_counters(uid: u32, pid: u32, drawn: u64) -> String {
    format!("{}{pid}/{drawn:016x}", counters_of(uid))
}

/// What the names of this user's counters begin with.
fn counters_of(uid: u32) -> String {
    format!("{COUNTERS}{uid}/")
}

/// Where leaders of this user listen, if all names tell the truth, with their groups, each once.
pub(super) fn list_leaders(uid: u32) -> io::Result<Vec<(Group, Place)>> {
    let all = list(LEADERS)?;
    let ours = all.iter().filter_map(|name| read_leader(name)).filter(|(of, ..)| *of == uid);
    Ok(ours.map(|(_, group, place)| (group, place)).collect())
}

/// The names that processes of this user tell their counters at, if all names tell the truth, each once.
pub(super) fn list_counters(uid: u32) -> io::Result<Vec<String>> {
    list(&counters_of(uid))
}

/// All names of this network namespace that begin so, each once.
fn list(prefix: &str) -> io::Result<Vec<String>> {
    // A socket may have any name: it need not be text.
    let text = std::fs::read("/proc/net/unix")?;
    let text = String::from_utf8_lossy(&text);
    let names = text.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@'));
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect();
    names.sort_unstable();
    // Every connection stands in the list with the name that it was made to.
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_it_was_written() {
        for address in [None, Some("127.0.0.2"), Some("fe80::1")] {
            for place in [Place::Usual, Place::Spare(0x12), Place::Spare(u64::MAX)] {
                let address = address.map(|text| text.parse().unwrap());
                let group = Group { interface: "lo".to_owned(), address };
                let name = of_leader(&group, 65_534, place);
                assert_eq!(read_leader(&name), Some((65_534, group, place)), "{name}");
                assert_eq!(Place::of_word(place.word()), place);
            }
        }
        for other in [
            "ferroce/switch/",
            "ferroce/switch/x/lo",
            "ferroce/switch/1",
            "ferroce/switch/1/",
            "ferroce/switch/1/lo/",
            "ferroce/switch/1/lo/x",
            "ferroce/switch/1/lo//",
            "ferroce/switch/1/lo//0000000000000000",
            "ferroce/switch/1/lo//12",
            "ferroce/switch/1/lo//00000000000000012",
            "ferroce/switch/1/lo//000000000000001/",
            "ferroce/switch/1/lo/127.0.0.1/000000000000000x",
            "ferroce/switch/1/\x1b[2J",
            "ferroce/switch/1/sixteen--letters",
        ] {
            assert_eq!(read_leader(other), None, "{other}");
        }
    }

    #[test]
    fn an_interface_has_at_most_fifteen_letters() {
        let read = read_leader("ferroce/switch/1/fifteen-letters");
        assert_eq!(read.map(|(_, group, _)| group.interface).as_deref(), Some("fifteen-letters"));
        assert!(!is_interface("") && !is_interface("a\tb") && !is_interface("sixteen--letters"));
    }

    #[test]
    fn the_longest_name_has_room() {
        let address = "1111:2222:3333:4444:5555:6666:7777:8888".parse().ok();
        let group = Group { interface: "fifteen-letters".to_owned(), address };
        let name = of_leader(&group, u32::MAX, Place::Spare(u64::MAX));
        // The kernel takes 107 bytes behind the zero that makes a name abstract.
        assert!(name.len() <= 107, "{name} has {} bytes", name.len());
    }

    #[test]
    fn names_for_letters_are_made_of_all_bits() {
        assert_eq!(
            &of_letters([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210])[13..],
            b"0123456789abcdeffedcba9876543210"
        );
    }
}
