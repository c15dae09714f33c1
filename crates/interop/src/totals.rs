//! What both sides counted in the whole run, and whether it adds up.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use crate::Result;
use crate::cases::Case;
use crate::far::Far;
use crate::lab::Lab;
use crate::run::TAP;
use crate::table::Column;

/// Counters of both sides.
///
/// The kernel has no counter for wrong ICRCs: it drops such a packet and does not count it as received. So what we
/// sent is compared with what it received, in cases in which the wire lost nothing; the rest it refused.
pub(crate) struct Totals {
    far: Far,
    ours: BTreeMap<&'static str, u64>,
    begun: Account,
    /// Packets of ours in fair weather, and cases in which the kernel did not take as many.
    sent: i64,
    refused: Vec<String>,
}

/// What was counted at one moment.
#[derive(Clone, Copy, Default)]
struct Account {
    sent: i64,
    received: i64,
    dropped: i64,
    /// Packets of the kernel whose ICRC was wrong.
    damaged: u64,
}

impl Totals {
    pub(crate) fn new(guest: IpAddr) -> Result<Self> {
        let far = Far::connect(guest)?;
        Ok(Self { far, ours: BTreeMap::new(), begun: Account::default(), sent: 0, refused: Vec::new() })
    }

    /// A case begins.
    pub(crate) fn begin(&mut self, lab: &Lab) -> Result<()> {
        self.begun = self.account(lab)?;
        Ok(())
    }

    /// It ended.
    pub(crate) fn end(&mut self, lab: &Lab, case: &Case, column: Column) -> Result<()> {
        let (then, now) = (self.begun, self.account(lab)?);
        if now.damaged > then.damaged {
            self.refused.push(format!(
                "{} ({column}): {} with a wrong ICRC at us",
                case.name,
                now.damaged - then.damaged
            ));
        }
        // What the wire had no room for may have been packets of either side.
        if case.is_accounted() && now.dropped == then.dropped {
            let (sent, received) = (now.sent - then.sent, now.received - then.received);
            self.sent += sent;
            if sent != received {
                self.refused.push(format!("{} ({column}): the kernel took {received} of {sent}", case.name));
            }
        }
        Ok(())
    }

    /// Our device is about to be closed.
    pub(crate) fn add(&mut self, lab: &Lab) {
        for (name, value) in lab.counters().iter() {
            *self.ours.entry(name).or_default() += value;
        }
    }

    /// What must not be.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for name in ["icrc_errors", "malformed", "unknown_opcode"] {
            let count = self.ours(name);
            if count > 0 {
                wrong.push(format!("our counter {name} is {count}: the kernel sends no such packets"));
            }
        }
        wrong.extend(self.refused.iter().map(|case| format!("packets that were refused: {case}")));
        wrong
    }

    /// For people.
    pub(crate) fn notes(&mut self) -> Result<Vec<String>> {
        let counters = self.far.run("cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep -H . *")?;
        let kernels: BTreeMap<&str, &str> =
            counters.lines().filter_map(|line| line.split_once(':')).collect();
        let kernels = |name: &str| kernels.get(name).copied().unwrap_or("0");
        let bad = self.ours("malformed") + self.ours("unknown_opcode");
        Ok(vec![
            format!(
                "We sent {} packets and received {}: {} of them with a wrong ICRC, {bad} malformed.",
                self.ours("packets_sent"),
                self.ours("packets_received"),
                self.ours("icrc_errors"),
            ),
            format!(
                "Of {} packets that we sent in fair weather to queue pairs that stayed well, the kernel took {}.",
                self.sent,
                if self.refused.is_empty() { "all" } else { "not as many" },
            ),
            format!(
                "In the whole run the kernel saw {} requests twice and {} out of order, and sent again {} times.",
                kernels("duplicate_request"),
                kernels("out_of_seq_request"),
                kernels("completer_retry_err"),
            ),
        ])
    }

    fn ours(&self, name: &str) -> u64 {
        self.ours.get(name).copied().unwrap_or_default()
    }

    /// What both sides have counted when nothing is on the wire. The question goes the same way as our packets, so the
    /// answer counts all that were sent before it; if meanwhile we sent more, it is asked again.
    fn account(&mut self, lab: &Lab) -> Result<Account> {
        loop {
            let sent = lab.counters().packets_sent;
            let received = self.far.counter("/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts")?;
            if lab.counters().packets_sent == sent {
                let dropped = fs::read_to_string(format!("/sys/class/net/{TAP}/statistics/tx_dropped"))?;
                return Ok(Account {
                    sent: i64::try_from(sent)?,
                    received: i64::try_from(received)?,
                    dropped: dropped.trim().parse()?,
                    damaged: lab.counters().icrc_errors,
                });
            }
        }
    }
}
