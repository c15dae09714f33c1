//! Calls on a line.

use ferroce_lane::LineFile;

use crate::{file_of, write};

#[test]
fn each_slot_that_has_called_is_taken_once() {
    let file = LineFile::create().unwrap();
    let (mut one, mut other) = (file.caller(), file.caller());
    let mut line = file.into_line();
    assert!(!line.is_called());
    assert_eq!(line.take().count(), 0);
    for slot in [0, 200, 63, 64, 255, 200] {
        assert!(!one.call(slot), "the owner is awake");
    }
    assert!(!other.call(127));
    assert!(line.is_called());
    assert_eq!(line.take().collect::<Vec<_>>(), [0, 63, 64, 127, 200, 255]);
    assert!(!line.is_called());
    for slot in 0..=255 {
        assert!(!other.call(slot));
    }
    assert!(line.take().eq(0..=255));
}

#[test]
fn a_sleeping_owner_is_to_be_signalled_once_by_each_caller() {
    let file = LineFile::create().unwrap();
    let other_process = LineFile::accept(file_of(&file).into()).unwrap();
    let (mut one, mut other) = (file.caller(), other_process.caller());
    let mut line = file.into_line();
    for _ in 0..3 {
        assert!(!line.going_to_sleep(), "no slot has called");
        assert!(one.call(1));
        assert!(!one.call(1) && !one.call(2));
        assert!(other.call(3));
        line.awake();
        assert!(!one.call(4));
        assert_eq!(line.take().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
    assert!(!one.call(9));
    assert!(line.going_to_sleep(), "it must not sleep now");
    assert!(other.call(9), "it may sleep all the same");
}

#[test]
fn a_bit_that_a_dead_process_has_left_keeps_no_later_one_from_signalling() {
    let file = LineFile::create().unwrap();
    let (mut dead, mut later) = (file.caller(), file.caller());
    let mut line = file.into_line();
    assert!(!line.going_to_sleep());
    assert!(dead.call(5), "and it dies before it signals");
    assert!(later.call(5));
}

#[test]
fn garbage_on_a_line_is_slots_and_nothing_else() {
    let file = LineFile::create().unwrap();
    let raw = file_of(&file);
    let mut caller = file.caller();
    let mut line = file.into_line();
    for at in (128..192).step_by(8) {
        write(&raw, at, u64::MAX);
    }
    assert!(line.is_called());
    assert!(line.take().eq(0..=255));
    assert!(caller.call(0), "in vain, once");
    assert!(!caller.call(0));
    line.awake();
    assert!(line.take().eq(0..1));
    assert!(!line.going_to_sleep());
    assert!(caller.call(1));
}
