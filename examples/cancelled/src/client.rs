//! The end that connects: its sends, atomics and further connects are cancelled.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use ferroce::endpoint::{Connection, Delivery, RemoteMemory};

use crate::draw::{Draw, body};
use crate::ledger::{Asked, Sent};
use crate::race::End;
use crate::story::{COUNT, EXTRA, LAST, Story};

/// Messages of one connection in each round.
const SENDS: usize = 3;

/// Atomics of one connection in each round.
const ATOMICS: usize = 2;

/// One of how many rounds of a connection makes a further connection.
const CONNECTS: usize = 4;

/// One connection, from its beginning to its last echo.
pub(crate) async fn visit(story: Arc<Story>, index: usize) -> anyhow::Result<(usize, Asked)> {
    let asked = visit_main(&story, index).await;
    Ok((index, asked.with_context(|| format!("the client's end of connection {index}"))?))
}

async fn visit_main(story: &Story, index: usize) -> anyhow::Result<Asked> {
    let connection = Connection::connect_with(story.server, &story.options).await?;
    connection.send(index.to_string().as_bytes()).await?;
    let count = connection.remote(COUNT).await?;
    let mut asked = Asked::default();
    let mut atomics = Atomics { next: 0, finished: 0, in_flight: 0 };
    let draw = |use_of| Draw::new(story.seed, &[use_of, index as u64]);
    let (mut to_send, mut to_add, mut to_connect) = (draw(4), draw(5), draw(6));
    for _ in 0..story.rounds {
        let (sent, added, connected) = tokio::join!(
            send(story, &connection, index, &mut to_send, &mut asked.sends),
            atomics.add(story, &connection, &count, &mut to_add),
            connect(story, &mut to_connect),
        );
        sent?;
        added?;
        connected?;
        story.bar.inc(1);
    }
    (asked.added, asked.maybe_added) = (atomics.finished, atomics.in_flight);
    // It still works, in both directions.
    connection.send(LAST).await?;
    let echo = connection.recv().await?.context("the server has closed the connection")?;
    ensure!(echo == *LAST, "the last echo is {echo:?}");
    connection.close().await?;
    Ok(asked)
}

/// Sends a few messages; each call waits for something else, and each may be cancelled.
async fn send(
    story: &Story,
    connection: &Connection,
    index: usize,
    draw: &mut Draw,
    sends: &mut Vec<Sent>,
) -> anyhow::Result<()> {
    for _ in 0..SENDS {
        let number = u32::try_from(sends.len())?;
        let bytes = body(story.seed, index, number);
        let against = draw.against();
        let end = match draw.below(3) {
            0 => {
                let until_taken = connection.send_until(&bytes, number, Delivery::Taken);
                story.sends.race(against, until_taken).await
            }
            1 => {
                let until_delivered = connection.send_until(&bytes, number, Delivery::Delivered);
                story.sends.race(against, until_delivered).await
            }
            _ => story.sends.race(against, connection.send_with_imm(&bytes, number)).await,
        };
        sends.push(match end {
            End::Finished(sent) => {
                sent?;
                Sent::Finished
            }
            End::Before => Sent::Before,
            End::InFlight => Sent::InFlight,
        });
    }
    Ok(())
}

/// The atomics of one connection.
struct Atomics {
    /// What the number at the server is, at least.
    next: u64,
    finished: u64,
    in_flight: u64,
}

impl Atomics {
    async fn add(
        &mut self,
        story: &Story,
        connection: &Connection,
        count: &RemoteMemory,
        draw: &mut Draw,
    ) -> anyhow::Result<()> {
        for _ in 0..ATOMICS {
            match story.atomics.race(draw.against(), connection.fetch_add(count, 0, 1)).await {
                End::Finished(before) => {
                    let (before, most) = (before?, self.finished + self.in_flight);
                    let least = self.next;
                    ensure!(
                        (least..=most).contains(&before),
                        "the count was {before}, not {least} to {most}"
                    );
                    self.next = before + 1;
                    self.finished += 1;
                }
                End::InFlight => self.in_flight += 1,
                End::Before => {}
            }
        }
        Ok(())
    }
}

/// Makes a further connection now and then. If it comes about, it is used once.
async fn connect(story: &Story, draw: &mut Draw) -> anyhow::Result<()> {
    let (now, against) = (draw.below(CONNECTS) == 0, draw.against());
    if !now {
        return Ok(());
    }
    let connecting = Connection::connect_with(story.server, &story.options);
    if let End::Finished(connection) = story.connects.race(against, connecting).await {
        let connection = connection.context("a further connection")?;
        connection.send(EXTRA).await?;
        let echo = connection.recv().await?.context("an extra connection was closed too soon")?;
        ensure!(echo == *EXTRA, "the echo of an extra connection is {echo:?}");
        connection.close().await?;
    }
    Ok(())
}
