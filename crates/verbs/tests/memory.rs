//! Memory under work: what holds it, and for how long.

mod common;

use std::thread;

use common::*;
use ferroce_verbs::*;

const NET: u8 = 42;

/// Waits until the thread inside the engine has left it.
fn let_the_device_finish(end: &End) {
    let _ = end.context.counters();
}

#[test]
fn a_dropped_region_stays_until_its_work_is_done() {
    for (a, b) in [wire(NET), local(NET)] {
        let memory = Memory::from(vec![0; 64]);
        let region = b.pd.register(memory.clone(), Access::LOCAL_WRITE).unwrap();
        b.qp.receive(&region).id(3).post().unwrap();
        drop(region);
        let memory = memory.into_boxed().expect_err("the device holds it");
        a.qp.send_inline(b"late but welcome").post().unwrap();
        assert_eq!((b.done().id, a.done().kind), (3, WorkKind::Send));
        let_the_device_finish(&b);
        let bytes = memory.into_boxed().expect("the device let go of it");
        assert_eq!(&bytes[..16], b"late but welcome");
    }
}

/// Work that meets a busy device waits in the mail, and holds its memory there too.
#[test]
fn posted_work_holds_its_memory_however_busy_the_device_is() {
    let context = open([127, 0, NET, 4]);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (a, b) = (End::new(&context, Service::Rc), End::new(&context, Service::Rc));
                connect(&a.qp, &b.qp);
                for id in 0..500 {
                    let region = a.pd.register(vec![7; 16], Access::empty()).unwrap();
                    a.qp.write(&region, b.region.remote()).id(id).post().unwrap();
                    drop(region);
                    assert_eq!(a.done().id, id);
                }
            });
        }
    });
}

#[test]
fn a_dropped_queue_pair_lets_go_of_memory() {
    let (_a, b) = local(NET);
    let memory = Memory::from(vec![0; 64]);
    let region = b.pd.register(memory.clone(), Access::LOCAL_WRITE).unwrap();
    b.qp.receive(&region).post().unwrap();
    drop(region);
    let memory = memory.into_boxed().expect_err("the device holds it");
    drop(b.qp);
    assert!(memory.into_boxed().is_ok());
}

#[test]
fn deregistering_is_immediate_and_gives_the_memory_back() {
    let (a, b) = wire(NET);
    let region = b.pd.register(vec![7; 64], OPEN).unwrap();
    let remote = region.remote();
    b.qp.receive(&region).id(5).post().unwrap();
    assert_eq!(*region.deregister().unwrap().into_boxed().unwrap(), [7; 64]);
    a.qp.send_inline(b"nowhere").post().unwrap();
    let failed = b.cq.wait(SOON).unwrap().result().unwrap_err();
    assert_eq!((failed.id, failed.status), (5, Status::LocalProtection));
    assert!(a.cq.wait(SOON).unwrap().result().is_err());

    let (a, _b) = wire(NET);
    a.qp.write_inline(b"too late", remote).post().unwrap();
    assert_eq!(a.cq.wait(SOON).unwrap().status, Status::RemoteAccess);
}

#[test]
fn a_part_has_offsets_and_addresses_of_its_own() {
    let (a, b) = wire(NET);
    let memory = Memory::from(vec![0; 256]);
    let part = b.pd.register_part(memory.clone(), 64..128, OPEN).unwrap();
    let zero_based = b.pd.register_at(memory.clone(), 128.., 0, OPEN).unwrap();
    assert_eq!((part.len(), part.address()), (64, memory.address() + 64));
    assert_eq!((zero_based.len(), zero_based.address()), (128, 0));
    a.qp.write_inline(b"part", part.remote()).post().unwrap();
    a.qp.write_inline(b"zero", zero_based.remote().slice(4..)).post().unwrap();
    assert_eq!((a.done().kind, a.done().kind), (WorkKind::Write, WorkKind::Write));
    assert_eq!(part.to_vec(..4).unwrap(), b"part");
    let whole = b.pd.register(memory, Access::empty()).unwrap();
    assert_eq!(
        (whole.to_vec(64..68).unwrap(), whole.to_vec(132..136).unwrap()),
        (b"part".into(), b"zero".into())
    );
    assert_eq!(
        part.write_at(61, b"four"),
        Err(AccessError::OutOfBounds { offset: 61, len: 4, size: 64 }),
        "not even what lies behind"
    );
    assert!(part.to_vec(..usize::MAX).is_err(), "nothing is allocated before it is checked");
}

#[test]
fn bad_registrations_are_refused() {
    let pd = open([127, 0, NET, 3]).protection_domain().unwrap();
    let error = pd.allocate(64, Access::REMOTE_WRITE).unwrap_err();
    assert!(matches!(error, CreateError::Memory(MemoryError::NeedsLocalWrite { .. })), "{error}");
    for range in [0..65, 64..65, usize::MAX - 1..usize::MAX] {
        let error = pd.register_part(vec![0; 64], range, OPEN).unwrap_err();
        assert!(matches!(error, CreateError::Memory(MemoryError::OutsideAllocation { .. })), "{error}");
    }
}
