//! Runs tshark over frames and reads the packet details that it prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use roxmltree::{Document, Node};

/// What tshark shows of one frame.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Every field whose name begins with `infiniband.`, in document order.
    pub(crate) fields: Vec<Field>,
    /// Where the InfiniBand packet begins in the frame and how long it is.
    pub(crate) span: Option<(usize, usize)>,
    /// The payload, with its pad. tshark has a name `infiniband.payload` but leaves
    /// the bytes to its dissector for data of unknown kind.
    pub(crate) payload: Option<Field>,
    /// Protocols that have no place in these frames.
    pub(crate) strangers: Vec<String>,
    /// Expert information: the protocol that raises it, and its text.
    pub(crate) complaints: Vec<(String, String)>,
}

/// One field.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: String,
    /// Where it begins in the frame.
    pub(crate) at: usize,
    /// How many bytes it covers.
    pub(crate) len: usize,
    /// Its value for the display filter: a number, or bytes with colons.
    pub(crate) show: String,
    /// Its value in hexadecimal: of a bit field only its own bits, else the bytes.
    pub(crate) value: String,
    /// The line that people see.
    pub(crate) line: String,
}

/// Guesses what the payload could be from its content and from earlier frames.
/// Such a guess takes the place of the payload field, and the one for RPC reads
/// beyond the end of short SENDs: "malformed". These frames carry none of them.
const HEURISTICS: [&str; 15] = [
    "eth_over_ib",
    "fc_infiniband",
    "iser_ib_private",
    "iser_infiniband",
    "lnet_ib",
    "lnet_ib_cm_private",
    "mellanox_eoib",
    "nvme_rdma",
    "nvme_rdma_cm_private",
    "rpcrdma_infiniband",
    "sdp_ib_private",
    "sdp_infiniband",
    "smb_direct_infiniband",
    "smcr_infiniband",
    "drbd_rdma",
];

/// The first line of `tshark --version`.
pub(crate) fn version() -> String {
    let output = Command::new("tshark").arg("--version").output().expect("tshark runs");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

/// Lets tshark dissect `frames`, which begin with an Ethernet header. `name` tells
/// the files of different tests apart.
pub(crate) fn dissect(name: &str, frames: &[&[u8]]) -> Vec<Shown> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    let capture = folder.join("frames.pcap");
    fs::write(&capture, pcap(frames)).expect("a temporary file");
    let text = run(&capture, &folder.join("home"));
    let document = Document::parse(&text).expect("tshark writes XML");
    let packets = document.root_element().children().filter(|node| node.has_tag_name("packet"));
    packets.map(shown).collect()
}

/// A classic capture file: little endian, Ethernet, all times zero.
fn pcap(frames: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    let header: [u32; 6] = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 0x4_0000, 1];
    header.iter().for_each(|word| file.extend(word.to_le_bytes()));
    for frame in frames {
        let len = u32::try_from(frame.len()).expect("a frame is short");
        [0, 0, len, len].iter().for_each(|word: &u32| file.extend(word.to_le_bytes()));
        file.extend_from_slice(frame);
    }
    file
}

fn run(capture: &Path, home: &Path) -> String {
    fs::create_dir_all(home).expect("a temporary folder");
    let mut command = Command::new("tshark");
    // An empty home: no user's preferences and plugins take part.
    command.env("HOME", home).env("XDG_CONFIG_HOME", home).env_remove("WIRESHARK_CONFIG_DIR");
    command.args(["-n", "-T", "pdml", "-o", "ip.check_checksum:TRUE", "-r"]).arg(capture);
    for heuristic in HEURISTICS {
        command.args(["--disable-heuristic", heuristic]);
    }
    let output = command.output().expect("tshark runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", version());
    String::from_utf8(output.stdout).expect("PDML is UTF-8")
}

fn shown(packet: Node<'_, '_>) -> Shown {
    let mut shown = Shown::default();
    for node in packet.descendants().filter(Node::is_element) {
        let name = node.attribute("name").unwrap_or_default();
        if node.has_tag_name("proto") {
            match name {
                "infiniband" => shown.span = Some((number(node, "pos"), number(node, "size"))),
                // Bytes without a protocol get a wrapper instead of one.
                "geninfo" | "frame" | "eth" | "ip" | "ipv6" | "udp" | "fake-field-wrapper" => {}
                stranger => shown.strangers.push(stranger.to_owned()),
            }
        } else if name.starts_with("infiniband.") {
            shown.fields.push(field(node));
        } else if name == "data.data" {
            shown.payload = Some(field(node));
        } else if name == "_ws.expert.message" {
            let protocol = node.ancestors().find(|node| node.has_tag_name("proto"));
            let protocol = protocol.and_then(|node| node.attribute("name")).unwrap_or_default();
            let text = node.attribute("show").unwrap_or_default();
            shown.complaints.push((protocol.to_owned(), text.to_owned()));
        }
    }
    shown
}

fn field(node: Node<'_, '_>) -> Field {
    let text = |key| node.attribute(key).unwrap_or_default().to_owned();
    Field {
        name: text("name"),
        at: number(node, "pos"),
        len: number(node, "size"),
        show: text("show"),
        value: text("value"),
        line: text("showname"),
    }
}

fn number(node: Node<'_, '_>, key: &str) -> usize {
    node.attribute(key).and_then(|text| text.parse().ok()).expect("a number")
}
