//! Processes of this machine that share memory with an engine, as threads outside of it know them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ferroce_fabric::NotShared;
use ferroce_lane::{LaneError, LaneFile};
use ferroce_switchboard::Lifeline;
use ferroce_sys::fork::PerProcess;
use ferroce_sys::limits::DescriptorLimit;
use ferroce_sys::sync::lock;
use ferroce_transport::Time;

/// How often a driver looks at most whether other processes are gone.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Which files are mapped here as lanes: no process may be at both ends of one that it took for another's.
static MAPPED: PerProcess<Mutex<HashMap<FileId, u32>>> = PerProcess::new();

/// A file on this machine: device and number.
type FileId = (u64, u64);

/// The neighbours of one engine, as threads outside of it see them.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Whether there may be any.
    is_open: bool,
    pub(crate) known: Mutex<Known>,
    pub(crate) changed: Condvar,
    /// When a driver looked last whether some are gone, in nanoseconds.
    looked_at: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The file of our own line, once there is one.
    pub(crate) line: Option<Arc<OwnedFd>>,
    pub(crate) by_slot: HashMap<u8, Standing>,
}

/// How things stand with the owner of a slot.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It was made an offer, and has not answered.
    Offered,
    Shares(Shares),
}

/// A process that shares memory with this one.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) incarnation: u64,
    /// None for an engine of this process.
    pub(crate) lifeline: Option<Lifeline>,
    /// By an offer of this process, which that one has taken.
    pub(crate) is_ours: bool,
    /// A lane to it, or from it, was found broken, and given up.
    pub(crate) is_broken: Arc<AtomicBool>,
    #[expect(dead_code, reason = "it is there to be held")]
    pub(crate) mapped: [Mapped; 2],
}

impl Shares {
    pub(crate) fn is_gone(&self) -> bool {
        self.lifeline.as_ref().is_some_and(Lifeline::is_cut)
    }

    /// Whether packets go over the network although the process is there: what has broken the rules once gets no second lane.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }
}

/// A file that is known as mapped here, as long as this lives.
#[derive(Debug)]
pub(crate) struct Mapped(FileId);

impl Mapped {
    /// A file of our own.
    pub(crate) fn ours(file: &LaneFile) -> Result<Self, LaneError> {
        let id = file.id()?;
        *lock(MAPPED.get()).entry(id).or_default() += 1;
        Ok(Self(id))
    }

    /// A file of another process; none if it is one that is mapped here already.
    pub(crate) fn theirs(file: &LaneFile) -> Result<Option<Self>, LaneError> {
        let id = file.id()?;
        match lock(MAPPED.get()).entry(id) {
            Entry::Occupied(_) => Ok(None),
            Entry::Vacant(free) => {
                free.insert(1);
                Ok(Some(Self(id)))
            }
        }
    }
}

/// Whether there may be one more neighbour. Each keeps two descriptors open; with all of them they are at most an eighth of what this
/// process may have, since the rest is the program's. Each has two lanes, too, so that those say how many there are.
pub(crate) fn has_room() -> bool {
    let lanes = u64::try_from(lock(MAPPED.get()).len()).unwrap_or(u64::MAX);
    DescriptorLimit::get().is_ok_and(|limit| lanes < limit.soft / 8)
}

impl Mapped {
    /// The same file once more.
    pub(crate) fn again(&self) -> Self {
        *lock(MAPPED.get()).entry(self.0).or_default() += 1;
        Self(self.0)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Entry::Occupied(mut known) = lock(MAPPED.get()).entry(self.0) {
            *known.get_mut() -= 1;
            if *known.get() == 0 {
                known.remove();
            }
        }
    }
}

impl Neighbours {
    /// None yet; `is_open` says whether there ever may be one.
    pub(crate) fn new(is_open: bool) -> Self {
        Self { is_open, known: Mutex::default(), changed: Condvar::new(), looked_at: AtomicU64::new(0) }
    }

    /// Whether there may be any.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether memory is shared with the owner of this slot, or why not. Asked inside of the engine, the answer stays true until
    /// the engine hears of its end by mail.
    pub(crate) fn shares_with(&self, slot: u8) -> Result<(), NotShared> {
        match lock(&self.known).by_slot.get(&slot) {
            Some(Standing::Shares(shares)) if shares.is_broken() => Err(NotShared::Broken),
            Some(Standing::Shares(_)) => Ok(()),
            Some(Standing::Offered) | None => Err(NotShared::Gone),
        }
    }

    /// What tells the process that memory is shared with from others that its slot has had and will have.
    pub(crate) fn incarnation_of(&self, slot: u8) -> Option<u64> {
        match lock(&self.known).by_slot.get(&slot) {
            Some(Standing::Shares(shares)) => Some(shares.incarnation),
            Some(Standing::Offered) | None => None,
        }
    }

    /// For a driver, now and then: forgets those that are gone since, and tells `lost` their slots and incarnations. No thread learns
    /// meanwhile that they are forgotten: what is shared with one anew comes after its loss in the engine's mail, too.
    pub(crate) fn forget_gone(&self, now: Time, mut lost: impl FnMut(u8, u64)) -> Look {
        let looked_at = self.looked_at.load(Ordering::Relaxed);
        let next = looked_at.saturating_add(u64::try_from(BETWEEN_LOOKS.as_nanos()).unwrap_or(u64::MAX));
        if now.nanos() < next {
            return Look::At(next);
        }
        self.looked_at.store(now.nanos(), Ordering::Relaxed);
        let mut known = lock(&self.known);
        for standing in known.by_slot.values_mut() {
            // A process that broke the rules is remembered, and hears that nothing is shared with it any more.
            if let Standing::Shares(shares) = standing
                && shares.is_broken()
            {
                shares.lifeline = None;
            }
        }
        let gone = known.by_slot.iter().filter_map(|(slot, standing)| match standing {
            Standing::Shares(shares) if shares.is_gone() => Some((*slot, shares.incarnation)),
            Standing::Shares(_) | Standing::Offered => None,
        });
        let gone: Vec<(u8, u64)> = gone.collect();
        for (slot, incarnation) in gone {
            known.by_slot.remove(&slot);
            lost(slot, incarnation);
        }
        Look::Done
    }
}

/// Whether a driver has looked for those that are gone.
#[derive(Debug)]
pub(crate) enum Look {
    Done,
    /// It is to look again then, in nanoseconds.
    At(u64),
}
