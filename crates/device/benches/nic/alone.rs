//! One thread is both ends of a wire, by turns, and its processor time is counted: what a message costs in
//! work. Nothing runs at the same time, so the figures say nothing about speed; but a neighbour on the
//! machine hardly touches them.

use std::io;
use std::net::UdpSocket;

use ferroce_transport::{Completion, Data, SendFlags, SendOp, SendRequest, WorkKind};

use crate::ends::{End, HERE, RECEIVES, THERE, check, device};
use crate::raw::{LARGE, LARGE_AT_ONCE, SMALL, socket};
use crate::samples::Sample;
use crate::stream::Stream;
use crate::{Outcome, Settings, system};

/// Rounds between two looks at the clock.
const ROUNDS: u32 = 200;

/// Repeats `round` until the time is over: nanoseconds of this thread for each, the median.
pub(crate) fn each(settings: &Settings, mut round: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut costs = Vec::new();
    let begin = system::thread_time()?;
    let mut last = begin;
    while last - begin < settings.duration {
        for _ in 0..ROUNDS {
            round()?;
        }
        let now = system::thread_time()?;
        costs.push((now - last).as_nanos() as f64 / f64::from(ROUNDS));
        last = now;
    }
    costs.sort_unstable_by(f64::total_cmp);
    Ok(costs[costs.len() / 2])
}

/// Two devices of this process, connected by packets.
pub(crate) fn ends(depth: u32, bytes: usize) -> Outcome<(End, End)> {
    let here = End::new(&device(Some(HERE))?, HERE, depth, bytes)?;
    let there = End::new(&device(Some(THERE))?, THERE, depth, bytes)?;
    here.connect(&there.card())?;
    there.connect(&here.card())?;
    Ok((here, there))
}

/// Lists of WRITEs: microseconds for each list.
pub(crate) fn stream(stream: Stream, settings: &Settings) -> Outcome<Sample> {
    let Stream { len, list, depth, .. } = stream;
    let (here, there) = ends(depth, len as usize)?;
    let piece = [here.piece(0, len)];
    let op = SendOp::Write(there.card().remote);
    let request = |at| {
        let flags = if at + 1 == list { SendFlags::SIGNALED } else { SendFlags::empty() };
        SendRequest { id: 1, op, data: Data::Gather(&piece), flags, dest: None }
    };
    let requests: Vec<_> = (0..list).map(request).collect();
    let mut found = [Completion::EMPTY; 32];
    let mut under_way = 0;
    let cost = each(settings, || {
        while under_way + list > depth {
            there.cq.poll(&mut found);
            let count = here.cq.poll(&mut found);
            found[..count].iter().try_for_each(check)?;
            under_way -= list * u32::try_from(count)?;
        }
        here.qp.post_send(&requests).map_err(|refused| refused.error)?;
        under_way += list;
        Ok(())
    })?;
    Ok(Sample::new(cost / 1e3).with_note(here.note()?))
}

/// A SEND there and one back: microseconds for each way.
pub(crate) fn send(settings: &Settings) -> Outcome<Sample> {
    let (here, there) = ends(64, 4096)?;
    here.post_receives(RECEIVES)?;
    there.post_receives(RECEIVES)?;
    let mut found = [Completion::EMPTY; 4];
    let mut go = |from: &End, to: &End| -> Outcome<()> {
        let piece = [from.piece(1024, 64)];
        let (data, flags) = (Data::Gather(&piece), SendFlags::SIGNALED);
        let request = SendRequest { id: 1, op: SendOp::Send, data, flags, dest: None };
        from.qp.post_send(&[request]).map_err(|refused| refused.error)?;
        loop {
            let count = to.cq.poll(&mut found);
            found[..count].iter().try_for_each(check)?;
            if found[..count].iter().any(|done| done.kind == WorkKind::Receive) {
                return to.post_receives(1);
            }
        }
    };
    let cost = each(settings, || go(&here, &there).and_then(|()| go(&there, &here)))?;
    Ok(Sample::new(cost / 2e3).with_note(here.note()?))
}

/// Runs of segments over plain sockets: microseconds for so many segments.
fn segments(settings: &Settings, segment: usize, at_once: usize, count: usize) -> Outcome<Sample> {
    let (from, to) = sockets()?;
    system::cut_into(&from, segment)?;
    system::join_segments(&to)?;
    let sent = vec![0x5a_u8; segment * at_once];
    let mut buffer = vec![0_u8; 1 << 16];
    let there = to.local_addr()?;
    let cost = each(settings, || {
        from.send_to(&sent, there)?;
        to.recv_from(&mut buffer)?;
        Ok(())
    })?;
    Ok(Sample::new(cost / 1e3 * count as f64 / at_once as f64))
}

/// Sixteen small segments.
pub(crate) fn raw_small(settings: &Settings) -> Outcome<Sample> {
    segments(settings, SMALL, 16, 16)
}

/// A MiB in segments of 4 KiB.
pub(crate) fn raw_bulk(settings: &Settings) -> Outcome<Sample> {
    segments(settings, LARGE, LARGE_AT_ONCE, 256)
}

/// A small datagram from one socket to another: microseconds.
pub(crate) fn raw_trip(settings: &Settings) -> Outcome<Sample> {
    let (from, to) = sockets()?;
    let mut buffer = [0_u8; SMALL];
    let there = to.local_addr()?;
    let cost = each(settings, || {
        from.send_to(&buffer, there)?;
        to.recv_from(&mut buffer)?;
        Ok(())
    })?;
    Ok(Sample::new(cost / 1e3))
}

fn sockets() -> io::Result<(UdpSocket, UdpSocket)> {
    Ok((socket(HERE.into(), true)?, socket(THERE.into(), true)?))
}
