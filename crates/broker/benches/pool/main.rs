//! What an item of the pool costs, beside the system's allocator, in one run.
//!
//! `cargo xtask bench --only broker -- pool` runs this. The three ways are measured in turn, so that a slow
//! minute falls on all of them; each figure is the median of several. "keep 256" allocates into 256 places in
//! turn, so that each allocation frees the one before it there; "keep 1" frees each at once, so that a slab
//! is claimed and returned every time.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of short runs")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_broker::pool::{Partition, Pool};
use ferroce_verbs::{Access, Context};

const KEPT: [usize; 2] = [256, 1];
const SIZES: [usize; 3] = [64, 1024, 16 << 10];
const THREADS: [usize; 3] = [1, 2, 4];

/// Nanoseconds for one allocation and the freeing of another.
struct Cost {
    pool: f64,
    shared: f64,
    system: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    if !filters.is_empty() && !filters.iter().any(|part| "pool".contains(part.as_str())) {
        return Ok(());
    }
    // Without `--bench` it is run by `cargo test`: to see that it works is enough.
    let quick = has("--quick") || !has("--bench");
    let (repeats, rounds) = if quick { (1, 1_000) } else { (9, 400_000) };
    let context = Context::builder("ferroce_lo").address([127, 0, 153, 1]).open()?;
    let domain = context.protection_domain()?;
    let pool = Pool::builder().slab_size(256 << 10).allocate(&domain, 256 << 20, Access::LOCAL_WRITE)?;
    println!(
        "ns for one alloc and one free; own: a handle of a partition for each thread, shared: one partition for all, by its key"
    );
    println!(
        "{:>8} {:>8} {:>8} {:>10} {:>10} {:>10} {:>16}",
        "size", "keep", "threads", "pool own", "shared", "system", "own / system"
    );
    for kept in KEPT {
        for size in SIZES {
            for threads in THREADS {
                let costs: Vec<Cost> =
                    (0..repeats).map(|_| compare(&pool, size, kept, threads, rounds)).collect();
                let median = |of: fn(&Cost) -> f64| {
                    let mut values: Vec<f64> = costs.iter().map(of).collect();
                    values.sort_by(f64::total_cmp);
                    values[values.len() / 2]
                };
                let (own, shared) = (median(|cost| cost.pool), median(|cost| cost.shared));
                let system = median(|cost| cost.system);
                println!(
                    "{size:>8} {kept:>8} {threads:>8} {own:>10.1} {shared:>10.1} {system:>10.1} {:>15.2}x",
                    own / system
                );
            }
        }
    }
    let usage = pool.usage();
    assert_eq!(usage.free_slabs, usage.slabs, "everything came back");
    Ok(())
}

fn compare(pool: &Pool, size: usize, kept: usize, threads: usize, rounds: usize) -> Cost {
    let own: Vec<Partition> = (0..threads as u64).filter_map(|key| pool.partition(key).ok()).collect();
    Cost {
        pool: measure(threads, kept, rounds, |thread| own[thread].alloc(black_box(size)).ok()),
        shared: measure(threads, kept, rounds, |_| pool.alloc(0, black_box(size)).ok()),
        system: measure(threads, kept, rounds, |_| Some(Vec::<u8>::with_capacity(black_box(size)))),
    }
}

fn measure<T>(threads: usize, kept: usize, rounds: usize, alloc: impl Fn(usize) -> Option<T> + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let run = |key: usize| {
        let mut places: Vec<Option<T>> = (0..kept).map(|_| None).collect();
        barrier.wait();
        let start = Instant::now();
        for round in 0..rounds {
            let place = &mut places[round % kept];
            *place = None;
            *place = black_box(alloc(key));
        }
        start.elapsed()
    };
    let run = &run;
    let times: Vec<Duration> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|key| scope.spawn(move || run(key))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).collect()
    });
    let total: f64 = times.iter().map(Duration::as_secs_f64).sum();
    total / (rounds * threads) as f64 * 1e9
}
