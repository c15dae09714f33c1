//! Golden frames: what the Linux kernel put on the wire.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;

/// One capture file.
#[derive(Debug)]
pub struct Capture {
    /// Its name below the capture folder, without the ending: `v6/all_rc_multi`.
    pub name: String,
    /// Its frames, Ethernet header first, in the order of the wire.
    pub frames: Vec<Vec<u8>>,
}

/// The capture with this name.
///
/// # Panics
/// If there is none, or it cannot be read.
#[must_use]
pub fn named(name: &str) -> Capture {
    let root = root();
    read(&root, &root.join(name).with_extension("pcap"))
}

/// Every capture of the Linux 6.1 kernel's soft-RoCE device.
///
/// # Panics
/// If a capture cannot be read: the tests that use them have nothing to judge by.
#[must_use]
pub fn linux_rxe() -> Vec<Capture> {
    let root = root();
    let mut paths = Vec::new();
    find(&root, &mut paths);
    paths.sort();
    paths.iter().map(|path| read(&root, path)).collect()
}

fn root() -> PathBuf {
    crate::repository().join("testdata/captures/linux-6.1-rxe")
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of captures") {
        let path = entry.expect("an entry of the folder").path();
        if path.is_dir() {
            find(&path, paths);
        } else if path.extension().is_some_and(|ending| ending == "pcap") {
            paths.push(path);
        }
    }
}

fn read(root: &Path, path: &Path) -> Capture {
    let name = path.strip_prefix(root).expect("below the root").with_extension("").display().to_string();
    let mut reader = PcapReader::new(File::open(path).expect("a capture")).expect("a pcap header");
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_packet() {
        frames.push(frame.expect("a whole frame").data.into_owned());
    }
    Capture { name, frames }
}
