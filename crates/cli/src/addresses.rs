//! Which address of which device a program of ours takes.

use std::net::{IpAddr, Ipv4Addr};
use std::process;

use anyhow::{Context as _, anyhow};
use ferroce::{Context, ContextBuilder, OpenError};

/// The loopback device.
pub(crate) const LOOPBACK: &str = "ferroce_lo";

/// Addresses of this process's own that are tried one after the other.
const TRIES: u32 = 8;

/// Opens the loopback device on the wanted address, or on one of its own that no other process has.
pub(crate) fn open_loopback(
    wanted: Option<IpAddr>,
    part: u8,
    with: impl Fn(ContextBuilder) -> ContextBuilder,
) -> anyhow::Result<(Context, IpAddr)> {
    let open = |address: IpAddr| with(Context::builder(LOOPBACK).address(address)).open();
    match wanted {
        Some(address) => Ok((open(address).with_context(|| format!("cannot open {address}"))?, address)),
        None => first_free(own(part), open),
    }
}

/// Opens the first of these addresses that can be had; if none can, says why the first could not.
pub(crate) fn first_free(
    addresses: impl Iterator<Item = IpAddr>,
    open: impl Fn(IpAddr) -> Result<Context, OpenError>,
) -> anyhow::Result<(Context, IpAddr)> {
    let mut first = None;
    for address in addresses {
        match open(address) {
            Ok(context) => return Ok((context, address)),
            Err(error) => {
                let error = anyhow!(error).context(format!("cannot open {address}"));
                first.get_or_insert(error);
            }
        }
    }
    Err(first.unwrap_or_else(|| anyhow!("no address to open")))
}

/// Addresses of 127.0.0.0/8 that follow from the number of this process, so that no other one takes
/// them; `part` (0 to 2) tells several devices of one process apart.
pub(crate) fn own(part: u8) -> impl Iterator<Item = IpAddr> {
    // A process number has at most 22 bits; processes in other containers may have the same one.
    (0..TRIES).map(move |turn| {
        let number = process::id().wrapping_add(turn << 16) & 0x3f_ffff;
        let [_, a, b, c] = number.to_be_bytes();
        Ipv4Addr::new(127, 64 * (1 + part.min(2)) + a, b, c).into()
    })
}
