//! Which kind of device a program gets: our own, or a card of the machine.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;

use ferroce_system::{Library, Paths};
use ferroce_wire::{Gid, PathMtu};

use crate::card::OpenCard;
use crate::card::connector::card_towards;
use crate::context::Context;
use crate::device::Device;
use crate::error::{LibraryError, OpenError};
use crate::port::PortState;

/// The variable that says which kind of device a program gets.
const VARIABLE: &str = "FERROCE_PROVIDER";

/// Where a device comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Our own device, in this process.
    Soft,
    /// A card, by the `libibverbs` of this machine.
    System,
}

impl Provider {
    /// Its name, as `FERROCE_PROVIDER` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::System => "system",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which kind of device a program wants. If it does not say, `FERROCE_PROVIDER` does: `soft`, `system` or `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProviderChoice {
    /// Names and addresses decide: those of a soft device that is open to programs lead to it, and all others to cards.
    #[default]
    Auto,
    /// Only our own device.
    Soft,
    /// Only cards.
    System,
}

impl ProviderChoice {
    /// What the environment says.
    ///
    /// # Errors
    /// It says something else.
    pub fn from_env() -> Result<Self, OpenError> {
        let given = std::env::var(VARIABLE).unwrap_or_default();
        match given.as_str() {
            "" | "auto" => Ok(Self::Auto),
            "soft" => Ok(Self::Soft),
            "system" => Ok(Self::System),
            _ => Err(OpenError::UnknownProvider { given }),
        }
    }

    pub(crate) const fn allows_soft(self) -> bool {
        matches!(self, Self::Auto | Self::Soft)
    }

    pub(crate) const fn allows_cards(self) -> bool {
        matches!(self, Self::Auto | Self::System)
    }
}

/// Why a device is of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderReason {
    /// The program, or `FERROCE_PROVIDER`, wants no other.
    Wanted,
    /// The name is that of a soft device that is open to programs, or of its interface.
    SoftName,
    /// The name is that of a card, and of no soft device.
    CardName,
    /// The address is one of a soft device that is open to programs.
    SoftAddress,
    /// The address is one of a card, or is reached from one, and no soft device that is open to programs has it.
    CardAddress,
    /// There is no card that could be used.
    NoCard,
}

impl fmt::Display for ProviderReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Wanted => "the program or FERROCE_PROVIDER wants no other",
            Self::SoftName => "the name is that of a soft device",
            Self::CardName => "the name is that of a card",
            Self::SoftAddress => "the address is that of a soft device",
            Self::CardAddress => "the address is that of a card",
            Self::NoCard => "there is no card that could be used",
        })
    }
}

/// The library of verbs of this machine. It is looked for once.
fn library() -> Result<Library, LibraryError> {
    static LIBRARY: OnceLock<Result<Library, LibraryError>> = OnceLock::new();
    LIBRARY.get_or_init(Library::load).clone()
}

/// A card of this machine, which can be opened. Clones are the same card.
#[derive(Clone, Debug)]
pub struct Card {
    card: ferroce_system::Card,
}

/// What a card is like.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CardInfo {
    /// The driver of the kernel, such as `mlx5_core`, if the kernel tells.
    pub driver: Option<String>,
    /// The version of what runs on it.
    pub firmware: String,
    /// Whether its first port carries packets.
    pub up: bool,
    /// Whether its first port is one of Ethernet, which RoCE needs.
    pub ethernet: bool,
    /// The largest payload of a packet now.
    pub active_mtu: Option<PathMtu>,
    /// The addresses of its first port that are in use, with their indexes, and whether packets with them are of RoCEv2.
    pub gids: Vec<(usize, Gid, bool)>,
}

/// The cards of this machine, as its `libibverbs.so.1` lists them (`FERROCE_LIBIBVERBS` names another). Nothing of it is
/// loaded before a program asks for it.
///
/// If that library is our own drop-in, its devices are soft ones of ours: they count as cards only if the program wants no
/// others ([`ProviderChoice::System`]).
///
/// # Errors
/// There is no such library, or it cannot be used.
pub fn cards() -> Result<Vec<Card>, OpenError> {
    let cards = library()?.cards().map_err(OpenError::Cards)?;
    Ok(cards.into_iter().map(|card| Card { card }).collect())
}

/// The cards that a program gets that wants devices of this kind.
pub(crate) fn offered(choice: ProviderChoice) -> Result<Vec<Card>, OpenError> {
    if !choice.allows_cards() {
        return Ok(Vec::new());
    }
    let mut cards = cards()?;
    if choice == ProviderChoice::Auto {
        cards.retain(|card| !card.is_ours());
    }
    Ok(cards)
}

/// The cards that a program gets; none without a library of verbs, unless the program wants no other devices.
pub(crate) fn usable(choice: ProviderChoice) -> Result<Vec<Card>, OpenError> {
    match offered(choice) {
        Err(OpenError::Library(_)) if choice == ProviderChoice::Auto => Ok(Vec::new()),
        offered => offered,
    }
}

/// The cards that have an address, open; for an unspecified one, all that carry packets. None if `FERROCE_PROVIDER` wants none,
/// or the machine has none.
///
/// # Errors
/// The cards of this machine cannot be listed, or that with the address not be opened.
pub fn open_cards_at(address: IpAddr) -> Result<Vec<Context>, OpenError> {
    let choice = ProviderChoice::from_env()?;
    let why = why_card(choice);
    let mut found = Vec::new();
    for card in usable(choice)? {
        if address.is_unspecified() {
            // One that cannot be opened is left to others.
            let opened = card.open_because(why);
            found.extend(opened.ok().filter(|context| context.port().state == PortState::Active));
        } else if card.info().is_ok_and(|info| info.addresses().any(|own| own == address)) {
            return Ok(vec![card.open_because(why)?]);
        }
    }
    Ok(found)
}

/// The card that leads to an address, open. Nothing if `FERROCE_PROVIDER` wants none, the machine has none, or none leads
/// there.
///
/// # Errors
/// The cards of this machine cannot be listed, or that which leads there not be opened.
pub fn open_card_towards(peer: IpAddr) -> Result<Option<Context>, OpenError> {
    let choice = ProviderChoice::from_env()?;
    let cards = usable(choice)?;
    let Some(first) = cards.first() else { return Ok(None) };
    // Without connections there is nothing to ask: then addresses of the same family have to do.
    let leads = match card_towards(first.card.library(), peer) {
        Ok(name) => name,
        Err(_) => cards.iter().find(|card| card.info().is_ok_and(|info| info.reaches(peer))).map(Card::name),
    };
    let card = cards.iter().find(|card| Some(card.name()) == leads);
    card.map(|card| card.open_because(why_card(choice))).transpose()
}

const fn why_card(choice: ProviderChoice) -> ProviderReason {
    match choice {
        ProviderChoice::Auto => ProviderReason::CardAddress,
        ProviderChoice::Soft | ProviderChoice::System => ProviderReason::Wanted,
    }
}

impl Card {
    /// Its name, such as `mlx5_0` or `rxe0`.
    #[must_use]
    pub fn name(&self) -> String {
        self.card.name()
    }

    /// The file of its driver, such as `/dev/infiniband/uverbs0`.
    #[must_use]
    pub fn file(&self) -> String {
        self.card.file()
    }

    /// Its number in the world.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.card.guid()
    }

    /// Where the library is that lists it.
    #[must_use]
    pub fn library(&self) -> &'static Path {
        let Paths { verbs, .. } = self.card.library().paths();
        verbs
    }

    /// Whether it is a soft device of our own drop-in library.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.card.library().is_ours()
    }

    /// Opens it.
    ///
    /// # Errors
    /// This user may not, it is gone, or what the library says.
    pub fn open(&self) -> Result<Context, OpenError> {
        self.open_because(ProviderReason::Wanted)
    }

    pub(crate) fn open_because(&self, why: ProviderReason) -> Result<Context, OpenError> {
        Ok(Context::on(Device::Card(OpenCard::open(&self.card)?), why))
    }

    /// What it is like. It is opened for that.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn info(&self) -> Result<CardInfo, OpenError> {
        let context = self.card.open()?;
        let known = context.query().map_err(OpenError::Cards)?;
        let port = context.port(crate::card::PORT).map_err(OpenError::Cards)?;
        let entries = context.gids().map_err(OpenError::Cards)?;
        let gids = match entries {
            Some(entries) => entries
                .iter()
                .filter(|entry| entry.port == u32::from(crate::card::PORT))
                .filter_map(|entry| Some((usize::try_from(entry.index).ok()?, entry.gid, entry.is_roce_v2)))
                .collect(),
            None => (0..port.gids)
                .filter_map(|index| {
                    let gid = context.gid(crate::card::PORT, index).ok()?;
                    let place = usize::try_from(index).ok()?;
                    (gid != Gid::default()).then_some((place, gid, false))
                })
                .collect(),
        };
        Ok(CardInfo {
            driver: self.driver(&context),
            firmware: known.firmware,
            up: port.active,
            ethernet: port.ethernet,
            active_mtu: port.active_mtu,
            gids,
        })
    }

    /// The driver of the kernel behind it. The kernel's soft device has no link to one, and is named as `ferroce doctor` does.
    fn driver(&self, context: &ferroce_system::Context) -> Option<String> {
        if self.is_ours() {
            return Some("ferroce".to_owned());
        }
        if context.is_soft() {
            return Some("rxe".to_owned());
        }
        let place = Path::new("/sys/class/infiniband").join(self.name());
        let driver = std::fs::read_link(place.join("device/driver")).ok();
        let name = driver.as_deref().and_then(Path::file_name);
        name.map(|name| name.to_string_lossy().into_owned())
    }
}

impl CardInfo {
    /// Whether it could lead to this address.
    fn reaches(&self, peer: IpAddr) -> bool {
        self.up && self.addresses().any(|own| own.is_ipv4() == peer.is_ipv4())
    }

    /// The addresses that packets of RoCEv2 may have.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.gids.iter().filter(|(_, _, is_roce_v2)| *is_roce_v2).map(|(_, gid, _)| gid.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sentences_of_their_own() {
        let all = [
            ProviderReason::Wanted,
            ProviderReason::SoftName,
            ProviderReason::CardName,
            ProviderReason::SoftAddress,
            ProviderReason::CardAddress,
            ProviderReason::NoCard,
        ];
        let texts: std::collections::HashSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), all.len());
    }
}
