//! The end that accepts: it takes messages with receives that are cancelled too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferroce::endpoint::{AcceptError, Connection, Listener, Message};
use ferroce::{Access, Memory};
use tokio::task::JoinSet;

use crate::draw::{Against, Draw, body};
use crate::ledger::Served;
use crate::race::End;
use crate::story::{COUNT, EXTRA, LAST, Story};

/// How long connections that were given up may stand.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// What all connections were.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    /// Those that stay for the whole story, by number.
    pub(crate) main: BTreeMap<usize, Served>,
    /// Those that were made on the way, and were used.
    pub(crate) extra: u64,
    /// Those that were given up while they were made.
    pub(crate) given_up: u64,
}

enum Guest {
    Main(usize, Served),
    Extra,
    GivenUp,
}

/// Accepts until the listener is closed, and waits until all connections have ended.
pub(crate) async fn serve_all(story: Arc<Story>, listener: Arc<Listener>) -> anyhow::Result<Guests> {
    let mut serving = JoinSet::new();
    let mut guests = Guests::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(connection) => {
                    serving.spawn(serve(Arc::clone(&story), connection));
                }
                Err(AcceptError::Closed) => break,
                Err(error) => return Err(error).context("a peer could not be let in"),
            },
            Some(ended) = serving.join_next() => guests.note(ended??)?,
        }
    }
    let rest = async {
        while let Some(ended) = serving.join_next().await {
            guests.note(ended??)?;
        }
        anyhow::Ok(())
    };
    let ended = tokio::time::timeout(GONE_WITHIN, rest).await;
    ended.with_context(|| format!("some connections still stand after {GONE_WITHIN:?}: {guests:?}"))??;
    Ok(guests)
}

impl Guests {
    fn note(&mut self, guest: Guest) -> anyhow::Result<()> {
        match guest {
            Guest::Main(index, served) => {
                let before = self.main.insert(index, served);
                ensure!(before.is_none(), "there are two connections {index}");
            }
            Guest::Extra => self.extra += 1,
            Guest::GivenUp => self.given_up += 1,
        }
        Ok(())
    }
}

async fn serve(story: Arc<Story>, connection: Connection) -> anyhow::Result<Guest> {
    let first = match connection.recv().await {
        Ok(Some(first)) => first.into_vec(),
        // The peer has given it up before it could say a word.
        Ok(None) | Err(_) => return Ok(Guest::GivenUp),
    };
    if first == EXTRA {
        connection.send(EXTRA).await?;
        ensure!(connection.recv().await?.is_none(), "an extra connection says more than it should");
        return Ok(Guest::Extra);
    }
    let index = String::from_utf8(first).ok().and_then(|text| text.parse().ok());
    let index: usize = index.context("the first message is no number")?;
    let served = serve_main(&story, &connection, index).await;
    Ok(Guest::Main(index, served.with_context(|| format!("the server's end of connection {index}"))?))
}

async fn serve_main(story: &Story, connection: &Connection, index: usize) -> anyhow::Result<Served> {
    let count = connection.expose(COUNT, Memory::zeroed(4096)?, Access::REMOTE_ATOMIC).await?;
    let mut draw = Draw::new(story.seed, &[3, index as u64]);
    let mut served = Served::default();
    while let Some(message) = next(story, connection, &mut draw).await? {
        let Some(number) = message.imm() else {
            ensure!(message == *LAST, "a message without a number that is not the last");
            let word = count.to_vec(..8)?.try_into();
            served.sum = u64::from_ne_bytes(word.ok().context("the count is not eight bytes")?);
            connection.send(LAST).await?;
            continue;
        };
        let expected = body(story.seed, index, number);
        let len = message.len();
        ensure!(
            message == expected[..],
            "message {number} of {len} bytes is torn: it had {}",
            expected.len()
        );
        served.numbers.push(number);
    }
    Ok(served)
}

/// The next message, by a few receives that are cancelled and one that is not.
async fn next(story: &Story, connection: &Connection, draw: &mut Draw) -> anyhow::Result<Option<Message>> {
    for _ in 0..draw.below(4) {
        match story.receives.race(draw.against(), connection.recv()).await {
            End::Finished(message) => return Ok(message?),
            End::Before | End::InFlight => {}
        }
    }
    match story.receives.race(Against::Nothing, connection.recv()).await {
        End::Finished(message) => Ok(message?),
        End::Before | End::InFlight => bail!("a race against nothing was lost"),
    }
}
