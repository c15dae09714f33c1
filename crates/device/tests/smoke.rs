//! Two queue pairs on one device, over both paths: the shortest program that uses everything once.

use std::sync::Arc;
use std::time::Duration;

use ferroce_device::memory::Allocation;
use ferroce_device::*;
use ferroce_transport::*;
use ferroce_wire::*;

struct Side {
    qp: Arc<Qp>,
    cq: Arc<CompletionQueue>,
    memory: Arc<Allocation>,
    keys: (Lkey, Rkey),
    gid: usize,
}

fn side(nic: &Nic, domain: DomainId, address: [u8; 4], path: PathPolicy) -> Side {
    let cq = CompletionQueue::new(nic, 64, None).unwrap();
    let caps = Caps { max_send: 32, max_receive: 32, max_send_sge: 4, max_receive_sge: 4, max_inline: 64 };
    let spec = QpSpec {
        service: Service::Rc,
        domain,
        send_cq: &cq,
        receive_cq: &cq,
        shared_queue: None,
        caps,
        signal_all: true,
        path: Some(path),
    };
    let qp = Qp::new(nic, &spec).unwrap();
    let memory = Allocation::zeroed(1 << 20).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let keys = nic.register(domain, &memory, (0, memory.len()), memory.address(), access).unwrap();
    let gid = nic.gid_index(address.into()).unwrap();
    Side { qp, cq, memory, keys, gid }
}

fn connect(nic: &Nic, one: &Side, other: &Side) {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(access);
    one.qp.modify(&init, None).unwrap();
    let rtr = Attributes::to(State::Rtr)
        .with(AttributeMask::AV)
        .with_path_mtu(PathMtu::B1024)
        .with_dest_qpn(other.qp.qpn())
        .with_rq_psn(Psn::new(77))
        .with_max_dest_rd_atomic(8)
        .with_min_rnr_timer(1);
    let address = AddressVector::new(nic.gid(other.gid).unwrap(), one.gid);
    one.qp.modify(&rtr, Some(&address)).unwrap();
    let rts = Attributes::to(State::Rts)
        .with_timeout(14)
        .with_retry_count(7)
        .with_rnr_retry(7)
        .with_sq_psn(Psn::new(77))
        .with_max_rd_atomic(8);
    one.qp.modify(&rts, None).unwrap();
}

fn one_completion(cq: &CompletionQueue) -> Completion {
    let mut found = [WorkCompletion::EMPTY];
    assert_eq!(cq.wait(&mut found, Some(Duration::from_secs(5))), 1, "nothing completed");
    found[0].completion
}

fn exchange(path: PathPolicy) {
    let nic = Nic::open(Config::new("lo")).unwrap();
    let domain = nic.create_domain().unwrap();
    let a = side(&nic, domain, [127, 0, 0, 2], path);
    let b = side(&nic, domain, [127, 0, 0, 3], path);
    connect(&nic, &a, &b);
    connect(&nic, &b, &a);
    let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
    a.memory.write(0, &bytes).unwrap();
    let sge = Sge { address: a.memory.address(), length: 100_000, lkey: a.keys.0 };
    let remote = Remote { address: b.memory.address() + 5, rkey: b.keys.1 };
    let write = SendRequest {
        id: 1,
        op: SendOp::Write(remote),
        data: Data::Gather(&[sge]),
        flags: SendFlags::SIGNALED,
        dest: None,
    };
    a.qp.post_send(&[write]).unwrap();
    let done = one_completion(&a.cq);
    assert_eq!((done.id, done.status), (1, Status::Success));
    let mut seen = vec![0; bytes.len()];
    b.memory.read(5, &mut seen).unwrap();
    assert_eq!(seen, bytes);

    let into = Sge { address: b.memory.address() + 500_000, length: 100_000, lkey: b.keys.0 };
    b.qp.post_receive(&[ReceiveRequest { id: 9, sges: &[into] }]).unwrap();
    a.qp.post_send(&[SendRequest { id: 2, op: SendOp::SendImm(Imm(7)), ..write }]).unwrap();
    assert_eq!(one_completion(&a.cq).status, Status::Success);
    let got = one_completion(&b.cq);
    assert_eq!((got.id, got.byte_len, got.imm), (9, 100_000, Some(Imm(7))));
    b.memory.read(500_000, &mut seen).unwrap();
    assert_eq!(seen, bytes);

    let back = Sge { address: a.memory.address() + 500_000, ..sge };
    let read = SendRequest { id: 3, op: SendOp::Read(remote), data: Data::Gather(&[back]), ..write };
    a.qp.post_send(&[read]).unwrap();
    assert_eq!(one_completion(&a.cq).status, Status::Success);
    a.memory.read(500_000, &mut seen).unwrap();
    assert_eq!(seen, bytes);
    let wanted = if path == PathPolicy::Forbid { Path::Wire } else { Path::Local };
    assert_eq!(a.qp.query().unwrap().path.unwrap().path, wanted);
    println!("{:?}", nic.counters().iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>());
}

#[test]
fn work_is_done_over_the_wire() {
    exchange(PathPolicy::Forbid);
}

#[test]
fn work_is_done_in_the_process() {
    exchange(PathPolicy::Require);
}
