//! The kernel's files of RDMA devices, as programs look for them, for ours: one table, written into a folder of the
//! user's. `libferroce_files.so` leads programs there.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ferroce_device::discovery::{self, DeviceInfo, GidTable, Opening};

use crate::run::own_uid;

/// The library that leads programs to the folder.
pub(crate) const LIBRARY: &str = "libferroce_files.so";

/// The variable that names the folder.
pub(crate) const FOLDER: &str = "FERROCE_FILES";

/// What device files lead to.
const NOWHERE: &str = "/dev/null";

/// Names that are tried for the folder: another user may have made one of that name.
const TRIES: u32 = 16;

/// What may be done with the files: as with most of the kernel's, they are read.
const MODE: u32 = 0o444;

/// A file: where it is, and what is in it. Without anything in it, it is a folder.
type File = (String, Option<String>);

/// The files of all devices that are opened.
#[derive(Debug, Default, Hash, PartialEq, Eq)]
struct Table {
    files: Vec<File>,
    /// The files of devices.
    nodes: Vec<String>,
}

impl Table {
    fn of(devices: &[DeviceInfo], address: Option<IpAddr>) -> Self {
        let mut table = Self::default();
        table.folder("/sys/class/infiniband".into());
        table.file("/sys/class/infiniband_verbs/abi_version".into(), "6");
        for (number, device) in devices.iter().enumerate() {
            table.add(number, device, address);
        }
        table
    }

    fn folder(&mut self, path: String) {
        self.files.push((path, None));
    }

    fn file(&mut self, path: String, content: &str) {
        self.files.push((path, Some(format!("{content}\n"))));
    }

    fn add(&mut self, number: usize, device: &DeviceInfo, address: Option<IpAddr>) {
        let DeviceInfo { name, interface, .. } = device;
        let verbs = format!("uverbs{number}");
        self.nodes.push(format!("/dev/infiniband/{verbs}"));
        let of_verbs = format!("/sys/class/infiniband_verbs/{verbs}");
        self.file(format!("{of_verbs}/ibdev"), name);
        self.file(format!("{of_verbs}/abi_version"), "1");
        // The kernel's numbers: the major one of all, and the first of the minor ones.
        self.file(format!("{of_verbs}/dev"), &format!("231:{}", 192 + number));
        self.folder(format!("/sys/class/net/{interface}/device/infiniband/{name}"));
        let top = format!("/sys/class/infiniband/{name}");
        let guid = guid_text(device.node_guid());
        for (file, content) in [
            ("node_type", "1: CA"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("node_desc", name),
            ("fw_ver", env!("CARGO_PKG_VERSION")),
            ("hw_rev", "0x0"),
            ("board_id", "ferroce"),
        ] {
            self.file(format!("{top}/{file}"), content);
        }
        for folder in [&top, &of_verbs] {
            self.add_hardware(&format!("{folder}/device"), device, &verbs);
        }
        self.add_port(&format!("{top}/ports/1"), device, address);
    }

    /// What a device is made of: the interface.
    fn add_hardware(&mut self, top: &str, device: &DeviceInfo, verbs: &str) {
        let interface = &device.interface;
        let of_net = |file: &str| fs::read_to_string(format!("/sys/class/net/{interface}/device/{file}"));
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let numa = of_net("numa_node").unwrap_or_else(|_| "-1".into());
        self.file(format!("{top}/numa_node"), numa.trim());
        let list = of_net("local_cpulist").unwrap_or_else(|_| online.clone());
        self.file(format!("{top}/local_cpus"), &cpu_mask(list.trim()));
        self.file(format!("{top}/local_cpulist"), list.trim());
        self.file(format!("{top}/net/{interface}/ifindex"), &device.index.to_string());
        self.folder(format!("{top}/infiniband/{}", device.name));
        self.folder(format!("{top}/infiniband_verbs/{verbs}"));
    }

    fn add_port(&mut self, top: &str, device: &DeviceInfo, address: Option<IpAddr>) {
        let (state, physical) =
            if device.up { ("4: ACTIVE", "5: LinkUp") } else { ("1: DOWN", "3: Disabled") };
        for (file, content) in [
            ("state", state),
            ("phys_state", physical),
            ("link_layer", "Ethernet"),
            ("rate", "25 Gb/sec (1X EDR)"),
            ("lid", "0x0"),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            // Connection management, and GIDs that are IP addresses.
            ("cap_mask", "0x04010000"),
            ("pkeys/0", "0xffff"),
        ] {
            self.file(format!("{top}/{file}"), content);
        }
        let gids = address.map_or_else(|| GidTable::new(device), GidTable::restricted_to);
        for (index, gid) in gids.iter().enumerate() {
            self.file(format!("{top}/gids/{index}"), &gid_text(gid.0));
            self.file(format!("{top}/gid_attrs/types/{index}"), "RoCE v2");
            self.file(format!("{top}/gid_attrs/ndevs/{index}"), &device.interface);
        }
    }

    /// Writes what is not there yet below a folder.
    fn write(&self, folder: &Path) -> io::Result<()> {
        for (path, content) in &self.files {
            let path = folder.join(&path[1..]);
            let Some(content) = content else {
                fs::create_dir_all(&path)?;
                continue;
            };
            let is_read_only = || fs::symlink_metadata(&path).is_ok_and(|found| found.mode() & 0o777 == MODE);
            if fs::read_to_string(&path).is_ok_and(|found| found == *content) && is_read_only() {
                continue;
            }
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            // Programs see it whole, or not at all.
            let fresh = folder.join(format!(".{}", std::process::id()));
            if let Err(error) = write_new(&fresh, content).and_then(|()| fs::rename(&fresh, &path)) {
                drop(fs::remove_file(&fresh));
                return Err(error);
            }
        }
        for path in &self.nodes {
            let path = folder.join(&path[1..]);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            match symlink(NOWHERE, &path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Writes a file that is not there, or was left by a process of the same number that was interrupted.
fn write_new(path: &Path, content: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(content.as_bytes())?;
    file.set_permissions(Permissions::from_mode(MODE))
}

/// Writes the files of the devices that programs will see; the folder. The same devices have the same folder, so that it
/// is written once, and programs that run see no change.
pub(crate) fn written(netdev: Option<&str>) -> anyhow::Result<PathBuf> {
    let from_env = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let netdev = netdev.map(str::to_owned).or_else(|| from_env("FERROCE_NETDEV"));
    let opening = Opening::parse(&netdev.unwrap_or_default())?;
    // What is no address, the library says when the device is opened.
    let address = from_env("FERROCE_ADDRESS").and_then(|text| text.parse().ok());
    let devices = discovery::select(discovery::interfaces()?, &opening)?;
    let table = Table::of(&devices, address);
    let folder = own_folder(&table)?;
    table.write(&folder).with_context(|| format!("files for programs, in {}", folder.display()))?;
    Ok(folder)
}

/// A folder that this user alone can write to.
fn own_folder(table: &Table) -> anyhow::Result<PathBuf> {
    let run = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_own = |folder: &PathBuf| fs::metadata(folder).is_ok_and(|found| found.uid() == own_uid());
    let place = run.filter(is_own).unwrap_or_else(env::temp_dir);
    // The library knows by this path what `realpath` would say of our files, and takes it away again.
    let place = place.canonicalize().with_context(|| format!("{}; see --no-files", place.display()))?;
    let mut hasher = DefaultHasher::new();
    table.hash(&mut hasher);
    let name = format!("ferroce-files-{}-{:016x}", own_uid(), hasher.finish());
    for number in 0..TRIES {
        let name = if number == 0 { name.clone() } else { format!("{name}-{number}") };
        let folder = place.join(name);
        if let Err(error) = DirBuilder::new().mode(0o755).create(&folder)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error)
                .with_context(|| format!("{} cannot be made; see --no-files", folder.display()));
        }
        let found = fs::symlink_metadata(&folder);
        if found.is_ok_and(|found| found.is_dir() && found.uid() == own_uid() && found.mode() & 0o022 == 0) {
            return Ok(folder);
        }
    }
    bail!("in {} other users have taken all names for our files; see --no-files", place.display())
}

fn guid_text(guid: u64) -> String {
    groups(&guid.to_be_bytes())
}

fn gid_text(gid: [u8; 16]) -> String {
    groups(&gid)
}

/// Four digits each, as the kernel writes them.
fn groups(bytes: &[u8]) -> String {
    let pairs = bytes.chunks(2).map(|pair| pair.iter().fold(String::new(), hex));
    pairs.collect::<Vec<_>>().join(":")
}

fn hex(mut text: String, byte: &u8) -> String {
    // Writing into a text cannot fail.
    let _ = write!(text, "{byte:02x}");
    text
}

/// The processors of a list such as `0-3,8`, as a mask in groups of 32.
fn cpu_mask(list: &str) -> String {
    let mut words = vec![0_u32];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { continue };
        for cpu in first..=last.min(first + MOST_CPUS) {
            if words.len() <= cpu / 32 {
                words.resize(cpu / 32 + 1, 0);
            }
            words[cpu / 32] |= 1 << (cpu % 32);
        }
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

/// More than any machine has.
const MOST_CPUS: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> DeviceInfo {
        DeviceInfo {
            name: "ferroce_lo".into(),
            interface: "lo".into(),
            index: 1,
            mtu: 65_536,
            up: true,
            loopback: true,
            addresses: vec!["127.0.0.1".parse().expect("an address"), "::1".parse().expect("an address")],
            mac: [0; 6],
        }
    }

    #[test]
    fn numbers_are_written_as_the_kernel_writes_them() {
        assert_eq!(guid_text(0x0102_0304_0506_0708), "0102:0304:0506:0708");
        assert_eq!(cpu_mask("0-1"), "00000003");
        assert_eq!(cpu_mask("0,32-33"), "00000003,00000001");
        assert_eq!(cpu_mask(""), "00000000");
    }

    #[test]
    fn every_address_has_its_type_and_its_interface() {
        let table = Table::of(&[loopback()], None);
        let content = |path: &str| {
            table.files.iter().find(|(found, _)| found == path).and_then(|(_, content)| content.as_deref())
        };
        let port = "/sys/class/infiniband/ferroce_lo/ports/1";
        let first = content(&format!("{port}/gids/0"));
        assert_eq!(first, Some("0000:0000:0000:0000:0000:ffff:7f00:0001\n"));
        for index in 0..2 {
            assert_eq!(content(&format!("{port}/gid_attrs/types/{index}")), Some("RoCE v2\n"));
            assert_eq!(content(&format!("{port}/gid_attrs/ndevs/{index}")), Some("lo\n"));
        }
        assert_eq!(content(&format!("{port}/gids/2")), None);
        assert_eq!(content("/sys/class/infiniband_verbs/uverbs0/ibdev"), Some("ferroce_lo\n"));
        let one = Table::of(&[loopback()], Some("127.0.0.9".parse().expect("an address")));
        assert!(!one.files.iter().any(|(path, _)| *path == format!("{port}/gids/1")), "only that address");
    }

    #[test]
    fn what_is_missing_is_written_again() {
        let table = Table::of(&[loopback()], None);
        let folder = env::temp_dir().join(format!("ferroce-table-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        table.write(&folder).expect("files");
        let guid = folder.join("sys/class/infiniband/ferroce_lo/node_guid");
        let before = fs::read_to_string(&guid).expect("a file");
        fs::remove_file(&guid).expect("gone");
        table.write(&folder).expect("files");
        assert_eq!(fs::read_to_string(&guid).expect("a file"), before);
        assert_eq!(fs::metadata(&guid).expect("a file").mode() & 0o777, MODE);
        assert_eq!(fs::read_link(folder.join("dev/infiniband/uverbs0")).expect("a link"), Path::new(NOWHERE));
        fs::remove_dir_all(&folder).expect("an end");
    }
}
