//! Cases that move bytes.

use ferroce_verbs::{Service, Status, WorkKind};

use crate::Result;
use crate::far::WITH_INV;
use crate::lab::Lab;
use crate::pair::{Asks, Pair, PairSpec, Verb, check};

pub(super) fn send(lab: &mut Lab, asks: Asks) -> Result<()> {
    plain(lab, asks, Verb::Send)
}

pub(super) fn send_imm(lab: &mut Lab, asks: Asks) -> Result<()> {
    plain(lab, asks, Verb::SendImm)
}

pub(super) fn write(lab: &mut Lab, asks: Asks) -> Result<()> {
    plain(lab, asks, Verb::Write)
}

pub(super) fn write_imm(lab: &mut Lab, asks: Asks) -> Result<()> {
    plain(lab, asks, Verb::WriteImm)
}

pub(super) fn read(lab: &mut Lab, asks: Asks) -> Result<()> {
    plain(lab, asks, Verb::Read)
}

/// One packet: a short one, one that is nearly full, and one that is full.
fn plain(lab: &mut Lab, asks: Asks, verb: Verb) -> Result<()> {
    let mtu = lab.link.path_mtu().bytes();
    each(lab.shared()?, asks, &[verb], &[32, mtu - 1, mtu])
}

pub(super) fn zero(lab: &mut Lab, asks: Asks) -> Result<()> {
    each(lab.shared()?, asks, &[Verb::Send, Verb::SendImm, Verb::Write, Verb::WriteImm, Verb::Read], &[0])
}

pub(super) fn odd(lab: &mut Lab, asks: Asks) -> Result<()> {
    each(lab.shared()?, asks, &[Verb::Send, Verb::WriteImm, Verb::Read], &[1, 2, 3, 5, 1001])
}

pub(super) fn multi(lab: &mut Lab, asks: Asks) -> Result<()> {
    let mtu = lab.link.path_mtu().bytes();
    let verbs = [Verb::Send, Verb::SendImm, Verb::Write, Verb::WriteImm, Verb::Read];
    each(lab.shared()?, asks, &verbs, &[mtu + 1, 2 * mtu, 3 * mtu + 5, 100_003])
}

pub(super) fn large_send(lab: &mut Lab, asks: Asks) -> Result<()> {
    large(lab, asks, Verb::Send)
}

pub(super) fn large_write(lab: &mut Lab, asks: Asks) -> Result<()> {
    large(lab, asks, Verb::Write)
}

pub(super) fn large_read(lab: &mut Lab, asks: Asks) -> Result<()> {
    large(lab, asks, Verb::Read)
}

fn large(lab: &Lab, asks: Asks, verb: Verb) -> Result<()> {
    let size = 16 << 20;
    let mut pair = Pair::new(&lab.context, PairSpec { size, ..lab.spec(Service::Rc) })?;
    pair.transfer(asks, verb, size)
}

/// Enough packets that some of them meet whatever the weather is.
pub(super) fn much(lab: &mut Lab, asks: Asks) -> Result<()> {
    let mut pair = lab.pair(Service::Rc)?;
    for _ in 0..3 {
        each(&mut pair, asks, &[Verb::Send, Verb::Write, Verb::WriteImm, Verb::Read], &[17, 40_000])?;
        swaps(&mut pair, asks)?;
        adds(&mut pair, asks)?;
    }
    Ok(())
}

pub(super) fn uc(lab: &mut Lab, asks: Asks) -> Result<()> {
    let mtu = lab.link.path_mtu().bytes();
    let mut pair = lab.pair(Service::Uc)?;
    let verbs = [Verb::Send, Verb::SendImm, Verb::Write, Verb::WriteImm];
    each(&mut pair, asks, &verbs, &[0, 1, 33, mtu, 3 * mtu + 5, 20_001])
}

pub(super) fn ud(lab: &mut Lab, asks: Asks) -> Result<()> {
    let mtu = lab.link.path_mtu().bytes();
    let mut pair = lab.pair(Service::Ud)?;
    each(&mut pair, asks, &[Verb::Send, Verb::SendImm], &[0, 1, 33, mtu - 3, mtu])
}

pub(super) fn compare_swap(lab: &mut Lab, asks: Asks) -> Result<()> {
    swaps(lab.shared()?, asks)
}

pub(super) fn fetch_add(lab: &mut Lab, asks: Asks) -> Result<()> {
    adds(lab.shared()?, asks)
}

/// A memory window is invalidated, and then opens nothing. From the kernel also: our region cannot be invalidated
/// from afar, and the sender hears so.
pub(super) fn send_inv(lab: &mut Lab, asks: Asks) -> Result<()> {
    let mut pair = lab.pair(Service::Rc)?;
    let (id, at) = (pair.next(), pair.target);
    match asks {
        Asks::We => {
            let key = pair.far.window(at, 64)?;
            let window = ferroce_verbs::RemoteRegion { rkey: key, ..pair.remote };
            let there = window.slice(at as u64..at as u64 + 64);
            pair.near.write(pair.region.slice(..64), there).id(id).post()?;
            pair.near_done(id, WorkKind::Write)?;
            pair.far.receive(id, 0, 64)?;
            pair.near.send(pair.region.slice(..64)).invalidate(key).id(id).post()?;
            pair.near_done(id, WorkKind::Send)?;
            let done = pair.far_done(id, WorkKind::Receive)?;
            check("an invalidated key at the kernel", done.flags & WITH_INV != 0, true)?;
            check("the invalidated key", done.extra, key.0.into())?;
            pair.near.write(pair.region.slice(..64), there).id(id).post()?;
            pair.near_fails(Status::RemoteAccess)
        }
        Asks::Kernel => {
            let (_window, key) = pair.window(at, 64)?;
            let key = u64::from(key.0);
            let there = [pair.region.address() + at as u64, key];
            pair.far.post(id, "write", (0, 64), &there)?;
            pair.far_done(id, WorkKind::Write)?;
            pair.near.receive(pair.region.slice(..64)).id(id).post()?;
            pair.far.post(id, "send_inv", (0, 64), &[0, 0, key])?;
            pair.far_done(id, WorkKind::Send)?;
            let done = pair.near_done(id, WorkKind::Receive)?;
            check("the invalidated key", done.invalidated.map(|key| u64::from(key.0)), Some(key))?;
            pair.far.post(id, "write", (0, 64), &there)?;
            pair.far_fails(Status::RemoteAccess)?;

            let mut pair = lab.pair(Service::Rc)?;
            pair.near.receive(pair.region.slice(at..at + 64)).id(id).post()?;
            pair.far.post(id, "send_inv", (0, 64), &[0, 0, pair.region.rkey().0.into()])?;
            pair.far_fails(Status::RemoteAccess)
        }
    }
}

fn each(pair: &mut Pair, asks: Asks, verbs: &[Verb], lengths: &[usize]) -> Result<()> {
    for verb in verbs {
        for len in lengths {
            pair.transfer(asks, *verb, *len)?;
        }
    }
    Ok(())
}

/// One that finds what it compares with, and one that does not.
fn swaps(pair: &mut Pair, asks: Asks) -> Result<()> {
    let first = 0x0102_0304_0506_0708;
    let second = 0x1122_3344_5566_7788;
    set(pair, asks, first)?;
    check("value before", swap(pair, asks, first, second)?, first)?;
    check("value before", swap(pair, asks, first, 5)?, second)?;
    check("value after", get(pair, asks)?, second)
}

fn adds(pair: &mut Pair, asks: Asks) -> Result<()> {
    set(pair, asks, u64::MAX - 1)?;
    check("value before", add(pair, asks, 1)?, u64::MAX - 1)?;
    check("value before", add(pair, asks, 3)?, u64::MAX)?;
    check("value after", get(pair, asks)?, 2)
}

fn swap(pair: &mut Pair, asks: Asks, compare: u64, swap: u64) -> Result<u64> {
    let (id, at) = (pair.next(), pair.target);
    match asks {
        Asks::We => {
            let to = pair.remote.slice(at as u64..);
            pair.near.compare_swap(pair.region.slice(..8), to, compare, swap).id(id).post()?;
            pair.near_done(id, WorkKind::CompareSwap)?;
            Ok(pair.region.load_u64(0)?)
        }
        Asks::Kernel => {
            pair.far.post(id, "cas", (0, 8), &[target(pair), key(pair), compare, swap])?;
            pair.far_done(id, WorkKind::CompareSwap)?;
            pair.far.word(0)
        }
    }
}

fn add(pair: &mut Pair, asks: Asks, value: u64) -> Result<u64> {
    let (id, at) = (pair.next(), pair.target);
    match asks {
        Asks::We => {
            let to = pair.remote.slice(at as u64..);
            pair.near.fetch_add(pair.region.slice(..8), to, value).id(id).post()?;
            pair.near_done(id, WorkKind::FetchAdd)?;
            Ok(pair.region.load_u64(0)?)
        }
        Asks::Kernel => {
            pair.far.post(id, "faa", (0, 8), &[target(pair), key(pair), value])?;
            pair.far_done(id, WorkKind::FetchAdd)?;
            pair.far.word(0)
        }
    }
}

/// Sets the word that is asked for.
fn set(pair: &mut Pair, asks: Asks, value: u64) -> Result<()> {
    match asks {
        Asks::We => pair.far.set_word(pair.target, value),
        Asks::Kernel => Ok(pair.region.store_u64(pair.target, value)?),
    }
}

fn get(pair: &mut Pair, asks: Asks) -> Result<u64> {
    match asks {
        Asks::We => pair.far.word(pair.target),
        Asks::Kernel => Ok(pair.region.load_u64(pair.target)?),
    }
}

fn target(pair: &Pair) -> u64 {
    pair.region.address() + pair.target as u64
}

fn key(pair: &Pair) -> u64 {
    pair.region.rkey().0.into()
}
