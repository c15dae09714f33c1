//! WRITEs to and fro: each side sees the other's in its memory, answers, and polls until its own is done.

use std::time::{Duration, Instant};

use ferroce_verbs::{Completion, RemoteRegion};

use crate::Result;
use crate::ends::End;

/// Nothing came for so long: something is broken.
const STUCK: Duration = Duration::from_secs(20);

/// Asks, and gives the median and the 99th percentile of half a round trip.
pub(crate) fn ping(end: &End, to: RemoteRegion, messages: u32) -> Result<String> {
    let mut begun = Vec::with_capacity(messages as usize + 1);
    for number in 1..=messages {
        begun.push(Instant::now());
        write(end, to, number)?;
        see(end, number)?;
    }
    begun.push(Instant::now());
    let mut halves: Vec<Duration> = begun.windows(2).map(|pair| (pair[1] - pair[0]) / 2).collect();
    halves.sort_unstable();
    let at = |part: usize| halves.get(halves.len() * part / 100).ok_or("no message was sent");
    Ok(format!("us={:.2} p99={:.2}", micros(*at(50)?), micros(*at(99)?)))
}

/// Answers.
pub(crate) fn pong(end: &End, to: RemoteRegion, messages: u32) -> Result<()> {
    (1..=messages).try_for_each(|number| {
        see(end, number)?;
        write(end, to, number)
    })
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// One WRITE, from its posting to its completion. What the peer looks at comes last.
fn write(end: &End, to: RemoteRegion, number: u32) -> Result<()> {
    let bytes = u64::from(number).to_be_bytes();
    end.pair.write_inline(&bytes, to).signaled().post()?;
    let mut found = [Completion::EMPTY; 1];
    let mut patience = Patience::default();
    while end.poll(&mut found)? == 0 {
        patience.spend("a WRITE was not acknowledged")?;
    }
    Ok(())
}

/// Looks into memory, and nowhere else, until this number is there.
fn see(end: &End, number: u32) -> Result<()> {
    let [.., last] = number.to_be_bytes();
    let mut patience = Patience::default();
    while end.memory.load_u8(end.len - 1)? != last {
        patience.spend("no answer came")?;
        std::hint::spin_loop();
    }
    Ok(())
}

/// Counts looks, and reads the clock at few of them.
#[derive(Debug, Default)]
struct Patience {
    looks: u32,
    begun: Option<Instant>,
}

impl Patience {
    fn spend(&mut self, what: &str) -> Result<()> {
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(1 << 16) {
            return Ok(());
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if begun.elapsed() > STUCK { Err(format!("{what} in {} s", STUCK.as_secs()).into()) } else { Ok(()) }
    }
}
