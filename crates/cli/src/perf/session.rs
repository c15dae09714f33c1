//! The two ends meet: over TCP they agree on what to do, then they do it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use ferroce::{Context, DeviceInfo};
use ferroce_device::discovery;

use super::end::{End, Side};
use super::line::{Card, Line, PATIENCE, Talk};
use super::report::Row;
use super::target::{Attendant, Word};
use super::task::{Limit, Measure, Task, Way};
use super::{latency, stream};
use crate::addresses;

/// How long a server may take to accept.
const CONNECT: Duration = Duration::from_secs(5);

/// A device, and the address on it that queue pairs have.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) context: Context,
    pub(crate) address: IpAddr,
}

impl Place {
    /// The device by which the other end of a TCP connection is reached; on loopback, an address of
    /// 127.0.0.0/8 that no other process has. Two ends that are to share memory have one address, which is the initiator's: `other`.
    pub(crate) fn beside(
        talk: &Talk,
        wanted: Option<IpAddr>,
        way: Way,
        other: Option<IpAddr>,
    ) -> anyhow::Result<Self> {
        let side = if other.is_some() { Side::Target } else { Side::Initiator };
        let here = wanted.unwrap_or(talk.stream().local_addr()?.ip().to_canonical());
        if way == Way::Shared {
            return Self::shared(wanted.or(other).or((!here.is_loopback()).then_some(here)));
        }
        if here.is_loopback() {
            let part = u8::from(side == Side::Target);
            let (context, address) = addresses::open_loopback(wanted, part, |builder| builder)?;
            return Ok(Self { context, address });
        }
        let open = Context::builder(&device_with(here)?).address(here).open();
        Ok(Self { context: open.with_context(|| format!("cannot open {here}"))?, address: here })
    }

    /// A device that shares memory with the other end, on this address; on loopback if there is none.
    fn shared(address: Option<IpAddr>) -> anyhow::Result<Self> {
        let Some(address) = address else { return super::shared_place() };
        let device = device_with(address).context("both ends have to be on this machine to share memory")?;
        let open = super::sharing(Context::builder(&device).address(address)).open();
        Ok(Self { context: open.with_context(|| format!("cannot open {address}"))?, address })
    }
}

/// The open device that has this address, or how to open it.
pub(crate) fn device_with(address: IpAddr) -> anyhow::Result<String> {
    let has = |info: &DeviceInfo| info.addresses.contains(&address);
    if let Some(info) = ferroce::devices()?.into_iter().find(has) {
        return Ok(info.name);
    }
    match discovery::interfaces()?.into_iter().find(has) {
        Some(DeviceInfo { interface, .. }) => bail!(
            "no open device has the address {address}; to let peers reach memory by its interface, set \
             FERROCE_NETDEV={interface}"
        ),
        None => bail!(
            "no interface of this machine has the address {address}; ferroce devices lists what there is"
        ),
    }
}

/// The initiator's side: connects to a server.
pub(crate) fn connect(host: &str, port: u16) -> anyhow::Result<Talk> {
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .with_context(|| format!("{host:?} is no host that can be found"))?
        .collect();
    let mut last = anyhow!("{host:?} has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(Talk::new(stream)?),
            Err(error) => {
                last = anyhow!(
                    "no server answers at {address} ({error}); start one: ferroce perf --server, which serves once, or \
                     --server --forever"
                );
            }
        }
    }
    Err(last)
}

/// The target's side: waits for initiators at this address.
pub(crate) fn listen(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    let wanted = SocketAddr::new(address, port);
    TcpListener::bind(wanted).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            anyhow!("{wanted} is taken, perhaps by another server; choose another port with --port")
        }
        _ => anyhow!("cannot listen at {wanted}: {error}"),
    })
}

/// Both ends of a TCP connection inside this process.
pub(crate) fn both_ends() -> anyhow::Result<(Talk, Talk)> {
    let listener = listen(IpAddr::from([127, 0, 0, 1]), 0)?;
    let near = TcpStream::connect(listener.local_addr()?).context("cannot reach this machine over TCP")?;
    let (far, _) = listener.accept().context("cannot reach this machine over TCP")?;
    Ok((Talk::new(near)?, Talk::new(far)?))
}

/// Measures one task from the initiator's side.
pub(crate) fn measure(
    talk: &mut Talk,
    place: &Place,
    task: &Task,
    limit: Limit,
    tick: &mut dyn FnMut(f64),
) -> anyhow::Result<Row> {
    let end = End::new(&place.context, place.address, task, Side::Initiator)?;
    talk.say(&Line::Run(*task, end.card()))?;
    let Line::Ready(other) = talk.expect()? else {
        bail!("the other end is not ready; it said something else")
    };
    end.connect(&other)?;
    let run = match task.measure {
        Measure::Latency => latency::measure,
        Measure::Bandwidth | Measure::Rate => stream::measure,
    };
    let figures = match run(task, &end, other.region, limit, tick) {
        Ok(figures) => figures,
        // The other end may know better why.
        Err(error) => match talk.hear(Some(Duration::from_secs(1))) {
            Ok(Some(Line::Error(text))) => bail!("the other end: {text}"),
            Ok(None) => return Err(error.context("the other end hung up")),
            _ => return Err(error),
        },
    };
    talk.say(&Line::Done(figures.total))?;
    match talk.expect()? {
        Line::Done(_) => {}
        _ => bail!("the other end did not say that it is done"),
    }
    Ok(Row { task: *task, figures, path: end.path(), counters: end.counters() })
}

/// Does as the target what an initiator wants, until it hangs up; how many tasks there were. `begin` hears
/// of each.
pub(crate) fn serve(
    talk: &mut Talk,
    choose: impl FnOnce(&Talk, &Task, &Card) -> anyhow::Result<Place>,
    mut begin: impl FnMut(&Task) -> io::Result<()>,
) -> anyhow::Result<usize> {
    let served = (|| {
        let (mut choose, mut place) = (Some(choose), None);
        let mut tasks = 0;
        while let Some(line) = talk.hear(Some(PATIENCE))? {
            let Line::Run(task, card) = line else { bail!("the other end did not say what to do") };
            if let Some(choose) = choose.take() {
                place = Some(choose(talk, &task, &card)?);
            }
            let Some(place) = &place else { bail!("there is no network card") };
            let end = End::new(&place.context, place.address, &task, Side::Target)?;
            end.connect(&card)?;
            let attendant = Attendant::new(&task, &end, card.region)?;
            talk.say(&Line::Ready(end.card()))?;
            begin(&task)?;
            attend(talk, attendant)?;
            tasks += 1;
        }
        Ok(tasks)
    })();
    if let Err(error) = &served {
        // It may have gone, and then it does not matter to it.
        let _ = talk.say(&Line::Error(format!("{error:#}")));
    }
    served
}

/// Works as the target while the initiator measures, and hears when it is over.
fn attend(talk: &mut Talk, attendant: Attendant<'_>) -> anyhow::Result<()> {
    let word = Word::default();
    let stream = talk.stream().try_clone().context("cannot listen and work at once")?;
    let (attended, heard) = thread::scope(|scope| {
        let listen = || {
            let heard = talk.hear(None);
            if let Ok(Some(Line::Done(messages))) = heard {
                word.messages.store(messages, Ordering::Release);
            }
            word.over.store(true, Ordering::Release);
            heard
        };
        let hearing = match thread::Builder::new().name("listening".into()).spawn_scoped(scope, listen) {
            Ok(hearing) => hearing,
            Err(error) => return (Err(anyhow!("cannot start a thread: {error}")), Ok(None)),
        };
        let attended = attendant.attend(&word);
        if let Err(error) = &attended {
            // Said at once: the initiator may wait for something that never comes.
            let _ = Talk::tell(&stream, &Line::Error(format!("{error:#}")));
            Talk::hang_up(&stream);
        }
        let heard = hearing.join().unwrap_or_else(|_| Err(anyhow!("the listening thread panicked")));
        (attended, heard)
    });
    match heard {
        Ok(Some(Line::Done(messages))) => {
            attended?;
            talk.say(&Line::Done(messages))
        }
        Ok(Some(Line::Error(text))) => bail!("the other end: {text}"),
        Ok(Some(_)) => bail!("the other end said something else than that it is done"),
        // The reason here comes before what follows from it.
        Ok(None) => attended.and_then(|()| bail!("the other end hung up in the middle of a measurement")),
        Err(error) => attended.and(Err(error)),
    }
}
