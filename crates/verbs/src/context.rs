//! An open device.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ferroce_device::discovery::{self, DeviceInfo, Opening};
use ferroce_device::fabric::faults::FaultPlan;
use ferroce_device::{ClockReading, Config, DeviceCounters, DeviceReport, Nic, PathPolicy};
use ferroce_transport::Time;
use ferroce_transport::cm::CmCounters;
use ferroce_wire::{Gid, PKey, PKeyTable, QKey};

use crate::capability::{Capability, Unsupported};
use crate::card::registrations::Registrations;
use crate::card::{CardQueue, OpenCard};
use crate::completion_channel::CompletionChannel;
use crate::completion_queue::CompletionQueue;
use crate::device::Device;
use crate::error::{CreateError, OpenError, SettingError};
use crate::events::Events;
use crate::port::{DeviceAttributes, Port};
use crate::protection_domain::ProtectionDomain;
use crate::provider::{Card, Provider, ProviderChoice, ProviderReason, usable};

/// The soft devices that programs may open: the loopback interface, or what the user named in `FERROCE_NETDEV`.
///
/// # Errors
/// The list in `FERROCE_NETDEV` is wrong, or names what is not there.
pub fn devices() -> Result<Vec<DeviceInfo>, OpenError> {
    let all = discovery::interfaces().map_err(OpenError::Interfaces)?;
    let wanted = std::env::var("FERROCE_NETDEV").unwrap_or_default();
    Ok(discovery::select(all, &Opening::parse(&wanted)?)?)
}

/// An open device: everything else is made from it. Clones are the same device.
///
/// It closes when the last handle and the last object made from it are gone, in any order.
#[derive(Clone)]
pub struct Context {
    device: Device,
    why: ProviderReason,
}

impl Context {
    /// Opens a device by its name, as the environment wants it: see [`ContextBuilder`]. It is a soft device
    /// (`ferroce_lo`, or its interface `lo`) or a card (`mlx5_0`); `FERROCE_PROVIDER` (`soft`, `system` or `auto`) can rule out
    /// one of the two, and [`reason`](Self::reason) tells why it is what it is.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::builder(name).open()
    }

    /// The device behind it.
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) const fn on(device: Device, why: ProviderReason) -> Self {
        Self { device, why }
    }

    /// Where the device comes from. It is chosen when the device is opened.
    #[must_use]
    pub const fn provider(&self) -> Provider {
        match self.device {
            Device::Soft(_) => Provider::Soft,
            Device::Card(_) => Provider::System,
        }
    }

    /// Why it comes from there.
    #[must_use]
    pub const fn reason(&self) -> ProviderReason {
        self.why
    }

    /// Whether the device can do this. What it cannot do is refused, where it is asked for, with the capability that it
    /// lacks ([`Unsupported`]).
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        self.device.can(capability)
    }

    /// As [`can`](Self::can), with the refusal.
    ///
    /// # Errors
    /// It cannot.
    pub fn require(&self, capability: Capability) -> Result<(), Unsupported> {
        if self.can(capability) { Ok(()) } else { Err(capability.into()) }
    }

    /// The devices of this name, or of this interface, that this process has open: one for all addresses of the interface, or
    /// several with one each.
    #[must_use]
    pub fn opened_here(name: &str) -> Vec<Self> {
        let offered = devices().unwrap_or_default();
        let wanted = offered.iter().find(|info| info.interface == name || info.name == name);
        let soft = wanted.map_or_else(Vec::new, |info| Nic::opened_here(&info.interface));
        let soft = soft.into_iter().map(|nic| Self::on(Device::Soft(nic), ProviderReason::SoftName));
        let cards = OpenCard::opened_here(name).into_iter();
        let cards = cards.map(|card| Self::on(Device::Card(card), ProviderReason::CardName));
        soft.chain(cards).collect()
    }

    /// Opens a device in a particular way.
    pub fn builder(name: &str) -> ContextBuilder {
        ContextBuilder { name: name.to_owned(), provider: None, changes: Vec::new() }
    }

    /// What the device is, and how much of everything it has.
    #[must_use]
    pub fn query(&self) -> DeviceAttributes {
        DeviceAttributes::of(&self.device)
    }

    /// What its port is like now.
    #[must_use]
    pub fn port(&self) -> Port {
        Port::of(&self.device)
    }

    /// The index of an address in the GID table. On the loopback device every address of 127.0.0.0/8
    /// gets one when it is asked for.
    #[must_use]
    pub fn gid_index(&self, address: impl Into<IpAddr>) -> Option<usize> {
        self.device.gid_index(address.into())
    }

    /// The GID at an index.
    #[must_use]
    pub fn gid(&self, index: usize) -> Option<Gid> {
        self.device.gid(index)
    }

    /// The addresses that packets of it may have, each once. Of a card they are those that lead further than the next
    /// switch.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        match &self.device {
            Device::Soft(nic) => nic.gids().into_iter().map(Gid::ip).collect(),
            Device::Card(card) => card.ips(),
        }
    }

    /// Bytes of the receive buffer that the kernel granted; 0 on a card, which has none.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        self.nic().map_or(0, Nic::receive_buffer)
    }

    /// Events that are not completions.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(&self.device)
    }

    /// The time on the device's clock, on which completions are timed: nanoseconds since some beginning.
    #[must_use]
    pub fn clock_now(&self) -> Time {
        ferroce_device::now()
    }

    /// Reads the device's clock together with the wall's, to tell what a time of a completion
    /// is on the wall. The clocks drift apart and the wall's may be set, so read it again now and then.
    #[must_use]
    pub fn clock(&self) -> ClockReading {
        ClockReading::take()
    }

    /// What happened to the device so far; all zero on a card ([`Counters`](Capability::Counters)).
    #[must_use]
    pub fn counters(&self) -> DeviceCounters {
        self.nic().map(Nic::counters).unwrap_or_default()
    }

    /// What the device and all its queue pairs have done so far, also those that are gone: completions by
    /// status, retries, time-outs, RNR NAKs and the rest.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ferroce_verbs::{Context, Status};
    ///
    /// # let context = Context::builder("ferroce_lo").address([127, 0, 41, 15]).open()?;
    /// let report = context.report();
    /// println!(
    ///     "{} sends went well, {} packets were sent again, {} time-outs",
    ///     report.totals.completions.sends(Status::Success),
    ///     report.totals.counters.retransmitted,
    ///     report.totals.counters.timeouts,
    /// );
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn report(&self) -> DeviceReport {
        self.nic().map(Nic::report).unwrap_or_default()
    }

    /// What happened to its connections so far.
    #[must_use]
    pub fn connection_counters(&self) -> CmCounters {
        self.nic().map(Nic::connection_counters).unwrap_or_default()
    }

    /// A protection domain: memory regions and queue pairs work together within one.
    ///
    /// # Errors
    /// There are too many.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, CreateError> {
        ProtectionDomain::new(&self.device)
    }

    /// A queue for this many completions.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, CreateError> {
        match &self.device {
            Device::Soft(nic) => {
                Ok(CompletionQueue::soft(ferroce_device::CompletionQueue::new(nic, capacity, None)?))
            }
            Device::Card(card) => Ok(CompletionQueue::card(CardQueue::new(card, capacity, None, false)?)),
        }
    }

    /// The same, whose completions tell when work ended also on a card ([`Completion::time`](crate::Completion::time)); on the soft
    /// device all do. A card's clock is read anew ten times in a second, so times of it are good to a few microseconds.
    ///
    /// # Errors
    /// So many are more than the device has, or the card tells no times ([`Timestamps`](Capability::Timestamps)).
    pub fn timed_completion_queue(&self, capacity: u32) -> Result<CompletionQueue, CreateError> {
        match &self.device {
            Device::Soft(_) => self.completion_queue(capacity),
            Device::Card(card) => Ok(CompletionQueue::card(CardQueue::new(card, capacity, None, true)?)),
        }
    }

    /// How many registrations a card has made for this process, and which places in the program ask for them all the time: a card takes long
    /// for each. Nothing is counted on the soft device, where they cost little.
    #[must_use]
    pub fn registrations(&self) -> Registrations {
        match &self.device {
            Device::Soft(_) => Registrations::default(),
            Device::Card(card) => card.registrations.report(),
        }
    }

    /// A channel, on which completion queues announce completions.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn completion_channel(&self) -> Result<CompletionChannel, CreateError> {
        CompletionChannel::new(&self.device)
    }

    /// Bytes that no peer can guess, from the generator that also draws keys and first sequence numbers: for
    /// nonces, names of a life, and pauses that do not fall together.
    ///
    /// ```
    /// # let context = ferroce_verbs::Context::builder("ferroce_lo").address([127, 0, 41, 12]).open()?;
    /// let nonce: [u8; 16] = context.random_bytes();
    /// assert_ne!(nonce, context.random_bytes());
    /// # Ok::<(), ferroce_verbs::OpenError>(())
    /// ```
    #[must_use]
    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        for part in bytes.chunks_mut(4) {
            part.copy_from_slice(&self.device.random_u32().to_ne_bytes()[..part.len()]);
        }
        bytes
    }

    /// A Q_Key that no peer can guess, for a datagram queue pair
    /// ([`QueuePair::activate`](crate::QueuePair::activate)). It is one that every program may use: those
    /// with the highest bit set are for privileged ones.
    #[must_use]
    pub fn random_qkey(&self) -> QKey {
        QKey(self.device.random_u32() & 0x7fff_ffff)
    }

    const fn nic(&self) -> Option<&Nic> {
        match &self.device {
            Device::Soft(nic) => Some(nic),
            Device::Card(_) => None,
        }
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        self.device.is_same(&other.device)
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.device.name())
    }
}

/// How a device is opened. What is not said here is taken from the environment
/// (`FERROCE_ADDRESS`, `FERROCE_ENGINES`, `FERROCE_PATH`, `FERROCE_SHARED`, `FERROCE_FAULTS`, `FERROCE_PCAP`,
/// `FERROCE_RCVBUF`, `FERROCE_GSO`, `FERROCE_GRO`, `FERROCE_GATHER`, `FERROCE_ONE_PASS`, `FERROCE_PKEYS`), and then from common sense.
///
/// A process has a device once: opening it again gives the same one, and must be done with the
/// same settings.
///
/// A card takes no settings but [`provider`](Self::provider): one that it does not have is refused with the
/// [`Capability`] that it lacks, and the variables of the environment above mean nothing to it.
#[derive(Debug)]
#[must_use = "a builder opens nothing until `open`"]
pub struct ContextBuilder {
    name: String,
    provider: Option<ProviderChoice>,
    changes: Vec<Change>,
}

/// What the program wants otherwise than the environment.
#[derive(Debug)]
enum Change {
    Address(IpAddr),
    Engines(usize),
    Path(PathPolicy),
    Shared(bool),
    Faults(FaultPlan),
    Capture(PathBuf),
    ReceiveBuffer(usize),
    Segmentation(bool),
    Coalescing(bool),
    PKeys(Vec<PKey>),
}

impl Change {
    /// What a device must be able to do for it.
    const fn capability(&self) -> Capability {
        match self {
            Self::Address(_) => Capability::ChosenAddresses,
            Self::Engines(_) => Capability::Engines,
            Self::Path(_) | Self::Shared(_) => Capability::Paths,
            Self::Faults(_) => Capability::FaultPlans,
            Self::Capture(_) => Capability::Capture,
            Self::ReceiveBuffer(_) | Self::Segmentation(_) | Self::Coalescing(_) => {
                Capability::SocketSettings
            }
            Self::PKeys(_) => Capability::Partitions,
        }
    }
}

impl ContextBuilder {
    fn with(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Which kind of device it is to be, whatever `FERROCE_PROVIDER` says.
    pub const fn provider(mut self, choice: ProviderChoice) -> Self {
        self.provider = Some(choice);
        self
    }

    /// Only this address of the interface, so that others can be a device of their own.
    pub fn address(self, address: impl Into<IpAddr>) -> Self {
        self.with(Change::Address(address.into()))
    }

    /// Engines that queue pairs are spread over: more than one help a program whose threads use queue pairs
    /// of their own.
    pub fn engines(self, count: usize) -> Self {
        self.with(Change::Engines(count))
    }

    /// Which paths packets may take.
    pub fn path(self, policy: PathPolicy) -> Self {
        self.with(Change::Path(policy))
    }

    /// Whether packets to processes of this user and machine may go through memory that both have in common. They may unless
    /// this is switched off, or the policy of the [`path`](Self::path) forbids it.
    pub fn shared(self, on: bool) -> Self {
        self.with(Change::Shared(on))
    }

    /// Faults to inject into everything that is sent.
    pub fn faults(self, plan: FaultPlan) -> Self {
        self.with(Change::Faults(plan))
    }

    /// A file for all packets, for Wireshark to read.
    pub fn capture(self, file: impl Into<PathBuf>) -> Self {
        self.with(Change::Capture(file.into()))
    }

    /// Bytes of the socket's receive buffer to ask for.
    pub fn receive_buffer(self, bytes: usize) -> Self {
        self.with(Change::ReceiveBuffer(bytes))
    }

    /// Whether the kernel may cut runs of packets apart.
    pub fn segmentation(self, on: bool) -> Self {
        self.with(Change::Segmentation(on))
    }

    /// Whether the kernel may hand over runs of packets as one.
    pub fn coalescing(self, on: bool) -> Self {
        self.with(Change::Coalescing(on))
    }

    /// Partitions that the port belongs to, beside the default one: these P_Keys stand behind it in its table, from
    /// index 1 on. The highest bit of a P_Key says that the port is a full member: two limited members of a
    /// partition do not hear each other.
    pub fn pkeys(self, keys: impl Into<Vec<PKey>>) -> Self {
        self.with(Change::PKeys(keys.into()))
    }

    /// Opens the device.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn open(self) -> Result<Context, OpenError> {
        let choice = match self.provider {
            Some(choice) => choice,
            None => ProviderChoice::from_env()?,
        };
        let soft = if choice.allows_soft() { devices()? } else { Vec::new() };
        let wanted = soft.iter().find(|info| info.interface == self.name || info.name == self.name);
        if let Some(info) = wanted {
            let why = match choice {
                ProviderChoice::Auto => ProviderReason::SoftName,
                ProviderChoice::Soft | ProviderChoice::System => ProviderReason::Wanted,
            };
            return self.open_soft(info, why);
        }
        let mut offered: Vec<String> = soft.into_iter().map(|info| info.name).collect();
        let cards = usable(choice)?;
        let Some(card) = cards.iter().find(|card| card.name() == self.name) else {
            offered.extend(cards.iter().map(Card::name));
            return Err(OpenError::NotOffered { name: self.name, offered });
        };
        // A setting that a card does not have is refused before anything is opened.
        if let Some(change) = self.changes.first() {
            return Err(Unsupported::from(change.capability()).into());
        }
        card.open_because(match choice {
            ProviderChoice::Auto => ProviderReason::CardName,
            ProviderChoice::Soft | ProviderChoice::System => ProviderReason::Wanted,
        })
    }

    fn open_soft(self, info: &DeviceInfo, why: ProviderReason) -> Result<Context, OpenError> {
        let mut config = Config::from_env(&info.interface)?;
        for change in self.changes {
            match change {
                Change::Address(address) => config.address = Some(address),
                Change::Engines(count) => config.engines = count,
                Change::Path(policy) => config.path = policy,
                Change::Shared(on) => config.shared = on,
                Change::Faults(plan) => config.faults = Some(plan),
                Change::Capture(file) => config.capture = Some(file),
                Change::ReceiveBuffer(bytes) => config.receive_buffer = bytes,
                Change::Segmentation(on) => config.segmentation = on,
                Change::Coalescing(on) => config.coalescing = on,
                Change::PKeys(keys) => config.pkeys = PKeyTable::new(&keys).map_err(SettingError::from)?,
            }
        }
        Ok(Context::on(Device::Soft(Nic::open(config)?), why))
    }
}
