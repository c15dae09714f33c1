//! Lanes and lines over real files in memory.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test may end so, in its helpers too")]

mod corpus;
mod doors;
mod files;
mod lies;
mod line;
mod ring;
mod threads;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use ferroce_lane::{Consumer, LaneFile, Producer};

/// The shortest ring.
const RING: usize = LaneFile::LEAST_RING;

/// Where things are in the file: part of what both processes have to agree on.
const HEAD: u64 = 128;
const TAIL: u64 = 256;
const DATA: u64 = 4096;

/// Both ends of a lane with the shortest ring, and the file as a hostile process has it.
fn lane() -> (Producer, Consumer, File) {
    let lane = LaneFile::create_with(RING).unwrap();
    let file = file_of(&lane);
    let (producer, consumer) = lane.split();
    (producer, consumer, file)
}

fn file_of(file: &impl AsFd) -> File {
    File::from(file.as_fd().try_clone_to_owned().unwrap())
}

fn write(file: &File, at: u64, word: u64) {
    file.write_all_at(&word.to_ne_bytes(), at).unwrap();
}

fn read(file: &File, at: u64) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).unwrap();
    u64::from_ne_bytes(word)
}

/// Puts a record in; whether there was room.
fn push(producer: &mut Producer, kind: u8, bytes: &[u8]) -> bool {
    let Some(room) = producer.room(bytes.len()) else { return false };
    room.copy_from_slice(bytes);
    producer.commit(kind, bytes.len());
    true
}

/// Takes the next record.
fn pop(consumer: &mut Consumer) -> Option<(u8, Vec<u8>)> {
    consumer.next().map(|record| (record.kind(), record.bytes().to_vec()))
}
