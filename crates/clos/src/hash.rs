//! The hash by which a switch chooses among equal ways.

/// What a switch looks at: addresses and source port. Protocol and destination port are the same in all
/// packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// The RNIC that sends.
    pub from: u32,
    /// The RNIC that receives.
    pub to: u32,
    /// The UDP source port.
    pub port: u16,
}

impl Tuple {
    /// The tuple of answers from this port.
    #[must_use]
    pub const fn back(self, port: u16) -> Self {
        Self { from: self.to, to: self.from, port }
    }
}

/// Spreads 64 bits (the finaliser of `splitmix64`).
pub(crate) const fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The hash of a tuple under a seed.
pub(crate) const fn hash(seed: u64, tuple: Tuple) -> u64 {
    let addresses = (tuple.from as u64) << 32 | tuple.to as u64;
    mix(mix(seed ^ mix(addresses)) ^ tuple.port as u64)
}

/// One of so many ways.
pub(crate) fn choose(seed: u64, tuple: Tuple, ways: u32) -> u32 {
    let wide = u128::from(hash(seed, tuple)) * u128::from(ways);
    u32::try_from(wide >> 64).unwrap_or(0)
}

/// Whether a tuple is among this share of all tuples.
pub(crate) fn is_among(salt: u64, tuple: Tuple, share: f64) -> bool {
    unit(hash(mix(salt), tuple)) < share
}

/// 64 random bits as a number from 0 to 1, without 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_and_shares_are_even() {
        let mut counts = [0_u32; 8];
        let mut among = 0;
        for port in 0xc000..=0xffff_u16 {
            let tuple = Tuple { from: 3, to: 77, port };
            counts[choose(9, tuple, 8) as usize] += 1;
            among += u32::from(is_among(5, tuple, 0.25));
        }
        assert!(counts.iter().all(|count| count.abs_diff(2048) < 200), "{counts:?}");
        assert!(among.abs_diff(4096) < 250, "{among}");
        assert!((0.0..1e-9).contains(&unit(0)) && unit(u64::MAX) < 1.0);
    }
}
