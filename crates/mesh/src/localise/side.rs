//! One way of a flow whose path is not known: which of the paths that it may take have which chances.

use super::counts::Part;
use crate::mixture::Choices;

/// The paths that a way may take, in groups of those that have the same chances; all are as likely.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    weight: f64,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    paths: Choices,
    passes: f64,
    keeps: f64,
}

/// Chances that differ by no more are the same: the rest comes from rounding.
const SAME: f64 = 1e-12;

impl Side {
    /// So many paths, all with the same chances: of a packet to pass, and of a tuple to pass at all.
    pub(crate) fn new(paths: usize, passes: f64, keeps: f64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "at most 256")]
        let weight = 1.0 / paths.max(1) as f64;
        Self { weight, groups: vec![Group { paths: Choices::first(paths), passes, keeps }] }
    }

    /// The groups, if besides some paths pass with these chances.
    pub(crate) fn parts<'a>(
        &'a self,
        hit: &'a Choices,
        passes: f64,
        keeps: f64,
    ) -> impl Iterator<Item = Part> + Clone + 'a {
        self.groups.iter().flat_map(move |group| {
            let (all, guilty) = (group.paths.count(), group.paths.and(hit).count());
            let part = |count: u32, passes: f64, keeps: f64| Part {
                weight: f64::from(count) * self.weight,
                passes,
                keeps,
            };
            let good = (all > guilty).then(|| part(all - guilty, group.passes, group.keeps));
            let bad = (guilty > 0).then(|| part(guilty, group.passes * passes, group.keeps * keeps));
            good.into_iter().chain(bad)
        })
    }

    /// From now on, some paths pass with these chances besides.
    pub(crate) fn scale(&mut self, hit: &Choices, passes: f64, keeps: f64) {
        let mut groups: Vec<Group> = Vec::with_capacity(self.groups.len() + 1);
        for old in &self.groups {
            let scaled = Group {
                paths: old.paths.and(hit),
                passes: (old.passes * passes).min(1.0),
                keeps: (old.keeps * keeps).min(1.0),
            };
            for group in [Group { paths: old.paths.without(hit), ..*old }, scaled] {
                if group.paths.count() == 0 {
                    continue;
                }
                let is_same = |one: &&mut Group| {
                    (one.passes - group.passes).abs() < SAME && (one.keeps - group.keeps).abs() < SAME
                };
                match groups.iter_mut().find(is_same) {
                    Some(same) => same.paths = same.paths.or(&group.paths),
                    None => groups.push(group),
                }
            }
        }
        self.groups = groups;
    }

    /// The mean chances: of a packet to pass, and of the tuple to pass at all.
    pub(crate) fn mean(&self) -> (f64, f64) {
        let weight = |group: &Group| f64::from(group.paths.count()) * self.weight;
        let mean = |of: fn(&Group) -> f64| self.groups.iter().map(|group| weight(group) * of(group)).sum();
        (mean(|group| group.passes), mean(|group| group.keeps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blamed_and_cleared_again_is_as_before() {
        let mut side = Side::new(70, 0.999, 1.0);
        let mut hit = Choices::default();
        [3, 65, 69].into_iter().for_each(|path| hit.insert(path));
        let weights = |side: &Side| -> Vec<f64> {
            side.parts(&Choices::default(), 1.0, 1.0).map(|part| part.weight).collect()
        };
        let asked: Vec<Part> = side.parts(&hit, 0.5, 0.25).collect();
        side.scale(&hit, 0.5, 0.25);
        let told: Vec<Part> = side.parts(&Choices::default(), 1.0, 1.0).collect();
        assert_eq!(asked, told, "what would be is what is, once it is");
        assert!((weights(&side)[1] - 3.0 / 70.0).abs() < 1e-12, "{side:?}");
        let mean = 0.999 * (67.0 + 3.0 * 0.5) / 70.0;
        assert!((side.mean().0 - mean).abs() < 1e-12);
        side.scale(&hit, 2.0, 4.0);
        assert_eq!(weights(&side).len(), 1, "{side:?}");
        assert!((weights(&side)[0] - 1.0).abs() < 1e-12);
    }
}
