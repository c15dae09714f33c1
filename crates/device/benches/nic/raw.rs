//! The baselines: plain sockets, copies, wakes and clocks, with the sizes and buffers of a device.

use std::hint::{black_box, spin_loop};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ferroce_testkit::process::Parent;

use crate::ends::{HERE, NARROW, THERE, WIDE};
use crate::samples::{Sample, Span, Statistic, nanos_each, trips};
use crate::{Outcome, Settings, peer, system};

/// Roles of the other process.
pub(crate) const ECHO_BUSY: &str = "raw-echo-busy";
pub(crate) const ECHO_BLOCKING: &str = "raw-echo-blocking";
pub(crate) const SINK: &str = "raw-sink";

/// A WRITE of 64 bytes on the wire: BTH, RETH, payload, ICRC.
pub(crate) const SMALL: usize = 12 + 16 + 64 + 4;

/// A WRITE of 8 bytes.
const TINY: usize = SMALL - 56;

/// A middle packet of 4 KiB: BTH, payload, ICRC.
pub(crate) const LARGE: usize = 12 + 4096 + 4;

/// Segments of the largest send that are LARGE.
pub(crate) const LARGE_AT_ONCE: usize = 15;

/// How a stream is kept from overrunning its receiver.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Sends go on while fewer bytes are under way.
    window: u64,
    /// Datagrams after which the receiver tells what came.
    tell_after: u32,
    /// Bytes of receive buffer that both ask for.
    receive_buffer: usize,
}

/// What the receiver's buffer holds many times over, and caches hold too.
const FREELY: Flow = Flow { window: 512 << 10, tell_after: 4, receive_buffer: WIDE };

/// Two of the largest sends under way: with the kernel's own part of each, that is what 208 KiB hold for
/// sure.
const NARROWLY: Flow =
    Flow { window: (LARGE * LARGE_AT_ONCE) as u64 + 1, tell_after: 1, receive_buffer: NARROW };

/// How long a blocking receiver waits before it looks whether it should end.
const PATIENCE: Duration = Duration::from_millis(50);

/// Round trips of one small datagram, halved.
pub(crate) fn ping_pong(settings: &Settings, busy: bool) -> Outcome<Sample> {
    datagrams(settings, busy, SMALL)
}

/// Round trips of a datagram as long as a WRITE of 8 bytes, halved.
pub(crate) fn tiny_ping_pong(settings: &Settings) -> Outcome<Sample> {
    datagrams(settings, true, TINY)
}

fn datagrams(settings: &Settings, busy: bool, len: usize) -> Outcome<Sample> {
    let mut peer = peer::start(if busy { ECHO_BUSY } else { ECHO_BLOCKING }, settings)?;
    let there: SocketAddr = peer.hear()?.parse()?;
    let socket = socket(HERE.into(), busy)?;
    let mut buffer = [0_u8; SMALL];
    let trips = trips(settings, || {
        socket.send_to(&buffer[..len], there)?;
        while !came(socket.recv_from(&mut buffer))? {
            spin_loop();
        }
        Ok(())
    })?;
    peer.stop()?;
    Ok(Sample::of_trips(trips))
}

/// Sends back what comes.
pub(crate) fn echo(parent: Parent, busy: bool) -> Outcome<()> {
    let socket = socket(THERE.into(), busy)?;
    parent.say(socket.local_addr()?)?;
    let stop = parent.watch();
    let mut buffer = [0_u8; SMALL];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => drop(socket.send_to(&buffer[..len], from)?),
            Err(error) if is_empty(&error) => spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A stream of 4 KiB segments in the largest sends: gigabytes of payload per second.
pub(crate) fn bulk(settings: &Settings) -> Outcome<Sample> {
    let Sample { value, note } =
        segments_per_second(settings, LARGE, LARGE_AT_ONCE, FREELY, Statistic::Best)?;
    Ok(Sample { value: value * 4096.0 / 1e9, note })
}

/// The same into a receive buffer of 208 KiB.
pub(crate) fn narrow_bulk(settings: &Settings) -> Outcome<Sample> {
    let Sample { value, note } =
        segments_per_second(settings, LARGE, LARGE_AT_ONCE, NARROWLY, Statistic::Best)?;
    Ok(Sample { value: value * 4096.0 / 1e9, note })
}

/// A stream of small segments, so many per send: millions per second.
pub(crate) fn rate(settings: &Settings, list: usize) -> Outcome<Sample> {
    let Sample { value, note } = segments_per_second(settings, SMALL, list, FREELY, Statistic::Best)?;
    Ok(Sample { value: value / 1e6, note })
}

/// The first moments of a stream of small segments over its steady rate.
pub(crate) fn first_small(settings: &Settings, list: usize) -> Outcome<Sample> {
    segments_per_second(settings, SMALL, list, FREELY, Statistic::First)
}

/// The first moments of a stream of 4 KiB segments over its steady rate.
pub(crate) fn first_bulk(settings: &Settings) -> Outcome<Sample> {
    segments_per_second(settings, LARGE, LARGE_AT_ONCE, FREELY, Statistic::First)
}

/// A stream that never has more under way than the receiver can keep: else most of the work would be
/// for datagrams that are dropped.
fn segments_per_second(
    settings: &Settings,
    segment: usize,
    at_once: usize,
    flow: Flow,
    statistic: Statistic,
) -> Outcome<Sample> {
    let mut peer = peer::start(SINK, settings)?;
    peer.say(format_args!("{} {}", flow.tell_after, flow.receive_buffer))?;
    let there: SocketAddr = peer.hear()?.parse()?;
    let socket = socket_with(HERE.into(), true, flow.receive_buffer)?;
    system::cut_into(&socket, segment)?;
    let buffer = vec![0x5a_u8; segment * at_once];
    let (mut sent, mut known) = (0_u64, 0_u64);
    let mut span = Span::begin(settings, statistic);
    let sample = loop {
        while sent - known < flow.window {
            socket.send_to(&buffer, there)?;
            sent += buffer.len() as u64;
        }
        let mut count = [0; 8];
        if came(socket.recv_from(&mut count))? {
            known = known.max(u64::from_ne_bytes(count));
            if let Some(sample) = span.done(known) {
                break sample;
            }
        } else if span.is_stuck() {
            return Err("the receiver lost something".into());
        }
    };
    peer.stop()?;
    let unit = if statistic == Statistic::First { 1.0 } else { segment as f64 };
    Ok(Sample { value: sample.value / unit, ..sample })
}

/// Takes in what comes, without waiting, and tells the sender how many bytes came so far: after every
/// few datagrams, and whenever no more are there.
pub(crate) fn sink(parent: Parent) -> Outcome<()> {
    let wanted = parent.hear()?;
    let (tell_after, receive_buffer) = wanted.split_once(' ').ok_or("the first process said too little")?;
    let (tell_after, receive_buffer) = (tell_after.parse::<u32>()?, receive_buffer.parse()?);
    let socket = socket_with(THERE.into(), true, receive_buffer)?;
    system::join_segments(&socket)?;
    parent.say(socket.local_addr()?)?;
    let stop = parent.watch();
    let mut buffer = vec![0_u8; 1 << 16];
    let (mut bytes, mut untold, mut sender) = (0_u64, 0, None);
    while !stop.load(Ordering::Relaxed) {
        let empty = match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                bytes += len as u64;
                untold += 1;
                sender = Some(from);
                false
            }
            Err(error) if is_empty(&error) => true,
            Err(error) => return Err(error.into()),
        };
        if let Some(sender) = sender
            && (untold == tell_after || empty && untold > 0)
        {
            socket.send_to(&bytes.to_ne_bytes(), sender)?;
            untold = 0;
        }
    }
    Ok(())
}

/// A copy of so many bytes between two places that stay in the cache: nanoseconds.
pub(crate) fn copy(settings: &Settings, bytes: usize) -> f64 {
    let from = vec![0x5a_u8; bytes];
    let mut to = vec![0_u8; bytes];
    let count: u32 = if bytes > 4096 { 1 } else { 10_000 };
    nanos_each(settings, count, || {
        for _ in 0..count {
            black_box(&mut to).copy_from_slice(black_box(&from));
        }
    })
}

/// Waking a thread that is blocked on an eventfd, and being woken by it, halved: microseconds.
pub(crate) fn wake(settings: &Settings) -> Outcome<Sample> {
    let (mut here, mut there) = (system::event_file()?, system::event_file()?);
    let (mut at_here, mut at_there) = (here.try_clone()?, there.try_clone()?);
    let one = 1_u64.to_ne_bytes();
    // A count of two says that it was the last.
    let two = 2_u64.to_ne_bytes();
    let pin = settings.pin;
    let other = std::thread::spawn(move || -> io::Result<()> {
        // On a core of its own, as the other process is where there are two.
        system::pin_if(pin, 1)?;
        let mut count = [0; 8];
        loop {
            at_there.read_exact(&mut count)?;
            if count == two {
                return Ok(());
            }
            at_here.write_all(&one)?;
        }
    });
    let mut count = [0; 8];
    let trips = trips(settings, || {
        there.write_all(&one)?;
        Ok(here.read_exact(&mut count)?)
    })?;
    there.write_all(&two)?;
    other.join().map_err(|_| "the other thread panicked")??;
    Ok(Sample::of_trips(trips))
}

/// Asking the system what time it is: nanoseconds.
pub(crate) fn clock(settings: &Settings) -> Outcome<Sample> {
    Ok(Sample::new(nanos_each(settings, 10_000, || (0..10_000).for_each(|_| _ = black_box(Instant::now())))))
}

/// Looking for a datagram where there is none: nanoseconds.
pub(crate) fn look(settings: &Settings) -> Outcome<Sample> {
    let socket = socket(HERE.into(), true)?;
    let mut buffer = [0_u8; SMALL];
    let mut odd = 0_u32;
    let cost = nanos_each(settings, 1000, || {
        for _ in 0..1000 {
            odd += u32::from(!matches!(socket.recv(black_box(&mut buffer)), Err(error) if is_empty(&error)));
        }
    });
    if odd == 0 { Ok(Sample::new(cost)) } else { Err(format!("{odd} looks found something").into()) }
}

pub(crate) fn socket(address: std::net::IpAddr, busy: bool) -> io::Result<UdpSocket> {
    socket_with(address, busy, WIDE)
}

fn socket_with(address: std::net::IpAddr, busy: bool, receive_buffer: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    system::set_receive_buffer(&socket, receive_buffer)?;
    if busy {
        socket.set_nonblocking(true)?;
    } else {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    Ok(socket)
}

fn came(result: io::Result<(usize, SocketAddr)>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if is_empty(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_empty(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
