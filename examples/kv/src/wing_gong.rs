//! A slow and plain way to tell whether a history of one key is linearizable: to try every order, as Wing and Gong do,
//! and to remember what was tried, as Lowe does. It judges the fast way in tests.

use std::collections::HashSet;

use crate::history::{Kind, NEVER, Operation};

pub(crate) fn is_linearizable(history: &[Operation]) -> bool {
    search(history, 0, None, &mut HashSet::new())
}

/// Whether the operations that are not in the set `done` can follow each other, from this value on.
fn search(
    history: &[Operation],
    done: u32,
    value: Option<u64>,
    tried: &mut HashSet<(u32, Option<u64>)>,
) -> bool {
    let is_open = |at: &usize| done & 1 << at == 0;
    let mut open = (0..history.len()).filter(is_open);
    if open.clone().all(|at| history[at].end == NEVER) {
        return true;
    }
    if !tried.insert((done, value)) {
        return false;
    }
    // Nothing that began after another one had ended can come before it.
    let first_end = open.clone().map(|at| history[at].end).min().unwrap_or(NEVER);
    open.any(|at| {
        let Operation { kind, begin, .. } = history[at];
        let next = match kind {
            Kind::Put(put) => Some(put),
            Kind::Get(got) if got == value => value,
            Kind::Get(_) => return false,
        };
        begin <= first_end && search(history, done | 1 << at, next, tried)
    })
}
