//! Many threads, one pool.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use ferroce_broker::pool::{AllocError, Item, Pool};

use crate::pool;

const THREADS: usize = 4;

/// Allocations in all: ten million in the long form.
fn allocations() -> usize {
    if std::env::var_os("FERROCE_SOAK").is_some() { 10_000_000 } else { 400_000 }
}

/// A row of numbers that is the same in every run.
struct Dice(u64);

impl Dice {
    /// From 0 up to this.
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    const fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % end
    }
}

/// Every thread writes its mark into its items and finds it again: no other thread has the memory. Partitions
/// are shared, and items change hands, so that they are freed by threads that did not make them.
#[test]
fn four_threads_never_get_the_same_memory() {
    let pool = pool(Pool::builder().slab_size(16 << 10).first_size(16), 4 << 20);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<(Item, u64)>()).unzip();
    let full = AtomicU64::new(0);
    thread::scope(|scope| {
        for (me, inbox) in (0..THREADS).zip(receivers) {
            let (pool, full) = (&pool, &full);
            let next = senders[(me + 1) % THREADS].clone();
            scope.spawn(move || {
                let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (me as u64 + 1));
                let mut held: Vec<(Item, u64)> = Vec::new();
                for turn in 0..allocations() / THREADS {
                    let size = 8 + dice.below(if turn % 64 == 0 { 16_000 } else { 200 });
                    match pool.alloc(dice.below(3) as u64, size) {
                        Ok(item) => {
                            let mark = (me as u64) << 56 | turn as u64;
                            stamp(&item, mark);
                            held.push((item, mark));
                        }
                        Err(AllocError::Exhausted { .. }) => {
                            full.fetch_add(1, Ordering::Relaxed);
                            held.truncate(held.len() / 2);
                        }
                        Err(error) => panic!("{error}"),
                    }
                    if held.len() > 300 {
                        let (item, mark) = held.swap_remove(dice.below(300));
                        check(&item, mark);
                        if dice.below(4) == 0 {
                            // A thread that has ended already takes nothing more.
                            let _ = next.send((item, mark));
                        }
                    }
                    for (item, mark) in inbox.try_iter() {
                        check(&item, mark);
                    }
                }
                for (item, mark) in &held {
                    check(item, *mark);
                }
            });
        }
        drop(senders);
    });
    let usage = pool.usage();
    assert_eq!((usage.free_slabs, usage.items()), (256, 0), "{usage}");
    println!("{} allocations, {} times full", allocations(), full.into_inner());
}

/// The first and the last eight bytes say which thread made the item, and when.
fn stamp(item: &Item, mark: u64) {
    item.write_at(0, &mark.to_ne_bytes()).unwrap();
    item.write_at(item.len() - 8, &mark.to_ne_bytes()).unwrap();
}

fn check(item: &Item, mark: u64) {
    let mut bytes = [0; 8];
    item.read_at(item.len() - 8, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), mark, "the end of {item:?}");
    // The end may lie over the beginning.
    if item.len() >= 16 {
        item.read_at(0, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), mark, "the beginning of {item:?}");
    }
}

/// The last slab goes back and forth between partitions, one item each.
#[test]
fn threads_that_fight_for_one_slab_lose_none() {
    let pool = pool(Pool::builder().slab_size(4096), 4096);
    let barrier = Barrier::new(THREADS);
    let got = AtomicU64::new(0);
    thread::scope(|scope| {
        for key in 0..THREADS as u64 {
            let (pool, barrier, got) = (&pool, &barrier, &got);
            scope.spawn(move || {
                barrier.wait();
                for size in 0..5000 {
                    if let Ok(item) = pool.alloc(key, size % 4096) {
                        got.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(item.key(), key);
                    }
                    if size % 500 == 0 {
                        pool.free_kept(key);
                    }
                }
            });
        }
    });
    assert!(got.into_inner() > 0);
    assert_eq!(pool.usage().free_slabs, 1);
}

/// Kept items are taken by one of several threads that try, while others free the partition.
#[test]
fn a_kept_item_goes_to_one_taker() {
    let pool = pool(Pool::builder().slab_size(4096), 1 << 20);
    for round in 0..200 {
        let kept: Vec<_> = (0..50).map(|_| pool.alloc(1, 100).unwrap().keep()).collect();
        let barrier = Barrier::new(THREADS);
        let (taken, freed) = thread::scope(|scope| {
            let takers: Vec<_> = (0..THREADS)
                .map(|me| {
                    let (pool, barrier, kept) = (&pool, &barrier, &kept);
                    scope.spawn(move || {
                        barrier.wait();
                        if me == 0 && round % 2 == 0 {
                            return (0, pool.free_kept(1).items);
                        }
                        let items: Vec<Item> = kept.iter().filter_map(|&kept| pool.take(kept)).collect();
                        (items.len(), 0)
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        });
        assert_eq!(taken + freed, 50);
        assert_eq!(pool.usage().items(), 0);
    }
    assert_eq!(pool.usage().free_slabs, 256);
}
