//! Many messages under way in one direction.

use std::time::{Duration, Instant};

use ferroce_verbs::{Completion, RemoteRegion, WorkKind};

use crate::Result;
use crate::ends::{End, RECEIVE_DEPTH, SEND_DEPTH};

/// One of so many messages asks for a completion, as with the tools.
const SIGNAL: u32 = 100;

/// Nothing was done for so long: something is broken.
const STUCK: Duration = Duration::from_secs(20);

/// WRITEs to a region, or SENDs: what a second carries, from the first post to the last completion.
pub(crate) fn push(end: &End, to: Option<RemoteRegion>, messages: u32) -> Result<String> {
    let mut found = [Completion::EMPTY; 16];
    let (mut posted, mut done) = (0, 0);
    let begun = Instant::now();
    let mut latest = begun;
    while done < messages {
        while posted < messages && posted - done < SEND_DEPTH {
            posted += 1;
            let bytes = end.memory.slice(..end.len);
            let work = match to {
                Some(region) => end.pair.write(bytes, region.slice(end.len as u64..)),
                None => end.pair.send(bytes),
            };
            let last = posted % SIGNAL == 0 || posted == messages;
            let work = if last { work.signaled().id(posted.into()) } else { work };
            work.post()?;
        }
        let count = end.poll(&mut found)?;
        match found[..count].last() {
            // Everything before it is done too.
            Some(newest) => (done, latest) = (u32::try_from(newest.id)?, Instant::now()),
            None if latest.elapsed() > STUCK => {
                return Err(format!("{posted} posted, {done} done, and no more; {}", end.note()).into());
            }
            None => {}
        }
    }
    let seconds = (latest - begun).as_secs_f64();
    let rate = f64::from(messages) / seconds;
    Ok(format!("messages={rate:.0} bytes={:.0}", rate * end.len as f64))
}

/// Posts the receives that wait at first.
pub(crate) fn prepare(end: &End) -> Result<()> {
    (0..RECEIVE_DEPTH).try_for_each(|_| receive(end))
}

/// Takes in SENDs, and posts a receive in place of each.
pub(crate) fn take(end: &End, messages: u32) -> Result<()> {
    let mut found = [Completion::EMPTY; 16];
    let mut taken = 0;
    let mut latest = Instant::now();
    while taken < messages {
        let count = end.poll(&mut found)?;
        for done in &found[..count] {
            if done.kind == WorkKind::Receive {
                taken += 1;
                receive(end)?;
            }
        }
        if count > 0 {
            latest = Instant::now();
        } else if latest.elapsed() > STUCK {
            return Err(format!("{taken} of {messages} messages came, and no more").into());
        }
    }
    Ok(())
}

fn receive(end: &End) -> Result<()> {
    Ok(end.pair.receive(end.memory.slice(end.len..)).post()?)
}
