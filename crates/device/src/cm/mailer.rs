//! How messages leave: as all packets of the device, with its faults and into its capture.

use std::io;
use std::sync::Arc;

use ferroce_fabric::capture::Capture;
use ferroce_fabric::faults::FaultPlan;
use ferroce_switchboard::{Mad, Membership, route, seal};
use ferroce_transport::cm::Ends;
use ferroce_wire::mad::MAD_LEN;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Sends messages from queue pair 1.
pub(super) struct Mailer {
    member: Arc<Membership>,
    capture: Option<Capture<()>>,
    faults: Option<(FaultPlan, ChaCha8Rng)>,
}

impl Mailer {
    pub(super) fn new(
        member: Arc<Membership>,
        capture: Option<Capture<()>>,
        plan: Option<FaultPlan>,
    ) -> Self {
        let faults = plan.map(|plan| (plan, ChaCha8Rng::seed_from_u64(plan.seed.wrapping_add(0x636d))));
        Self { member, capture, faults }
    }

    pub(super) fn send(&mut self, ends: &Ends, mad: &[u8; MAD_LEN]) -> io::Result<()> {
        let between = (ends.local, ends.remote);
        let packet = seal(between.0, between.1, mad)?;
        for _ in 0..self.copies() {
            if let Some(capture) = &self.capture {
                capture.note_sent(&route(between.0, between.1), packet.bytes());
            }
            self.member.post_mad(between, &packet)?;
        }
        Ok(())
    }

    pub(super) fn arrived(&self, mad: &Mad) {
        if let Some(capture) = &self.capture {
            capture.note_received(&mad.received, mad.packet.bytes());
        }
    }

    /// How often a message leaves. Of the faults of a device those count that a lone datagram can suffer, and
    /// one that is spoilt is as good as lost.
    fn copies(&mut self) -> usize {
        let Some((plan, dice)) = &mut self.faults else { return 1 };
        let mut hit = |rate: f64| f64::from(dice.next_u32()) < rate * f64::from(u32::MAX);
        let (lost, doubled) = (hit(plan.loss) || hit(plan.corrupt), hit(plan.dup));
        if lost { 0 } else { 1 + usize::from(doubled) }
    }
}
