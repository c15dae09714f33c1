//! Datagrams.

use ferroce_system::{Bytes, Destination, Library, Operation, PostWorkError, ReceiveWork, SendWork};
use ferroce_transport::WorkKind;
use ferroce_wire::{Gid, Service};

use crate::child::over_dropin;
use crate::connected::{Bench, QKEY, is_held, well};

over_dropin! {
    fn a_datagram_arrives_behind_its_header(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = [(); 2].map(|()| bench.datagrams(&bench.options(Service::Ud)));
        let (here, source) = bench.region(64);
        let (there, target) = bench.region(256);
        here.write(0, b"datagram").unwrap();
        let address = bench.domain.address_handle(&bench.address()).unwrap();
        assert_eq!(address.address(), &bench.address());
        bob.post_receive(&[ReceiveWork { id: 2, pieces: &[target.all()] }]).unwrap();
        let destination = Some(Destination { address: &address, qpn: bob.qpn(), qkey: QKEY });
        let bytes = [source.piece(0..8)];
        let work = SendWork { destination, ..SendWork::new(1, Operation::SendImm(3), Bytes::Pieces(&bytes)) };
        ann.post_send(&[work]).unwrap();
        // Work holds what it names.
        drop((address, source));
        let both = [well(bench.done()), well(bench.done())];
        let received = both.iter().find(|done| done.kind == WorkKind::Receive).unwrap();
        assert_eq!((received.id, received.byte_len, received.imm), (2, 48, Some(3)));
        assert_eq!((received.source_qp, received.has_header), (Some(ann.qpn()), true));
        let mut seen = [0; 8];
        there.read(40, &mut seen).unwrap();
        assert_eq!(&seen, b"datagram");
        assert!(!is_held(&here));
    }

    fn only_datagrams_have_destinations(library: Library) {
        let bench = Bench::new(library);
        let ann = bench.datagrams(&bench.options(Service::Ud));
        let [rc, _peer] = bench.pair(&bench.options(Service::Rc));
        let plain = SendWork::new(1, Operation::Send, Bytes::Inline(&[]));
        assert_eq!(ann.post_send(&[plain]).unwrap_err().error, PostWorkError::Destination);
        let address = bench.domain.address_handle(&bench.address()).unwrap();
        let destination = Some(Destination { address: &address, qpn: ann.qpn(), qkey: QKEY });
        let addressed = SendWork { destination, ..plain };
        assert_eq!(rc.post_send(&[addressed]).unwrap_err().error, PostWorkError::Destination);
        let other = bench.context.protection_domain().unwrap();
        let foreign = other.address_handle(&bench.address()).unwrap();
        let destination = Some(Destination { address: &foreign, qpn: ann.qpn(), qkey: QKEY });
        let error = ann.post_send(&[SendWork { destination, ..plain }]).unwrap_err().error;
        assert_eq!(error, PostWorkError::OtherDomain { what: "address handle" });
    }

    fn a_group_gets_datagrams(library: Library) {
        let bench = Bench::new(library);
        let qp = bench.datagrams(&bench.options(Service::Ud));
        let group = Gid::from(std::net::IpAddr::from([239, 7, 8, 9]));
        qp.attach_to_group(group, 0).unwrap();
        qp.detach_from_group(group, 0).unwrap();
        let error = qp.detach_from_group(group, 0).unwrap_err();
        assert_eq!(error.call, "ibv_detach_mcast");
    }
}
