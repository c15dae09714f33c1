//! How many random ports see all paths: the chances are those of throwing balls into urns.
//!
//! By inclusion and exclusion the chance that `n` ports hit all of `m` paths is the sum over `k` of
//! `(-1)^k C(m,k) (1 - k/m)^n`. Its terms can be far larger than their sum (at `m = n = 128` they exceed `10^14`,
//! and a sum of floats comes out negative), so the same number is computed port by port instead, from
//! chances that are all positive: a port hits a path that was hit before, or a new one.

/// After so many ports, the chance of each number of paths.
#[derive(Clone, Debug, PartialEq)]
pub struct Occupancy {
    ports: u64,
    /// The chance that exactly so many paths were hit.
    exactly: Vec<f64>,
}

impl Occupancy {
    /// So many paths of equal chances, and no port yet.
    #[must_use]
    pub fn new(paths: u32) -> Self {
        let mut exactly = vec![0.0; paths as usize + 1];
        exactly[0] = 1.0;
        Self { ports: 0, exactly }
    }

    /// The same after so many ports.
    #[must_use]
    pub fn after(paths: u32, ports: u64) -> Self {
        let mut chances = Self::new(paths);
        (0..ports).for_each(|_| chances.add_port());
        chances
    }

    /// One more port.
    pub fn add_port(&mut self) {
        self.ports += 1;
        let paths = self.paths();
        if paths == 0 {
            return;
        }
        let all = f64::from(paths);
        for hit in (1..=paths).rev() {
            let place = hit as usize;
            let again = self.exactly[place] * (f64::from(hit) / all);
            let new = self.exactly[place - 1] * (f64::from(paths - hit + 1) / all);
            self.exactly[place] = again + new;
        }
        self.exactly[0] = 0.0;
    }

    /// Paths that there are.
    #[must_use]
    pub fn paths(&self) -> u32 {
        u32::try_from(self.exactly.len() - 1).unwrap_or(u32::MAX)
    }

    /// Ports so far.
    #[must_use]
    pub const fn ports(&self) -> u64 {
        self.ports
    }

    /// The chance that all paths were hit.
    #[must_use]
    pub fn all(&self) -> f64 {
        self.exactly.last().copied().unwrap_or(1.0)
    }

    /// The chance that no more than so many paths were hit.
    #[must_use]
    pub fn at_most(&self, hit: u32) -> f64 {
        self.exactly.iter().take(hit as usize + 1).sum::<f64>().min(1.0)
    }

    /// How many paths are hit in the mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        (0_u32..).zip(&self.exactly).map(|(hit, chance)| f64::from(hit) * chance).sum()
    }
}

/// How many random ports hit all of so many paths with this confidence. None if the confidence is not below
/// 1, or so close to it that no number of ports is enough for the precision of a float.
#[must_use]
pub fn ports_for(paths: u32, confidence: f64) -> Option<u64> {
    // Each path is missed by n ports with a chance of at most e^(-n/m): beyond this nothing is left to miss.
    let most = u64::from(paths) * (u64::from(paths.max(1).ilog2()) + 64) + 1;
    let mut chances = Occupancy::new(paths);
    while chances.all() < confidence {
        if chances.ports() >= most {
            return None;
        }
        chances.add_port();
    }
    (confidence < 1.0).then_some(chances.ports())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole number of any length, its lowest part first: exact, for the formula as it is written.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Big(Vec<u32>);

    impl Big {
        fn times(&self, factor: u32) -> Self {
            let mut carry = 0_u64;
            let mut parts = Vec::with_capacity(self.0.len() + 1);
            for part in &self.0 {
                carry += u64::from(*part) * u64::from(factor);
                parts.push(low(carry));
                carry >>= 32;
            }
            parts.push(low(carry));
            Self(parts).trimmed()
        }

        fn power(base: u32, exponent: u64) -> Self {
            (0..exponent).fold(Self(vec![1]), |power, _| power.times(base))
        }

        /// C(n, k), by multiplying and dividing in turn: each division leaves nothing over.
        fn times_choose(mut self, n: u32, k: u32) -> Self {
            for step in 1..=k {
                self = self.times(n - step + 1).over(step);
            }
            self
        }

        fn over(&self, divisor: u32) -> Self {
            let mut rest = 0_u64;
            let mut parts = self.0.clone();
            for part in parts.iter_mut().rev() {
                rest = rest << 32 | u64::from(*part);
                *part = low(rest / u64::from(divisor));
                rest %= u64::from(divisor);
            }
            assert_eq!(rest, 0);
            Self(parts).trimmed()
        }

        fn plus(&self, other: &Self) -> Self {
            let mut carry = 0_u64;
            let mut parts = Vec::new();
            for place in 0..self.0.len().max(other.0.len()) {
                carry += u64::from(self.part(place)) + u64::from(other.part(place));
                parts.push(low(carry));
                carry >>= 32;
            }
            parts.push(low(carry));
            Self(parts).trimmed()
        }

        fn minus(&self, other: &Self) -> Self {
            let mut borrow = 0_i64;
            let mut parts = Vec::new();
            for place in 0..self.0.len() {
                borrow += i64::from(self.part(place)) - i64::from(other.part(place));
                parts.push(low(u64::from_ne_bytes(borrow.to_ne_bytes())));
                borrow >>= 32;
            }
            assert_eq!(borrow, 0, "the result is not negative");
            Self(parts).trimmed()
        }

        fn part(&self, place: usize) -> u32 {
            self.0.get(place).copied().unwrap_or(0)
        }

        fn trimmed(mut self) -> Self {
            while self.0.len() > 1 && self.0.last() == Some(&0) {
                self.0.pop();
            }
            self
        }

        /// This over another, from the highest three parts of each.
        fn ratio(&self, other: &Self) -> f64 {
            let top = other.0.len();
            let value = |number: &Self| {
                let part = |place: usize| f64::from(number.part(place));
                part(top - 1) * 2_f64.powi(64) + part(top - 2) * 2_f64.powi(32) + part(top - 3)
            };
            value(self) / value(other)
        }
    }

    fn low(wide: u64) -> u32 {
        u32::try_from(wide & 0xffff_ffff).unwrap()
    }

    /// The formula of inclusion and exclusion, in whole numbers: positive and negative terms are summed
    /// apart.
    fn exact(paths: u32, ports: u64) -> f64 {
        let mut sums = [Big(vec![0]), Big(vec![0])];
        for missed in 0..=paths {
            let term = Big::power(paths - missed, ports).times_choose(paths, missed);
            let sum = &mut sums[missed as usize % 2];
            *sum = sum.plus(&term);
        }
        sums[0].minus(&sums[1]).ratio(&Big::power(paths, ports))
    }

    #[test]
    fn the_steps_give_what_inclusion_and_exclusion_gives() {
        for (paths, ports) in
            [(2, 100), (8, 33), (16, 64), (16, 79), (64, 408), (128, 400), (128, 906), (128, 1206)]
        {
            let (stepped, exact) = (Occupancy::after(paths, ports).all(), exact(paths, ports));
            assert!((stepped - exact).abs() < 1e-12, "{paths} paths, {ports} ports: {stepped} or {exact}");
        }
    }

    #[test]
    fn the_formula_in_floats_would_be_wrong() {
        let mut sum = 0.0;
        let (mut choose, paths, ports) = (1.0, 128_i32, 128);
        for missed in 0..=paths {
            let sign = if missed % 2 == 0 { 1.0 } else { -1.0 };
            sum += sign * choose * (1.0 - f64::from(missed) / f64::from(paths)).powi(ports);
            choose *= f64::from(paths - missed) / f64::from(missed + 1);
        }
        let right = Occupancy::after(128, 400).all();
        assert!(
            (sum - right).abs() > right / 1e6,
            "{sum} is as good as {right}: then there is no need for steps"
        );
    }

    #[test]
    fn so_many_ports_are_needed() {
        for (paths, at_90, at_99) in [(8, 33, 51), (16, 79, 115), (64, 408, 557), (128, 906, 1206)] {
            assert_eq!(ports_for(paths, 0.9), Some(at_90));
            assert_eq!(ports_for(paths, 0.99), Some(at_99));
            assert!(exact(paths, at_90) >= 0.9 && exact(paths, at_90 - 1) < 0.9, "{paths} paths, exactly");
        }
        assert!((Occupancy::after(16, 64).all() - 0.765).abs() < 5e-4, "what 64 labels reach");
        assert_eq!((ports_for(1, 0.999), ports_for(0, 0.5)), (Some(1), Some(0)));
        assert_eq!((ports_for(16, 1.0), ports_for(16, 2.0), ports_for(16, f64::NAN)), (None, None, None));
        assert!(ports_for(128, 1.0 - 1e-12).is_some_and(|ports| ports < 5000));
    }

    #[test]
    fn chances_sum_up_to_one() {
        for (paths, ports) in [(1, 5), (16, 0), (16, 10), (64, 1000), (128, 128)] {
            let chances = Occupancy::after(paths, ports);
            assert!((chances.at_most(paths) - 1.0).abs() < 1e-12);
            let missed = (0..ports).fold(1.0, |missed, _| missed * (1.0 - 1.0 / f64::from(paths)));
            let mean = f64::from(paths) * (1.0 - missed);
            assert!((chances.mean() - mean).abs() < 1e-9, "{paths} paths, {ports} ports");
        }
    }
}
