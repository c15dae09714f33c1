//! Both queue pairs in this process, and a device that has nothing to do.

use std::hint::black_box;
use std::time::Instant;

use crate::ends::{End, HERE, THERE, device};
use crate::samples::{Sample, nanos_each};
use crate::stream::Stream;
use crate::{Outcome, Settings, system};

/// Messages per second, by one thread that posts and polls.
fn per_second(stream: Stream, settings: &Settings) -> Outcome<Sample> {
    let nic = device(None)?;
    let from = End::new(&nic, HERE, stream.depth, stream.len as usize)?;
    let to = End::new(&nic, THERE, stream.depth, stream.len as usize)?;
    from.connect(&to.card())?;
    to.connect(&from.card())?;
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
    let nic = device(None)?;
    let from = End::new(&nic, HERE, 16, 64)?;
    let to = End::new(&nic, THERE, 16, 64)?;
    from.connect(&to.card())?;
    to.connect(&from.card())?;
    let stream = Stream { read: false, len: 64, list: 1, depth: 16, target: "" };
    stream.run(settings, &from, to.card().remote)?;
    // Until the driver has seen that nobody calls any more.
    std::thread::sleep(settings.duration / 5);
    let (begin, used) = (Instant::now(), system::cpu_time());
    std::thread::sleep(settings.duration);
    let used = system::cpu_time() - used;
    Ok(Sample::new(1e3 * used.as_secs_f64() / begin.elapsed().as_secs_f64()))
}

/// The device's clock: nanoseconds.
pub(crate) fn clock(settings: &Settings) -> Outcome<Sample> {
    let read = || (0..10_000).for_each(|_| _ = black_box(ferroce_device::now()));
    Ok(Sample::new(nanos_each(settings, 10_000, read)))
}
