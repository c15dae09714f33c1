//! Which devices the user wants.

use thiserror::Error;

use super::DeviceInfo;

/// Which interfaces become devices. The user says it in `FERROCE_NETDEV`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Opening {
    /// The loopback interface alone: what holds if nothing is said.
    #[default]
    Loopback,
    /// These, by the name of the interface or of the device.
    Named(Vec<String>),
    /// Every usable interface.
    All,
}

/// Why no devices could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// A list with nothing between two commas.
    #[error("the list of interfaces {list:?} has an empty name; write NAME, NAME,NAME or all")]
    EmptyName {
        /// The whole list.
        list: String,
    },
    /// `all` beside names.
    #[error("the list of interfaces {list:?} has `all` beside names; write either `all` or the names")]
    AllBesideNames {
        /// The whole list.
        list: String,
    },
    /// No usable interface has this name.
    #[error(
        "no usable interface is called {name:?}; there are {}; a usable one has an IP address and an MTU of at least 352 bytes",
        listed(available)
    )]
    UnknownName {
        /// The name that was asked for.
        name: String,
        /// The interfaces that there are.
        available: Vec<String>,
    },
    /// The loopback interface has no address, or does not exist.
    #[error(
        "no usable loopback interface; there are {}; give `lo` its address (`ip link set lo up`) or name another in FERROCE_NETDEV",
        listed(available)
    )]
    NoLoopback {
        /// The interfaces that there are.
        available: Vec<String>,
    },
    /// There is nothing to choose from.
    #[error("no interface of this machine has an IP address and an MTU of at least 352 bytes; configure one")]
    NoInterface,
}

impl Opening {
    /// Reads what stands in `FERROCE_NETDEV`: names with commas between them, or `all`.
    /// Nothing at all means the loopback interface.
    ///
    /// # Errors
    /// A name is empty, or `all` stands beside names.
    pub fn parse(text: &str) -> Result<Self, DiscoveryError> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        match names.as_slice() {
            [""] => Ok(Self::Loopback),
            ["all"] => Ok(Self::All),
            names if names.contains(&"") => Err(DiscoveryError::EmptyName { list: text.to_owned() }),
            names if names.contains(&"all") => Err(DiscoveryError::AllBesideNames { list: text.to_owned() }),
            names => Ok(Self::Named(names.iter().copied().map(str::to_owned).collect())),
        }
    }
}

/// Those that are to be opened: named ones in the order of their names, each once.
///
/// # Errors
/// A name that is not there, or nothing to choose from.
pub fn select(all: Vec<DeviceInfo>, opening: &Opening) -> Result<Vec<DeviceInfo>, DiscoveryError> {
    match opening {
        Opening::Loopback if !all.iter().any(|info| info.loopback) => {
            Err(DiscoveryError::NoLoopback { available: interface_names(&all) })
        }
        Opening::Loopback => Ok(all.into_iter().filter(|info| info.loopback).collect()),
        Opening::All if all.is_empty() => Err(DiscoveryError::NoInterface),
        Opening::All => Ok(all),
        Opening::Named(names) => named(&all, names),
    }
}

fn named(all: &[DeviceInfo], names: &[String]) -> Result<Vec<DeviceInfo>, DiscoveryError> {
    let mut chosen: Vec<DeviceInfo> = Vec::with_capacity(names.len());
    for name in names {
        let by_interface = all.iter().find(|info| info.interface == *name);
        let found = by_interface.or_else(|| all.iter().find(|info| info.name == *name));
        let Some(info) = found else {
            return Err(DiscoveryError::UnknownName { name: name.clone(), available: interface_names(all) });
        };
        if !chosen.contains(info) {
            chosen.push(info.clone());
        }
    }
    Ok(chosen)
}

fn interface_names(all: &[DeviceInfo]) -> Vec<String> {
    all.iter().map(|info| info.interface.clone()).collect()
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::tests::device;

    fn machine() -> Vec<DeviceInfo> {
        vec![device("lo", &["127.0.0.1"]), device("eth0", &["192.0.2.1"]), device("eth1", &["192.0.2.2"])]
    }

    fn opened(text: &str) -> Result<Vec<String>, DiscoveryError> {
        Ok(interface_names(&select(machine(), &Opening::parse(text)?)?))
    }

    #[test]
    fn only_loopback_is_open_unless_more_is_asked_for() {
        assert_eq!(opened("").unwrap(), ["lo"]);
        assert_eq!(opened("all").unwrap(), ["lo", "eth0", "eth1"]);
        assert_eq!(Opening::default(), Opening::Loopback);
    }

    #[test]
    fn interface_and_device_names_both_work_and_keep_their_order() {
        assert_eq!(opened("eth1, ferroce_lo").unwrap(), ["eth1", "lo"]);
        assert_eq!(opened("eth0,ferroce_eth0,eth0").unwrap(), ["eth0"]);
    }

    #[test]
    fn an_unknown_name_tells_what_there_is() {
        let error = opened("lo,eth7").unwrap_err();
        let available = interface_names(&machine());
        assert_eq!(error, DiscoveryError::UnknownName { name: "eth7".to_owned(), available });
        let text = error.to_string();
        assert!(text.contains("\"eth7\"; there are lo, eth0, eth1;"), "{text}");
    }

    #[test]
    fn malformed_lists_are_refused() {
        for list in [",", "lo,", ",lo", "lo,,eth0"] {
            assert_eq!(Opening::parse(list), Err(DiscoveryError::EmptyName { list: list.to_owned() }));
        }
        let list = "lo,all".to_owned();
        assert_eq!(Opening::parse(&list), Err(DiscoveryError::AllBesideNames { list }));
    }

    #[test]
    fn nothing_to_choose_from_is_said() {
        assert_eq!(select(Vec::new(), &Opening::All), Err(DiscoveryError::NoInterface));
        let only_eth0 = vec![device("eth0", &["192.0.2.1"])];
        let error = select(only_eth0, &Opening::Loopback).unwrap_err();
        assert!(error.to_string().contains("there are eth0;"), "{error}");
        let error = select(Vec::new(), &Opening::Loopback).unwrap_err();
        assert!(error.to_string().contains("there are none;"), "{error}");
    }
}
