//! Registrations on a card that are kept for later, and the warning for programs that register all the time. Our own drop-in library is
//! the card; each test is a process of its own.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::env;
use std::time::Duration;

use ferroce_testkit::dropin::{address, command, on_a_card, own_card, own_program, passes};
use ferroce_verbs::time::now;
use ferroce_verbs::*;

const NET: u8 = 189;
/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(20);
const LEN: usize = 8192;

fn card() -> (Context, ProtectionDomain) {
    let context = Context::open(&own_card()).unwrap();
    let domain = context.protection_domain().unwrap();
    (context, domain)
}

/// Two connected queue pairs of a domain, and where they complete.
fn pair(context: &Context, domain: &ProtectionDomain) -> (QueuePair, QueuePair, CompletionQueue) {
    let queue = context.completion_queue(64).unwrap();
    let [ann, bob] =
        [(); 2].map(|()| domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap());
    ann.connect(&bob.local_address()).unwrap();
    bob.connect(&ann.local_address()).unwrap();
    (ann, bob, queue)
}

#[test]
fn a_region_that_was_dropped_is_the_next_and_is_not_registered_anew() {
    on_a_card(NET, "a_region_that_was_dropped_is_the_next_and_is_not_registered_anew", || {
        let (context, domain) = card();
        let first = domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap();
        let (key, at) = (first.lkey(), first.address());
        first.write_at(0, b"what was in it").unwrap();
        drop(first);
        assert_eq!((domain.kept().regions, domain.kept().bytes), (1, LEN));
        let other = domain.allocate_or_reuse(LEN, Access::empty()).unwrap();
        let longer = domain.allocate_or_reuse(LEN + 1, Access::LOCAL_WRITE).unwrap();
        assert!(other.lkey() != key && longer.lkey() != key, "of another kind");
        let again = domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap();
        assert_eq!((again.lkey(), again.address(), again.len()), (key, at, LEN));
        assert_eq!(again.to_vec(..14).unwrap(), b"what was in it");
        assert_eq!((context.registrations().made, domain.kept().reused, domain.kept().regions), (3, 1, 0));
        // Another domain has others, as peers of the one must not reach memory of the other.
        let elsewhere = context.protection_domain().unwrap();
        drop(again);
        assert_ne!(elsewhere.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap().lkey(), key);
        // It works like any other, and can be given back for good.
        let again = domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap();
        assert_eq!(again.lkey(), key);
        let (ann, bob, queue) = pair(&context, &domain);
        bob.receive(&again).post().unwrap();
        ann.send_inline(b"news").post().unwrap();
        queue.wait(SOON).unwrap().result().unwrap();
        queue.wait(SOON).unwrap().result().unwrap();
        assert_eq!(again.to_vec(..4).unwrap(), b"news");
        assert_eq!(again.deregister().unwrap().len(), LEN);
        assert_eq!(domain.kept().regions, 0);
    });
}

#[test]
fn a_region_with_work_under_way_is_not_the_next_before_that_is_done() {
    on_a_card(NET, "a_region_with_work_under_way_is_not_the_next_before_that_is_done", || {
        let (context, domain) = card();
        let (ann, bob, queue) = pair(&context, &domain);
        let first = domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap();
        let key = first.lkey();
        bob.receive(&first).id(1).post().unwrap();
        drop(first);
        let second = domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap();
        assert_ne!(second.lkey(), key, "a message may still come into it");
        ann.send_inline(b"late").id(2).post().unwrap();
        for _ in 0..2 {
            queue.wait(SOON).unwrap().result().unwrap();
        }
        let third = domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap();
        assert_eq!((third.lkey(), third.to_vec(..4).unwrap().as_slice()), (key, b"late".as_slice()));
        // What a queue pair takes with it is free, too.
        bob.receive(&third).id(3).post().unwrap();
        drop((third, bob));
        assert_eq!(domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap().lkey(), key);
    });
}

#[test]
fn what_peers_may_reach_is_never_kept() {
    on_a_card(NET, "what_peers_may_reach_is_never_kept", || {
        let (context, domain) = card();
        let (ann, _bob, queue) = pair(&context, &domain);
        for access in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::BIND_WINDOW]
        {
            let region = domain.allocate_or_reuse(LEN, access | Access::LOCAL_WRITE).unwrap();
            let remote = region.remote();
            drop(region);
            assert_eq!((domain.kept().regions, domain.kept().missed), (0, 0), "{access:?}");
            if access == Access::REMOTE_WRITE {
                ann.write_inline(b"too late", remote).post().unwrap();
                assert!(queue.wait(SOON).unwrap().result().is_err());
            }
        }
    });
}

#[test]
fn more_than_is_to_be_kept_is_let_go() {
    on_a_card(NET, "more_than_is_to_be_kept_is_let_go", || {
        let (_context, domain) = card();
        let regions = || [(); 3].map(|()| domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap());
        domain.keep(KeepLimits { bytes: 2 * LEN, regions: 10 });
        let [a, b, c] = regions();
        let keys = [b.lkey(), c.lkey()];
        drop(a);
        drop(b);
        drop(c);
        assert_eq!((domain.kept().regions, domain.kept().bytes, domain.kept().evicted), (2, 2 * LEN, 1));
        let [first, second, third] = regions();
        assert_eq!([second.lkey(), first.lkey()], keys);
        drop((first, second, third));
        domain.keep(KeepLimits::NOTHING);
        assert_eq!(domain.kept().regions, 0);
        drop(regions());
        assert_eq!(domain.kept().regions, 0);
    });
}

/// It was: any region that was refused took all that is kept along, as if the card had no room.
#[test]
fn a_region_that_is_refused_leaves_what_is_kept_alone() {
    on_a_card(NET, "a_region_that_is_refused_leaves_what_is_kept_alone", || {
        let (_context, domain) = card();
        let lent = domain.lend(vec![3; LEN]);
        drop(domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap());
        drop(lent.region(.., Access::LOCAL_WRITE).unwrap());
        assert!(lent.region(1..2 * LEN, Access::LOCAL_WRITE).is_err(), "it is not inside");
        assert!(lent.region(.., Access::REMOTE_WRITE).is_err(), "peers would write what the owner may not");
        assert_eq!((domain.kept().regions, domain.kept().evicted), (2, 0));
    });
}

#[test]
fn lent_memory_is_registered_once_until_the_loan_ends() {
    on_a_card(NET, "lent_memory_is_registered_once_until_the_loan_ends", || {
        let (context, domain) = card();
        let lent = domain.lend(vec![3; 4 * LEN]);
        let part = |number: usize| number * LEN..(number + 1) * LEN;
        let keys: Vec<Lkey> =
            (0..4).map(|at| lent.region(part(at), Access::REMOTE_READ).unwrap().lkey()).collect();
        for round in 0..3 {
            for (at, key) in keys.iter().enumerate() {
                let region = lent.region(part(at), Access::REMOTE_READ).unwrap();
                assert_eq!((region.lkey(), region.len()), (*key, LEN), "round {round}");
                assert_eq!(region.address(), lent.memory().address() + (at * LEN) as u64);
                assert_eq!(region.to_vec(..3).unwrap(), [3; 3]);
            }
        }
        assert_eq!(context.registrations().made, 4);
        assert_ne!(lent.region(part(0), Access::empty()).unwrap().lkey(), keys[0], "other access");
        assert!(lent.region(LEN..5 * LEN, Access::empty()).is_err(), "outside");
        // Two at a time are two registrations.
        let (one, other) =
            (lent.region(part(1), Access::REMOTE_READ), lent.region(part(1), Access::REMOTE_READ));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_ne!(one.lkey(), other.lkey());
        let remote = one.remote();
        let memory = lent.take_back();
        assert_eq!(domain.kept().regions, 0);
        let memory = memory.into_boxed().unwrap_err();
        drop((one, other));
        assert_eq!(domain.kept().regions, 0, "what comes back too late goes, too");
        let (ann, _bob, queue) = pair(&context, &domain);
        let into = domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
        ann.read(into.slice(..8), remote.slice(..8)).post().unwrap();
        assert!(queue.wait(SOON).unwrap().result().is_err(), "its key opens nothing any more");
        assert_eq!(memory.into_boxed().unwrap().len(), 4 * LEN);
    });
}

#[test]
fn a_loan_that_ends_under_work_leaves_the_memory_to_the_work() {
    on_a_card(NET, "a_loan_that_ends_under_work_leaves_the_memory_to_the_work", || {
        let (context, domain) = card();
        let (ann, bob, queue) = pair(&context, &domain);
        let lent = domain.lend(vec![0; LEN]);
        let region = lent.region(.., Access::LOCAL_WRITE).unwrap();
        bob.receive(&region).post().unwrap();
        drop(region);
        let memory = lent.take_back().into_boxed().unwrap_err();
        ann.send_inline(b"still there").post().unwrap();
        for _ in 0..2 {
            queue.wait(SOON).unwrap().result().unwrap();
        }
        assert_eq!(&memory.into_boxed().unwrap()[..11], b"still there");
    });
}

#[test]
fn a_program_that_registers_all_the_time_is_warned_once_and_told_where() {
    const NAME: &str = "a_program_that_registers_all_the_time_is_warned_once_and_told_where";
    if env::var_os("FERROCE_HOT").is_none() {
        let mut command = command(&own_program(), &address(NET, NAME));
        command.envs([("FERROCE_HOT", "1"), ("FERROCE_LOG", "warn")]);
        let said = passes(command, NAME);
        let warnings: Vec<&str> = said.lines().filter(|line| line.contains("in the last second")).collect();
        let [warning] = warnings[..] else { panic!("{warnings:?} in {said}") };
        let words = [" registrations in the last second on ferroce_lo, asked for at ", "kept_regions.rs:"];
        assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
        return;
    }
    let (context, domain) = card();
    let end = now() + SOON;
    let mut line = 0;
    // Until it is warned of, and once more for as long: it is told once.
    let mut until_end = None;
    while now() < until_end.unwrap_or(end) {
        line = line!() + 1;
        drop(domain.allocate(4096, Access::empty()).unwrap());
        if until_end.is_none() && !context.registrations().hot.is_empty() {
            until_end = Some(now() + Duration::from_millis(2500));
        }
        // What is used again is no registration.
        drop(domain.allocate_or_reuse(4096, Access::empty()).unwrap());
    }
    let told = context.registrations();
    let [hot] = told.hot[..] else { panic!("{told:?}") };
    assert_eq!((hot.place.line(), hot.place.file().ends_with("kept_regions.rs")), (line, true));
    assert!(hot.in_a_second >= 100 && told.last_second > 0 && told.made > 200, "{told:?}");
}

#[test]
fn the_soft_device_keeps_nothing_and_counts_nothing() {
    let context = Context::builder("ferroce_lo").address([127, 0, NET, 251]).open().unwrap();
    let domain = context.protection_domain().unwrap();
    let region = domain.allocate_or_reuse(LEN, Access::LOCAL_WRITE).unwrap();
    assert_eq!(region.to_vec(..).unwrap(), [0; LEN]);
    drop(region);
    let lent = domain.lend(vec![5; LEN]);
    assert_eq!(lent.region(.., Access::empty()).unwrap().to_vec(..2).unwrap(), [5; 2]);
    assert_eq!(lent.take_back().into_boxed().unwrap().len(), LEN);
    assert_eq!((domain.kept(), context.registrations()), (KeptRegions::default(), Registrations::default()));
}
