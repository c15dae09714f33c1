//! How much memory a process may lock: a card reads and writes memory that must stay where it is.

use super::facts::Facts;
use super::finding::{Finding, Level};
use crate::output::size;

/// The number of `CAP_IPC_LOCK`, with which there is no limit.
const CAP_IPC_LOCK: u32 = 14;

/// Bytes below which programs with ordinary buffers fail.
const LITTLE: u64 = 64 << 20;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let (soft, hard) = match facts.limit("Max locked memory") {
        Ok(limits) => limits,
        Err(why) => return vec![Finding::unknown("how much memory a process may lock").seen(why)],
    };
    let words = |limit: Option<u64>| {
        limit.map_or_else(
            || "unlimited".to_owned(),
            |bytes| size(usize::try_from(bytes).unwrap_or(usize::MAX)),
        )
    };
    let seen = format!("/proc/self/limits: Max locked memory {} {}", words(soft), words(hard));
    let Some(bytes) = soft else {
        return vec![Finding::ok("a process may lock all memory").seen(seen)];
    };
    let has_devices = !facts.devices().is_empty();
    let limit = words(soft);
    let (level, text) = match (has_devices, is_exempt(facts), bytes < LITTLE) {
        (false, ..) => (
            Level::Note,
            format!("a process may lock {limit}; Ferroce's card needs none, a card would need more"),
        ),
        (true, true, true) => (
            Level::Warning,
            format!(
                "a process may lock {limit}; this one may lock more (CAP_IPC_LOCK), those of users may not"
            ),
        ),
        (true, false, true) => {
            (Level::Fault, format!("a process may lock {limit}: registering more memory than that fails"))
        }
        (true, _, false) => {
            (Level::Note, format!("a process may lock {limit}: larger regions cannot be registered"))
        }
    };
    let finding = Finding::new(level, text).seen(seen);
    if !has_devices {
        return vec![finding];
    }
    let conf = "/etc/security/limits.d/90-rdma.conf";
    vec![
        finding
            .remedy("lift the limit for all users, and log in again; services have LimitMEMLOCK=infinity of their own:")
            .command(format!("printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee {conf}"))
            .command("ulimit -l unlimited"),
    ]
}

/// Whether the limit does not hold for this process: in the user namespace of the machine, with the capability.
fn is_exempt(facts: &Facts) -> bool {
    let capabilities = facts.status("CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok());
    let map = facts.value("/proc/self/uid_map").unwrap_or_default();
    let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    capabilities.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1) && is_whole
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;

    fn said(planted: &Planted, limit: &str, capabilities: &str) -> Finding {
        planted.file("/proc/self/limits", &format!("Max locked memory   {limit}   {limit}   bytes\n"));
        planted.file("/proc/self/status", &format!("Uid:\t0\t0\t0\t0\nCapEff:\t{capabilities}\n"));
        let said = check(&planted.facts());
        assert_eq!(said.len(), 1);
        said[0].clone()
    }

    #[test]
    fn a_low_limit_is_a_fault_where_there_is_a_device() {
        let planted = Planted::rxe();
        for (limit, capabilities, level) in [
            ("unlimited", "0", Level::Ok),
            ("67108864", "0", Level::Note),
            ("67108863", "0", Level::Fault),
            ("8388608", "0", Level::Fault),
            ("8388608", "0000000000004000", Level::Warning),
            ("8388608", "ffffffffffffbfff", Level::Fault),
        ] {
            assert_eq!(said(&planted, limit, capabilities).level, level, "{limit} {capabilities}");
        }
        assert!(said(&planted, "8388608", "0").what.contains("may lock 8 MiB"));
        planted.file("/proc/self/uid_map", "0 1000 1\n");
        assert_eq!(said(&planted, "65536", "0000000000004000").level, Level::Fault, "root of a namespace");
    }

    #[test]
    fn without_a_device_it_is_a_note() {
        assert_eq!(said(&Planted::bare(), "65536", "0").level, Level::Note);
        let planted = Planted::bare();
        planted.remove("/proc/self/limits");
        assert_eq!(check(&planted.facts())[0].level, Level::Unknown);
    }
}
