//! UDP port 4791: which programs have it, and whether a card of Ferroce can.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_device::fabric::PORT;
use ferroce_device::switchboard::SLOTS;

use super::facts::{Facts, joined};
use super::finding::Finding;

/// A socket that has the port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    uid: u32,
    inode: u64,
}

/// What has the port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// A switchboard of this user.
    Ours,
    /// One of another user.
    Theirs(u32),
    /// The sockets of a switchboard of this user that no process leads; a process that has them.
    Leaderless(Option<u32>),
    /// The soft-RoCE of the kernel.
    Kernel,
    /// A process, with its name.
    Process(u32, String),
    /// A process that cannot be seen, of this user.
    Hidden(u32),
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let sockets = match sockets(facts) {
        Ok(sockets) => sockets,
        Err(why) => return vec![Finding::unknown(format!("which programs have UDP port {PORT}")).seen(why)],
    };
    if sockets.is_empty() {
        return vec![Finding::ok(format!("UDP port {PORT} is free"))];
    }
    let processes = processes(facts, &sockets);
    let mut holders: BTreeMap<Holder, BTreeSet<IpAddr>> = BTreeMap::new();
    for socket in &sockets {
        let alike = sockets.iter().filter(|other| (other.address, other.uid) == (socket.address, socket.uid));
        let is_board = alike.count() >= SLOTS;
        let holder = holder(facts, socket, is_board, processes.get(&socket.inode).map_or(&[], Vec::as_slice));
        holders.entry(holder).or_default().insert(socket.address);
    }
    holders.iter().map(|(holder, addresses)| finding(facts, holder, addresses)).collect()
}

fn finding(facts: &Facts, holder: &Holder, addresses: &BTreeSet<IpAddr>) -> Finding {
    let seen = format!("/proc/net/udp, /proc/net/udp6: port {PORT} of {}", places(addresses));
    let stranger = match holder {
        Holder::Ours => {
            return Finding::ok(format!("UDP port {PORT} belongs to processes of this user with a card"))
                .seen(seen);
        }
        Holder::Kernel => {
            return Finding::note(format!(
                "UDP port {PORT} belongs to the kernel's soft-RoCE; a card of Ferroce cannot be opened beside it"
            ))
            .seen(seen)
            .remedy("use the kernel's device, or one of Ferroce in a network namespace of its own, or unload soft-RoCE:")
            .command("rmmod rdma_rxe");
        }
        Holder::Theirs(uid) => {
            return Finding::note(format!("UDP port {PORT} is used by cards of another user (uid {uid})"))
                .seen(seen)
                .remedy("take another loopback address than theirs:")
                .command("export FERROCE_ADDRESS=127.0.0.2");
        }
        Holder::Leaderless(pid) => {
            let finding = Finding::warning(format!(
                "UDP port {PORT} is held by sockets of Ferroce that no process answers for"
            ));
            let finding =
                finding.seen(seen).remedy("a forked child or a stopped process may have them; end it:");
            return finding.command(pid.map_or_else(look, |pid| format!("kill {pid}")));
        }
        Holder::Process(pid, program) => format!("process {pid} ({program})"),
        Holder::Hidden(uid) => format!("a process of uid {uid} that cannot be seen from here"),
    };
    let text = format!("UDP port {PORT} is taken by {stranger}, which is no card of Ferroce");
    let finding = if stands_in_the_way(facts, addresses) {
        Finding::fault(text)
    } else {
        Finding::warning(format!("{text}, on {}", places(addresses)))
    };
    let finding =
        finding.seen(seen).remedy("see what it is, and end it, or take a loopback address that is free:");
    finding.command(look()).command("export FERROCE_ADDRESS=127.0.0.2")
}

/// Shows which processes have the port.
fn look() -> String {
    format!("ss -lunp 'sport = {PORT}'")
}

/// Whether a card with no address of its own could not be opened.
fn stands_in_the_way(facts: &Facts, addresses: &BTreeSet<IpAddr>) -> bool {
    let of_cards = |address: &IpAddr| {
        let opened = facts.opened().unwrap_or_default();
        opened.iter().any(|info| info.addresses.contains(address))
    };
    addresses.iter().any(|address| address.is_unspecified() || of_cards(address))
}

fn places(addresses: &BTreeSet<IpAddr>) -> String {
    if addresses.iter().any(IpAddr::is_unspecified) {
        return "all addresses".to_owned();
    }
    let shown = joined(addresses.iter().take(4));
    if addresses.len() > 4 { format!("{shown} and {} more", addresses.len() - 4) } else { shown }
}

/// The sockets on the port.
fn sockets(facts: &Facts) -> Result<Vec<Socket>, String> {
    let path = "/proc/net/udp";
    let v4 = facts.text(path).map_err(|why| format!("{path}: {why}"))?;
    // A kernel without IPv6 has no such file.
    let v6 = facts.text("/proc/net/udp6").unwrap_or_default();
    Ok(v4
        .lines()
        .chain(v6.lines())
        .filter_map(socket)
        .filter(|(_, port)| *port == PORT)
        .map(|(it, _)| it)
        .collect())
}

/// A line such as `1: 0100007F:12B7 00000000:0000 07 ... uid timeout inode`.
fn socket(line: &str) -> Option<(Socket, u16)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = words.get(1)?.split_once(':')?;
    let socket = Socket {
        address: address_of(address)?,
        uid: words.get(7)?.parse().ok()?,
        inode: words.get(9)?.parse().ok()?,
    };
    Some((socket, u16::from_str_radix(port, 16).ok()?))
}

/// The kernel writes an address as words of the processor.
fn address_of(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(digits.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// The processes that have these sockets, as far as they can be seen.
fn processes(facts: &Facts, sockets: &[Socket]) -> BTreeMap<u64, Vec<u32>> {
    let mut found: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let wanted: BTreeSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
    for pid in facts.names("/proc").iter().filter_map(|name| name.parse::<u32>().ok()) {
        for fd in facts.names(&format!("/proc/{pid}/fd")) {
            let link = facts.link(&format!("/proc/{pid}/fd/{fd}"));
            let inode = link
                .as_deref()
                .and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode.filter(|inode| wanted.contains(inode)) {
                found.entry(inode).or_default().push(pid);
            }
        }
    }
    found
}

fn holder(facts: &Facts, socket: &Socket, is_board: bool, pids: &[u32]) -> Holder {
    let boards = facts.boards().as_deref().unwrap_or_default();
    let is_member = |pid: &u32| boards.iter().any(|board| board.members.contains(pid));
    if pids.iter().any(is_member) {
        return Holder::Ours;
    }
    let uid = socket.uid;
    if is_board || leads_a_board(facts, uid) {
        if Some(uid) != facts.uid() {
            return Holder::Theirs(uid);
        } else if is_board {
            return Holder::Leaderless(pids.first().copied());
        }
    }
    if let Some(pid) = pids.first() {
        let name = facts.value(&format!("/proc/{pid}/comm")).unwrap_or_default();
        return Holder::Process(*pid, name);
    }
    if uid == 0 && facts.has_soft_roce() { Holder::Kernel } else { Holder::Hidden(uid) }
}

/// Whether names of sockets say that this user has a switchboard. Names may lie: it decides about a note only.
fn leads_a_board(facts: &Facts, uid: u32) -> bool {
    let name = format!("@ferroce/switch/{uid}/");
    facts.text("/proc/net/unix").is_ok_and(|text| text.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::super::facts::Board;
    use super::super::finding::Level;
    use super::super::planted::Planted;
    use super::*;

    const HEAD: &str =
        "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn line(address: &str, port: &str, uid: u32, inode: u64) -> String {
        format!(
            "  1: {address}:{port} 00000000:0000 07 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 2 0 0\n"
        )
    }

    fn said(planted: &Planted) -> (Level, String) {
        let all = check(&planted.facts());
        assert_eq!(all.len(), 1, "{all:?}");
        (all[0].level, all[0].what.clone())
    }

    #[test]
    fn addresses_are_words_of_the_processor() {
        let word = u32::from_ne_bytes([127, 0, 0, 9]);
        assert_eq!(address_of(&format!("{word:08X}")), Some(Ipv4Addr::new(127, 0, 0, 9).into()));
        let last = u32::from_ne_bytes([0, 0, 0, 1]);
        assert_eq!(address_of(&format!("{:024X}{last:08X}", 0)), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(address_of("0"), None);
    }

    #[test]
    fn another_port_does_not_matter() {
        let planted = Planted::bare();
        planted.file("/proc/net/udp", &[HEAD, &line("00000000", "12B8", 0, 9)].concat());
        assert_eq!(said(&planted), (Level::Ok, "UDP port 4791 is free".to_owned()));
        planted.remove("/proc/net/udp");
        assert_eq!(said(&planted).0, Level::Unknown);
    }

    #[test]
    fn a_program_that_has_the_port_is_named() {
        let planted = Planted::bare();
        planted.file("/proc/net/udp", &[HEAD, &line("00000000", "12B7", 1000, 9)].concat());
        let (level, what) = said(&planted);
        assert!(level == Level::Fault && what.contains("uid 1000 that cannot be seen"), "{what}");
        planted.link("/proc/77/fd/3", "socket:[9]").file("/proc/77/comm", "socat\n");
        let (level, what) = said(&planted);
        assert!(level == Level::Fault && what.contains("taken by process 77 (socat)"), "{what}");
        let other = u32::from_ne_bytes([127, 0, 0, 9]);
        planted.file("/proc/net/udp", &line(&format!("{other:08X}"), "12B7", 1000, 9));
        let (level, what) = said(&planted);
        assert!(level == Level::Warning && what.ends_with("on 127.0.0.9"), "{what}");
    }

    #[test]
    fn our_own_processes_soft_roce_and_other_users_are_told_apart() {
        let mut planted = Planted::bare();
        planted.file("/proc/net/udp6", &[HEAD, &line(&"0".repeat(32), "12B7", 0, 9)].concat());
        planted.link("/proc/77/fd/3", "socket:[9]");
        planted.answers.boards = Ok(vec![Board { members: vec![76, 77], ..Board::default() }]);
        assert_eq!(said(&planted).0, Level::Ok);
        planted.answers.boards = Ok(Vec::new());
        planted.file("/proc/net/unix", "0: 2 0 10000 5 1 5 @ferroce/switch/0/lo\n");
        planted.file("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n");
        assert_eq!(
            said(&planted),
            (Level::Note, "UDP port 4791 is used by cards of another user (uid 0)".to_owned())
        );
        planted.remove("/proc/77/fd/3").remove("/proc/net/unix");
        planted.file("/proc/modules", "rdma_rxe 1 0 - Live 0x0\n");
        assert!(said(&planted).1.contains("belongs to the kernel's soft-RoCE"));
    }
    #[test]
    fn sockets_of_a_switchboard_that_no_process_leads_are_named() {
        let planted = Planted::bare();
        let all: String = (0..SLOTS).map(|_| line("00000000", "12B7", 0, 9)).collect();
        planted.file("/proc/net/udp", &all).link("/proc/77/fd/3", "socket:[9]");
        assert_eq!(said(&planted).0, Level::Warning);
        assert_eq!(check(&planted.facts())[0].commands, ["kill 77"]);
        planted.file("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n");
        assert!(said(&planted).1.contains("another user"), "{}", said(&planted).1);
    }
}
