//! ARCHITECTURE.md is the map: a crate that is not on it cannot be found.

use super::Finding;
use super::tree::Tree;

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.text(MAP) else {
        return vec![Finding::new(MAP, 1, "there is no map; write one that names every crate under crates/")];
    };
    let unmapped = tree.crates().filter(|(folder, _)| !map.contains(&format!("`{folder}`")));
    let what = |folder| format!("crate `{folder}` is not on the map; add its row to {MAP}");
    unmapped.map(|(folder, manifest)| Finding::new(manifest, 1, what(folder))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_is_on_the_map() {
        let wire = ("crates/wire/Cargo.toml", "");
        assert!(check(&Tree::of(&[wire, (MAP, "| `wire` | bytes |\n")])).is_empty());
        assert_eq!(check(&Tree::of(&[wire, (MAP, "| wire | bytes |\n")])).len(), 1);
    }

    #[test]
    fn there_is_a_map() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
