//! Queue pairs that go: what their peers are told before nobody answers for them any more.

use ferroce_wire::Qpn;

use super::{Engine, qps};
use crate::path::Path;

/// Queue pairs of an engine that repeat their last acknowledgement when the process ends.
const MOST: usize = 256;

impl Engine {
    /// Has the last acknowledgement of a queue pair, or of all of them, sent once more by the next turn that leaves;
    /// false if there is none. A peer whose last message was acknowledged by a packet that was lost would ask
    /// again until it gives up, although everything arrived. Two packets are seldom lost together.
    pub(crate) fn repeat_acks(&mut self, of: Option<Qpn>) -> bool {
        let indices: Vec<u16> = match of {
            Some(qpn) => vec![qps::index_of(qpn)],
            None => self.qps.iter().map(|entry| qps::index_of(entry.machine.qpn())).take(MOST).collect(),
        };
        let mut any = false;
        for index in indices {
            let Some(entry) = self.qps.by_index(index) else { continue };
            if entry.path.is_some_and(|choice| choice.path == Path::Wire) {
                entry.machine.repeat_ack();
                any |= entry.machine.owes_ack();
                self.after(index);
            }
        }
        any
    }
}
