//! `udaddy`: the client finds the server's queue pair by a port, sends some datagrams there, and gets as many back.
//! Each carries the number of its sender's queue pair as immediate data.

use std::net::SocketAddr;

use ferroce_verbs::cm::{self, CmError, DatagramService};
use ferroce_verbs::{AddressVector, QKey, Qpn, Service};

use super::{PORT, Side, far_address, finish, options, start};
use crate::Result;
use crate::lab::Lab;
use crate::pair::{Asks, HEADER};

const MESSAGES: usize = 10;
const LEN: usize = 100;

/// The key that `rdma_cm` gives to all datagram queue pairs.
const QKEY: QKey = QKey(0x0123_4567);

pub(crate) fn udaddy(lab: &mut Lab, asks: Asks) -> Result<()> {
    // It listens where we expect it if nothing is said; what `-p` says is something else here.
    let shape = format!("-C {MESSAGES} -S {LEN}");
    let (near, far) = (lab.family.near(), far_address(lab.family));
    let side = Side::new(lab, Service::Ud)?;
    side.qp.activate(QKEY)?;
    for message in 0..MESSAGES {
        side.receive(message * (HEADER + LEN), HEADER + LEN)?;
    }
    match asks {
        Asks::We => {
            let server = start(lab, &format!("udaddy -b {far} {shape}"))?;
            let peer = SocketAddr::new(far, PORT);
            let mut pause = lab.far()?;
            let mut tries = 0..600;
            let found = loop {
                match cm::resolve(&lab.context, near, peer, &options()) {
                    Err(CmError::NotListening { .. }) if tries.next().is_some() => {
                        pause.run("usleep 100000")?
                    }
                    other => break other?,
                };
            };
            speak(lab, &side, found.qpn, found.qkey)?;
            listen(&side)?;
            finish(server).map(drop)
        }
        Asks::Kernel => {
            let _service = DatagramService::bind(&side.qp, PORT, QKEY, b"")?;
            let client = start(lab, &format!("udaddy -s {near} {shape}"))?;
            let from = listen(&side)?;
            speak(lab, &side, from, QKEY)?;
            finish(client).map(drop)
        }
    }
}

fn speak(lab: &Lab, side: &Side, to: Qpn, qkey: QKey) -> Result<()> {
    let index = lab.context.gid_index(lab.family.near()).ok_or("our address is gone")?;
    let vector = AddressVector::new(far_address(lab.family).into(), index);
    let handle = side.domain.address_handle(&vector)?;
    for _ in 0..MESSAGES {
        let bytes = side.region.slice(8000..8000 + LEN);
        side.qp.send_to(&handle, to, qkey, bytes).imm(side.qp.qpn().get()).post()?;
    }
    for _ in 0..MESSAGES {
        side.sent()?;
    }
    Ok(())
}

/// Takes all datagrams that come; the queue pair that sent them.
fn listen(side: &Side) -> Result<Qpn> {
    let mut from = None;
    for _ in 0..MESSAGES {
        let came = side.received()?;
        if came.byte_len as usize != HEADER + LEN || came.imm != came.source_qp.map(Qpn::get) {
            return Err(format!("an odd datagram: {came:?}").into());
        }
        from = came.source_qp;
    }
    Ok(from.ok_or("no datagram came")?)
}
