//! What people look at, made from what was judged.

use std::sync::Arc;

use ferroce_mesh::{FlowKey, HostReport, Paths, Topology, Window};

use super::slot::{Due, FlowAddress, FlowTold};
use super::wiring::Wiring;
use crate::board::{BoardFinding, BoardFlow, BoardHost, BoardWindow, SharedBoard};

/// The wiring and the findings that people saw last.
#[derive(Debug, Default)]
pub(super) struct Picture {
    topology: Option<Arc<Topology>>,
    /// Links that traces had shown, and RNICs that hung elsewhere.
    learnt: u32,
    open: Vec<BoardFinding>,
}

impl Picture {
    /// The wiring as it is now; the same one as before if nothing is new in it.
    pub(super) fn of(&mut self, paths: &Paths) -> Arc<Topology> {
        let now = paths.topology();
        let is_same = |before: &&Arc<Topology>| {
            (before.switches(), before.rnics(), before.links().len())
                == (now.switches(), now.rnics(), now.links().len())
                && self.learnt == paths.learnt()
        };
        if let Some(same) = self.topology.as_ref().filter(is_same) {
            return Arc::clone(same);
        }
        let new = Arc::new(now.clone());
        (self.topology, self.learnt) = (Some(Arc::clone(&new)), paths.learnt());
        new
    }

    /// Findings that were open and are neither open nor over: what they name is gone, so they are over, too.
    pub(super) fn close(
        &mut self,
        open: &[BoardFinding],
        over: &[BoardFinding],
        end: u64,
    ) -> Vec<BoardFinding> {
        let before = std::mem::replace(&mut self.open, open.to_vec());
        let is_known = |one: &BoardFinding| open.iter().chain(over).any(|other| other.id == one.id);
        let gone = before.into_iter().filter(|one| !is_known(one));
        gone.map(|one| BoardFinding { over: end, ..one }).collect()
    }
}

/// A window for people.
pub(super) fn window(
    due: &Due,
    judged: &Window,
    wiring: &Wiring,
    topology: Arc<Topology>,
    open: Vec<BoardFinding>,
    over: Vec<BoardFinding>,
) -> BoardWindow {
    let flow = |((from, to, port, reply_port), told): (&FlowAddress, &FlowTold)| {
        let (from, to) = (*wiring.rnics.get(from)?, *wiring.rnics.get(to)?);
        let key = FlowKey { from, to, port: *port, reply_port: *reply_port };
        Some(BoardFlow { key, outcomes: told.outcomes, trips: told.trips.clone() })
    };
    let host = |report: &HostReport| BoardHost {
        host: topology.hosts()[report.host.0 as usize].name.clone(),
        stalls: report.stalls,
        longest: report.longest,
        receive_drops: report.receive_drops,
        lapsed: report.lapsed,
        changed_qpn: report.changed_qpn,
        ..BoardHost::default()
    };
    BoardWindow {
        start: due.start,
        end: due.end,
        agents: due.agents,
        is_complete: due.is_complete,
        flows: due.slot.flows.iter().filter_map(flow).collect(),
        hosts: judged.hosts.iter().map(host).collect(),
        open,
        over,
        topology,
        services: Vec::new(),
        services_left_out: 0,
    }
}

/// Puts a window on the board, and what was traced before it.
pub(super) fn put(board: &SharedBoard, due: Due, window: BoardWindow) {
    let end = due.end;
    for part in due.traces.chunks(1024) {
        // Reports wait for the board, so it is not held for long.
        let mut board = board.lock();
        for trace in part {
            board.trace(trace.from, trace.to, trace.port, trace.path.clone(), end);
        }
    }
    board.window(window);
}
