//! What is broken in the guest, and what the doctor is to say of it.

use super::Found;

/// What is broken, and what mends it.
pub(crate) struct Fault {
    /// Breaks it; nothing for a guest that is well.
    pub(super) breaks: &'static str,
    /// Holds when the kernel has taken note of that, where this takes a moment.
    pub(super) broken: &'static str,
    /// Calls the doctor.
    pub(super) doctor: &'static str,
    pub(super) finds: Option<Found>,
    pub(super) then: Then,
    /// Holds when the kernel has taken note of what was done then.
    pub(super) mended: &'static str,
    /// Puts everything back, whatever has become of it; `again` does so for network and device.
    pub(super) restores: &'static str,
}

/// What is done after the doctor has looked.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// What it advises, and it looks again.
    AsAdvised,
    /// Something else, since the guest lacks what it advises, and it looks again.
    Mend(&'static str),
    /// Nothing but what all cases end with.
    End,
}

/// As root.
const AS_ROOT: &str = "ferroce doctor --json";

/// As a user without rights.
const AS_USER: &str = "su nobody -c \"ferroce doctor --json\"";

/// In another network namespace, where soft-RoCE does not have the port. The kernel's devices are not asked for there.
const ELSEWHERE: &str = "ip netns exec away ferroce doctor --json \
     --only card,port-4791,switchboard,descriptors,firewall,rp-filter";

/// A guest that is well.
pub(crate) const WELL: Fault = Fault {
    breaks: ":",
    broken: "",
    doctor: AS_ROOT,
    finds: None,
    then: Then::AsAdvised,
    mended: "",
    restores: ":",
};

const fn found(
    level: &'static str,
    check: &'static str,
    about: &'static str,
    what: &'static str,
    told: &'static [&'static str],
) -> Option<Found> {
    Some(Found { level, check, about, what, told })
}

/// A port that has a GID made from an IPv4 address.
const HAS_GID: &str = "grep -qs ffff: $port/gids/*";

pub(crate) const NO_MODULE: Fault = Fault {
    breaks: "unused; rdma link del rxe0; rmmod rdma_rxe",
    finds: found(
        "note",
        "devices",
        "",
        "the kernel has no RDMA device",
        &["modprobe rdma_rxe", "rdma link add rxe0 type rxe netdev eth0"],
    ),
    mended: HAS_GID,
    restores: "again",
    ..WELL
};

pub(crate) const NO_LINK: Fault = Fault {
    breaks: "unused; rdma link del rxe0",
    finds: found(
        "note",
        "devices",
        "",
        "the kernel has no RDMA device",
        &["rdma link add rxe0 type rxe netdev eth0"],
    ),
    mended: HAS_GID,
    restores: "again",
    ..WELL
};

pub(crate) const NO_CM: Fault = Fault {
    breaks: "rmmod rdma_ucm",
    finds: found("fault", "modules", "", "rdma_ucm is not loaded", &["modprobe rdma_ucm"]),
    mended: "[ -e /dev/infiniband/rdma_cm ]",
    restores: "modprobe rdma_ucm",
    ..WELL
};

pub(crate) const DOWN: Fault = Fault {
    breaks: "ip link set eth0 down",
    broken: "! grep -q ACTIVE $port/state",
    finds: found("fault", "links", "rxe0/1", "because eth0 is switched off", &["ip link set eth0 up"]),
    mended: "grep -q ACTIVE $port/state",
    restores: "again",
    ..WELL
};

pub(crate) const NO_CARRIER: Fault = Fault {
    breaks: "ip link add v0 type veth peer name v1; ip addr add 192.0.2.1/24 dev v0; ip link set v0 up; \
         rdma link add rxe1 type rxe netdev v0",
    broken: "grep -qs ffff: $other/gids/*",
    finds: found("warning", "links", "rxe1/1", "v0 is on and has no link", &["ethtool v0"]),
    then: Then::Mend("ip link set v1 up"),
    mended: "grep -q ACTIVE $other/state",
    restores: "rdma link del rxe1; ip link del v0",
    ..WELL
};

pub(crate) const NO_ADDRESS: Fault = Fault {
    breaks: "ip addr flush dev eth0 scope global",
    broken: "! grep -qs -e ffff: -e fd77: $port/gids/*",
    finds: found(
        "fault",
        "gids",
        "rxe0/1",
        "eth0 has no IP address: RoCEv2 has a link-local GID only",
        &["ip address add 192.0.2.1/24 dev eth0"],
    ),
    mended: HAS_GID,
    restores: "ip addr del 192.0.2.1/24 dev eth0; again",
    ..WELL
};

pub(crate) const SMALL_MTU: Fault = Fault {
    breaks: "ip link set eth0 mtu 300",
    finds: found(
        "fault",
        "mtu",
        "rxe0/1",
        "eth0 carries 300 bytes, and RoCE needs 352 at least",
        &["ip link set eth0 mtu 1500"],
    ),
    restores: "again",
    ..WELL
};

pub(crate) const UNLIKE_MTU: Fault = Fault {
    breaks: "ip link add v0 type veth peer name v1; ip link set v1 up; ip link set v0 mtu 9000 up; \
         ip addr add 10.77.0.3/24 dev v0 noprefixroute; rdma link add rxe1 type rxe netdev v0",
    broken: "grep -qs ffff: $other/gids/* && grep -q ACTIVE $other/state",
    finds: found(
        "warning",
        "mtu",
        "rxe0/1, rxe1/1",
        "eth0, v0 are beside each other, and their MTUs differ",
        &["ip link set eth0 mtu 9000"],
    ),
    restores: "ip link set eth0 mtu 1500; rdma link del rxe1; ip link del v0",
    ..WELL
};

pub(crate) const MEMLOCK: Fault = Fault {
    breaks: "ulimit -l 64",
    doctor: AS_USER,
    finds: found("fault", "memlock", "", "a process may lock 64 KiB", &["ulimit -l unlimited"]),
    ..WELL
};

pub(crate) const NO_PERMISSION: Fault = Fault {
    breaks: "chmod 0600 /dev/infiniband/uverbs0",
    doctor: AS_USER,
    finds: found(
        "fault",
        "permissions",
        "rxe0 (uverbs0)",
        "this user may not open /dev/infiniband/uverbs0",
        &["sudo chmod 0666 /dev/infiniband/uverbs0"],
    ),
    restores: "chmod 0666 /dev/infiniband/uverbs0",
    ..WELL
};

pub(crate) const NO_FILE: Fault = Fault {
    breaks: "mv /dev/infiniband/rdma_cm /dev/away",
    finds: found(
        "fault",
        "permissions",
        "rdma_cm",
        "there is no /dev/infiniband/rdma_cm",
        &["udevadm trigger"],
    ),
    then: Then::End,
    restores: "mv /dev/away /dev/infiniband/rdma_cm",
    ..WELL
};

pub(crate) const FIREWALL: Fault = Fault {
    breaks: "nft \"add table inet f; add chain inet f c { type filter hook input priority 0; }; \
         add rule inet f c iif eth0 udp dport 4791 drop\"",
    finds: found(
        "fault",
        "firewall",
        "eth0",
        "packets to UDP port 4791 that come by eth0 are dropped by nftables",
        &["nft insert rule inet f c udp dport 4791 accept"],
    ),
    restores: "nft flush ruleset; rmmod nf_tables",
    ..WELL
};

pub(crate) const RP_FILTER: Fault = Fault {
    breaks: "ip link add v0 type veth peer name v1; ip link set v1 up; ip link set v0 up; \
         sysctl -q -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.v0.rp_filter=1; ip addr add 10.77.0.3/24 dev v0 metric 900",
    finds: found(
        "fault",
        "rp-filter",
        "v0",
        "eth0, v0 are in one subnet, and rp_filter is strict",
        &["sysctl -w net.ipv4.conf.v0.rp_filter=2"],
    ),
    restores: "ip link del v0; sysctl -q -w net.ipv4.conf.all.arp_ignore=0",
    ..WELL
};

pub(crate) const NO_LIBRARY: Fault = Fault {
    breaks: "mv $libs/libibverbs.so.1 /away",
    finds: found(
        "fault",
        "libraries",
        "",
        "not installed: libibverbs.so.1",
        &["sudo apt install libibverbs1 librdmacm1 ibverbs-providers"],
    ),
    then: Then::End,
    restores: "mv /away $libs/libibverbs.so.1",
    ..WELL
};

pub(crate) const NO_PROVIDER: Fault = Fault {
    breaks: "mv /etc/libibverbs.d/rxe.driver /away",
    finds: found(
        "fault",
        "libraries",
        "rxe0",
        "libibverbs has no provider for it",
        &["sudo apt install ibverbs-providers"],
    ),
    then: Then::End,
    restores: "mv /away /etc/libibverbs.d/rxe.driver",
    ..WELL
};

pub(crate) const LOOPBACK_DOWN: Fault = Fault {
    breaks: "ip link set lo down",
    finds: found("fault", "card", "lo", "ferroce_lo is down", &["ip link set lo up"]),
    restores: "ip link set lo up",
    ..WELL
};

pub(crate) const FEW_FILES: Fault = Fault {
    breaks: "ulimit -n 100",
    finds: found("fault", "descriptors", "", "a process may open 100 files", &["ulimit -Hn 4096"]),
    ..WELL
};

pub(crate) const STOPPED_LEADER: Fault = Fault {
    breaks: "ip netns add away; ip -n away link set lo up; \
         ip netns exec away ferroce probe responder --bind 127.0.0.1 >/tmp/responder 2>&1 & pid=$!; \
         for_sure \"grep -q answers /tmp/responder\"; kill -STOP $pid",
    broken: "grep -q ^State:.T /proc/$pid/status",
    doctor: ELSEWHERE,
    finds: found(
        "fault",
        "switchboard",
        "127.0.0.1 on lo",
        "leads the switchboard and does not answer",
        &["kill -CONT "],
    ),
    then: Then::Mend("kill -CONT $pid"),
    mended: "! grep -q ^State:.T /proc/$pid/status",
    restores: "kill -KILL $pid; ip netns del away",
};
