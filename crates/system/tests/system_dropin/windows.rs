//! Memory windows.

use ferroce_memory::WindowKind;
use ferroce_system::{Bytes, Library, Operation, PostWorkError, SendWork};
use ferroce_transport::{Access, Remote, SendFlags, Status, WorkKind};
use ferroce_wire::{Rkey, Service};

use crate::child::over_dropin;
use crate::connected::{Bench, is_held, well};

over_dropin! {
    fn a_window_of_type_2_opens_a_part_and_closes_it(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(4096);
        let window = bench.domain.memory_window(WindowKind::Type2).unwrap();
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let binding = window.bind(&region, 1024..2048, access);
        let (address, rkey) = (region.address() + 1024, binding.rkey());
        bob.post_send(&[SendWork::new(1, Operation::Bind(binding), Bytes::Inline(&[]))]).unwrap();
        assert_eq!((well(bench.done()).kind, window.rkey()), (WorkKind::BindWindow, rkey));
        let write = |rkey| {
            let to = Operation::Write(Remote { address, rkey });
            ann.post_send(&[SendWork::new(2, to, Bytes::Inline(&7_u64.to_ne_bytes()))]).unwrap();
            bench.done()
        };
        well(write(rkey));
        assert_eq!(memory.load_u64(1024), Ok(7));
        // The window holds what lies behind it.
        drop(region);
        assert!(is_held(&memory));
        bob.post_send(&[SendWork::new(3, Operation::LocalInvalidate(rkey), Bytes::Inline(&[]))]).unwrap();
        assert_eq!(well(bench.done()).kind, WorkKind::LocalInvalidate);
        assert_eq!(write(rkey).status(), Status::RemoteAccess);
        drop(window);
        assert!(!is_held(&memory));
    }

    fn a_window_of_type_1_is_bound_by_a_call(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        let (other_memory, other) = bench.region(64);
        let window = bench.domain.memory_window(WindowKind::Type1).unwrap();
        let binding = window.bind(&region, 0..64, Access::REMOTE_READ | Access::REMOTE_WRITE);
        let rkey = bob.bind_window(5, &binding, SendFlags::SIGNALED).unwrap();
        assert_eq!((well(bench.done()).id, window.rkey()), (5, rkey));
        let to = Operation::Write(Remote { address: region.address(), rkey });
        ann.post_send(&[SendWork::new(1, to, Bytes::Inline(&9_u64.to_ne_bytes()))]).unwrap();
        well(bench.done());
        assert_eq!(memory.load_u64(0), Ok(9));
        drop(region);
        // The next binding, which is done when the one after it says so.
        bob.bind_window(6, &window.bind(&other, 0..8, Access::REMOTE_READ), SendFlags::empty()).unwrap();
        assert!(is_held(&memory));
        bob.bind_window(7, &window.unbind(), SendFlags::SIGNALED).unwrap();
        assert_eq!(well(bench.done()).id, 7);
        drop(other);
        assert!(!is_held(&memory) && !is_held(&other_memory));
    }

    fn a_binding_is_done_also_if_the_work_behind_it_fails(library: Library) {
        let bench = Bench::new(library);
        let [_ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        let window = bench.domain.memory_window(WindowKind::Type2).unwrap();
        let nothing = Bytes::Inline(&[]);
        let bind = SendWork::new(1, Operation::Bind(window.bind(&region, 0..8, Access::REMOTE_READ)), nothing);
        let bad = Operation::Write(Remote { address: 1, rkey: Rkey(0xdead_0000) });
        let work = [SendWork { flags: SendFlags::empty(), ..bind }, SendWork::new(2, bad, Bytes::Inline(b"bad"))];
        bob.post_send(&work).unwrap();
        assert_eq!((bench.done().status(), bob.sends_under_way()), (Status::RemoteAccess, 0));
        drop(region);
        assert!(is_held(&memory), "the window holds what lies behind it");
        drop(window);
        assert!(!is_held(&memory));
    }

    fn each_window_is_bound_in_its_own_way(library: Library) {
        let bench = Bench::new(library);
        let [_ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        let windows = [WindowKind::Type1, WindowKind::Type2].map(|kind| bench.domain.memory_window(kind).unwrap());
        let bind = |window| SendWork::new(1, Operation::Bind(window), Bytes::Inline(&[]));
        let first = windows[0].bind(&region, 0..8, Access::REMOTE_READ);
        assert_eq!(bob.post_send(&[bind(first)]).unwrap_err().error, PostWorkError::OtherWay);
        let second = windows[1].bind(&region, 0..8, Access::REMOTE_READ);
        assert_eq!(bob.bind_window(1, &second, SendFlags::SIGNALED), Err(PostWorkError::OtherWay));
        assert_eq!(bob.sends_under_way(), 0);
        drop(region);
        assert!(!is_held(&memory));
    }
}
