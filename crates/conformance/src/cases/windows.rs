//! Memory windows: what they open, to which queue pairs, and for how long.

use std::collections::BTreeSet;

use ferroce_verbs::*;

use crate::rig::{End, OPEN, Rig};

const BINDABLE: Access = OPEN.union(Access::BIND_WINDOW);
const BOTH: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

/// A region of B that windows can be bound to.
fn bindable(b: &End) -> MemoryRegion {
    b.pd.allocate(8192, BINDABLE).unwrap()
}

/// Binds in the order of work, and waits until it is done.
fn bind<'a>(b: &End, window: &'a MemoryWindow, part: LocalSlice<'a>, access: Access) -> RemoteRegion {
    let binding = window.bind(part, access);
    b.qp.bind_window(binding).id(77).post().unwrap();
    let done = b.sent();
    assert_eq!((done.id, done.kind), (77, WorkKind::BindWindow));
    assert_eq!(window.rkey(), binding.rkey());
    binding.remote()
}

/// A writes through the window.
fn writes(a: &End, remote: RemoteRegion) {
    a.qp.write_inline(b"through the window", remote).post().unwrap();
    assert_eq!(a.sent().kind, WorkKind::Write);
}

/// A is refused.
fn is_refused(rig: &Rig, a: &End, remote: RemoteRegion) {
    a.qp.write_inline(b"?", remote).post().unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
}

pub(crate) fn type_2_window_opens_a_part(rig: &Rig) {
    let (a, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type2).unwrap();
    assert_eq!(window.kind(), WindowKind::Type2);
    let remote = bind(&b, &window, region.slice(1000..2000), BOTH);
    assert_eq!((remote.address, remote.length), (region.address() + 1000, 1000));
    writes(&a, remote);
    assert_eq!(region.to_vec(1000..1018).unwrap(), b"through the window");
    a.qp.read(a.region.slice(..1000), remote).post().unwrap();
    a.sent();
    assert_eq!(a.region.to_vec(..18).unwrap(), b"through the window");
    // One byte beyond its end is too far, though the region goes on.
    is_refused(rig, &a, RemoteRegion { address: remote.address + 1000, ..remote });
    assert_eq!(region.to_vec(2000..).unwrap(), [0; 6192]);
}

pub(crate) fn type_2_window_is_closed_by_its_owner(rig: &Rig) {
    let (a, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type2).unwrap();
    let remote = bind(&b, &window, region.slice(..64), BOTH);
    writes(&a, remote);
    let error = region.deregister().unwrap_err();
    let region = *error.region;
    b.qp.local_invalidate(remote.rkey).post().unwrap();
    assert_eq!(b.sent().kind, WorkKind::LocalInvalidate);
    is_refused(rig, &a, remote);
    assert!(region.deregister().is_ok(), "nothing is bound to it any more");
}

pub(crate) fn type_2_window_is_closed_by_the_peer(rig: &Rig) {
    let (a, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type2).unwrap();
    let remote = bind(&b, &window, region.slice(..64), BOTH);
    b.qp.receive(b.region.slice(..64)).id(5).post().unwrap();
    writes(&a, remote);
    a.qp.send_inline(b"done with it").invalidate(remote.rkey).post().unwrap();
    a.sent();
    let got = b.received();
    assert_eq!((got.id, got.invalidated, got.imm), (5, Some(remote.rkey), None));
    // Bound again, it has another key.
    let again = bind(&b, &window, region.slice(..64), BOTH);
    assert_ne!(again.rkey, remote.rkey);
    writes(&a, again);
    is_refused(rig, &a, remote);
}

pub(crate) fn type_2_window_belongs_to_one_queue_pair(rig: &Rig) {
    let (a, b) = rig.rc();
    let (c, d) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type2).unwrap();
    let remote = bind(&b, &window, region.slice(..64), BOTH);
    // D has the same domain, but not this window: neither to use nor to bind or close it.
    is_refused(rig, &c, remote);
    drop((c, d));
    let (c, d) = rig.rc();
    d.qp.local_invalidate(remote.rkey).post().unwrap();
    assert_eq!(d.ended().status, Status::LocalQpOperation, "a queue pair closes a window of another one");
    drop((c, d));
    let (_c, d) = rig.rc();
    d.qp.bind_window(window.bind(region.slice(..8), BOTH)).post().unwrap();
    assert_eq!(d.ended().status, Status::WindowBind);
    assert_eq!(d.qp.state(), State::Err);
    writes(&a, remote);
    // With its queue pair it closes.
    drop(b.qp);
    assert!(region.deregister().is_ok());
}

pub(crate) fn bindings_follow_each_other(rig: &Rig) {
    bind_in_a_row(rig, WindowKind::Type2);
}

pub(crate) fn bindings_of_type_1_follow_each_other(rig: &Rig) {
    bind_in_a_row(rig, WindowKind::Type1);
}

/// Whether a window has to be closed before it is bound again. The IBA wants that of those of type 2 (10.6.7), by an invalidation.
fn must_close(rig: &Rig, kind: WindowKind) -> bool {
    kind == WindowKind::Type2 && !rig.a.context.can(Capability::Rebinding)
}

fn bind_in_a_row(rig: &Rig, kind: WindowKind) {
    if kind == WindowKind::Type1 {
        rig.needs(Capability::KeysAhead);
    }
    let (a, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(kind).unwrap();
    let bindings: Vec<Binding<'_>> =
        (0..5).map(|n| window.bind(region.slice(n * 100..n * 100 + 50), BOTH)).collect();
    let mut batch = b.qp.batch();
    let closes = must_close(rig, kind);
    for (n, binding) in bindings.iter().enumerate() {
        batch.add(b.qp.bind_window(*binding));
        if closes && n < 4 {
            batch.add(b.qp.local_invalidate(binding.rkey()));
        }
    }
    batch.post().unwrap();
    for n in 0..bindings.len() {
        assert_eq!(b.sent().kind, WorkKind::BindWindow);
        if closes && n < 4 {
            assert_eq!(b.sent().kind, WorkKind::LocalInvalidate);
        }
    }
    writes(&a, bindings[4].remote());
    assert_eq!(region.to_vec(400..418).unwrap(), b"through the window");
    if closes {
        b.qp.local_invalidate(bindings[4].rkey()).post().unwrap();
    } else {
        b.qp.bind_window(window.unbind()).post().unwrap();
    }
    b.sent();
    is_refused(rig, &a, bindings[4].remote());
}

pub(crate) fn type_1_window_belongs_to_its_domain(rig: &Rig) {
    rig.needs(Capability::BindingAtOnce);
    let (a, b) = rig.rc();
    let (c, _d) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type1).unwrap();
    let remote = window.bind_now(region.slice(..64), BOTH).unwrap();
    writes(&a, remote);
    writes(&c, remote);
    // By work it goes too, in order with other work.
    let other = bind(&b, &window, region.slice(100..200), BOTH);
    writes(&c, other);
    assert_eq!(region.to_vec(100..118).unwrap(), b"through the window");
    is_refused(rig, &c, remote);
    window.unbind_now().unwrap();
    is_refused(rig, &a, other);
    assert!(region.deregister().is_ok());
}

pub(crate) fn a_window_of_type_1_bound_again_cannot_be_opened_by_guessing_from_its_old_key(rig: &Rig) {
    rig.needs(Capability::BindingAtOnce);
    let (friend, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type1).unwrap();
    let mut old = window.bind_now(region.slice(..64), BOTH).unwrap();
    for step in [1, 2, 255] {
        let new = if step == 2 {
            bind(&b, &window, region.slice(..64), BOTH)
        } else {
            window.bind_now(region.slice(..64), BOTH).unwrap()
        };
        // A guess costs a queue pair.
        let (guesser, _b) = rig.rc();
        let guess = Rkey(old.rkey.0 & !0xff | old.rkey.0.wrapping_add(step) & 0xff);
        is_refused(rig, &guesser, RemoteRegion { rkey: guess, ..old });
        writes(&friend, new);
        assert_ne!(old.rkey.0 >> 8, new.rkey.0 >> 8);
        old = new;
    }
}

pub(crate) fn a_window_of_type_2_bound_again_gets_a_tag_that_its_old_key_does_not_tell(rig: &Rig) {
    let (a, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type2).unwrap();
    let mut old = window.rkey();
    let mut steps = BTreeSet::new();
    for _ in 0..100 {
        let new = bind(&b, &window, region.slice(..64), BOTH);
        assert_eq!(old.0 >> 8, new.rkey.0 >> 8);
        steps.insert(new.rkey.0.wrapping_sub(old.0) & 0xff);
        old = new.rkey;
        writes(&a, new);
        if must_close(rig, WindowKind::Type2) {
            b.qp.local_invalidate(new.rkey).post().unwrap();
            b.sent();
        }
    }
    // Of a hundred steps drawn from 255, about eighty differ; that fewer than forty do is not to be expected
    // ever.
    assert!(steps.len() >= 40 && !steps.contains(&0), "{steps:?}");
}

pub(crate) fn type_1_window_is_not_closed_by_a_peer(rig: &Rig) {
    rig.needs(Capability::BindingAtOnce);
    let (a, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type1).unwrap();
    let remote = window.bind_now(region.slice(..64), BOTH).unwrap();
    b.qp.receive(b.region.slice(..64)).post().unwrap();
    a.qp.send_inline(b"close it").invalidate(remote.rkey).post().unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
    let (c, _d) = rig.rc();
    writes(&c, remote);
}

pub(crate) fn windows_are_no_wider_than_they_say(rig: &Rig) {
    rig.needs(Capability::BindingAtOnce);
    let region = rig.b.pd.allocate(8192, BINDABLE).unwrap();
    region.store_u64(0, 40).unwrap();
    let window = rig.b.pd.memory_window(WindowKind::Type1).unwrap();
    let remote = window.bind_now(region.slice(..64), Access::REMOTE_ATOMIC).unwrap();
    let (a, _b) = rig.rc();
    a.qp.fetch_add(a.region.slice(..8), remote, 2).post().unwrap();
    a.sent();
    assert_eq!((a.region.load_u64(0), region.load_u64(0)), (Ok(40), Ok(42)));
    is_refused(rig, &a, remote);
    let (a, _b) = rig.rc();
    a.qp.read(a.region.slice(..8), remote).post().unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
}

pub(crate) fn bad_bindings(rig: &Rig) {
    rig.needs(Capability::BindingAtOnce);
    let (a, b) = rig.rc();
    let region = bindable(&b);
    let window = b.pd.memory_window(WindowKind::Type2).unwrap();
    let qpn = b.qp.qpn();
    let refused = |error| matches!(error, PostError::OutsideRegion { end: 8193, .. });
    assert!(refused(b.qp.bind_window(window.bind(region.slice(..8193), BOTH)).post().unwrap_err()));
    let elsewhere = rig.b.context.protection_domain().unwrap();
    let foreign = elsewhere.allocate(64, BINDABLE).unwrap();
    let error = b.qp.bind_window(window.bind(foreign.slice(..), BOTH)).post().unwrap_err();
    assert_eq!(error, PostError::OtherDomain { by: PostTarget::QueuePair(qpn) });
    let stranger = elsewhere.memory_window(WindowKind::Type2).unwrap();
    let error = b.qp.bind_window(stranger.bind(foreign.slice(..), BOTH)).post().unwrap_err();
    assert_eq!(error, PostError::OtherDomain { by: PostTarget::QueuePair(qpn) });
    assert_eq!(window.bind_now(region.slice(..), BOTH), Err(WindowBindError::NeedsQueuePair));
    let direct = b.pd.memory_window(WindowKind::Type1).unwrap();
    let closed = b.pd.allocate(64, OPEN).unwrap();
    assert_eq!(direct.bind_now(closed.slice(..), BOTH), Err(WindowBindError::Denied(Denied::NotPermitted)));
    let frozen = b.pd.allocate(64, Access::BIND_WINDOW).unwrap();
    assert_eq!(direct.bind_now(frozen.slice(..), BOTH), Err(WindowBindError::Denied(Denied::NotPermitted)));
    assert!(direct.bind_now(frozen.slice(..), Access::REMOTE_READ).is_ok());
    a.still_works(&b);
    b.still_works(&a);
    // What only its turn can tell ends the queue pair.
    b.qp.bind_window(window.bind(closed.slice(..), BOTH)).id(3).post().unwrap();
    b.qp.write_inline(b"behind it", a.region.remote()).id(4).post().unwrap();
    let (first, second) = (b.ended(), b.ended());
    assert_eq!((first.id, first.status), (3, Status::WindowBind));
    assert_eq!((second.id, second.status), (4, Status::Flushed));
    let (c, _d) = rig.uc();
    let window = c.pd.memory_window(WindowKind::Type2).unwrap();
    let own = c.pd.allocate(64, BINDABLE).unwrap();
    let error = c.qp.bind_window(window.bind(own.slice(..), BOTH)).post().unwrap_err();
    assert!(matches!(error, PostError::Refused { error: PostRefusal::NotOfService { .. }, .. }), "{error}");
}
