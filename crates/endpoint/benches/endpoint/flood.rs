//! How long connecting takes while another address floods the listener with requests that it never goes through with.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferroce_endpoint::{Connection, Context, Listener, Options};
use ferroce_testkit::process::Parent;
use ferroce_verbs::cm;
use ferroce_wire::mad::{CmMad, CommId, IpCmHeader, IpPair, PortSpace, Req, ReqPath, ServiceId};
use ferroce_wire::{PathMtu, Qpn};

use crate::{Outcome, address, device, device_towards, each};

/// Takes every connection, and lets it go when its peer has.
pub(crate) fn door(host: u8) -> Outcome<()> {
    let listener = Listener::bind_with(address(host), &Options::new().context(&device(host)?))?;
    Parent.say(listener.local_addr())?;
    loop {
        let connection = listener.accept().wait()?;
        std::thread::spawn(move || while let Ok(Some(_)) = connection.recv().wait() {});
    }
}

pub(crate) fn alone(address: &str, time: Duration) -> Outcome<f64> {
    connects(address, time)
}

pub(crate) fn beside_150(address: &str, time: Duration) -> Outcome<f64> {
    beside(address, time, 150)
}

pub(crate) fn beside_1000(address: &str, time: Duration) -> Outcome<f64> {
    beside(address, time, 1000)
}

/// Microseconds of a connection from its beginning to its end.
fn connects(address: &str, time: Duration) -> Outcome<f64> {
    let options = Options::new().context(&device_towards(address)?);
    each(4 * time, || {
        let connection = Connection::connect_with(address, &options).wait()?;
        connection.close().wait()?;
        Ok(())
    })
}

fn beside(address: &str, time: Duration, rate: u32) -> Outcome<f64> {
    let flooder = Flooder::new(address.parse()?)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| flooder.flood(rate, &stop));
        let took = connects(address, time);
        stop.store(true, Ordering::SeqCst);
        took
    })
}

struct Flooder {
    context: Context,
    from: IpAddr,
    to: SocketAddr,
    /// What an end says first.
    hello: Vec<u8>,
}

impl Flooder {
    fn new(to: SocketAddr) -> Outcome<Self> {
        let SocketAddr::V4(v4) = to else { return Err("an address that is not ours".into()) };
        let from = [127, 0, 120, v4.ip().octets()[3]];
        let context = Context::builder("lo").address(from).open()?;
        // An end that asks here tells what ends say.
        let listener = cm::Listener::bind(&context, 0, 1)?;
        let here = SocketAddr::new(from.into(), listener.port());
        let options = Options::new().context(&context).connect_timeout(Duration::from_secs(5));
        let hello = std::thread::scope(|scope| {
            scope.spawn(|| drop(Connection::connect_with(here, &options).wait()));
            let request = listener.accept(Duration::from_secs(5))?;
            let hello = request.private_data().to_vec();
            request.reject(&[])?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(hello)
        })?;
        Ok(Self { context, from: from.into(), to, hello })
    }

    /// So many requests a second, until it is enough, and for a minute at most.
    fn flood(&self, rate: u32, stop: &AtomicBool) {
        let start = Instant::now();
        for number in 0..60 * rate {
            while start.elapsed() < Duration::from_secs(1) * number / rate {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            self.ask(number);
        }
    }

    fn ask(&self, number: u32) {
        let Some(pair) = IpPair::new(self.from, self.to.ip()) else { return };
        let Ok(private_data) = IpCmHeader::new(1, pair).private_data(&self.hello) else { return };
        let req = Req {
            local_comm_id: CommId(1 + number),
            service_id: ServiceId::rdma_ip(PortSpace::Tcp, self.to.port()),
            local_qpn: Qpn::new(0x1000 + number),
            path_mtu: PathMtu::B1024.code(),
            max_cm_retries: 15,
            primary: ReqPath {
                local_gid: self.from.into(),
                remote_gid: self.to.ip().into(),
                ..ReqPath::default()
            },
            private_data,
            ..Req::default()
        };
        let mut mad = [0; CmMad::LEN];
        CmMad::new(number.into(), req).emit(&mut mad);
        // One that finds no room is lost, as on any network.
        let _ = cm::send_mad(&self.context, self.from, self.to.ip(), &mad);
    }
}
