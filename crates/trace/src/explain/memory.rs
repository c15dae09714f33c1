//! Which memory a process had registered when, and why a key did not open it.

use std::collections::VecDeque;

use ferroce_record::{Region, RegionKind, Step};
use ferroce_transport::Access;

use crate::fast::FastMap;
use crate::glance::Target;
use crate::show::Span;

/// Memory that is gone and still remembered.
const GONE: usize = 4096;

/// The memory of a process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    live: FastMap<(u32, u32), Known>,
    gone: VecDeque<Known>,
    /// Whether some that is gone was forgotten.
    has_forgotten: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    region: Region,
    /// When it was registered; none if that was before the record.
    from: Option<u64>,
    to: Option<u64>,
}

/// Which of the two keys of memory is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Local(u32),
    Remote(u32),
}

impl Key {
    const fn is_of(self, region: &Region) -> bool {
        match self {
            Self::Local(key) => region.lkey.0 == key,
            Self::Remote(key) => region.rkey.0 == key,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Local(key) => format!("lkey {key:#010x}"),
            Self::Remote(key) => format!("rkey {key:#010x}"),
        }
    }
}

impl Memory {
    pub(super) fn take(&mut self, time: u64, region: Region) {
        let keys = (region.lkey.0, region.rkey.0);
        match region.step {
            Step::Made | Step::Earlier => {
                let from = (region.step == Step::Made).then_some(time);
                if let Some(before) = self.live.insert(keys, Known { region, from, to: None }) {
                    self.bury(Known { to: Some(time), ..before });
                }
            }
            Step::Gone => {
                if let Some(known) = self.live.remove(&keys) {
                    self.bury(Known { to: Some(time), ..known });
                }
            }
        }
    }

    fn bury(&mut self, known: Known) {
        if self.gone.len() == GONE {
            self.gone.pop_front();
            self.has_forgotten = true;
        }
        self.gone.push_back(known);
    }

    /// Why this key did not give these bytes for this at this time. `what` is the work, as in "the WRITE".
    pub(super) fn why(&self, time: u64, key: Key, target: Target, access: Access, what: &str) -> String {
        self.refuses(time, key, target, access, what).unwrap_or_else(|| {
            let name = key.name();
            format!(
                "{name} opens these bytes for this: so the memory is of another protection domain than the queue pair, or it \
                 is a window that is bound to another one"
            )
        })
    }

    /// The same; none if the key gives them, as far as the record tells.
    pub(super) fn refuses(
        &self,
        time: u64,
        key: Key,
        target: Target,
        access: Access,
        what: &str,
    ) -> Option<String> {
        let Target { address, length, .. } = target;
        let name = key.name();
        let all = self.live.values().chain(&self.gone).filter(|known| key.is_of(&known.region));
        let was_there = |known: &&Known| {
            known.from.is_none_or(|from| from <= time) && known.to.is_none_or(|to| to > time)
        };
        let Some(known) = all.clone().find(was_there) else { return Some(self.absent(time, &name, all)) };
        let region = &known.region;
        let opens = format!("{name} opens {} bytes at {:#x}", region.length, region.address);
        // Sums may lie beyond the last address: the numbers are those of a program that is wrong.
        let end = u128::from(address) + u128::from(length);
        let last = u128::from(region.address) + u128::from(region.length);
        let missing = access.difference(region.access);
        let wants = format!("{opens}: {what} of {length} bytes at {address:#x}");
        if address < region.address {
            Some(format!("{wants} began {} bytes before", region.address - address))
        } else if end > last {
            Some(format!("{wants} ended {} bytes behind", end - last))
        } else if !missing.is_empty() {
            Some(format!("{opens}, but does not allow {}", rights(missing)))
        } else {
            None
        }
    }

    /// Why nothing has this key now: what had it before, or later.
    fn absent<'a>(&self, time: u64, name: &str, all: impl Iterator<Item = &'a Known> + Clone) -> String {
        let before = all.clone().filter_map(|known| Some((known.to.filter(|to| *to <= time)?, known)));
        if let Some((to, known)) = before.max_by_key(|(to, _)| *to) {
            let Region { address, length, kind, .. } = known.region;
            let verb = if kind == RegionKind::Window { "invalidated" } else { "deregistered" };
            let ago = Span(time - to);
            return format!("{name} opened {length} bytes at {address:#x}, but was {verb} {ago} before");
        }
        if let Some(from) = all.filter_map(|known| known.from.filter(|from| *from > time)).min() {
            return format!("{name} was registered only {} later", Span(from - time));
        }
        let perhaps = if self.has_forgotten { ", or it was gone long before" } else { "" };
        format!("no memory has {name}{perhaps}")
    }
}

/// Rights in words.
fn rights(access: Access) -> &'static str {
    if access.contains(Access::REMOTE_WRITE) {
        "remote writes"
    } else if access.contains(Access::REMOTE_READ) {
        "remote reads"
    } else if access.contains(Access::REMOTE_ATOMIC) {
        "remote atomics"
    } else if access.contains(Access::LOCAL_WRITE) {
        "local writes"
    } else {
        "memory windows"
    }
}
