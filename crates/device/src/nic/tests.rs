use std::net::{IpAddr, Ipv4Addr};

use ferroce_transport::{Attributes, Caps, ReceiveRequest, Sge, State};
use ferroce_wire::Service;

use super::*;
use crate::cq::CompletionQueue;
use crate::qp::{Qp, QpSpec};

#[test]
fn work_in_the_mail_holds_its_memory() {
    let address = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 48, 1)));
    let nic = Nic::open(Config { address, ..Config::new("lo") }).unwrap();
    let domain = nic.create_domain().unwrap();
    let cq = CompletionQueue::new(&nic, 4, None).unwrap();
    let spec = QpSpec {
        service: Service::Rc,
        domain,
        send_cq: &cq,
        receive_cq: &cq,
        shared_queue: None,
        caps: Caps { max_send: 1, max_receive: 1, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 },
        signal_all: true,
        path: None,
        engine: None,
    };
    let qp = Qp::new(&nic, &spec).unwrap();
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::REMOTE_WRITE);
    qp.modify(&init, None).unwrap();
    let memory = Allocation::zeroed(64).unwrap();
    let (lkey, _) = nic.register(domain, &memory, (0, 64), 0, Access::LOCAL_WRITE).unwrap();
    let is_registered = || nic.engines().control(0, |engine| engine.tables.memory.region(lkey).is_some());

    // The engine is busy, so the work waits in the mail; and whoever was busy leaves it there.
    let busy = nic.engines().station(0).turnstile.enter();
    let sge = Sge { address: 0, length: 64, lkey };
    qp.post_receive(&[ReceiveRequest { id: 1, sges: &[sge] }]).unwrap();
    assert!(!nic.engines().station(0).mail.is_empty());
    assert!(!busy.leave_ringing().is_empty());

    nic.release(domain, lkey);
    assert!(is_registered());
    drop(qp);
    assert!(!is_registered());
}
