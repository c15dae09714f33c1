//! Managers without a network, and messages that tests hand from one to the other.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ferroce_transport::Time;
use ferroce_transport::cm::{
    Accept, Chance, Config, Connect, Ends, Event, Limits, Manager, Outgoing, Patience,
};
use ferroce_wire::mad::{
    CmMad, CmMessage, CommId, IpCmHeader, IpPair, PortSpace, Rep, Req, ReqPath, ServiceId, Timeout,
};
use ferroce_wire::{PKeyTable, PathMtu, Psn, Qpn};

pub(crate) const SERVICE: ServiceId = ServiceId::rdma_ip(PortSpace::Tcp, 7174);
pub(crate) const RESPONSE: Duration = Duration::from_millis(500);
pub(crate) const TIME_WAIT: Duration = Duration::from_secs(1);

pub(crate) fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

/// From one node to another.
pub(crate) fn ends(from: u8, to: u8) -> Ends {
    Ends { local: address(from), remote: address(to) }
}

/// The same, as the other one sees it.
pub(crate) fn turned(ends: Ends) -> Ends {
    Ends { local: ends.remote, remote: ends.local }
}

pub(crate) fn manager(number: u8, limits: Limits) -> Manager {
    let config = Config { limits, slot: number, path_mtu: PathMtu::B1024, pkeys: PKeyTable::DEFAULT };
    Manager::new(config, chance(u64::from(number)))
}

/// The same numbers in every run.
pub(crate) fn chance(mut seed: u64) -> Chance {
    Chance::new(move || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        u32::try_from(seed >> 32).expect("32 bits")
    })
}

pub(crate) fn patience(now: Time) -> Patience {
    let deadline = now + Duration::from_secs(20);
    Patience {
        response: RESPONSE,
        retries: 3,
        deadline,
        time_wait: TIME_WAIT,
        tell_end: false,
        watched: false,
    }
}

/// A request that nothing is wrong with.
pub(crate) fn wish(now: Time, ends: Ends, qpn: u32) -> Connect {
    let pair = IpPair::new(ends.local, ends.remote).expect("one family");
    let private_data = IpCmHeader::new(40_000, pair).private_data(b"hello").expect("it fits");
    let primary = ReqPath {
        local_lid: ReqPath::ROCE_LID,
        remote_lid: ReqPath::ROCE_LID,
        local_gid: ends.local.into(),
        remote_gid: ends.remote.into(),
        hop_limit: 64,
        local_ack_timeout: Timeout::new(16),
        ..ReqPath::default()
    };
    let req = Req {
        local_qpn: Qpn::new(qpn),
        starting_psn: Psn::new(7),
        responder_resources: 4,
        initiator_depth: 4,
        retry_count: 7,
        rnr_retry_count: 7,
        path_mtu: PathMtu::B1024.code(),
        primary,
        private_data,
        ..Req::default()
    };
    Connect { ends, req, service: SERVICE, patience: patience(now) }
}

pub(crate) fn acceptance(now: Time, qpn: u32) -> Accept {
    let rep = Rep { local_qpn: Qpn::new(qpn), starting_psn: Psn::new(9), ..Rep::default() };
    Accept { rep, patience: patience(now) }
}

/// Two managers and the time.
pub(crate) struct Two {
    pub(crate) now: Time,
    pub(crate) ann: Manager,
    pub(crate) bob: Manager,
}

impl Two {
    /// Bob listens.
    pub(crate) fn new() -> Self {
        let mut bob = manager(2, Limits::default());
        bob.listen(SERVICE, 4).expect("no other listener is there");
        Self { now: Time::from_nanos(1), ann: manager(1, Limits::default()), bob }
    }

    /// Ann asks, and the request has not arrived yet.
    pub(crate) fn ask(&mut self, qpn: u32) -> CommId {
        self.ann.connect(self.now, &wish(self.now, ends(1, 2), qpn)).expect("room")
    }

    /// Hands all messages over until there are none.
    pub(crate) fn exchange(&mut self) {
        loop {
            let from_ann: Vec<_> = std::iter::from_fn(|| self.ann.poll_transmit()).collect();
            let from_bob: Vec<_> = std::iter::from_fn(|| self.bob.poll_transmit()).collect();
            if from_ann.is_empty() && from_bob.is_empty() {
                return;
            }
            for Outgoing { ends, mad, .. } in from_ann {
                self.bob.handle_message(self.now, turned(ends), &mad);
            }
            for Outgoing { ends, mad, .. } in from_bob {
                self.ann.handle_message(self.now, turned(ends), &mad);
            }
        }
    }

    /// Lets time pass, with both looked after.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.ann.handle_timeout(self.now);
        self.bob.handle_timeout(self.now);
    }

    /// A connection that stands: Ann's name for it, and Bob's.
    pub(crate) fn connected(&mut self, qpn: u32) -> (CommId, CommId) {
        let ours = self.ask(qpn);
        self.exchange();
        let theirs = requested(&mut self.bob);
        self.bob.accept(self.now, theirs, &acceptance(self.now, qpn + 1)).expect("it waits");
        self.exchange();
        assert!(matches!(self.ann.poll_event(), Some((id, Event::Replied(_))) if id == ours));
        self.ann.ready(ours).expect("it waits");
        self.exchange();
        assert_eq!(self.ann.poll_event(), Some((ours, Event::Established)));
        assert_eq!(self.bob.poll_event(), Some((theirs, Event::Established)));
        (ours, theirs)
    }
}

/// The request that the next event is.
pub(crate) fn requested(manager: &mut Manager) -> CommId {
    match manager.poll_event() {
        Some((id, Event::Requested(request))) => {
            assert_eq!(request.id, id);
            id
        }
        other => panic!("no request: {other:?}"),
    }
}

/// The only message to send.
pub(crate) fn only(manager: &mut Manager) -> CmMad {
    let first = manager.poll_transmit().expect("a message");
    assert_eq!(manager.poll_transmit(), None, "only one");
    first.mad
}

/// The names of all messages to send.
pub(crate) fn sent(manager: &mut Manager) -> Vec<&'static str> {
    std::iter::from_fn(|| manager.poll_transmit()).map(|outgoing| outgoing.mad.message.name()).collect()
}

pub(crate) fn rej(mad: &CmMad) -> ferroce_wire::mad::Rej {
    match mad.message {
        CmMessage::Rej(rej) => rej,
        other => panic!("no rejection: {other:?}"),
    }
}
