use ferroce_transport::{AtomicOp, Bind};
use proptest::prelude::*;
use rand_core::SeedableRng;

use super::super::WindowKind;
use super::*;

const HOME: DomainId = DomainId(1);
const OTHER: DomainId = DomainId(2);
const BY: Accessor = Accessor { domain: HOME, qpn: Qpn::GSI };
const BASE: u64 = 0x10_0000;
const WRITE: Access = Access::REMOTE_WRITE;
const READ: Access = Access::REMOTE_READ;

fn table() -> MemoryTable {
    MemoryTable::new(ChaCha8Rng::seed_from_u64(7))
}

/// 256 bytes at [`BASE`], the first of them 64 bytes into an allocation of 512.
fn spec(access: Access) -> RegionSpec {
    let memory = Allocation::zeroed(512).unwrap();
    RegionSpec { domain: HOME, access, iova: BASE, memory, offset: 64, len: 256 }
}

fn sge(lkey: Lkey, address: u64, length: u32) -> Sge {
    Sge { address, length, lkey }
}

fn stranger(qpn: u32) -> Accessor {
    Accessor { domain: HOME, qpn: Qpn::new(qpn) }
}

fn denied<T>(place: Result<T, Denied>) -> Option<Denied> {
    place.err()
}

#[test]
fn bytes_arrive_where_the_address_says() {
    let mut table = table();
    let spec = spec(Access::LOCAL_WRITE | WRITE | READ);
    let keys = table.register(spec.clone()).unwrap();
    table.remote(BY, keys.rkey, BASE + 16, 3, WRITE).unwrap().write(&[1, 2, 3]).unwrap();
    let mut bytes = [0; 5];
    spec.memory.read(64 + 15, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 1, 2, 3, 0]);
    table.local(HOME, sge(keys.lkey, BASE + 15, 5), false).unwrap().read(&mut bytes).unwrap();
    assert_eq!(bytes, [0, 1, 2, 3, 0]);
}

#[test]
fn each_cause_has_its_refusal() {
    use Denied::{NotPermitted, OutOfRange, UnknownKey, WrongDomain};
    let mut table = table();
    let RegionKeys { lkey, rkey } = table.register(spec(READ)).unwrap();
    let local =
        |domain, lkey, address, length, write| denied(table.local(domain, sge(lkey, address, length), write));
    assert_eq!(local(HOME, lkey, BASE, 256, false), None);
    assert_eq!(local(HOME, Lkey(lkey.0 ^ 1), BASE, 1, false), Some(UnknownKey), "another tag");
    assert_eq!(local(HOME, Lkey(lkey.0 ^ 0x100), BASE, 1, false), Some(UnknownKey), "another handle");
    assert_eq!(local(OTHER, lkey, BASE + 999, 1, true), Some(WrongDomain));
    assert_eq!(local(HOME, lkey, BASE, 257, true), Some(OutOfRange));
    assert_eq!(local(HOME, lkey, BASE - 1, 1, false), Some(OutOfRange));
    assert_eq!(local(HOME, lkey, u64::MAX, u32::MAX, false), Some(OutOfRange));
    assert_eq!(local(HOME, lkey, BASE, 1, true), Some(NotPermitted));
    assert_eq!(denied(table.local_again(sge(lkey, BASE, 1), true)), Some(NotPermitted));
    assert_eq!(local(OTHER, Lkey(0), 0, 0, true), None, "no bytes need no key");

    let remote = |domain, rkey, address, len, access| {
        denied(table.remote(Accessor { domain, ..BY }, rkey, address, len, access))
    };
    assert_eq!(remote(HOME, rkey, BASE + 255, 1, READ), None);
    assert_eq!(remote(HOME, Rkey(rkey.0 ^ 1), BASE, 1, READ), Some(UnknownKey));
    assert_eq!(remote(OTHER, rkey, BASE, 1, WRITE), Some(WrongDomain));
    assert_eq!(remote(HOME, rkey, BASE + 999, 1, WRITE), Some(NotPermitted));
    assert_eq!(remote(HOME, rkey, BASE + 255, 2, READ), Some(OutOfRange));
    assert_eq!(remote(OTHER, Rkey(0), 0, 0, WRITE), None, "no bytes need no key");
}

#[test]
fn a_write_of_no_bytes_needs_no_place() {
    let mut table = table();
    let RegionKeys { rkey, .. } = table.register(spec(WRITE | Access::LOCAL_WRITE)).unwrap();
    for address in [BASE, BASE + 999] {
        let mut written = false;
        let write = |_: &Place<'_>| {
            written = true;
            Ok(())
        };
        assert_eq!(denied(table.write_remote(BY, rkey, address, 0, write)), None);
        assert!(written, "it is done, with nothing in it");
    }
}

#[test]
fn a_bad_region_is_refused() {
    let mut table = table();
    let good = spec(READ);
    let RegionSpec { memory, .. } = good.clone();
    let outside = RegionSpec { offset: 257, ..good.clone() };
    assert_eq!(
        table.register(outside).unwrap_err(),
        MemoryError::OutsideAllocation { offset: 257, len: 256, size: 512 }
    );
    let overflow = RegionSpec { offset: usize::MAX, ..good.clone() };
    assert!(matches!(table.register(overflow), Err(MemoryError::OutsideAllocation { .. })));
    let wraps = RegionSpec { iova: u64::MAX - 255, ..good.clone() };
    assert_eq!(
        table.register(wraps).unwrap_err(),
        MemoryError::AddressWraps { iova: u64::MAX - 255, len: 256 }
    );
    for access in [WRITE, Access::REMOTE_ATOMIC | READ] {
        let unwritten = RegionSpec { access, ..good.clone() };
        assert_eq!(table.register(unwritten).unwrap_err(), MemoryError::NeedsLocalWrite { access });
    }
    // SAFETY: `memory` outlives the test's use of this view of it.
    let frozen = unsafe { Allocation::from_raw_read_only(memory.as_ptr(), memory.len()) };
    let access = Access::LOCAL_WRITE;
    let read_only = RegionSpec { access, memory: frozen, ..good.clone() };
    assert_eq!(table.register(read_only).unwrap_err(), MemoryError::ReadOnly { access });
    assert_eq!(table.counts(), Counts::default());
    assert!(table.register(RegionSpec { iova: u64::MAX - 256, ..good }).is_ok());
}

#[test]
fn a_region_gives_its_memory_back() {
    let mut table = table();
    let spec = spec(READ);
    let keys = table.register(spec.clone()).unwrap();
    assert!(table.uses_domain(HOME) && !table.uses_domain(OTHER));
    assert_eq!(table.counts(), Counts { regions: 1, windows: 0 });
    let memory = table.deregister(keys.lkey).unwrap();
    assert!(Arc::ptr_eq(&memory, &spec.memory));
    assert_eq!(denied(table.remote(BY, keys.rkey, BASE, 1, READ)), Some(Denied::UnknownKey));
    assert_eq!(table.deregister(keys.lkey).unwrap_err(), MemoryError::UnknownKey { key: keys.lkey.0 });
    assert_eq!(table.counts(), Counts::default());
    assert!(!table.uses_domain(HOME));
}

#[test]
fn a_region_changed_in_place_is_reached_by_the_keys_it_had() {
    let mut table = table();
    let keys = table.register(spec(READ)).unwrap();
    let changed = RegionSpec { domain: OTHER, len: 8, ..table.region(keys.lkey).unwrap() };
    assert_eq!(table.reregister_in_place(keys.lkey, changed), Ok(keys));
    assert_eq!(denied(table.remote(BY, keys.rkey, BASE, 8, READ)), Some(Denied::WrongDomain));
    let by = Accessor { domain: OTHER, ..BY };
    assert_eq!(denied(table.remote(by, keys.rkey, BASE, 8, READ)), None);
    assert_eq!(denied(table.remote(by, keys.rkey, BASE, 9, READ)), Some(Denied::OutOfRange));
}

#[test]
fn a_changed_region_has_new_keys() {
    let mut table = table();
    let old = table.register(spec(READ)).unwrap();
    let changed = RegionSpec { domain: OTHER, len: 8, ..table.region(old.lkey).unwrap() };
    let refused = RegionSpec { access: WRITE, ..changed.clone() };
    assert!(table.reregister(old.lkey, refused).is_err());
    assert_eq!(denied(table.remote(BY, old.rkey, BASE, 9, READ)), None, "a refused change changes nothing");
    let new = table.reregister(old.lkey, changed).unwrap();
    assert_eq!((old.lkey.0, new.lkey.0), (old.rkey.0, new.rkey.0));
    assert_eq!(denied(table.remote(BY, old.rkey, BASE, 8, READ)), Some(Denied::UnknownKey));
    let by = Accessor { domain: OTHER, ..BY };
    assert_eq!(denied(table.remote(by, new.rkey, BASE, 8, READ)), None);
    assert_eq!(denied(table.remote(by, new.rkey, BASE, 9, READ)), Some(Denied::OutOfRange));
}

/// Whether a peer that counts on from a key that was taken back finds one that opens something.
fn is_guessed(table: &MemoryTable, old: Rkey) -> bool {
    let tags = (0..=255).map(|tag| Rkey(old.0 & !0xff | tag));
    let handles = (1..=255_u32).map(|step| Rkey(old.0.wrapping_add(step << 8)));
    tags.chain(handles).any(|key| table.remote(BY, key, BASE + 16, 1, READ).is_ok())
}

#[test]
fn a_reregistered_region_cannot_be_opened_by_guessing_from_its_old_key() {
    let mut table = table();
    let mut keys = table.register(spec(READ)).unwrap();
    for _ in 0..1000 {
        let old = keys;
        let same = table.region(old.lkey).unwrap();
        keys = table.reregister(old.lkey, same).unwrap();
        assert!(!is_guessed(&table, old.rkey), "{:x} after {:x}", keys.rkey.0, old.rkey.0);
        assert_eq!(denied(table.remote(BY, keys.rkey, BASE + 16, 1, READ)), None);
    }
    assert_eq!((table.counts(), table.dealer().held()), (Counts { regions: 1, windows: 0 }, (1, 0)));
}

#[test]
fn a_window_of_type_1_bound_again_cannot_be_opened_by_guessing_from_its_old_key() {
    let (mut table, keys, window) = with_window(WindowKind::Type1);
    let next = |table: &MemoryTable| Bind { access: READ, ..bind(table, window, keys.lkey) };
    let mut old = window;
    for turn in 0..1000 {
        let bind = next(&table);
        let bound = if turn % 2 == 0 { table.bind(BY, &bind) } else { table.bind_at_once(HOME, &bind) };
        assert_eq!(bound, Ok(()));
        assert!(!is_guessed(&table, old) && !is_guessed(&table, window), "turn {turn}");
        assert_eq!(denied(table.remote(BY, bind.new_key, BASE + 16, 1, READ)), None);
        old = bind.new_key;
    }
    // The region, the name of the window, and the handle that it is bound under.
    assert_eq!(table.dealer().held(), (3, 0));
    table.free_window(window).unwrap();
    assert_eq!(table.dealer().held(), (1, 0));
}

#[test]
fn a_window_of_type_2_bound_again_gets_a_tag_that_its_old_key_does_not_tell() {
    let (table, keys, window) = with_window(WindowKind::Type2);
    let mut old = window;
    let mut steps = std::collections::HashSet::new();
    for _ in 0..1000 {
        let bind = bind(&table, window, keys.lkey);
        table.bind(BY, &bind).unwrap();
        assert_eq!(denied(table.remote(BY, old, BASE + 16, 1, WRITE)), Some(Denied::UnknownKey));
        assert_eq!(denied(table.remote(BY, bind.new_key, BASE + 16, 1, WRITE)), None);
        steps.insert(bind.new_key.0.wrapping_sub(old.0) & 0xff);
        old = bind.new_key;
    }
    assert!(steps.len() > 200 && !steps.contains(&0), "{steps:?}");
}

#[test]
fn bindings_of_a_type_1_window_that_wait_keep_the_keys_that_they_were_promised() {
    let (table, keys, window) = with_window(WindowKind::Type1);
    let binds: Vec<Bind> = (0..10).map(|_| bind(&table, window, keys.lkey)).collect();
    // In any order, each once.
    for bind in [3, 0, 9, 1].map(|turn: usize| binds[turn]) {
        assert_eq!(table.bind(BY, &bind), Ok(()));
        assert_eq!(table.bind(BY, &bind), Err(Denied::NotPermitted), "its key is in use");
        assert_eq!(table.window_key(window), Some(bind.new_key));
        assert_eq!(denied(table.remote(BY, bind.new_key, BASE + 16, 1, WRITE)), None);
        let open = binds.iter().filter(|bind| table.remote(BY, bind.new_key, BASE + 16, 1, WRITE).is_ok());
        assert_eq!(open.count(), 1);
    }
    let made_up = Bind { new_key: Rkey(window.0 ^ 0x5a00), ..binds[2] };
    assert_eq!(table.bind(BY, &made_up), Err(Denied::NotPermitted));
}

#[test]
fn atomics_work_through_a_key() {
    let mut table = table();
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let spec = spec(access);
    let keys = table.register(spec.clone()).unwrap();
    let at = |address| table.remote(BY, keys.rkey, address, 8, Access::REMOTE_ATOMIC);
    assert_eq!(at(BASE + 8).unwrap().atomic(AtomicOp::FetchAdd(6)), Ok(0));
    assert_eq!(at(BASE + 9).unwrap().atomic(AtomicOp::FetchAdd(6)), Err(Denied::Misaligned));
    assert_eq!(spec.memory.load_u64(72), Ok(6));
}

/// A region that allows everything, and a window of this kind.
fn with_window(kind: WindowKind) -> (MemoryTable, RegionKeys, Rkey) {
    let mut table = table();
    let keys = table.register(spec(Access::all())).unwrap();
    let window = table.allocate_window(HOME, kind).unwrap();
    (table, keys, window)
}

fn bind(table: &MemoryTable, window: Rkey, region: Lkey) -> Bind {
    let new_key = table.next_window_key(window);
    Bind { window, new_key, region, address: BASE + 16, length: 16, access: WRITE }
}

#[test]
fn a_window_is_not_bound_anew_under_an_access_of_another_engine() {
    let (table, keys, window) = with_window(WindowKind::Type1);
    let bind = bind(&table, window, keys.lkey);
    table.bind(BY, &bind).unwrap();
    let held = |table: &MemoryTable| match &table.entries[&handle(window.0)].kind {
        Kind::Window(window) => window.is_held(),
        Kind::Region(_) => unreachable!("it is a window"),
    };
    let place = table.remote(BY, bind.new_key, BASE + 16, 16, WRITE).unwrap();
    assert!(held(&table), "a thread that binds it waits");
    place.write(&[7; 16]).unwrap();
    drop(place);
    assert!(!held(&table));
    // A region is not held by any access.
    let _place = table.remote(BY, keys.rkey, BASE, 8, WRITE).unwrap();
    assert_eq!(table.bind(BY, &Bind { length: 0, new_key: table.next_window_key(window), ..bind }), Ok(()));
}

#[test]
fn a_type_2_window_opens_its_range_to_its_queue_pair_only() {
    let (mut table, keys, window) = with_window(WindowKind::Type2);
    assert_eq!(denied(table.remote(BY, window, BASE, 1, WRITE)), Some(Denied::UnknownKey));
    let bind = bind(&table, window, keys.lkey);
    table.bind(BY, &bind).unwrap();
    let key = bind.new_key;
    table.remote(BY, key, BASE + 16, 16, WRITE).unwrap().write(&[5; 16]).unwrap();
    assert_eq!(denied(table.remote(BY, window, BASE + 16, 1, WRITE)), Some(Denied::UnknownKey));
    assert_eq!(denied(table.remote(BY, key, BASE + 17, 16, WRITE)), Some(Denied::OutOfRange));
    assert_eq!(denied(table.remote(BY, key, BASE + 15, 1, WRITE)), Some(Denied::OutOfRange));
    assert_eq!(denied(table.remote(BY, key, BASE + 16, 1, READ)), Some(Denied::NotPermitted));
    assert_eq!(denied(table.remote(stranger(9), key, BASE + 16, 1, WRITE)), Some(Denied::WrongDomain));
    let elsewhere = Accessor { domain: OTHER, ..BY };
    assert_eq!(denied(table.remote(elsewhere, key, BASE + 16, 1, WRITE)), Some(Denied::WrongDomain));
    assert_eq!(denied(table.local(HOME, sge(Lkey(key.0), BASE + 16, 1), false)), Some(Denied::UnknownKey));

    let spec = table.region(keys.lkey).unwrap();
    assert_eq!(table.deregister(keys.lkey).unwrap_err(), MemoryError::InUse { windows: 1 });
    assert_eq!(table.reregister(keys.lkey, spec).unwrap_err(), MemoryError::InUse { windows: 1 });
    assert_eq!(table.invalidate(stranger(9), key), Err(Denied::WrongDomain));
    assert_eq!(table.invalidate(elsewhere, key), Err(Denied::WrongDomain));
    assert_eq!(table.invalidate(BY, keys.rkey), Err(Denied::NotPermitted), "a region");
    assert_eq!(table.invalidate(BY, window), Err(Denied::UnknownKey), "the old key");
    assert_eq!(table.invalidate(BY, key), Ok(()));
    assert_eq!(table.invalidate(BY, key), Err(Denied::NotPermitted), "not bound");
    assert_eq!(denied(table.remote(BY, key, BASE + 16, 1, WRITE)), Some(Denied::UnknownKey));
    assert!(table.deregister(keys.lkey).is_ok());
}

#[test]
fn a_bad_bind_is_refused_and_changes_nothing() {
    let (mut table, keys, window) = with_window(WindowKind::Type2);
    let closed = table.register(spec(Access::LOCAL_WRITE)).unwrap().lkey;
    let frozen = table.register(spec(Access::BIND_WINDOW)).unwrap().lkey;
    let foreign = table.register(RegionSpec { domain: OTHER, ..spec(Access::all()) }).unwrap().lkey;
    let type1 = table.allocate_window(HOME, WindowKind::Type1).unwrap();
    let good = bind(&table, window, keys.lkey);
    let cases = [
        (Bind { window: keys.rkey, ..good }, Denied::UnknownKey),
        (Bind { region: Lkey(window.0), ..good }, Denied::UnknownKey),
        (Bind { region: foreign, ..good }, Denied::WrongDomain),
        (Bind { region: closed, ..good }, Denied::NotPermitted),
        (Bind { region: frozen, ..good }, Denied::NotPermitted),
        (Bind { new_key: Rkey(window.0 ^ 0x100), ..good }, Denied::NotPermitted),
        (Bind { length: 241, ..good }, Denied::OutOfRange),
        (Bind { length: u64::MAX, ..good }, Denied::OutOfRange),
        (Bind { address: BASE - 1, ..good }, Denied::OutOfRange),
    ];
    for (bind, denied) in cases {
        assert_eq!(table.bind(BY, &bind), Err(denied), "{bind:?}");
    }
    assert_eq!(table.bind(Accessor { domain: OTHER, ..BY }, &good), Err(Denied::WrongDomain));
    let by_work = Bind { window: type1, new_key: table.next_window_key(type1), ..good };
    assert_eq!(table.bind(BY, &by_work), Ok(()), "type 1 is bound by work too");
    assert_eq!(denied(table.remote(stranger(9), by_work.new_key, BASE + 16, 1, WRITE)), None);
    assert_eq!(table.bind_at_once(HOME, &good), Err(Denied::NotPermitted), "type 2 is not bound without");
    let closing = table.next_window_key(type1);
    assert_eq!(table.bind_at_once(HOME, &Bind { length: 0, new_key: closing, ..by_work }), Ok(()));
    assert_eq!(table.window_key(type1), Some(closing));
    assert_eq!(table.bind(BY, &Bind { region: frozen, access: READ, ..good }), Ok(()));
    let again = Bind { window: good.new_key, ..good };
    assert_eq!(table.bind(stranger(9), &again), Err(Denied::NotPermitted), "bound by another");
    assert_eq!(table.bind(BY, &Bind { length: 0, ..again }), Ok(()));
    assert_eq!(table.bind(stranger(9), &again), Ok(()), "free again");
    assert!(table.deregister(frozen).is_ok());
}

#[test]
fn a_type_1_window_belongs_to_its_domain() {
    let (mut table, keys, window) = with_window(WindowKind::Type1);
    let type2 = table.allocate_window(HOME, WindowKind::Type2).unwrap();
    let good = bind(&table, window, keys.lkey);
    assert_eq!(table.bind_at_once(OTHER, &good), Err(Denied::WrongDomain));
    assert_eq!(table.bind_at_once(HOME, &Bind { length: 257, ..good }), Err(Denied::OutOfRange));
    assert_eq!(table.bind_at_once(HOME, &good), Ok(()), "what was refused kept its key for it");
    assert_eq!(denied(table.remote(stranger(77), good.new_key, BASE + 16, 16, WRITE)), None);
    assert_eq!(table.invalidate(BY, good.new_key), Err(Denied::NotPermitted));
    table.unbind_all_of(BY.qpn);
    let shorter = Bind { address: BASE, length: 1, ..bind(&table, window, keys.lkey) };
    assert_eq!(table.bind_at_once(HOME, &shorter), Ok(()));
    assert_eq!(denied(table.remote(BY, shorter.new_key, BASE + 16, 1, WRITE)), Some(Denied::OutOfRange));
    let closed = Bind { length: 0, ..bind(&table, window, Lkey(0)) };
    assert_eq!(table.bind_at_once(HOME, &closed), Ok(()));
    assert_eq!(denied(table.remote(BY, closed.new_key, BASE, 1, WRITE)), Some(Denied::UnknownKey));
    let by_verb = bind(&table, type2, keys.lkey);
    assert_eq!(table.bind_at_once(HOME, &by_verb), Err(Denied::NotPermitted));
    assert!(table.deregister(keys.lkey).is_ok());
}

#[test]
fn windows_go_with_their_queue_pair() {
    let (mut table, keys, _) = with_window(WindowKind::Type2);
    let mut bound = |by: Accessor| {
        let window = table.allocate_window(HOME, WindowKind::Type2).unwrap();
        let bind = bind(&table, window, keys.lkey);
        table.bind(by, &bind).unwrap();
        bind.new_key
    };
    let (mine, mine_too, freed) = (bound(BY), bound(BY), bound(BY));
    let (below, above) = (bound(stranger(0)), bound(stranger(2)));
    table.free_window(freed).unwrap();
    assert!(table.free_window(freed).is_err());
    assert!(table.free_window(keys.rkey).is_err(), "a region is no window");
    table.unbind_all_of(BY.qpn);
    for key in [mine, mine_too] {
        assert_eq!(denied(table.remote(BY, key, BASE + 16, 1, WRITE)), Some(Denied::UnknownKey));
    }
    assert_eq!(denied(table.remote(stranger(0), below, BASE + 16, 1, WRITE)), None);
    assert_eq!(denied(table.remote(stranger(2), above, BASE + 16, 1, WRITE)), None);
    assert_eq!(table.deregister(keys.lkey).unwrap_err(), MemoryError::InUse { windows: 2 });
    assert_eq!(table.counts(), Counts { regions: 1, windows: 5 });
    table.unbind_all_of(Qpn::new(0));
    table.unbind_all_of(Qpn::new(2));
    assert!(table.deregister(keys.lkey).is_ok());
    assert!(table.owned().is_empty());
}

#[test]
fn keys_are_never_given_twice_and_the_table_has_a_limit() {
    let mut table = table();
    let spec = spec(READ);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20_000 {
        let key = table.register(spec.clone()).unwrap().rkey;
        assert!(handle(key.0) != 0 && seen.insert(handle(key.0)));
    }
    table.counts = Counts { regions: MAX_REGIONS, windows: MAX_WINDOWS };
    assert_eq!(table.register(spec).unwrap_err(), MemoryError::TooManyRegions { limit: MAX_REGIONS });
    assert_eq!(
        table.allocate_window(HOME, WindowKind::Type2).unwrap_err(),
        MemoryError::TooManyWindows { limit: MAX_WINDOWS }
    );
}

/// A region, a window in it and an access, each near the edges of the one before.
#[derive(Clone, Debug)]
struct Case {
    size: usize,
    offset: usize,
    len: usize,
    iova: u64,
    access: Access,
    window: (u64, u64, Access),
    asks: Vec<(u64, u32, Access)>,
}

fn near(edges: Vec<u64>) -> impl Strategy<Value = u64> {
    (prop::sample::select(edges), 0..20_u64).prop_map(|(edge, by)| edge.wrapping_add(by).wrapping_sub(10))
}

fn any_access() -> impl Strategy<Value = Access> {
    any::<u32>().prop_map(Access::from_bits_truncate)
}

fn case() -> impl Strategy<Value = Case> {
    let bases = near(vec![0, 4096, 1 << 32, u64::MAX, u64::MAX - 190]);
    let region = (0..12_usize, 0..200_usize, 0..200_usize, bases);
    region.prop_flat_map(|(slack, offset, len, iova)| {
        let size = (offset + len + slack).saturating_sub(2);
        let end = iova.wrapping_add(len as u64);
        let edges = vec![iova, end, 0, u64::MAX];
        let lengths = vec![0, len as u64 / 2, len as u64, u64::MAX];
        let window = (near(edges.clone()), near(lengths), any_access());
        (window, any_access()).prop_flat_map(move |(window, access)| {
            let mut edges = edges.clone();
            edges.extend([window.0, window.0.wrapping_add(window.1)]);
            let lengths = near(vec![0, len as u64, window.1, u64::from(u32::MAX)]);
            let lengths = lengths.prop_map(|len| u32::try_from(len).unwrap_or(u32::MAX));
            let asks = prop::collection::vec((near(edges), lengths, any_access()), 1..20);
            asks.prop_map(move |asks| Case { size, offset, len, iova, access, window, asks })
        })
    })
}

/// Whether a range is inside another one, in numbers that cannot wrap.
fn inside(start: u64, size: u64, address: u64, len: u64) -> bool {
    let (start, address) = (u128::from(start), u128::from(address));
    address >= start && address + u128::from(len) <= start + u128::from(size)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// No place ever lies outside its region, its window or its allocation, and whatever is
    /// inside and permitted is given.
    #[test]
    fn places_are_inside_and_what_is_inside_is_given(case in case()) {
        let Case { size, offset, len, iova, access, window: (start, length, opens), asks } = case;
        let memory = Allocation::zeroed(size).unwrap();
        let mut table = table();
        let spec = RegionSpec { domain: HOME, access, iova, memory: Arc::clone(&memory), offset, len };
        let peers_write = WRITE | Access::REMOTE_ATOMIC;
        let own = access.contains(Access::LOCAL_WRITE);
        let sound = offset + len <= size
            && u128::from(iova) + (len as u128) <= u128::from(u64::MAX)
            && (own || !access.intersects(peers_write));
        let registered = table.register(spec);
        prop_assert_eq!(registered.is_ok(), sound, "{:?}", registered);
        let Ok(keys) = registered else { return Ok(()) };

        let window = table.allocate_window(HOME, WindowKind::Type2).unwrap();
        let bind = Bind { window, new_key: window, region: keys.lkey, address: start, length, access: opens };
        let bound = table.bind(BY, &bind);
        let bindable = access.contains(Access::BIND_WINDOW) && (own || !opens.intersects(peers_write));
        let allowed = match (bindable, inside(iova, len as u64, start, length)) {
            // Nothing is opened, and so no region is looked at.
            _ if length == 0 => Ok(()),
            (false, _) => Err(Denied::NotPermitted),
            (true, false) => Err(Denied::OutOfRange),
            (true, true) => Ok(()),
        };
        prop_assert_eq!(bound, allowed);

        for (address, count, wanted) in asks {
            let given = |place: Result<Opened<'_>, Denied>, writes: bool| {
                let place = place?;
                let (first, bytes) = place.as_raw();
                assert_eq!(bytes, count as usize);
                if count > 0 {
                    let at = u128::from(first.addr() as u64) - u128::from(memory.address());
                    assert_eq!(at, offset as u128 + u128::from(address) - u128::from(iova));
                    assert!(at + bytes as u128 <= size as u128);
                }
                let mut content = vec![0; bytes];
                assert_eq!(place.read(&mut content), Ok(()));
                let expected = if writes || count == 0 { Ok(()) } else { Err(Denied::NotPermitted) };
                assert_eq!(place.write(&content), expected);
                Ok(())
            };
            let verdict = |start, length, gives: Access| match () {
                () if count == 0 => Ok(()),
                () if !gives.contains(wanted) => Err(Denied::NotPermitted),
                () if !inside(start, length, address, u64::from(count)) => Err(Denied::OutOfRange),
                () => Ok(()),
            };
            let writes = wanted.intersects(peers_write);
            let through_region = given(table.remote(BY, keys.rkey, address, count, wanted), writes);
            prop_assert_eq!(through_region, verdict(iova, len as u64, access));
            let open = bound.is_ok() && length > 0;
            let wanted_of_window = if open || count == 0 { verdict(start, length, opens) } else { Err(Denied::UnknownKey) };
            let through_window = given(table.remote(BY, window, address, count, wanted), writes);
            prop_assert_eq!(through_window, wanted_of_window);
            let write = wanted.contains(Access::LOCAL_WRITE);
            let place = table.local(HOME, sge(keys.lkey, address, count), write);
            let locally = given(place.map(Opened::plain), write);
            let wanted_locally = match () {
                () if count == 0 => Ok(()),
                () if !inside(iova, len as u64, address, u64::from(count)) => Err(Denied::OutOfRange),
                () if write && !own => Err(Denied::NotPermitted),
                () => Ok(()),
            };
            prop_assert_eq!(locally, wanted_locally);
        }
    }
}
