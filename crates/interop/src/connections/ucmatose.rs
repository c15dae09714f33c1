//! `ucmatose`: several connections at once; the server sends some messages on each, then the client does, then the
//! server disconnects.

use ferroce_verbs::Service;
use ferroce_verbs::cm::{Disconnected, Established, Listener};

use super::{PORT, Side, accept, connect, ended, far_address, finish, start};
use crate::Result;
use crate::lab::Lab;
use crate::pair::Asks;

const CONNECTIONS: usize = 3;
const MESSAGES: usize = 10;
const LEN: usize = 100;

pub(crate) fn ucmatose(lab: &mut Lab, asks: Asks) -> Result<()> {
    let shape = format!("-p {PORT} -c {CONNECTIONS} -C {MESSAGES} -S {LEN}");
    let (near, far) = (lab.family.near(), far_address(lab.family));
    let mut sides = Vec::new();
    match asks {
        Asks::We => {
            let server = start(lab, &format!("ucmatose -b {far} {shape}"))?;
            for _ in 0..CONNECTIONS {
                let side = prepared(lab)?;
                let link = connect(lab, &side)?;
                sides.push((side, link));
            }
            listen(&sides)?;
            speak(&sides)?;
            for (_, link) in &sides {
                ended(link, &[Disconnected::Peer])?;
            }
            finish(server).map(drop)
        }
        Asks::Kernel => {
            let listener = Listener::bind(&lab.context, PORT, 8)?;
            let client = start(lab, &format!("ucmatose -s {near} {shape}"))?;
            for _ in 0..CONNECTIONS {
                let side = prepared(lab)?;
                let link = accept(&listener, &side)?;
                sides.push((side, link));
            }
            speak(&sides)?;
            listen(&sides)?;
            for (_, link) in &sides {
                link.disconnect();
            }
            for (_, link) in &sides {
                ended(link, &[Disconnected::Here])?;
            }
            finish(client).map(drop)
        }
    }
}

/// With all receives that it will need.
fn prepared(lab: &Lab) -> Result<Side> {
    let side = Side::new(lab, Service::Rc)?;
    for message in 0..MESSAGES {
        side.receive(message * LEN, LEN)?;
    }
    Ok(side)
}

fn listen(sides: &[(Side, Established)]) -> Result<()> {
    for (side, _) in sides {
        for _ in 0..MESSAGES {
            let came = side.received()?.byte_len;
            if came as usize != LEN {
                return Err(format!("a message of {came} bytes").into());
            }
        }
    }
    Ok(())
}

fn speak(sides: &[(Side, Established)]) -> Result<()> {
    for (side, _) in sides {
        for _ in 0..MESSAGES {
            side.qp.send(side.region.slice(8000..8000 + LEN)).post()?;
        }
        for _ in 0..MESSAGES {
            side.sent()?;
        }
    }
    Ok(())
}
