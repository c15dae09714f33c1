//! The device that the cases run over, as it was asked for.

use std::net::IpAddr;

use ferroce_verbs::{Capability, Context, OpenError, Path, PathPolicy};
use thiserror::Error;

use crate::Rig;

/// A device that the cases are to run over. Both ends are queue pairs of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Under {
    /// Its name, such as `mlx5_0`.
    pub device: String,
    /// Which of its addresses queue pairs have; else the first.
    pub address: Option<IpAddr>,
    /// Which way packets take, where the device leaves the choice; else over the network.
    pub path: Option<Path>,
}

/// Why there is nothing to run over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnderError {
    /// The device cannot be opened.
    #[error("the device {device} cannot be opened")]
    Open {
        /// Its name.
        device: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// It has no address that packets could have.
    #[error("{device} has no address that leads to other machines; give its interface one")]
    NoAddress {
        /// Its name.
        device: String,
    },
    /// It does not have this address.
    #[error("{device} does not have the address {address}; it has {has:?}")]
    OtherAddress {
        /// Its name.
        device: String,
        /// What was asked for.
        address: IpAddr,
        /// What it has.
        has: Vec<IpAddr>,
    },
}

impl Under {
    /// Opens the device.
    ///
    /// # Errors
    /// It cannot be opened, or not like this.
    pub fn open(&self) -> Result<Rig, UnderError> {
        let context = self.context()?;
        let device = || self.device.clone();
        let has = context.addresses();
        let address = match self.address {
            None => *has.first().ok_or_else(|| UnderError::NoAddress { device: device() })?,
            Some(address) if context.gid_index(address).is_some() => address,
            Some(address) => return Err(UnderError::OtherAddress { device: device(), address, has }),
        };
        // A card has its own way, on which the ends may meet as well as not: what is sent cannot be seen.
        let way = if context.can(Capability::Paths) { self.path.unwrap_or(Path::Wire) } else { Path::Local };
        Ok(Rig::on(context, address, way))
    }

    fn context(&self) -> Result<Context, UnderError> {
        let soft = Context::builder(&self.device);
        let soft = match self.path {
            None | Some(Path::Wire) => soft.path(PathPolicy::Forbid),
            Some(Path::Local) => soft.path(PathPolicy::Require),
            Some(Path::Shared) => soft.path(PathPolicy::Shared).engines(2),
        };
        let soft = match self.address {
            Some(address) => soft.address(address),
            None => soft,
        };
        let opened = match soft.open() {
            // A card: it has its ways and its addresses.
            Err(OpenError::Unsupported(refused))
                if refused.capability == Capability::Paths && self.path.is_none() =>
            {
                Context::open(&self.device)
            }
            opened => opened,
        };
        opened.map_err(|source| UnderError::Open { device: self.device.clone(), source: Box::new(source) })
    }
}
