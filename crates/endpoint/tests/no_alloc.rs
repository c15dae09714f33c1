//! One-sided work from and into regions of the program's own costs no allocation and no copy of the payload.
//!
//! The allocations of the thread that waits are counted. A copy would need room for it: the regions are far larger than
//! anything that is not allocated, and the pools of the connection, which are what copies are made in, stay as they were.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use ferroce_endpoint::{Access, Connection, Context, Listener, Memory, Options, Place, Polling};

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_secs(30);
/// Rounds before the count and in it: lists have grown to their size after the first.
const WARM_UP: u64 = 50;
const ROUNDS: u64 = 50;
/// Counts of these rounds, of which the least is told.
const TRIES: u32 = 10;

struct Ends {
    near: Connection,
    far: Connection,
}

/// Both ends, of two devices.
fn connected(net: u8) -> Ends {
    let open = |host| Context::builder("lo").address([127, 0, net, host]).open().unwrap();
    let options = |context: &Context| Options::new().context(context).polling(Polling::Busy);
    let (server, client) = (open(1), open(2));
    let listener = Listener::bind_with(format!("127.0.{net}.1:0"), &options(&server)).unwrap();
    let connecting = {
        let (to, options) = (listener.local_addr(), options(&client));
        std::thread::spawn(move || Connection::connect_with(to, &options).wait().unwrap())
    };
    let far = listener.accept().wait_for(SOON).unwrap();
    Ends { near: connecting.join().unwrap(), far }
}

/// Counts again if there was something: beside other programs a list may grow later than in the first rounds. What each round
/// allocates is there each time.
fn counted(mut once: impl FnMut()) -> AllocationInfo {
    (0..WARM_UP).for_each(|_| once());
    let mut count = || measure(|| (0..ROUNDS).for_each(|_| once()));
    let least = (1..TRIES).try_fold(count(), |least, _| {
        // An end as soon as there is nothing.
        if least.count_total == 0 {
            return Err(least);
        }
        let next = count();
        Ok(if next.count_total < least.count_total { next } else { least })
    });
    least.unwrap_or_else(|nothing| nothing)
}

#[test]
fn one_sided_work_on_own_regions_allocates_and_copies_nothing() {
    let Ends { near, far } = connected(200);
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let memory = far.expose("memory", Memory::zeroed(MIB).unwrap(), all).wait_for(SOON).unwrap();
    let remote = near.remote("memory").wait_for(SOON).unwrap();
    let region = near.protection_domain().allocate(MIB, Access::LOCAL_WRITE).unwrap();
    region.fill(.., 1).unwrap();
    let region = Arc::new(region);
    let before = near.memory();

    let waited = counted(|| {
        near.write_from(&remote, &region, .., None).wait().unwrap();
        near.read_into(remote.at(0), &region, ..).wait().unwrap();
        near.write_from(Place::raw(memory.address(), memory.rkey()), &region, ..4096, None).wait().unwrap();
    });
    assert_eq!(waited.count_total, 0, "{waited:?}");

    let begun = counted(|| {
        for tag in 0..8 {
            near.begin_write(tag, &remote, &region, .., None).wait().unwrap();
            near.begin_read(tag, &remote, &region, ..).wait().unwrap();
        }
        while let Some(done) = near.next_done().wait().unwrap() {
            done.result.unwrap();
        }
    });
    assert_eq!(begun.count_total, 0, "{begun:?}");

    assert_eq!(near.memory(), before, "the connection's own memory was not used");
    assert_eq!(memory.to_vec(..).unwrap(), vec![1; MIB]);
    // The count sees what there is: the same with the library's copies.
    let copied = counted(|| near.write(&remote, 0, &[1; 4096]).wait().unwrap());
    assert_eq!(copied.count_total, 0, "its buffers are used again: {copied:?}");
    let read = counted(|| drop(near.read(&remote, 0, 4096).wait().unwrap()));
    assert!(read.count_total >= ROUNDS && read.bytes_total >= ROUNDS * 4096, "{read:?}");
}
