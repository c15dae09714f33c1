//! The device behind a context: our own, or a card.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_device::Nic;
use ferroce_wire::{Gid, PKey, PathMtu};

use crate::capability::{Capability, Unsupported};
use crate::card::OpenCard;

/// The device behind a context. There are these two kinds and no others, so that posting finds the soft device by a
/// comparison.
#[derive(Clone, Debug)]
pub(crate) enum Device {
    /// Our own.
    Soft(Nic),
    /// A card, by the machine's own library.
    Card(Arc<OpenCard>),
}

impl Device {
    /// Our own device, for what a card does not have.
    pub(crate) fn soft(&self, capability: Capability) -> Result<&Nic, Unsupported> {
        match self {
            Self::Soft(nic) => Ok(nic),
            Self::Card(_) => Err(capability.into()),
        }
    }

    pub(crate) fn can(&self, capability: Capability) -> bool {
        match self {
            Self::Soft(_) => true,
            Self::Card(card) => card.can(capability),
        }
    }

    /// Whether this process opened it, and none that it was forked from.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::Soft(nic) => nic.is_ours(),
            Self::Card(card) => card.is_ours(),
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Soft(one), Self::Soft(other)) => one.is_same(other),
            (Self::Card(one), Self::Card(other)) => Arc::ptr_eq(one, other),
            (Self::Soft(_), Self::Card(_)) | (Self::Card(_), Self::Soft(_)) => false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Soft(nic) => &nic.info().name,
            Self::Card(card) => card.name(),
        }
    }

    pub(crate) fn active_mtu(&self) -> PathMtu {
        match self {
            Self::Soft(nic) => nic.active_mtu(),
            Self::Card(card) => card.active_mtu(),
        }
    }

    pub(crate) fn gids(&self) -> Vec<Gid> {
        match self {
            Self::Soft(nic) => nic.gids(),
            Self::Card(card) => card.gids(),
        }
    }

    pub(crate) fn gid(&self, index: usize) -> Option<Gid> {
        match self {
            Self::Soft(nic) => nic.gid(index),
            Self::Card(card) => card.gid(index),
        }
    }

    pub(crate) fn gid_count(&self) -> usize {
        match self {
            Self::Soft(nic) => nic.gid_count(),
            Self::Card(card) => card.gid_count(),
        }
    }

    pub(crate) fn gid_index(&self, address: IpAddr) -> Option<usize> {
        match self {
            Self::Soft(nic) => nic.gid_index(address),
            Self::Card(card) => card.gid_index(address),
        }
    }

    /// The index of the address that queue pairs have if the program names none.
    pub(crate) fn usual_gid(&self) -> usize {
        match self {
            Self::Soft(_) => 0,
            Self::Card(card) => card.usual_gid(),
        }
    }

    pub(crate) fn pkeys(&self) -> Vec<PKey> {
        match self {
            Self::Soft(nic) => (0..).map_while(|index| nic.pkey(index)).collect(),
            Self::Card(card) => card.pkeys(),
        }
    }

    /// A number that no other process can guess.
    pub(crate) fn random_u32(&self) -> u32 {
        match self {
            Self::Soft(nic) => nic.random_u32(),
            Self::Card(_) => crate::card::random_u32(),
        }
    }
}
