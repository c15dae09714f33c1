//! Both queue pairs in this process, and a device that has nothing to do.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ferroce_transport::{Completion, Data, SendFlags, SendOp, SendRequest};

use crate::ends::{End, HERE, RECEIVES, THERE, check, device};
use crate::pingpong::Exchange;
use crate::samples::{Sample, nanos_each};
use crate::stream::Stream;
use crate::{Outcome, Settings, alone, system};

/// Two queue pairs of one device, connected to each other.
fn pair(depth: u32, bytes: usize) -> Outcome<(End, End)> {
    let nic = device(None)?;
    let from = End::new(&nic, HERE, depth, bytes)?;
    let to = End::new(&nic, THERE, depth, bytes)?;
    from.connect(&to.card())?;
    to.connect(&from.card())?;
    Ok((from, to))
}

/// Messages per second, by one thread that posts and polls.
fn per_second(stream: Stream, settings: &Settings) -> Outcome<Sample> {
    let (from, to) = pair(stream.depth, stream.len as usize)?;
    stream.run(settings, &from, to.card().remote)
}

/// Nanoseconds for each message.
pub(crate) fn nanos(stream: Stream, settings: &Settings) -> Outcome<Sample> {
    let Sample { value, note } = per_second(stream, settings)?;
    Ok(Sample { value: 1e9 / value, note })
}

/// Gigabytes per second.
pub(crate) fn bandwidth(stream: Stream, settings: &Settings) -> Outcome<Sample> {
    let Sample { value, note } = per_second(stream, settings)?;
    Ok(Sample { value: value * f64::from(stream.len) / 1e9, note })
}

/// Processor time of a device whose program has stopped calling, in thousandths of a core.
pub(crate) fn idle(settings: &Settings) -> Outcome<Sample> {
    let (from, to) = pair(16, 64)?;
    Stream::writes(64, 1, 16).run(settings, &from, to.card().remote)?;
    // Until the driver has seen that the program no longer calls.
    std::thread::sleep(settings.duration / 5);
    let (begin, used) = (Instant::now(), system::cpu_time());
    std::thread::sleep(settings.duration);
    let used = system::cpu_time() - used;
    Ok(Sample::new(1e3 * used.as_secs_f64() / begin.elapsed().as_secs_f64()))
}

/// Polls of an empty queue on a device with nothing but local queue pairs: nanoseconds.
pub(crate) fn empty_poll(settings: &Settings) -> Outcome<Sample> {
    let (from, to) = pair(16, 64)?;
    Stream::writes(64, 16, 16).run(settings, &from, to.card().remote)?;
    polls(settings, &from)
}

/// The same on a device that may hear from another one at any time.
pub(crate) fn empty_poll_on_wire(settings: &Settings) -> Outcome<Sample> {
    let (here, _there) = alone::ends(16, 64)?;
    polls(settings, &here)
}

fn polls(settings: &Settings, end: &End) -> Outcome<Sample> {
    let mut found = [Completion::EMPTY; 4];
    let mut came = 0;
    let cost = nanos_each(settings, 1000, || (0..1000).for_each(|_| came += end.cq.poll(&mut found)));
    if came == 0 { Ok(Sample::new(cost)) } else { Err(format!("{came} completions came of nothing").into()) }
}

/// Posting lists of 16 WRITEs on the local path, without polling for what comes of it: nanoseconds of the
/// call for each WRITE.
pub(crate) fn post(settings: &Settings) -> Outcome<Sample> {
    const LIST: u32 = 16;
    let (from, to) = pair(64, 64)?;
    let piece = [from.piece(0, 64)];
    let op = SendOp::Write(to.card().remote);
    let request = |at| {
        let flags = if at + 1 == LIST { SendFlags::SIGNALED } else { SendFlags::empty() };
        SendRequest { id: 1, op, data: Data::Gather(&piece), flags, dest: None }
    };
    let requests: Vec<_> = (0..LIST).map(request).collect();
    let mut found = [Completion::EMPTY; 4];
    let begin = Instant::now();
    let mut costs = Vec::with_capacity(1 << 20);
    while begin.elapsed() < settings.duration && costs.len() < costs.capacity() {
        let start = Instant::now();
        from.qp.post_send(&requests).map_err(|refused| refused.error)?;
        costs.push(start.elapsed().as_nanos() as f64 / f64::from(LIST));
        while from.cq.poll(&mut found) == 0 {}
        check(&found[0])?;
    }
    costs.sort_unstable_by(f64::total_cmp);
    Ok(Sample::new(costs[costs.len() / 2]))
}

/// Two threads that sleep until a SEND of the other completes: microseconds for each wake.
pub(crate) fn wake(settings: &Settings) -> Outcome<Sample> {
    let (from, to) = pair(64, 4096)?;
    from.post_receives(RECEIVES)?;
    to.post_receives(RECEIVES)?;
    let stop = AtomicBool::new(false);
    let trips = std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            // On a core of its own, as the other process is where there are two.
            system::pin_if(settings.pin, 1).map_err(|error| error.to_string())?;
            Exchange::ASLEEP.answer(&to, &from.card(), &stop).map_err(|error| error.to_string())
        });
        let trips = Exchange::ASLEEP.trips(settings, &from, &to.card());
        stop.store(true, Ordering::Relaxed);
        answers.join().map_err(|_| "the other thread panicked")??;
        trips
    })?;
    Ok(Sample::of_trips(trips))
}

/// The device's clock: nanoseconds.
pub(crate) fn clock(settings: &Settings) -> Outcome<Sample> {
    let read = || (0..10_000).for_each(|_| _ = black_box(ferroce_device::now()));
    Ok(Sample::new(nanos_each(settings, 10_000, read)))
}
