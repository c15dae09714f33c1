//! Machines for tests: a folder with the files of one, and the answers that it gives.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_sys::interfaces::Interface;

use super::facts::{Board, Facts, Known, Live, Passage};

/// A machine, which is gone when this is.
#[derive(Debug)]
pub(super) struct Planted {
    root: PathBuf,
    pub(super) answers: Answers,
}

/// What it answers.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub(super) interfaces: Known<Vec<Interface>>,
    pub(super) boards: Known<Vec<Board>>,
    pub(super) passage: Passage,
    /// Files that may not be opened, by the ends of their paths.
    pub(super) refused: Vec<String>,
    /// What programs print, by their command lines.
    pub(super) ran: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
}

impl Planted {
    /// A machine without any file.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("ferroce-doctor-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let answers = Answers {
            interfaces: Ok(vec![interface("lo", &["127.0.0.1"]), interface("eth0", &["192.0.2.1"])]),
            boards: Ok(Vec::new()),
            passage: Passage::Arrived,
            refused: Vec::new(),
            ran: BTreeMap::new(),
            variables: BTreeMap::new(),
        };
        Self { root, answers }
    }

    /// A healthy machine without RDMA.
    pub(super) fn bare() -> Self {
        let mut planted = Self::new();
        planted.answers.say("nft -j list ruleset", "{\"nftables\": []}");
        planted
            .file("/proc/sys/kernel/osrelease", "6.1.0\n")
            .file("/proc/modules", "loop 1 0 - Live 0x0\n")
            .file("/lib/modules/6.1.0/modules.builtin", "kernel/fs/ext4/ext4.ko\n")
            .file("/lib/modules/6.1.0/modules.dep", "kernel/drivers/block/loop.ko:\n")
            .file("/sys/module/nf_tables/refcnt", "1\n")
            .file("/proc/net/udp", "  sl  local_address rem_address\n")
            .file("/proc/net/unix", "Num RefCount\n")
            .file("/proc/net/route", &[route(""), route("eth0")].concat())
            .file("/proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n")
            .file("/proc/self/uid_map", "         0          0 4294967295\n")
            .file(
                "/proc/self/limits",
                "Limit    Soft Limit   Hard Limit   Units\n\
                 Max open files            1024                 524288               files     \n\
                 Max locked memory         unlimited            unlimited            bytes     \n",
            );
        for name in ["all", "eth0"] {
            planted.file(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0\n");
        }
        planted
    }

    /// A healthy machine with soft-RoCE on `eth0`, and the libraries that programs need.
    pub(super) fn rxe() -> Self {
        let planted = Self::bare();
        let device = "/sys/class/infiniband/rxe0";
        planted.file(&format!("{device}/parent"), "eth0\n").file(&format!("{device}/node_type"), "1: CA\n");
        planted.port(device, "eth0", "192.0.2.1");
        planted
            .file("/sys/class/infiniband_verbs/abi_version", "6\n")
            .file("/sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n")
            .file("/sys/class/misc/rdma_cm/dev", "10:121\n")
            .file(
                "/proc/modules",
                "rdma_rxe 1 0 - Live 0x0\nib_uverbs 1 0 - Live 0x0\nrdma_ucm 1 0 - Live 0x0\n",
            )
            .file("/dev/infiniband/uverbs0", "")
            .file("/dev/infiniband/rdma_cm", "")
            .file("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "")
            .file("/usr/lib/x86_64-linux-gnu/librdmacm.so.1", "")
            .file("/etc/libibverbs.d/rxe.driver", "driver rxe\n")
            .file("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "");
        for file in ["uverbs0", "rdma_cm"] {
            let path = planted.place(&format!("/dev/infiniband/{file}"));
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        }
        planted
    }

    /// A card, with its interface.
    pub(super) fn card(&self, name: &str, netdev: &str, driver: &str) {
        let device = format!("/sys/class/infiniband/{name}");
        self.file(&format!("{device}/node_type"), "1: CA\n");
        self.file(&format!("{device}/device/net/{netdev}/mtu"), "9000\n");
        self.link(&format!("{device}/device/driver"), &format!("../../../bus/pci/drivers/{driver}"));
        self.port(&device, netdev, "192.0.2.7");
    }

    fn port(&self, device: &str, netdev: &str, address: &str) {
        let port = format!("{device}/ports/1");
        let address: std::net::Ipv4Addr = address.parse().unwrap();
        let mapped: Vec<String> =
            address.to_ipv6_mapped().segments().iter().map(|part| format!("{part:04x}")).collect();
        self.file(&format!("{port}/state"), "4: ACTIVE\n")
            .file(&format!("{port}/phys_state"), "5: LinkUp\n")
            .file(&format!("{port}/link_layer"), "Ethernet\n")
            .file(&format!("{port}/rate"), "100 Gb/sec (4X EDR)\n")
            .file(&format!("{port}/gids/0"), "fe80:0000:0000:0000:5054:00ff:fe12:3456\n")
            .file(&format!("{port}/gids/1"), &format!("{}\n", mapped.join(":")))
            .file(&format!("{port}/gids/2"), "0000:0000:0000:0000:0000:0000:0000:0000\n")
            .file(&format!("/sys/class/net/{netdev}/mtu"), "9000\n")
            .file(&format!("/sys/class/net/{netdev}/flags"), "0x1003\n");
        for index in [0, 1] {
            self.file(&format!("{port}/gid_attrs/types/{index}"), "RoCE v2\n");
            self.file(&format!("{port}/gid_attrs/ndevs/{index}"), &format!("{netdev}\n"));
        }
    }

    pub(super) fn facts(&self) -> Facts {
        Facts::new(&self.root, Box::new(self.answers.clone()))
    }

    /// Plants a file, or one in place of another.
    pub(super) fn file(&self, path: &str, text: &str) -> &Self {
        let place = self.place(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
        self
    }

    /// Plants a symbolic link.
    pub(super) fn link(&self, path: &str, to: &str) -> &Self {
        let place = self.place(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(to, place).unwrap();
        self
    }

    /// Takes a file or a folder away.
    pub(super) fn remove(&self, path: &str) -> &Self {
        let place = self.place(path);
        let removed = if place.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) };
        removed.unwrap_or_else(|error| panic!("{path}: {error}"));
        self
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Answers {
    /// What a program prints from now on.
    pub(super) fn say(&mut self, line: &str, text: &str) {
        self.ran.insert(line.to_owned(), text.to_owned());
    }

    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }
}

impl Live for Answers {
    fn interfaces(&self) -> Known<Vec<Interface>> {
        self.interfaces.clone()
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn open(&self, path: &Path) -> Known<()> {
        let is_refused = self.refused.iter().any(|end| path.ends_with(end));
        if is_refused { Err("Permission denied (os error 13)".to_owned()) } else { Ok(()) }
    }

    fn run(&self, line: &[&str]) -> Known<String> {
        self.ran
            .get(&line.join(" "))
            .cloned()
            .ok_or_else(|| format!("the program {} is not installed", line[0]))
    }

    fn boards(&self) -> Known<Vec<Board>> {
        self.boards.clone()
    }

    fn datagram(&self) -> Passage {
        self.passage.clone()
    }
}

/// An interface with these addresses, loopback if it is called `lo`.
pub(super) fn interface(name: &str, addresses: &[&str]) -> Interface {
    let loopback = name == "lo";
    Interface {
        name: name.to_owned(),
        index: if loopback { 1 } else { 2 },
        mtu: if loopback { 65_536 } else { 9000 },
        up: true,
        loopback,
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        mac: [0; 6],
    }
}

/// A line of the kernel's table of routes: 192.0.2.0/24 by this interface; without one, the line above all.
pub(super) fn route(interface: &str) -> String {
    if interface.is_empty() {
        return "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
            .to_owned();
    }
    let [subnet, mask] = [[192, 0, 2, 0], [255, 255, 255, 0]].map(u32::from_ne_bytes);
    format!("{interface}\t{subnet:08X}\t00000000\t0001\t0\t0\t0\t{mask:08X}\t0\t0\t0\n")
}
