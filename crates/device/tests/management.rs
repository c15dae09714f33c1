//! Queue pair 1 between two processes on one port: a request finds the process that listens, and its answer
//! the one that asked.
#![allow(unsafe_code, reason = "only the system forks")]

mod common;

use std::io::{Read, Write};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{PATIENCE, device};
use ferroce_device::{Nic, now};
use ferroce_wire::mad::{CmMad, CmMessage, CommId, Rep, Req, ServiceId};

const ADDRESS: [u8; 4] = [127, 0, 66, 1];
const SERVICE: ServiceId = ServiceId(0x0106_1c06);

#[test]
fn a_request_finds_the_process_that_listens() {
    let nic = device(ADDRESS);
    let (mut from_child, mut to_parent) = std::io::pipe().expect("a pipe");
    let (mut from_parent, to_child) = std::io::pipe().expect("a pipe");
    // SAFETY: the child opens a device of its own and leaves with _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a process");
    if pid == 0 {
        drop((to_child, from_child));
        let right = catch_unwind(AssertUnwindSafe(|| {
            let nic = device(ADDRESS);
            let _listens = nic.listen_for(SERVICE).expect("no other process does");
            to_parent.write_all(&[0]).expect("the parent listens");
            for number in 0..10 {
                answer(&nic, number);
            }
            // Until the parent has gone on.
            drop(from_parent.read(&mut [0]));
        }));
        // SAFETY: ends this process at once: what belongs to the parent is not cleaned up here.
        unsafe { libc::_exit(i32::from(right.is_err())) };
    }
    drop((to_parent, from_parent));
    from_child.read_exact(&mut [0]).expect("the child listens for the service");
    assert!(nic.listen_for(SERVICE).is_err(), "it is taken");
    for number in 0..10 {
        let local_comm_id = CommId(nic.communication_id(number));
        let req = Req { local_comm_id, service_id: SERVICE, ..Req::default() };
        send(&nic, &CmMad::new(number.into(), req));
        let (mad, from) = next(&nic);
        assert_eq!((mad.transaction_id, from), (number.into(), ADDRESS.into()));
        let CmMessage::Rep(rep) = mad.message else { unreachable!("{mad:?}") };
        assert_eq!(rep.remote_comm_id, local_comm_id);
    }
    // A request that no process listens for is counted, and kept by none.
    let before = nic.counters().mads_unclaimed;
    let req = Req { service_id: ServiceId(9), ..Req::default() };
    send(&nic, &CmMad::new(99, req));
    let end = now() + PATIENCE;
    while nic.counters().mads_unclaimed == before {
        assert!(now() < end, "{:?}", nic.counters());
        drop(nic.mads_readable().wait(Some(std::time::Duration::from_millis(1))));
    }
    drop(to_child);
    let mut status = 0;
    // SAFETY: the pointer is to a number that lives during the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert!(nic.listen_for(SERVICE).is_ok(), "the claim of a dead process is void");
}

fn answer(nic: &Nic, number: u32) {
    let (mad, _) = next(nic);
    let CmMessage::Req(req) = mad.message else { unreachable!("{mad:?}") };
    assert_eq!(req.service_id, SERVICE);
    let local_comm_id = CommId(nic.communication_id(number));
    let rep = Rep { local_comm_id, remote_comm_id: req.local_comm_id, ..Rep::default() };
    send(nic, &CmMad::new(mad.transaction_id, rep));
}

fn send(nic: &Nic, mad: &CmMad) {
    let mut bytes = [0; CmMad::LEN];
    mad.emit(&mut bytes);
    nic.send_mad(ADDRESS.into(), ADDRESS.into(), &bytes).expect("it is sent");
}

fn next(nic: &Nic) -> (CmMad, IpAddr) {
    let mad = nic.next_mad(PATIENCE).unwrap_or_else(|| panic!("nothing came: {:?}", nic.counters()));
    (CmMad::parse(&mad.bytes).expect("a message"), mad.remote)
}
