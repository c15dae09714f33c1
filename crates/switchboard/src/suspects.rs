//! The process that has the port: what can be learnt from the kernel when the port cannot be had.

use std::collections::HashMap;

use super::error::{Holder, SwitchError};
use super::sockets::{self, Suspect};
use super::{Group, SLOTS};

/// What is certainly in the way, and will not go away: another user, or a group with other addresses.
pub(super) fn other_than_ours(group: &Group, uid: u32) -> Option<SwitchError> {
    let suspects = on_port(group);
    let is_switchboard = |uid| suspects.iter().filter(|suspect| suspect.uid == uid).count() >= SLOTS;
    if let Some(other) = suspects.iter().find(|suspect| suspect.uid != uid) {
        let what = if is_switchboard(other.uid) { "a switchboard" } else { "another program" };
        return Some(SwitchError::OtherUser { group: group.clone(), uid: other.uid, what });
    }
    let wanted = |suspect: &Suspect| match group.address {
        None => suspect.address.is_unspecified(),
        Some(address) => suspect.address == address,
    };
    if is_switchboard(uid) && !suspects.iter().any(wanted) {
        let has = if group.address.is_some() { "all addresses" } else { "one address" };
        let holder = holder(&suspects, uid);
        return Some(SwitchError::Overlap { group: group.clone(), holder, has });
    }
    None
}

/// Why no leader answers.
pub(super) fn why_leaderless(group: &Group, uid: u32, seconds: u64) -> SwitchError {
    let suspects = on_port(group);
    let holder = holder(&suspects, uid);
    let group = group.clone();
    if suspects.len() < SLOTS && !suspects.is_empty() {
        return SwitchError::Foreign { group, holder };
    }
    SwitchError::Leaderless { group, holder, seconds }
}

/// A process that has one of these sockets, if one can be seen.
fn holder(suspects: &[Suspect], uid: u32) -> Holder {
    let uid = suspects.first().map_or(uid, |suspect| suspect.uid);
    let inodes: HashMap<String, ()> =
        suspects.iter().map(|suspect| (format!("socket:[{}]", suspect.inode), ())).collect();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.any(|link| link.to_str().is_some_and(|link| inodes.contains_key(link)))
    });
    let process = found.map(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (pid, name.trim_end().to_owned())
    });
    Holder { uid, process }
}

/// The sockets on the port that a group's would collide with.
fn on_port(group: &Group) -> Vec<Suspect> {
    let index = index_of(&group.interface);
    sockets::on_port().into_iter().filter(|suspect| collides(group, index, suspect)).collect()
}

/// Whether a socket has what a group on the interface of this number wants.
fn collides(group: &Group, index: Option<u32>, suspect: &Suspect) -> bool {
    let elsewhere = match (suspect.interface, index) {
        (Some(0) | None, _) | (_, None) => false,
        (Some(theirs), Some(ours)) => theirs != ours,
    };
    let same_address = match group.address {
        None => true,
        Some(address) => suspect.address.is_unspecified() || suspect.address == address,
    };
    same_address && !elsewhere
}

/// The number of an interface.
fn index_of(interface: &str) -> Option<u32> {
    let name = std::ffi::CString::new(interface).ok()?;
    // SAFETY: the pointer is to a text with its zero, which lives during the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_on_another_interface_is_not_in_the_way() {
        let suspect = |address: &str, interface| {
            let address = address.parse().unwrap();
            Suspect { address, interface, uid: 0, inode: 1 }
        };
        let group = |address: Option<&str>| Group {
            interface: "lo".to_owned(),
            address: address.map(|text| text.parse().unwrap()),
        };
        for (of, address, interface, in_the_way) in [
            (None, "0.0.0.0", Some(1), true),
            (None, "0.0.0.0", Some(0), true),
            (None, "0.0.0.0", None, true),
            (None, "0.0.0.0", Some(2), false),
            (None, "127.0.0.9", Some(2), false),
            (Some("127.0.0.9"), "127.0.0.9", Some(1), true),
            (Some("127.0.0.9"), "127.0.0.8", Some(1), false),
            (Some("127.0.0.9"), "0.0.0.0", Some(0), true),
            (Some("127.0.0.9"), "0.0.0.0", Some(2), false),
        ] {
            let suspect = suspect(address, interface);
            assert_eq!(collides(&group(of), Some(1), &suspect), in_the_way, "{of:?} {suspect:?}");
        }
        assert!(collides(&group(None), None, &suspect("0.0.0.0", Some(2))), "our own number is not known");
    }
}
