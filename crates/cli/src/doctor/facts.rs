//! The seam between the checks and the machine: files below one root, and the few questions that no file answers.
//!
//! A check takes [`Facts`] and nothing else. The real program has the root `/` and asks the machine; a test plants a
//! folder and answers as it likes.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ferroce_device::discovery::{self, DeviceInfo, Opening};
use ferroce_sys::interfaces::Interface;

use super::rdma::{self, Device};

/// What could be learnt, or why it could not.
pub(super) type Known<T> = Result<T, String>;

/// Questions that no file answers.
pub(super) trait Live {
    /// The interfaces of this network namespace.
    fn interfaces(&self) -> Known<Vec<Interface>>;

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// Opens a file for reading and writing, and closes it.
    fn open(&self, path: &Path) -> Known<()>;

    /// What a program prints, if it is there and succeeds.
    fn run(&self, line: &[&str]) -> Known<String>;

    /// The switchboards of this user.
    fn boards(&self) -> Known<Vec<Board>>;

    /// What becomes of a datagram to UDP port 4791 of this machine, on loopback.
    fn datagram(&self) -> Passage;
}

/// A switchboard, as its leader tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Board {
    /// Where it is.
    pub(super) group: String,
    /// The processes that have a part in it.
    pub(super) members: Vec<u32>,
    /// Why it cannot be asked.
    pub(super) trouble: Option<Trouble>,
}

/// What is wrong with a switchboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) what: String,
    /// The leader, if it is that which does not answer.
    pub(super) silent: Option<u32>,
}

/// What became of a datagram to UDP port 4791 on loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It arrived.
    Arrived,
    /// It was sent, and did not arrive.
    Lost,
    /// The kernel refused to send it.
    Refused(String),
    /// It could not be tried.
    Untried(String),
}

/// Why a file tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// There is none.
    Missing,
    /// It is there, or may be.
    Refused(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such file"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

/// A file that may be opened or not: its owner, its group, and the bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
}

/// Everything that checks may know.
pub(super) struct Facts {
    root: PathBuf,
    pub(super) live: Box<dyn Live>,
    interfaces: OnceCell<Known<Vec<Interface>>>,
    devices: OnceCell<Vec<Device>>,
    boards: OnceCell<Known<Vec<Board>>>,
}

impl Facts {
    pub(super) fn new(root: impl Into<PathBuf>, live: Box<dyn Live>) -> Self {
        let root = root.into();
        Self { root, live, interfaces: OnceCell::new(), devices: OnceCell::new(), boards: OnceCell::new() }
    }

    /// Where a file of the machine is.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file.
    pub(super) fn text(&self, path: &str) -> Result<String, Unread> {
        let bytes = fs::read(self.place(path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unread::Missing,
            _ => Unread::Refused(error.to_string()),
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text of a file of one line, if it can be read and is not empty.
    pub(super) fn value(&self, path: &str) -> Option<String> {
        let text = self.text(path).ok()?;
        let value = text.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The number in a file.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.value(path)?.parse().ok()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    /// The names in a folder, numbers by their value; none if there is no such folder.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.place(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_cached_key(|name| (name.len() * usize::from(is_number(name)), name.clone()));
        names
    }

    /// Where a link leads.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.place(path)).ok()?.to_str()?.to_owned())
    }

    /// The last part of what a link leads to.
    pub(super) fn link_name(&self, path: &str) -> Option<String> {
        Some(self.link(path)?.rsplit('/').next()?.to_owned())
    }

    pub(super) fn rights(&self, path: &str) -> Option<Rights> {
        let file = fs::metadata(self.place(path)).ok()?;
        Some(Rights { uid: file.uid(), gid: file.gid(), mode: file.mode() & 0o7777 })
    }

    /// Opens a file for reading and writing.
    pub(super) fn open(&self, path: &str) -> Known<()> {
        self.live.open(&self.place(path))
    }

    pub(super) fn interfaces(&self) -> &Known<Vec<Interface>> {
        self.interfaces.get_or_init(|| self.live.interfaces())
    }

    /// The RDMA devices of the kernel.
    pub(super) fn devices(&self) -> &[Device] {
        self.devices.get_or_init(|| rdma::devices(self))
    }

    pub(super) fn boards(&self) -> &Known<Vec<Board>> {
        self.boards.get_or_init(|| self.live.boards())
    }

    /// The interfaces that are cards of Ferroce for this process, or why there are none.
    pub(super) fn opened(&self) -> Known<Vec<DeviceInfo>> {
        let setting = self.live.variable("FERROCE_NETDEV").unwrap_or_default();
        let opening = Opening::parse(&setting).map_err(|error| error.to_string())?;
        let usable = |info: &DeviceInfo| !info.addresses.is_empty() && info.mtu >= SMALLEST_MTU;
        let all = self.interfaces().clone()?;
        let all = all.into_iter().map(DeviceInfo::from).filter(usable).collect();
        discovery::select(all, &opening).map_err(|error| error.to_string())
    }

    /// What an interface is used for.
    pub(super) fn uses(&self, interface: &str) -> Uses {
        let of_device = |device: &&Device| device.ports.iter().any(|port| port.netdev() == Some(interface));
        let opened = self.opened().unwrap_or_default();
        let is_card = opened.iter().any(|info| info.interface == interface && !info.loopback);
        if is_card || self.devices().iter().filter(of_device).any(|device| device.software) {
            Uses::Software
        } else if self.devices().iter().any(|device| of_device(&device)) {
            Uses::Hardware
        } else {
            Uses::None
        }
    }

    /// Whether the kernel has a module, as one that was loaded or as a part of itself; `None` if that is not told.
    pub(super) fn has_module(&self, name: &str) -> Option<bool> {
        if self.has(&format!("/sys/module/{name}")) {
            return Some(true);
        }
        let modules = self.text("/proc/modules");
        let loaded = |text: &String| text.lines().any(|line| line.split(' ').next() == Some(name));
        match (modules, self.built_in(name)) {
            (Ok(text), _) if loaded(&text) => Some(true),
            (_, Some(true)) => Some(true),
            (Ok(_), Some(false)) => Some(false),
            _ => None,
        }
    }

    /// Whether the kernel's soft-RoCE may be at work.
    pub(super) fn has_soft_roce(&self) -> bool {
        let is_rxe = |device: &Device| device.software && !device.iwarp;
        self.devices().iter().any(is_rxe) || self.has_module("rdma_rxe") == Some(true)
    }

    /// Whether a module is a part of the kernel itself.
    fn built_in(&self, name: &str) -> Option<bool> {
        let list = self.text(&self.modules_file("modules.builtin")?).ok()?;
        Some(lists_module(&list, name))
    }

    /// Whether a module could be loaded; `None` if that is not told.
    pub(super) fn can_load(&self, name: &str) -> Option<bool> {
        if !self.has("/proc/modules") {
            // A kernel without modules has no such file.
            return self.has("/proc/sys/kernel/osrelease").then_some(false);
        }
        let list = self.text(&self.modules_file("modules.dep")?).ok()?;
        Some(lists_module(&list, name))
    }

    fn modules_file(&self, file: &str) -> Option<String> {
        let release = self.value("/proc/sys/kernel/osrelease")?;
        Some(format!("/lib/modules/{release}/{file}"))
    }

    /// A field of `/proc/self/status`.
    pub(super) fn status(&self, field: &str) -> Option<String> {
        let text = self.text("/proc/self/status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// The user that this process acts as.
    pub(super) fn uid(&self) -> Option<u32> {
        self.status("Uid")?.split_whitespace().nth(1)?.parse().ok()
    }

    /// A limit of `/proc/self/limits`, soft and hard; `None` in it is no limit.
    pub(super) fn limit(&self, name: &str) -> Known<(Option<u64>, Option<u64>)> {
        let path = "/proc/self/limits";
        let text = self.text(path).map_err(|why| format!("{path}: {why}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.unwrap_or_default().split_whitespace();
        let mut limit = || match words.next() {
            Some("unlimited") => Some(None),
            Some(word) => word.parse().ok().map(Some),
            None => None,
        };
        limit().zip(limit()).ok_or_else(|| format!("{path} has no line {name:?}"))
    }
}

/// What an interface is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uses {
    /// Packets of RDMA go through the network stack of the kernel: a soft-RoCE device, or an opened card of ours.
    Software,
    /// They go past it.
    Hardware,
    /// It carries none.
    None,
}

/// Bytes of the shortest MTU that has room for a path MTU of 256.
pub(super) const SMALLEST_MTU: u32 = 352;

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a module is in a list of paths such as `kernel/net/x.ko.xz:`. In names of files `-` and `_` are one.
fn lists_module(list: &str, name: &str) -> bool {
    list.lines().any(|line| {
        let path = line.split([':', ' ']).next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split(".ko").next().is_some_and(|module| module.replace('-', "_") == name)
    })
}

/// Words with a comma between them, each once and in order.
pub(super) fn joined<T: fmt::Display>(words: impl IntoIterator<Item = T>) -> String {
    let words: BTreeSet<String> = words.into_iter().map(|word| word.to_string()).collect();
    words.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;

    #[test]
    fn modules_are_loaded_built_in_absent_or_not_known() {
        let planted = Planted::new();
        assert_eq!(planted.facts().has_module("rdma_rxe"), None, "nothing tells");
        planted
            .file("/proc/sys/kernel/osrelease", "6.1.0-9\n")
            .file(
                "/proc/modules",
                "rdma_rxe 188416 0 - Live 0x0000000000000000\nib_core 1 2 rdma_rxe, Live 0x0\n",
            )
            .file("/lib/modules/6.1.0-9/modules.builtin", "kernel/net/netfilter/nf-tables.ko\n")
            .file("/lib/modules/6.1.0-9/modules.dep", "kernel/drivers/siw.ko.xz: kernel/ib_core.ko.xz\n")
            .file("/sys/module/ib_uverbs/refcnt", "0\n");
        let facts = planted.facts();
        for (module, has) in
            [("rdma_rxe", true), ("ib_core", true), ("ib_uverbs", true), ("nf_tables", true), ("siw", false)]
        {
            assert_eq!(facts.has_module(module), Some(has), "{module}");
        }
        assert_eq!((facts.can_load("siw"), facts.can_load("ib_core")), (Some(true), Some(false)));
        planted.remove("/proc/modules");
        assert_eq!(planted.facts().can_load("siw"), Some(false), "a kernel without modules");
    }

    #[test]
    fn limits_are_numbers_or_none() {
        let planted = Planted::new();
        assert!(planted.facts().limit("Max locked memory").unwrap_err().contains("no such file"));
        planted.file(
            "/proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max open files            1024                 unlimited            files     \n",
        );
        let facts = planted.facts();
        assert_eq!(facts.limit("Max open files"), Ok((Some(1024), None)));
        assert!(facts.limit("Max locked memory").unwrap_err().contains("has no line"));
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let planted = Planted::new();
        for name in ["10", "9", "0", "a"] {
            planted.file(&format!("/sys/{name}"), "x");
        }
        assert_eq!(planted.facts().names("/sys"), ["a", "0", "9", "10"]);
        assert!(planted.facts().names("/none").is_empty());
    }
}
