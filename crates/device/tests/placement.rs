//! Where objects live when a device has several engines, and that what they share goes when nothing needs it.

mod common;

use std::sync::Arc;

use common::{OPEN, Side};
use ferroce_device::memory::Allocation;
use ferroce_device::{
    CompletionQueue, Config, Limits, Nic, NicCreateError, NicOpenError, PathPolicy, Qp, QpSpec, SettingError,
    SharedQueue,
};
use ferroce_transport::{Caps, ReceiveRequest, Sge};
use ferroce_wire::Service;

const NET: u8 = 73;

fn config(last: u8, engines: usize) -> Config {
    Config { address: Some([127, 0, NET, last].into()), engines, ..Config::new("lo") }
}

fn device(last: u8, engines: usize) -> Nic {
    Nic::open(config(last, engines)).expect("a device on lo")
}

fn queue_pair(
    nic: &Nic,
    cq: &Arc<CompletionQueue>,
    shared_queue: Option<&Arc<SharedQueue>>,
    engine: Option<usize>,
) -> Result<Arc<Qp>, NicCreateError> {
    let domain = match shared_queue {
        Some(queue) => queue.domain(),
        None => nic.create_domain()?,
    };
    let spec = QpSpec {
        service: Service::Rc,
        domain,
        send_cq: cq,
        receive_cq: cq,
        shared_queue,
        caps: Caps { max_send: 4, max_receive: 4, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 },
        signal_all: true,
        path: None,
        engine,
        stamps: false,
    };
    Qp::new(nic, &spec)
}

#[test]
fn queue_pairs_go_where_the_fewest_are() {
    let nic = device(1, 3);
    assert_eq!(nic.engine_count(), 3);
    let cq = CompletionQueue::new(&nic, 16, None).expect("a completion queue");
    let mut qps: Vec<_> = (0..9).map(|_| queue_pair(&nic, &cq, None, None).expect("a queue pair")).collect();
    let count = |qps: &[Arc<Qp>], engine| qps.iter().filter(|qp| qp.engine() == engine).count();
    assert_eq!([0, 1, 2].map(|engine| count(&qps, engine)), [3, 3, 3]);
    qps.retain(|qp| qp.engine() != 1);
    for _ in 0..3 {
        qps.push(queue_pair(&nic, &cq, None, None).expect("a queue pair"));
    }
    assert_eq!([0, 1, 2].map(|engine| count(&qps, engine)), [3, 3, 3]);
    // The upper bits of a number tell engines apart, so that no two queue pairs have the same.
    let mut numbers: Vec<_> = qps.iter().map(|qp| qp.qpn().get()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 9);
}

#[test]
fn a_queue_pair_may_ask_for_an_engine_that_there_is() {
    let nic = device(2, 2);
    let cq = CompletionQueue::new(&nic, 16, None).expect("a completion queue");
    for engine in [1, 1, 0, 1] {
        assert_eq!(queue_pair(&nic, &cq, None, Some(engine)).expect("a queue pair").engine(), engine);
    }
    let error = queue_pair(&nic, &cq, None, Some(2)).expect_err("there are two");
    assert!(matches!(error, NicCreateError::OutOfBounds { given: 2, least: 0, most: 1, .. }), "{error}");
}

#[test]
fn users_of_a_shared_queue_live_where_it_does() {
    let nic = device(3, 2);
    let cq = CompletionQueue::new(&nic, 16, None).expect("a completion queue");
    let domain = nic.create_domain().expect("a protection domain");
    let queues = [0, 1].map(|_| SharedQueue::new(&nic, domain, 4, 1).expect("a shared queue"));
    assert_ne!(queues[0].id(), queues[1].id());
    let engine_of = |queue, wish| queue_pair(&nic, &cq, Some(queue), wish).expect("a queue pair").engine();
    let homes = queues.each_ref().map(|queue| engine_of(queue, None));
    assert_ne!(homes[0], homes[1], "they are spread too");
    for (queue, home) in queues.iter().zip(homes) {
        assert_eq!([None, Some(0), Some(1)].map(|wish| engine_of(queue, wish)), [home; 3]);
    }
}

#[test]
fn numbers_of_engines_have_bounds() {
    for engines in [0, Limits::ENGINES + 1] {
        let error = Nic::open(config(4, engines)).expect_err("not so many");
        assert!(matches!(error, NicOpenError::Setting(SettingError::Engines { most: 16, .. })), "{error}");
    }
    assert_eq!(device(4, Limits::ENGINES).engine_count(), Limits::ENGINES);
}

/// A released region stays while work of any engine names it, and goes with the last of them, whichever
/// engine that is in.
#[test]
fn a_region_stays_while_work_of_any_engine_names_it() {
    let (nic, address) = (device(5, 2), [127, 0, NET, 5]);
    for last in [0, 1] {
        let cq = CompletionQueue::new(&nic, 64, None).expect("a completion queue");
        let side = |engine| Side::into_queue(&nic, address, PathPolicy::Prefer, (4, Some(engine)), &cq);
        let mut sides = [0, 1].map(|engine| Some(side(engine)));
        let memory = Allocation::zeroed(64).expect("memory");
        let domain = nic.create_domain().expect("a protection domain");
        let (lkey, _) = nic.register(domain, &memory, (0, 64), 0, OPEN).expect("a region");
        for side in sides.iter().flatten() {
            let peer = side.address();
            side.connect(&peer);
            let sges = [Sge { address: 0, length: 64, lkey }];
            side.qp.post_receive(&[ReceiveRequest { id: 1, sges: &sges }]).expect("room");
        }
        let is_registered = || Arc::strong_count(&memory) > 1;
        nic.release(domain, lkey);
        assert!(is_registered());
        sides[1 - last] = None;
        assert!(is_registered(), "the other engine still has work for it");
        sides[last] = None;
        assert!(!is_registered());
    }
}
