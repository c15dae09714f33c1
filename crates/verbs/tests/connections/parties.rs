//! Two hosts that want to be connected.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use ferroce_verbs::cm::{self, CmError, CmOptions, Established, Listener};
use ferroce_verbs::{Context, Service};

use crate::common::{End, open};

/// Two devices: each test has addresses of its own.
pub(crate) struct Hosts {
    pub(crate) server: Context,
    pub(crate) client: Context,
    pub(crate) address: IpAddr,
}

impl Hosts {
    pub(crate) fn new(net: u8) -> Self {
        Self {
            server: open([127, 0, net, 1]),
            client: open([127, 0, net, 2]),
            address: [127, 0, net, 1].into(),
        }
    }

    pub(crate) fn at(&self, listener: &Listener) -> SocketAddr {
        SocketAddr::new(self.address, listener.port())
    }

    /// A connection from the client to the listener, accepted at once.
    pub(crate) fn connect(&self, listener: &Listener) -> (Standing, Standing) {
        self.connect_with(listener, Service::Rc, &patient(), &patient())
    }

    pub(crate) fn connect_with(
        &self,
        listener: &Listener,
        service: Service,
        asking: &CmOptions,
        asked: &CmOptions,
    ) -> (Standing, Standing) {
        let (here, there) = (End::new(&self.client, service), End::new(&self.server, service));
        let at = self.at(listener);
        thread::scope(|scope| {
            let asks = scope.spawn(|| cm::connect(at, &here.qp, asking));
            let request = loop {
                match listener.accept(Duration::from_millis(100)) {
                    // Requests from other addresses are none of ours.
                    Ok(request) if request.peer().ip() == here.qp.local_address().gid.ip() => break request,
                    _ => assert!(!asks.is_finished(), "it was not even asked: {:?}", asks.join()),
                }
            };
            let accepted = request.accept(&there.qp, asked).unwrap();
            let connected = asks.join().unwrap().unwrap();
            (connected, accepted)
        })
        .with(here, there)
    }

    /// An attempt of the client alone.
    pub(crate) fn attempt(&self, port: u16, options: &CmOptions) -> Result<Established, CmError> {
        let end = End::new(&self.client, Service::Rc);
        cm::connect(SocketAddr::new(self.address, port), &end.qp, options)
    }
}

/// One end of a connection that stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) link: Established,
    pub(crate) end: End,
}

trait With {
    fn with(self, here: End, there: End) -> (Standing, Standing);
}

impl With for (Established, Established) {
    fn with(self, here: End, there: End) -> (Standing, Standing) {
        (Standing { link: self.0, end: here }, Standing { link: self.1, end: there })
    }
}

/// Options of a program that is sure that its peer answers, however loaded the machine is.
pub(crate) fn patient() -> CmOptions {
    CmOptions::default().timeout(Duration::from_secs(60))
}

/// Options of a program in a hurry.
pub(crate) fn hasty() -> CmOptions {
    CmOptions {
        response_timeout: Duration::from_millis(50),
        retries: 3,
        ..CmOptions::default().timeout(Duration::from_millis(500))
    }
}

/// A message each way.
pub(crate) fn talk(one: &End, other: &End) {
    for (from, to, text) in [(one, other, b"there"), (other, one, b"back!")] {
        to.qp.receive(to.region.slice(..64)).id(9).post().unwrap();
        from.qp.send_inline(text).id(8).post().unwrap();
        assert_eq!(to.done().id, 9);
        assert_eq!(from.done().id, 8);
        assert_eq!(to.region.to_vec(..5).unwrap(), text);
    }
}

/// A message to a peer that sends it back.
pub(crate) fn talk_to(end: &End) {
    end.region.write_at(0, b"echo!").unwrap();
    end.qp.receive(end.region.slice(100..200)).id(9).post().unwrap();
    end.qp.send(end.region.slice(..5)).id(8).post().unwrap();
    let mut ids = [end.done().id, end.done().id];
    ids.sort_unstable();
    assert_eq!(ids, [8, 9]);
    assert_eq!(end.region.to_vec(100..105).unwrap(), b"echo!");
}
