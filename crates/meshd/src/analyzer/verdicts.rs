//! Findings, as they are told.

use std::collections::VecDeque;

use ferroce_mesh::{Analyzer, Finding, Tuple, Verdict, Window};
use ferroce_probe::paths::Path;

use crate::proto::v1;

/// Findings that are over and still told.
const OVER: usize = 256;

/// Windows whose times are known.
const TIMES: usize = 16_384;

/// The machine of findings, with the times of its windows.
#[derive(Debug)]
pub(super) struct Verdicts {
    analyzer: Analyzer,
    /// When windows began; the last is the newest.
    starts: VecDeque<u64>,
    next: u64,
    open: Vec<v1::Finding>,
}

impl Verdicts {
    pub(super) const fn new(analyzer: Analyzer) -> Self {
        Self { analyzer, starts: VecDeque::new(), next: 0, open: Vec::new() }
    }

    /// What is bad.
    pub(super) fn open(&self) -> &[v1::Finding] {
        &self.open
    }

    /// The packets of a tuple took this path.
    pub(super) fn trace(&mut self, tuple: Tuple, path: &Path) {
        self.analyzer.paths_mut().trace(tuple, path);
    }

    /// Takes a window from `start` to `end`, and tells what is over with it.
    pub(super) fn window(&mut self, window: &Window, start: u64, end: u64, over: &mut VecDeque<v1::Finding>) {
        if self.starts.len() >= TIMES {
            self.starts.pop_front();
        }
        self.starts.push_back(start);
        let Verdict { number, open, over: ended, .. } = self.analyzer.window(window);
        self.next = number + 1;
        self.open = open.iter().map(|finding| self.told(finding, 0)).collect();
        for finding in &ended {
            if over.len() >= OVER {
                over.pop_front();
            }
            over.push_back(self.told(finding, end));
        }
    }

    fn told(&self, finding: &Finding, over_unix_ns: u64) -> v1::Finding {
        let topology = self.analyzer.paths().topology();
        let ago = usize::try_from(self.next - finding.since).unwrap_or(usize::MAX);
        let place = self.starts.len().saturating_sub(ago);
        let evidence = &finding.evidence;
        v1::Finding {
            id: finding.id.0,
            trouble: format!("{:?}", finding.trouble).to_lowercase(),
            suspects: finding.suspects.iter().map(|suspect| suspect.name(topology)).collect(),
            severity: format!("{:?}", finding.severity).to_lowercase(),
            since_unix_ns: self.starts.get(place).copied().unwrap_or_default(),
            over_unix_ns,
            crossings: evidence.crossings,
            losses: evidence.losses,
            expected: evidence.expected,
            gain: evidence.gain,
        }
    }
}
