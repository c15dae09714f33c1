//! Doors of one process, and the hands of others in them.

use std::os::unix::fs::FileExt;

use ferroce_lane::{Door, Doors, DoorsFile, ForeignDoors, Hand, LaneFile, Visitor};

use crate::{RING, file_of, read, write};

const REGION: Door = Door { number: 3, key: 0x10_0000_0005 };
const PAIR: Door = Door { number: 4000, key: 0x20_0000_0006 };

/// Where the hand is in the file of a lane.
const HAND: u64 = 384;

/// Doors, and a visitor as it is in the other process, with its hand as the owner sees it; and the file with the hand.
fn pair() -> (Doors, Visitor, Hand, std::fs::File) {
    let (made, lane) = (DoorsFile::create().unwrap(), LaneFile::create_with(RING).unwrap());
    let told = ForeignDoors::accept(file_of(&made).into()).unwrap();
    let accepted = LaneFile::accept_with(file_of(&lane).into(), RING).unwrap();
    (made.doors(), lane.visitor(&told), accepted.hand(), file_of(&lane))
}

#[test]
fn a_hand_is_in_two_doors_while_it_reaches_and_only_through_open_ones() {
    let (doors, mut visitor, hand, _) = pair();
    assert!(visitor.reach([REGION, PAIR]).is_none(), "both are closed");
    doors.open(REGION);
    assert!(visitor.reach([REGION, PAIR]).is_none(), "one is closed");
    doors.open(PAIR);
    let reach = visitor.reach([REGION, PAIR]).unwrap();
    assert!(hand.is_in(REGION.number) && hand.is_in(PAIR.number));
    assert!(!hand.is_in(REGION.number + 1) && !hand.is_in(0));
    doors.close(REGION.number);
    assert!(hand.is_in(REGION.number), "it was in before");
    drop(reach);
    assert!(!hand.is_in(REGION.number) && !hand.is_in(PAIR.number));
    assert!(visitor.reach([REGION, PAIR]).is_none());
    assert!(!hand.is_in(REGION.number), "it was taken back");
    doors.open(Door { key: REGION.key + 1, ..REGION });
    assert!(visitor.reach([REGION, PAIR]).is_none(), "the key is another one");
    assert!(visitor.reach([Door { key: REGION.key + 1, ..REGION }, PAIR]).is_some());
}

#[test]
fn doors_and_keys_that_are_none_let_nothing_in() {
    let (doors, mut visitor, hand, _) = pair();
    doors.open(PAIR);
    let last = u32::try_from(Doors::COUNT).unwrap() - 1;
    for number in [last, last + 1, u32::MAX] {
        for key in [0, 1] {
            assert!(visitor.reach([Door { number, key }, PAIR]).is_none(), "{number} {key}");
            assert!(!hand.is_in(number));
        }
    }
    doors.open(Door { number: last, key: 1 });
    assert!(visitor.reach([Door { number: last, key: 1 }, PAIR]).is_some());
    assert!(std::panic::catch_unwind(|| pair().0.open(Door { number: last + 1, key: 1 })).is_err());
    assert!(std::panic::catch_unwind(|| pair().0.open(Door { number: 0, key: 0 })).is_err());
}

/// Whatever stands where the hand is, it is compared, and no more.
#[test]
fn a_hand_of_garbage_is_in_some_doors_or_in_none() {
    let (.., hand, file) = pair();
    assert_eq!(read(&file, HAND), 0);
    write(&file, HAND, u64::MAX);
    assert!(hand.is_in(u32::MAX - 1) && !hand.is_in(0) && !hand.is_in(u32::MAX));
    write(&file, HAND, 1);
    assert!(hand.is_in(0) && !hand.is_in(1));
}

#[test]
fn a_file_of_something_else_has_no_doors() {
    let lane = LaneFile::create_with(60 << 10).unwrap();
    assert!(ForeignDoors::accept(file_of(&lane).into()).is_err());
    assert!(LaneFile::accept_with(file_of(&DoorsFile::create().unwrap()).into(), 60 << 10).is_err());
}

/// What has the descriptor looks, and opens nothing.
#[test]
fn no_other_process_writes_to_doors() {
    let made = DoorsFile::create().unwrap();
    made.doors().open(REGION);
    let file = file_of(&made);
    let word = 128 + u64::from(REGION.number) * 8;
    assert_eq!(read(&file, word), REGION.key);
    assert!(file.write_all_at(&[0; 8], word).is_err() && file.set_len(0).is_err());
    assert_eq!(read(&file, word), REGION.key);
    made.doors().close(REGION.number);
    assert_eq!(read(&file, word), 0, "the owner does");
}
