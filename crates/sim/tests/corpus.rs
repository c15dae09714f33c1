//! The corpus of the fuzz target `operations`, replayed.

use ferroce_sim::fuzz;

#[test]
fn the_operations_corpus_finds_nothing() {
    assert!(ferroce_testkit::fuzz::replay("operations", fuzz::operations) >= 200);
}
