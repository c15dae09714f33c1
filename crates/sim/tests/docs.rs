//! The page about the simulator names every planted bug.

use std::path::Path;

use ferroce_transport::planted::Bug;

#[test]
fn the_page_lists_the_planted_bugs_that_there_are() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulation.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Planted bugs").expect("a section for them");
    let section = section.split("\n## ").next().unwrap_or_default();
    let listed: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let known: Vec<String> = Bug::ALL.iter().map(|bug| format!("| `{bug:?}` | {} |", bug.what())).collect();
    assert_eq!(listed, known, "docs/simulation.md against crates/transport/src/planted.rs");
}
