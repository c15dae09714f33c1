//! What the analyzer did not take, and why.

use serde_json::{Value, json};

use crate::counters::AnalyzerCounters;

/// A counter of refusals, and what it means for people that look at the page.
const WHY: &[(&str, &str)] = &[
    ("streams_refused", "agents that are not registered with the controller, or are too many"),
    ("refused", "windows of the future, too old ones, or with wrong numbers; look at the agents' clocks"),
    ("malformed", "messages that are no windows; an agent is broken, or of another version"),
    ("lost", "windows that agents had no room to keep while the analyzer was away"),
    ("too_late", "windows that came after their time was judged; they count in sums, not in windows"),
    ("foreign_flows", "flows of RNICs that are not those of the agent that tells of them"),
    ("unknown_flows", "flows to RNICs that no agent registered, or beyond those that are kept"),
    ("foreign_traces", "traces of RNICs that are not those of the agent, or beyond those that are kept"),
    ("foreign_services", "queue pairs of services that leave from RNICs of other agents"),
    ("unknown_services", "queue pairs of services to RNICs that no agent registered, or too many"),
    ("untold_services", "queue pairs of services that agents left out, since there were too many"),
    ("misplaced", "RNICs whose names collide, or whose ToR is not in the topology file"),
];

/// All refusals that there were, each with its reason.
pub(super) fn told(counters: &AnalyzerCounters) -> Vec<Value> {
    let count = |name: &str| counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count);
    let all = WHY.iter().map(|(name, why)| (name, count(name), why));
    all.filter(|(_, count, _)| *count > 0)
        .map(|(name, count, why)| json!({ "name": name, "count": count, "why": why }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_a_counter() {
        for (name, _) in WHY {
            assert!(AnalyzerCounters::default().iter().any(|(known, _)| known == *name), "{name}");
        }
        let counters = AnalyzerCounters { malformed: 3, kept: 9, ..AnalyzerCounters::default() };
        let told = told(&counters);
        assert_eq!((told.len(), &told[0]["name"], &told[0]["count"]), (1, &json!("malformed"), &json!(3)));
    }
}
