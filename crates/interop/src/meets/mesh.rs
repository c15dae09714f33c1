//! A mesh of brokers: each member sends to every other, and writes, reads and adds in every other's memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use ferroce_broker::{At, Broker, Members, Piece, Post};
use ferroce_verbs::Access;

use crate::{Result, SOON, ensure};

/// The number of the region that each member exposes: a number that all add to, and a place for each member.
const REGION: u32 = 1;
const MESSAGES: u32 = 50;
/// Places behind the number.
const PLACE: u64 = 64;

pub(crate) fn run(members: &Members, me: &[u32]) -> Result<()> {
    thread::scope(|scope| {
        let all: Vec<_> = me.iter().map(|&me| scope.spawn(move || member(members, me))).collect();
        for (me, member) in me.iter().zip(all) {
            let done = member.join().map_err(|_| format!("member {me} panicked"))?;
            done.map_err(|error| format!("member {me}: {error}"))?;
            println!("member {me} ok");
        }
        Ok(())
    })
}

fn member(members: &Members, me: u32) -> Result<()> {
    // A member on an emulated machine may be kept from running for long.
    let broker = Broker::builder(me, members.clone()).allocate(REGION, 4096);
    let broker = broker.patience(SOON / 4).deadline(SOON).require(REGION, 4096).start()?;
    let peers: Vec<u32> = broker.peers().collect();
    one_sided(&broker, &peers)?;
    // What says that all of the above is done comes behind it.
    for number in 0..MESSAGES {
        for &peer in &peers {
            let text = format!("{number} from {me}");
            broker.wait_send(peer, text.as_bytes(), Post::new(), SOON)?;
        }
    }
    let mut heard: BTreeMap<u32, u32> = peers.iter().map(|&peer| (peer, 0)).collect();
    let mut wrong = None;
    while heard.values().any(|count| *count < MESSAGES) && wrong.is_none() {
        broker.flush_all();
        let came = broker.wait_receives(SOON, |message| {
            let (peer, count) = (message.peer(), heard.entry(message.peer()).or_default());
            let wanted = format!("{count} from {peer}");
            if message.to_vec() != wanted.as_bytes() {
                wrong.get_or_insert_with(|| format!("{wanted:?} did not come next"));
            }
            *count += 1;
        })?;
        ensure(came > 0, || format!("nothing came any more: {heard:?}"))?;
    }
    ensure(wrong.is_none(), || wrong.clone().unwrap_or_default())?;
    let own = broker.region(REGION).ok_or("no region")?;
    let (sum, wanted) = (own.load_u64(0)?, u64::try_from(peers.len())?);
    ensure(sum == wanted, || format!("{sum} were added, not {wanted}"))?;
    for &peer in &peers {
        let there = own.load_u64(usize::try_from(place(peer))?)?;
        ensure(there == mark(peer, me), || format!("{there:#x} from member {peer}"))?;
    }
    broker.leave(SOON)?;
    Ok(())
}

/// Writes into each member's memory, reads it back, and adds.
fn one_sided(broker: &Broker, peers: &[u32]) -> Result<()> {
    let me = broker.me();
    let memory = Arc::new(broker.domain().allocate(64, Access::LOCAL_WRITE)?);
    let (word, back, before) =
        (Piece::new(&memory, ..8), Piece::new(&memory, 8..16), Piece::new(&memory, 16..24));
    for &peer in peers {
        memory.store_u64(0, mark(me, peer))?;
        let at = At::offset(REGION, place(me));
        broker.post_write(peer, word.clone(), at, Post::new().id(1))?;
        broker.post_read(peer, back.clone(), at, Post::new().id(2))?;
        broker.fetch_add(peer, before.clone(), At::offset(REGION, 0), 1, Post::new().id(3))?;
        broker.flush(peer)?;
        let (mut done, mut failed) = (0, None);
        while done < 3 && failed.is_none() {
            let came = broker.wait_sends(SOON, |one| {
                done += 1;
                failed = failed.take().or(one.result.err().map(|why| format!("work {}: {why}", one.id)));
            })?;
            ensure(came > 0, || format!("{done} of 3 operations at member {peer} are done"))?;
        }
        ensure(failed.is_none(), || failed.clone().unwrap_or_default())?;
        let read = memory.load_u64(8)?;
        ensure(read == mark(me, peer), || format!("{read:#x} was read at member {peer}"))?;
    }
    Ok(())
}

fn place(member: u32) -> u64 {
    PLACE + 8 * u64::from(member)
}

fn mark(from: u32, to: u32) -> u64 {
    0xfe44_0000_0000_0000 | u64::from(from) << 16 | u64::from(to)
}
