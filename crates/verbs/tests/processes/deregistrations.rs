//! Memory is deregistered while another process writes to it as fast as it can.

use ferroce_device::now;
use ferroce_verbs::*;

use crate::NET;
use crate::child::{listen, soak_minutes, tell};
use crate::common::{End, SOON};
use crate::peer::Link;

/// Deregistrations in the short form, and for each minute of the long form.
const TIMES: u64 = 3000;
const TIMES_PER_MINUTE: u64 = 100_000;

/// Bytes of the memory that goes.
const LEN: usize = 4000;

/// What the storm writes, and what the owner of the memory writes when it is gone.
const STORM: u8 = 0xa5;
const QUIET: u8 = 0x11;

/// Where the other process reads which key to use: 0 at first, and this one at the end.
const KEY: usize = 0;
const ENOUGH: u64 = u64::MAX;

/// Where it has what it writes.
const SOURCE: std::ops::Range<usize> = 4096..4096 + LEN;

/// WRITEs under way at a time.
const DEPTH: u64 = 32;

/// The storm: WRITEs of an unreliable connection, since a reliable one would end with the first of them that comes too late.
pub(crate) fn storm(end: &End) {
    let other = End::new(&end.context, Service::Uc);
    tell(&other.qp.local_address().to_string());
    other.qp.connect(&listen().parse().unwrap()).unwrap();
    other.region.fill(SOURCE, STORM).unwrap();
    tell("ready");
    let (mut posted, mut done) = (0, 0);
    loop {
        let key = end.region.load_u64(KEY).unwrap();
        if key == ENOUGH {
            break;
        }
        if key != 0 && posted - done < DEPTH {
            let rkey = Rkey(u32::try_from(key).unwrap());
            let there = RemoteRegion { address: 0, length: LEN as u64, rkey };
            other.qp.write(other.region.slice(SOURCE), there).id(posted).post().unwrap();
            posted += 1;
        }
        while let Some(completion) = other.cq.poll_one() {
            assert!(completion.is_success(), "{completion:?}");
            done += 1;
        }
    }
    tell(&posted.to_string());
}

/// From the moment in which a deregistration has returned, the bytes are the owner's.
pub(crate) fn no_byte_comes_after_a_deregistration(addresses: [u8; 2]) {
    let times = soak_minutes().map_or(TIMES, |minutes| minutes * TIMES_PER_MINUTE);
    let mut link = Link::start("keys", NET, addresses, &ConnectOptions::default());
    let target = link.end.pd.queue_pair(Service::Uc).completion_queue(&link.end.cq).build().unwrap();
    target.connect(&link.other.hear().parse().unwrap()).unwrap();
    link.other.say(&target.local_address().to_string());
    assert_eq!(link.other.hear(), "ready");
    let Link { end, remote, other } = &mut link;
    assert_eq!(target.path().unwrap().path, end.qp.path().unwrap().path);
    let tell_key = |key: u64| {
        let there = remote.slice(KEY as u64..KEY as u64 + 8);
        end.qp.write_inline(&key.to_ne_bytes(), there).post().unwrap();
        let deadline = now() + SOON;
        loop {
            match end.cq.poll_one() {
                Some(done) => return assert!(done.is_success(), "{done:?}"),
                None => assert!(now() < deadline, "the other process is not there any more"),
            }
        }
    };
    let is_quiet = |bytes: &[u8]| bytes.iter().all(|byte| *byte == QUIET);
    // One rests while the other is written to: what comes very late is found, too.
    let mut rests = vec![QUIET; LEN];
    let mut next = vec![QUIET; LEN];
    for time in 0..times {
        let region = end.pd.register_at(next, .., 0, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        tell_key(u64::from(region.rkey().0));
        let deadline = now() + SOON;
        while region.load_u8(LEN - 1).unwrap() != STORM {
            assert!(now() < deadline, "the storm has not come, at {time}");
            assert_eq!(end.cq.poll_one(), None);
        }
        let memory = region.deregister().unwrap();
        let mut bytes = memory.into_boxed().expect("the last handle").into_vec();
        bytes.fill(QUIET);
        // More of what was under way is taken in.
        for _ in 0..4 {
            assert_eq!(end.cq.poll_one(), None);
        }
        assert!(is_quiet(&bytes), "written after deregistration {time}");
        assert!(is_quiet(&rests), "written after deregistration {}", time.saturating_sub(1));
        next = std::mem::replace(&mut rests, bytes);
    }
    tell_key(ENOUGH);
    let posted: u64 = other.hear().parse().unwrap();
    assert!(posted > times, "{posted} WRITEs in {times} deregistrations");
    assert!(is_quiet(&rests) && is_quiet(&next));
}
