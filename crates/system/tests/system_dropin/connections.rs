//! Connections by the library of connections, with queue pairs of the program's own.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use ferroce_sys::descriptor::wait_readable;
use ferroce_system::{
    Bytes, ConnectionChannel, ConnectionEvent, ConnectionEventKind, ConnectionParameters, Library, Operation,
    ReceiveWork, SendWork,
};
use ferroce_transport::State;
use ferroce_wire::{Qpn, Service};

use crate::child::{over_dropin, own_address};
use crate::connected::Bench;

const LIMIT: Duration = Duration::from_secs(20);
const PORT: u16 = 18_515;

/// The next event of a channel.
fn next(channel: &ConnectionChannel) -> ConnectionEvent {
    loop {
        if let Some(event) = channel.poll().unwrap() {
            return event;
        }
        assert!(wait_readable(channel.as_fd(), Some(LIMIT)).unwrap(), "no event");
    }
}

fn parameters(qpn: Qpn) -> ConnectionParameters {
    ConnectionParameters {
        qpn,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        shared_queue: false,
    }
}

over_dropin! {
    fn two_sides_meet_speak_and_part(library: Library) {
        let bench = Bench::new(library);
        let [server, client] = [(); 2].map(|()| library.connection_channel().unwrap());
        let peer = SocketAddr::from((own_address(), PORT));
        let listener = server.id().unwrap();
        listener.bind(peer).unwrap();
        listener.listen(4).unwrap();
        let ann = client.id().unwrap();
        assert_eq!(ann.card(), None);
        ann.resolve_address(peer, LIMIT).unwrap();
        let resolved = next(&client);
        assert!(matches!(resolved.kind, ConnectionEventKind::AddressResolved), "{resolved:?}");
        assert_eq!((resolved.id, ann.card()), (ann.number(), Some(("ferroce_lo".to_owned(), 1))));
        ann.resolve_route(LIMIT).unwrap();
        assert!(matches!(next(&client).kind, ConnectionEventKind::RouteResolved));

        let [here, there] = [(); 2].map(|()| bench.domain.queue_pair(&bench.options(Service::Rc)).unwrap());
        ann.prepare(&here, State::Init).unwrap();
        ann.connect(parameters(here.qpn()), b"hello").unwrap();
        let request = next(&server);
        assert_eq!((request.id, request.parameters.qpn), (listener.number(), here.qpn()));
        assert!(request.private_data.starts_with(b"hello"));
        let ConnectionEventKind::Request(bob) = request.kind else { panic!("{request:?}") };
        for state in [State::Init, State::Rtr, State::Rts] {
            bob.prepare(&there, state).unwrap();
        }
        there.post_receive(&[ReceiveWork { id: 1, pieces: &[] }]).unwrap();
        bob.accept(parameters(there.qpn()), b"welcome").unwrap();
        let response = next(&client);
        assert!(matches!(response.kind, ConnectionEventKind::Response), "{response:?}");
        assert_eq!(response.parameters.qpn, there.qpn());
        assert!(response.private_data.starts_with(b"welcome"));
        for state in [State::Rtr, State::Rts] {
            ann.prepare(&here, state).unwrap();
        }
        ann.establish().unwrap();
        let established = next(&server);
        assert!(matches!(established.kind, ConnectionEventKind::Established), "{established:?}");
        assert_eq!(established.id, bob.number());

        here.post_send(&[SendWork::new(2, Operation::Send, Bytes::Inline(&[]))]).unwrap();
        assert_eq!(bench.all_done(2), [1, 2]);
        ann.disconnect().unwrap();
        let parted = next(&server);
        assert!(matches!(parted.kind, ConnectionEventKind::Disconnected), "{parted:?}");
        // Every event was acknowledged, so none of these waits; an event that was not taken keeps nothing.
        drop((ann, bob, listener));
    }

    fn a_connection_can_be_rejected(library: Library) {
        let bench = Bench::new(library);
        let channel = library.connection_channel().unwrap();
        let peer = SocketAddr::from((own_address(), PORT));
        let listener = channel.id().unwrap();
        listener.bind(peer).unwrap();
        listener.listen(4).unwrap();
        let ann = channel.id().unwrap();
        ann.resolve_address(peer, LIMIT).unwrap();
        assert!(matches!(next(&channel).kind, ConnectionEventKind::AddressResolved));
        ann.resolve_route(LIMIT).unwrap();
        assert!(matches!(next(&channel).kind, ConnectionEventKind::RouteResolved));
        let qp = bench.domain.queue_pair(&bench.options(Service::Rc)).unwrap();
        ann.connect(parameters(qp.qpn()), &[]).unwrap();
        let request = next(&channel);
        let ConnectionEventKind::Request(bob) = request.kind else { panic!("{request:?}") };
        bob.reject(b"not today").unwrap();
        let rejected = next(&channel);
        assert!(matches!(rejected.kind, ConnectionEventKind::Rejected), "{rejected:?}");
        assert_eq!(rejected.id, ann.number());
        assert!(rejected.private_data.starts_with(b"not today"));
        assert!(channel.poll().unwrap().is_none());
    }

    fn an_address_of_no_card_is_refused(library: Library) {
        let channel = library.connection_channel().unwrap();
        let id = channel.id().unwrap();
        let error = id.bind(SocketAddr::from(([192, 0, 2, 1], PORT))).unwrap_err();
        assert_eq!(error.call, "rdma_bind_addr");
    }
}
