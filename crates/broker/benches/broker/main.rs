//! What doorbell batches are worth: messages from one member to another at several batch sizes, over the
//! wire, beside the verbs below doing the same, in one run.
//!
//! `cargo xtask bench --only broker` runs this. The two members are two processes: this program starts itself
//! again as the other one. All figures are measured in turn, so that a slow minute falls on all.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of short runs")]

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use ferroce_broker::{Broker, Builder, Members, Post};
use ferroce_testkit::figure::{Called, Outcome, median, sample};
use ferroce_testkit::process::{Parent, Peer};
use ferroce_verbs::{Context, PathPolicy};

mod plain;

const BATCHES: [u32; 4] = [1, 4, 16, 64];

/// Places in each direction, and receives of the plain form.
const RING: u32 = 256;

/// Bytes of a message.
const LEN: usize = 32;

/// Longer than any measurement.
const LONG: Duration = Duration::from_secs(60);

fn main() -> Outcome<()> {
    let Some(called) = Called::new(play)? else { return Ok(()) };
    let (repeats, time) = if called.quick { (1, 20) } else { (5, 400) };
    // The broker's rates, once, as lines for `cargo xtask bench pairs`.
    let once = called.once;
    let repeats = if once { 1 } else { repeats };
    let mut host = 0;
    // Other batch sizes may be named.
    let mut batches: Vec<u32> = called.words().filter_map(|word| word.parse().ok()).collect();
    if batches.is_empty() {
        batches = BATCHES.to_vec();
    }
    let mut rates: Vec<_> = batches.iter().map(|_| (Vec::new(), Vec::new(), 0.0)).collect();
    for _ in 0..repeats {
        for (batch, (broker, verbs, doorbells)) in batches.iter().zip(&mut rates) {
            // The last one may not be quite gone yet, so this one gets other addresses.
            host = if host < 240 { host + 2 } else { 2 };
            let time = Duration::from_millis(time);
            let (rate, rung) = measure(&called, host, *batch, time)?;
            broker.push(rate);
            *doorbells = rung;
            if once {
                println!("{}", sample(&format!("batch {batch}"), "M/s", rate.mean / 1e6));
            }
            // For a profile of the broker.
            if once || called.has("--alone") {
                verbs.push(Rate::NONE);
                continue;
            }
            host += 2;
            let peer = other(&called, "plain", host)?;
            verbs.push(plain::rate(host, *batch, time)?);
            drop(peer);
        }
    }
    if once {
        return Ok(());
    }
    println!(
        "{LEN} B messages over the wire, one way, {RING} places; M/s, and in brackets the best tenth of 5 ms slices"
    );
    println!(
        "{:>6} {:>16} {:>16} {:>8} {:>18} {:>14}",
        "batch", "broker", "verbs", "ratio", "broker / batch 1", "msg/doorbell"
    );
    let first = Rate::median(&rates[0].0).mean;
    for (batch, (broker, verbs, doorbells)) in batches.iter().zip(&rates) {
        let (ours, beside) = (Rate::median(broker), Rate::median(verbs));
        println!(
            "{batch:>6} {ours:>16} {beside:>16} {:>7.2}x {:>17.2}x {doorbells:>14.1}",
            ours.mean / beside.mean,
            ours.mean / first
        );
    }
    Ok(())
}

/// Messages per second of a stream.
#[derive(Clone, Copy)]
struct Rate {
    /// All messages over all the time.
    mean: f64,
    /// What nine of ten slices of the time do not reach: a stream stands still when another program has a
    /// processor, so this shows what it does at its best.
    best: f64,
}

impl Rate {
    const NONE: Self = Self { mean: f64::NAN, best: f64::NAN };

    fn median(rates: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| median(&mut rates.iter().map(part).collect::<Vec<_>>());
        Self { mean: of(|rate| rate.mean), best: of(|rate| rate.best) }
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.3} ({:.3})", self.mean / 1e6, self.best / 1e6))
    }
}

/// The device at an address of its own; everything goes over the wire.
fn device(host: u8) -> Outcome<Context> {
    Ok(Context::builder("lo").address([127, 0, 196, host]).path(PathPolicy::Forbid).open()?)
}

fn builder(id: u32, host: u8, batch: u32) -> Outcome<Builder> {
    let members = format!("127.0.196.{host}:7471,127.0.196.{}:7471", host + 1).parse::<Members>()?;
    let context = device(host + u8::from(id == 1))?;
    let domain = context.protection_domain()?;
    let builder = Broker::builder(id, members).device(&context, &domain);
    Ok(builder.ring(RING).batch(batch).max_message(64).deadline(LONG))
}

/// Messages per second, and how many there were for each doorbell.
fn measure(called: &Called, host: u8, batch: u32, time: Duration) -> Outcome<(Rate, f64)> {
    let _peer = other(called, "sink", host)?;
    let broker = builder(0, host, batch)?.start()?;
    let bytes = [7; LEN];
    // Until everything is warm.
    for _ in 0..RING {
        broker.wait_send(1, &bytes, Post::new(), LONG)?;
    }
    let rung = || broker.status()[0].doorbells;
    let before = rung();
    let mut count = 0_u64;
    let rate = in_slices(time, || {
        for _ in 0..MESSAGES {
            broker.wait_send(1, &bytes, Post::new(), LONG)?;
        }
        count += MESSAGES;
        Ok(MESSAGES)
    })?;
    Ok((rate, count as f64 / (rung() - before) as f64))
}

/// Messages between two looks at the clock.
const MESSAGES: u64 = 256;

/// Sends for a while, and counts by slices.
fn in_slices(time: Duration, mut send: impl FnMut() -> Outcome<u64>) -> Outcome<Rate> {
    let slice = Duration::from_millis(5).min(time / 2);
    let begin = Instant::now();
    let (mut slices, mut all) = (Vec::new(), 0);
    while begin.elapsed() < time {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < slice {
            count += send()?;
        }
        slices.push(count as f64 / start.elapsed().as_secs_f64());
        all += count;
    }
    let mean = all as f64 / begin.elapsed().as_secs_f64();
    slices.sort_by(f64::total_cmp);
    Ok(Rate { mean, best: slices[slices.len() * 9 / 10] })
}

/// Starts the other process, which is ready when this returns, and ends when it is dropped.
fn other(called: &Called, role: &str, host: u8) -> Outcome<Peer> {
    let mut peer = called.peer(role, host)?;
    match peer.hear()? {
        said if said == "ready" => Ok(peer),
        said => Err(said.into()),
    }
}

/// What the other process does until it is killed.
fn play(role: &str, host: u8) -> Outcome<()> {
    Parent.follow();
    match role {
        "sink" => {
            let broker = builder(1, host, 1)?.launch()?;
            Parent.say("ready")?;
            loop {
                broker.wait_receives(LONG, |_| ())?;
            }
        }
        "plain" => plain::sink(host),
        other => Err(format!("no role {other}").into()),
    }
}
