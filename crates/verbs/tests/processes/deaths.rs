//! Processes that are killed while they share memory with this one.

use std::time::Duration;

use ferroce_verbs::*;

use crate::NET;
use crate::child::{eventually, let_pass, run_alone, soak_minutes};
use crate::common::{End, SOON};
use crate::peer::{Link, STORM};

/// What surrounds the part of the memory that the peer works on.
const CANARY: u8 = 0x5c;

/// Deaths in the short form, and for each minute of the long form.
const DEATHS: u64 = 12;
const DEATHS_PER_MINUTE: u64 = 250;

/// Work that is posted after each death.
const AFTER: u64 = 8;

/// How many descriptors this process has open, and how many lanes are mapped.
fn held() -> (usize, usize) {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (open, maps.lines().filter(|line| line.contains("ferroce-lane")).count())
}

/// Alone in a process: it counts what that holds.
#[test]
fn a_process_that_is_killed_leaves_nothing_and_harms_nothing() {
    run_alone("the_other_process", "deaths", &[]);
}

/// Meets processes that are killed.
pub(crate) fn play() {
    let address = [127, 0, NET, 21];
    let context = Context::builder("lo").address(address).shared(true).open().unwrap();
    // 4.1 ms of silence, four times.
    let options = ConnectOptions { timeout: 10, retry_count: 3, ..Default::default() };
    let deaths = soak_minutes().map_or(DEATHS, |minutes| minutes * DEATHS_PER_MINUTE);
    let mut baseline = None;
    let mut dice = 0x2545_f491_u64;
    for death in 0..deaths {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let end = End::new(&context, Service::Rc);
        end.region.fill(.., CANARY).unwrap();
        let mut link = Link::with(end, "storm", address, &options);
        let Link { end, remote, other } = &mut link;
        let mut posted = 0_u64;
        let mut ended = 0_u64;
        let mut failed = 0_u64;
        let mut take = |posted: u64, wait: bool| {
            while ended < posted {
                let done = if wait { Some(end.cq.wait(SOON).unwrap()) } else { end.cq.poll_one() };
                let Some(done) = done else { break };
                if done.kind == WorkKind::Receive {
                    continue;
                }
                ended += 1;
                failed += u64::from(!done.is_success());
            }
            (ended, failed)
        };
        let life = Duration::from_micros(dice % 12_000);
        let end_of_life = ferroce_device::now() + life;
        while ferroce_device::now() < end_of_life {
            let (here, there) = (end.region.slice(STORM), remote.slice(STORM.start as u64..STORM.end as u64));
            let work = match posted % 3 {
                0 => end.qp.write(here, there),
                1 => end.qp.read(here, there),
                _ => end.qp.fetch_add(end.region.slice(4000..4008), remote.slice(4000..4008), 1),
            };
            if work.id(posted).post().is_ok() {
                posted += 1;
            }
            take(posted, false);
        }
        other.kill();
        let killed = ferroce_device::now();
        // What is under way then cannot arrive. The queue may be full of what has arrived, and was acknowledged in time.
        let before = posted;
        while posted < before + AFTER {
            let work = end.qp.write(end.region.slice(STORM), remote.slice(2000..6000));
            posted += u64::from(work.id(posted).post().is_ok());
            take(posted, false);
            assert!(ferroce_device::now().since(killed) < SOON, "death {death}: nothing ends");
        }
        let (all, failures) = take(posted, true);
        let took = ferroce_device::now().since(killed);
        assert_eq!(all, posted, "death {death}");
        assert!(failures >= AFTER, "death {death}: only {failures} of {AFTER} after the death failed");
        assert!(took < Duration::from_secs(2), "death {death}: noticed after {took:?}");
        for place in [0..STORM.start, STORM.end..end.region.len()] {
            let bytes = end.region.to_vec(place).unwrap();
            let around = bytes.iter().filter(|byte| **byte != CANARY).count();
            assert_eq!(around, 0, "death {death}: bytes beside what the peer may write to");
        }
        drop(link);
        eventually("what was shared is given up", || held().1 == 0);
        let now = held();
        let known = *baseline.get_or_insert(now);
        // The first death may have been noticed before a thread had a descriptor of its own.
        if now.0 > known.0 + 2 {
            let_pass(Duration::from_millis(200));
            assert!(held().0 <= known.0 + 2, "death {death}: {now:?} after {known:?}");
        }
    }
}
