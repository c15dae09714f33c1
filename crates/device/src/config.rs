//! How a device is opened.

use std::net::IpAddr;
use std::path::PathBuf;

use ferroce_fabric::PathPolicy;
use ferroce_fabric::faults::FaultPlan;
use ferroce_memory::Passes;
use ferroce_wire::{PKey, PKeyTable};

use crate::error::SettingError;
use crate::limits::Limits;
use crate::trace::TraceSetting;

/// How a device is opened. [`Config::from_env`] reads the variables that [`Config`]'s fields name.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The interface.
    pub interface: String,
    /// Only this address of it, so that other processes can have the others (`FERROCE_ADDRESS`).
    pub address: Option<IpAddr>,
    /// Engines that the queue pairs are spread over, from 1 to [`Limits::ENGINES`] (`FERROCE_ENGINES`). Each
    /// has a socket and a driver thread: more than one help a process whose threads use queue pairs of their
    /// own.
    pub engines: usize,
    /// Which paths queue pairs take that do not say it themselves (`FERROCE_PATH`).
    pub path: PathPolicy,
    /// Whether other processes of the same user and machine may share memory with this one (`FERROCE_SHARED`); they may not where
    /// everything goes over the network.
    pub shared: bool,
    /// Faults to inject (`FERROCE_FAULTS`).
    pub faults: Option<FaultPlan>,
    /// A file for all packets (`FERROCE_PCAP`).
    pub capture: Option<PathBuf>,
    /// What happens to each work request is written down (`FERROCE_TRACE`).
    pub trace: Option<TraceSetting>,
    /// Bytes of the socket's receive buffer to ask for (`FERROCE_RCVBUF`).
    pub receive_buffer: usize,
    /// Whether the kernel may cut runs of packets apart (`FERROCE_GSO`).
    pub segmentation: bool,
    /// Whether the kernel may hand over runs of packets as one (`FERROCE_GRO`).
    pub coalescing: bool,
    /// Whether messages that are posted one by one may wait a moment for each other, while earlier ones are under way
    /// (`FERROCE_GATHER`).
    pub gathering: bool,
    /// How payloads are copied into packets (`FERROCE_ONE_PASS`): with their CRC in one pass, or in two. What is faster on
    /// this machine if nothing is said.
    pub passes: Passes,
    /// The partitions of the port (`FERROCE_PKEYS`): the default P_Key, and those that are named.
    pub pkeys: PKeyTable,
}

impl Config {
    /// A device on this interface with nothing special.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            address: None,
            engines: 1,
            path: PathPolicy::Prefer,
            shared: true,
            faults: None,
            capture: None,
            trace: None,
            receive_buffer: 4 << 20,
            segmentation: true,
            coalescing: true,
            gathering: true,
            passes: Passes::faster(),
            pkeys: PKeyTable::DEFAULT,
        }
    }

    /// Whether other processes may share memory with this one: not where all packets are to be seen, or to go over the
    /// network.
    #[must_use]
    pub const fn shares_memory(&self) -> bool {
        let is_wanted = self.shared && !matches!(self.path, PathPolicy::Forbid);
        is_wanted && self.faults.is_none() && self.capture.is_none()
    }

    /// A device on this interface as the environment wants it.
    ///
    /// # Errors
    /// A variable does not mean anything.
    pub fn from_env(interface: &str) -> Result<Self, SettingError> {
        let mut config = Self::new(interface);
        if let Some(text) = variable("FERROCE_ADDRESS") {
            let address = text.parse().map_err(|_| SettingError::Address(text.clone()))?;
            config.address = Some(address);
        }
        if let Some(given) = variable("FERROCE_ENGINES") {
            let most = Limits::ENGINES;
            config.engines = match given.parse() {
                Ok(engines) if (1..=most).contains(&engines) => engines,
                _ => return Err(SettingError::Engines { given, most }),
            };
        }
        if let Some(text) = variable("FERROCE_PATH") {
            config.path = text.parse()?;
        }
        config.shared = switch("FERROCE_SHARED", config.shared)?;
        if let Some(text) = variable("FERROCE_FAULTS") {
            config.faults = Some(FaultPlan::parse(&text)?);
        }
        config.capture = variable("FERROCE_PCAP").map(PathBuf::from);
        config.trace = TraceSetting::from_env()?;
        if let Some(given) = variable("FERROCE_RCVBUF") {
            let name = "FERROCE_RCVBUF";
            config.receive_buffer = given.parse().map_err(|_| SettingError::Number { name, given })?;
        }
        config.segmentation = switch("FERROCE_GSO", config.segmentation)?;
        config.coalescing = switch("FERROCE_GRO", config.coalescing)?;
        config.gathering = switch("FERROCE_GATHER", config.gathering)?;
        if variable("FERROCE_ONE_PASS").is_some() {
            config.passes = if switch("FERROCE_ONE_PASS", true)? { Passes::one() } else { Passes::TWO };
        }
        if let Some(given) = variable("FERROCE_PKEYS") {
            config.pkeys = pkeys(given)?;
        }
        Ok(config)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// P_Keys in hexadecimal, with commas between them.
fn pkeys(given: String) -> Result<PKeyTable, SettingError> {
    let number = |text: &str| {
        let text = text.trim();
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        u16::from_str_radix(digits, 16).ok().map(PKey)
    };
    let keys: Option<Vec<PKey>> = given.split(',').map(number).collect();
    let keys = keys.ok_or(SettingError::PKey { given })?;
    Ok(PKeyTable::new(&keys)?)
}

fn switch(name: &'static str, usual: bool) -> Result<bool, SettingError> {
    match variable(name).as_deref() {
        None => Ok(usual),
        Some("1" | "on") => Ok(true),
        Some("0" | "off") => Ok(false),
        Some(given) => Err(SettingError::Switch { name, given: given.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_read_from_a_list_of_hexadecimal_numbers() {
        let table = pkeys("0x8001, 7,0X0002".to_owned()).unwrap();
        assert_eq!(table, PKeyTable::new(&[PKey(0x8001), PKey(7), PKey(2)]).unwrap());
        for given in ["8001,,2", "0x18001", "all", "-1"] {
            let error = pkeys(given.to_owned()).unwrap_err();
            assert!(matches!(error, SettingError::PKey { .. }), "{error}");
        }
        assert!(matches!(pkeys("8000".to_owned()), Err(SettingError::PKeys(_))));
    }
}
