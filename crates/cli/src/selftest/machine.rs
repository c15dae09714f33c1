//! The device under test and the machine around it, as far as a report tells of them.

use std::fs;
use std::io::{self, Write};

use anyhow::Context as _;
use ferroce::{Capability, Card, CardInfo, Chain, Context, DeviceAttributes, Gid, PortState, Provider};
use ferroce_conformance::Under;
use ferroce_conformance::known::Driver;
use ferroce_device::discovery;
use serde_json::{Map, Value, json};

use super::anonymous::Names;
use crate::output::Style;

/// What is known of the device.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) address: std::net::IpAddr,
    provider: Provider,
    attributes: DeviceAttributes,
    active: bool,
    active_mtu: usize,
    can: Vec<Capability>,
    /// What it is if it is a card, and the file of its driver.
    card: Option<(CardInfo, String)>,
    /// The file of rdma-core's library in this process, if there is one.
    library: Option<String>,
    /// What names this device in the world.
    pub(super) secrets: Secrets,
}

/// Numbers and addresses that name a device, in no report that is sent.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    pub(super) gids: Vec<Gid>,
    pub(super) guids: Vec<u64>,
}

impl Device {
    /// Opens the device as cases do, looks at it, and closes it.
    pub(super) fn look(under: &Under) -> anyhow::Result<Self> {
        let rig = under.open()?;
        let context: &Context = &rig.a.context;
        let attributes = context.query();
        let card = match context.provider() {
            Provider::System => ferroce::cards()?.into_iter().find(|card| card.name() == attributes.name),
            _ => None,
        };
        let card = card.as_ref().map(|card| card.info().map(|info| (info, card.file()))).transpose()?;
        let gids = card.iter().flat_map(|(info, _)| info.gids.iter().map(|(_, gid, _)| *gid));
        let secrets = Secrets {
            gids: gids.chain(context.addresses().into_iter().map(Gid::from)).collect(),
            guids: vec![attributes.node_guid],
        };
        let port = context.port();
        Ok(Self {
            name: under.device.clone(),
            address: rig.a.address,
            provider: context.provider(),
            active: port.state == PortState::Active,
            active_mtu: port.active_mtu.bytes(),
            can: Capability::ALL.iter().copied().filter(|one| context.can(*one)).collect(),
            library: card.is_some().then(library).flatten(),
            attributes,
            card,
            secrets,
        })
    }

    /// The device in a line.
    pub(super) fn describe(&self) -> String {
        let what = match &self.card {
            None => "Ferroce's own card".to_owned(),
            Some((info, _)) => format!("{}, firmware {}", self.driver(), info.firmware),
        };
        format!("{} ({what}, {}, path MTU {})", self.name, self.link(), self.active_mtu)
    }

    /// Whether it leaves the choice of paths.
    pub(super) fn has_paths(&self) -> bool {
        self.can.contains(&Capability::Paths)
    }

    /// What is known of its driver.
    pub(super) fn known(&self) -> Option<&'static Driver> {
        Driver::named(self.driver())
    }

    fn driver(&self) -> &str {
        match &self.card {
            None => "ferroce",
            Some((info, _)) => info.driver.as_deref().unwrap_or("not told"),
        }
    }

    fn link(&self) -> &'static str {
        match &self.card {
            None => "UDP sockets",
            Some((info, _)) if info.ethernet => "Ethernet",
            Some(_) => "InfiniBand",
        }
    }

    /// For the report.
    pub(super) fn to_json(&self, names: &Names) -> Value {
        let has = &self.attributes;
        let can = |capability: &Capability| (format!("{capability:?}"), self.can.contains(capability).into());
        let mut told = json!({
            "name": names.clean(&self.name),
            "provider": self.provider.name(),
            "driver": names.clean(self.driver()),
            "known": self.known().map(|driver| driver.tried),
            "firmware": names.clean(&has.firmware),
            "link": self.link(),
            "state": if self.active { "active" } else { "down" },
            "active_mtu": self.active_mtu,
            "attributes": {
                "max_queue_depth": has.max_queue_depth,
                "max_sge": has.max_sge,
                "max_inline": has.max_inline,
                "max_completions": has.max_completions,
                "max_queue_pairs": has.max_queue_pairs,
                "max_completion_queues": has.max_completion_queues,
                "max_shared_receive_queues": has.max_shared_receive_queues,
                "max_memory_regions": has.max_memory_regions,
                "max_read_depth": has.max_read_depth,
                "core_clock_khz": has.core_clock_khz,
                "timestamp_mask": has.timestamp_mask,
            },
            "capabilities": Capability::ALL.iter().map(can).collect::<Map<_, _>>(),
        });
        if names.is_whole()
            && let Value::Object(told) = &mut told
        {
            told.insert("address".to_owned(), self.address.to_string().into());
            told.insert("interface".to_owned(), has.interface.clone().into());
            told.insert("node_guid".to_owned(), format!("{:016x}", has.node_guid).into());
            let gids = self.secrets.gids.iter().map(|gid| Value::from(gid.to_string()));
            told.insert("gids".to_owned(), gids.collect());
            if let Some((_, file)) = &self.card {
                told.insert("file".to_owned(), file.clone().into());
            }
        }
        told
    }

    /// The machine, for the report.
    pub(super) fn machine(&self, names: &Names) -> Value {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let file = self.library.as_deref().and_then(|path| path.rsplit('/').next());
        let mut told = json!({
            "architecture": std::env::consts::ARCH,
            "kernel": names.clean(release.trim()),
            "libibverbs": file.map(|file| names.clean(file)),
            "rdma_core": file.and_then(rdma_core),
        });
        if names.is_whole()
            && let Value::Object(told) = &mut told
        {
            told.insert("host".to_owned(), super::anonymous::host().into());
            told.insert("library".to_owned(), self.library.clone().into());
        }
        told
    }
}

/// The file of the library of verbs that this process has mapped.
fn library() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_verbs =
        |path: &&str| path.rsplit('/').next().is_some_and(|file| file.starts_with("libibverbs.so"));
    files.find(is_verbs).map(str::to_owned)
}

/// The release of rdma-core that a file comes from: 44.0 for `libibverbs.so.1.14.44.0`.
pub(super) fn rdma_core(file: &str) -> Option<String> {
    let (_abi, release) = file.strip_prefix("libibverbs.so.1.")?.split_once('.')?;
    let is_release = !release.is_empty() && release.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_release.then(|| release.to_owned())
}

/// The devices that could be tested, and how.
pub(super) fn list(out: &mut impl Write) -> anyhow::Result<()> {
    let soft = ferroce::devices()?;
    let cards = ferroce::cards();
    let title = |out: &mut dyn Write, text: &str| writeln!(out, "{}", Style::Title.of(text));
    title(out, "cards of this machine")?;
    match &cards {
        Ok(cards) if !cards.is_empty() => {
            for card in cards {
                print_card(out, card)?;
            }
        }
        Ok(_) => writeln!(out, "  none: their drivers are not loaded, or there are none")?,
        Err(error) => writeln!(out, "  none: {}", Chain::of(error))?,
    }
    title(out, "Ferroce's own card")?;
    for info in &soft {
        let state = if info.up { "active" } else { "down" };
        writeln!(out, "  {:16} {state}, on the interface {}", info.name, info.interface)?;
    }
    let closed = discovery::interfaces().context("the operating system did not list its interfaces")?;
    if closed.iter().any(|info| !soft.contains(info)) {
        writeln!(out, "  other interfaces are closed; `ferroce devices` says how to open them")?;
    }
    let first = cards.ok().and_then(|cards| cards.first().map(Card::name));
    let first = first.or_else(|| soft.first().map(|info| info.name.clone()));
    if let Some(name) = first {
        writeln!(out, "\nTo test one:\n  ferroce selftest --device {name} --json {name}.json")?;
    }
    Ok(())
}

fn print_card(out: &mut impl Write, card: &Card) -> io::Result<()> {
    let name = card.name();
    match card.info() {
        Ok(info) => {
            let driver = info.driver.as_deref().unwrap_or("driver not told");
            let state = if info.up { "active" } else { "down" };
            let link = if info.ethernet { "" } else { "; InfiniBand, which cannot be used" };
            writeln!(out, "  {name:16} {state}, {driver}, firmware {}{link}", info.firmware)
        }
        Err(error) => writeln!(out, "  {name:16} closed: {}", Chain::of(&error)),
    }
}
