//! Live connections of every kind, and honest work on each.

use std::fmt::Display;

use ferroce_wire::Qpn;

/// Bytes of each message and each WRITE.
pub(crate) const LEN: usize = 256;

/// Bytes of the memory that a peer may write to. Honest work writes to its first bytes, and counts in the
/// middle.
pub(crate) const BOARD: usize = 8192;

/// Where the counter is.
pub(crate) const COUNTER: usize = 4096;

/// Where lies aim at, behind what honest work writes.
pub(crate) const AIM: u64 = 1024;

/// What came of it, or which harm was done.
pub(crate) type Harm<T> = Result<T, String>;

/// A live connection with an end in each of two devices.
pub(crate) trait Pair: Send {
    fn name(&self) -> &'static str;

    /// Whether both ends stand, and nothing changed in memory since the last round.
    fn check(&self) -> Harm<()>;

    /// The queue pair of the second end, if the program knows it.
    fn number(&self) -> Option<Qpn> {
        None
    }

    /// What the second end has counted, if the program can ask its queue pair.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// A message and a WRITE each way, a READ and an atomic; all contents are looked at.
    fn round(&mut self) -> Harm<()>;
}

/// Says what was wrong.
pub(crate) fn harmed<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// The bytes of a message: its number, and what follows from that.
pub(crate) fn contents(round: u64) -> Vec<u8> {
    let tail = (8..LEN).map(|at| u8::try_from((round + at as u64) % 127).unwrap_or(0));
    round.to_be_bytes().into_iter().chain(tail).collect()
}

/// Whether memory is what the last round has left.
pub(crate) fn only_this_changed(board: &[u8], round: u64, counter: u64, wrote: bool) -> Harm<()> {
    let mut expected = vec![0; BOARD];
    if wrote && round > 0 {
        expected[..LEN].copy_from_slice(&contents(round));
    }
    expected[COUNTER..COUNTER + 8].copy_from_slice(&counter.to_ne_bytes());
    match board.iter().zip(&expected).position(|(seen, right)| seen != right) {
        Some(at) => {
            let seen = &board[at..(at + 8).min(board.len())];
            Err(format!("memory was written: {seen:x?} at {at} after round {round}"))
        }
        None => Ok(()),
    }
}
