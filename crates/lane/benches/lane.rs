//! What a lane carries between two threads: bytes each second in records of 4 KiB, and time for each record of 64 bytes.
//!
//! `cargo bench -p ferroce-lane`. The producer copies each record into the ring and the consumer out of it, so that each byte is
//! copied twice and counted once. A copy of the same bytes from and to private memory, by one thread, stands beside it.
#![cfg_attr(not(loom), expect(clippy::disallowed_methods, reason = "a benchmark reads the clock"))]
#![cfg_attr(not(loom), expect(clippy::cast_precision_loss, reason = "figures are printed with two places"))]

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() {
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let share = if quick { 200 } else { 1 };
    for (len, batch) in [(4096, 1), (4096, 8), (64, 1), (64, 16)] {
        let records = if len == 4096 { 1_000_000 } else { 10_000_000 } / share;
        let mut rounds: Vec<f64> = (0..5).map(|_| lane::seconds(len, batch, records)).collect();
        rounds.sort_by(f64::total_cmp);
        let seconds = rounds[rounds.len() / 2];
        let copies = lane::copy_seconds(len, records);
        let (gigabytes, nanos) = (1e-9 * (len * records) as f64, 1e9 / records as f64);
        println!(
            "{len:>5} B, published by {batch:>2}: {:>7.2} GB/s, {:>7.1} ns each; two private copies: {:>7.2} GB/s, {:>7.1} ns",
            gigabytes / seconds,
            nanos * seconds,
            gigabytes / copies,
            nanos * copies,
        );
    }
}

#[cfg(not(loom))]
mod lane {
    use std::hint::{black_box, spin_loop};
    use std::thread;
    use std::time::Instant;

    use ferroce_lane::LaneFile;

    /// Looks in vain before another thread is let run: the machine may have fewer processors than threads.
    const LOOKS: u32 = 200;

    /// Moves so many records from one thread to another, and says how long it took.
    pub(super) fn seconds(len: usize, batch: usize, records: usize) -> f64 {
        let (mut producer, mut consumer) = LaneFile::create().expect("a lane").split();
        let begin = Instant::now();
        let sender = thread::spawn(move || {
            let source = vec![0x5a_u8; len];
            let mut looks = 0;
            for number in 0..records {
                while producer.room(len).is_none() {
                    producer.publish();
                    pause(&mut looks);
                }
                producer.room(len).expect("there was room just now").copy_from_slice(&source);
                producer.commit(1, len);
                if number % batch == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let mut target = vec![0; len];
        let (mut taken, mut looks) = (0, 0);
        while taken < records {
            if !consumer.look() {
                pause(&mut looks);
                continue;
            }
            while let Some(record) = consumer.next() {
                target.copy_from_slice(record.bytes());
                black_box(&mut target);
                taken += 1;
            }
            consumer.release();
        }
        sender.join().expect("the sender is done");
        begin.elapsed().as_secs_f64()
    }

    /// Copies as many bytes twice, in private memory of one thread.
    pub(super) fn copy_seconds(len: usize, records: usize) -> f64 {
        let (source, mut middle, mut target) = (vec![0x5a_u8; len], vec![0; len], vec![0; len]);
        let begin = Instant::now();
        for _ in 0..records {
            middle.copy_from_slice(black_box(&source));
            black_box(&mut middle);
            target.copy_from_slice(&middle);
            black_box(&mut target);
        }
        begin.elapsed().as_secs_f64()
    }

    fn pause(looks: &mut u32) {
        *looks += 1;
        if looks.is_multiple_of(LOOKS) {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}
