//! Who has the port: what can be learnt from `/proc` when it cannot be had.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::{Holder, SwitchError};
use super::{Group, SLOTS};
use crate::fabric::PORT;

/// A socket on the port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suspect {
    address: IpAddr,
    uid: u32,
    inode: u64,
}

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

/// Why nobody answers.
pub(super) fn who_has(group: &Group, uid: u32, seconds: u64) -> SwitchError {
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
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (text("/proc/net/udp"), text("/proc/net/udp6"));
    let all = v4.lines().chain(v6.lines()).filter_map(parse);
    let collides = |suspect: &Suspect| match group.address {
        None => true,
        Some(address) => suspect.address.is_unspecified() || suspect.address == address,
    };
    all.filter(collides).collect()
}

/// One line of `/proc/net/udp` or `/proc/net/udp6`, if it is of our port.
fn parse(line: &str) -> Option<Suspect> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    if u16::from_str_radix(port, 16) != Ok(PORT) {
        return None;
    }
    let mut words = words.skip(5);
    let uid = words.next()?.parse().ok()?;
    let inode = words.nth(1)?.parse().ok()?;
    Some(Suspect { address: address_of(address)?, uid, inode })
}

/// An address as the kernel prints it: words of the machine's order.
fn address_of(text: &str) -> Option<IpAddr> {
    let mut octets = [0; 16];
    if !text.is_ascii() || text.len() > 32 {
        return None;
    }
    for (word, to) in text.as_bytes().chunks(8).zip(octets.as_chunks_mut::<4>().0) {
        let word = std::str::from_utf8(word).ok()?;
        *to = u32::from_str_radix(word, 16).ok()?.to_ne_bytes();
    }
    match text.len() {
        8 => Some(Ipv4Addr::from(*octets.first_chunk::<4>()?).into()),
        32 => Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let v4 = " 16: 0200007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 12345 2 0 0";
        let suspect = Suspect { address: "127.0.0.2".parse().unwrap(), uid: 1000, inode: 12345 };
        assert_eq!(parse(v4), Some(suspect));
        let v6 = " 16: 00000000000000000000000000000000:12B7 00000000000000000000000000000000:0000 07 \
                  00000000:00000000 00:00000000 00000000     0        0 777 2 0 0";
        assert_eq!(parse(v6).map(|found| (found.address.is_unspecified(), found.inode)), Some((true, 777)));
        assert_eq!(parse(&v4.replace("12B7", "12B8")), None);
        for len in 0..v4.len() {
            let _ = parse(&v4[..len]);
        }
    }
}
