//! Requests that look like those of an end, from a peer that never goes through with them.

use ferroce_verbs::cm::{self, ServiceId};
use ferroce_verbs::time::now;
use ferroce_wire::mad::{CmMad, CommId, IpCmHeader, IpPair, PortSpace, Req, ReqPath};
use ferroce_wire::{PathMtu, Qpn};

use super::*;
use crate::connection::Connection;
use crate::hello::{Grant, Hello};
use crate::listener::Listener;

/// Asks for a connection, and will not confirm it.
fn forge(flooder: &Context, from: IpAddr, to: SocketAddr, number: u32) {
    let pair = IpPair::new(from, to.ip()).unwrap();
    let hello = Hello { depth: 60, slot: 256, max_message: 1 << 20, window: Grant::None };
    let req = Req {
        local_comm_id: CommId(number),
        service_id: ServiceId::rdma_ip(PortSpace::Tcp, to.port()),
        local_qpn: Qpn::new(0x1000 + number),
        path_mtu: PathMtu::B1024.code(),
        max_cm_retries: 15,
        primary: ReqPath { local_gid: from.into(), remote_gid: to.ip().into(), ..ReqPath::default() },
        private_data: IpCmHeader::new(1, pair).private_data(&hello.emit()).unwrap(),
        ..Req::default()
    };
    let mut mad = [0; CmMad::LEN];
    CmMad::new(number.into(), req).emit(&mut mad);
    // One that finds no room is lost, as on any network.
    let _ = cm::send_mad(flooder, from, to.ip(), &mad);
}

/// It was: an address that filled the backlog and confirmed nothing kept all others out until its requests timed out.
#[test]
fn a_flood_of_requests_from_one_address_keeps_no_other_out() {
    let (server, client, flooder) = (open(123, 1), open(123, 2), open(123, 66));
    let patient = Options::new().connect_timeout(SOON);
    let listener =
        Listener::bind_with("127.0.123.1:0", &patient.clone().context(&server).backlog(4)).unwrap();
    let (to, from) = (listener.local_addr(), IpAddr::from([127, 0, 123, 66]));
    let mut rounds = 0;
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| {
            let mut served = Vec::new();
            while let Ok(connection) = listener.accept().wait() {
                served.push(connection.peer_addr().ip());
            }
            served
        });
        let mut number = 0;
        // Which of two lists the flood fills first depends on how threads are scheduled: it goes on until both were full.
        while rounds < 5 || listener.counters().crowded_out == 0 && rounds < 200 {
            // So many that all places are taken, and those behind them as well.
            let full = || server.connection_counters().backlog_full;
            let before = full();
            while full() < before + 20 {
                number += 1;
                forge(&flooder, from, to, number);
                std::thread::yield_now();
            }
            let connection = Connection::connect_with(to, &patient.clone().context(&client)).wait().unwrap();
            rounds += 1;
            // Held until the server has it: one that goes before that counts as given up.
            let end = now() + SOON;
            while listener.counters().accepted < rounds {
                assert!(now() < end, "round {rounds} is not accepted: {:?}", listener.counters());
                std::thread::yield_now();
            }
            drop(connection);
        }
        listener.close();
        let served = serves.join().unwrap();
        assert!(served.iter().all(|peer| *peer == IpAddr::from([127, 0, 123, 2])), "{served:?}");
    });
    let counters = listener.counters();
    assert!(counters.crowded_out >= 1, "{counters:?}");
    assert_eq!(counters.accepted, rounds, "{counters:?}");
}
