//! One of several controllers leads: it takes over what is in the database, and keeps there what is new.

use std::time::Duration;

use super::{Desk, Shared, Standing};
use crate::clock;
use crate::database::{Chair, DatabaseTrouble, Seat};

/// How long news are gathered: one write keeps those of many agents.
const GATHER: Duration = Duration::from_millis(100);

/// How often it is looked whether the session lasts, and whether another one leads.
const LOOK: Duration = Duration::from_millis(500);

/// Leads, stands by, and leads again, for as long as there is a database.
pub(super) async fn lead(shared: &Shared, chair: Option<Chair>) {
    let Some(mut chair) = chair else { return std::future::pending().await };
    let mut free = None;
    loop {
        let mut seat = match free.take() {
            Some(seat) => seat,
            None => match chair.take().await {
                Ok(seat) => seat,
                Err(trouble) => {
                    wait(shared, &trouble).await;
                    continue;
                }
            },
        };
        match seat.agents().await {
            Ok((agents, analyzer)) => {
                shared.at_desk(|desk| {
                    clear(shared, desk);
                    desk.restore(agents, analyzer, clock::now());
                });
                *shared.standing() = Standing { leads: true, trouble: String::new() };
            }
            Err(trouble) => {
                wait(shared, &trouble).await;
                continue;
            }
        }
        free = keep(shared, &mut chair, seat).await;
        stand_by(shared);
    }
}

async fn wait(shared: &Shared, trouble: &DatabaseTrouble) {
    shared.standing().trouble = trouble.to_string();
    tokio::time::sleep(LOOK).await;
}

/// All that is known is of a time when this one led: agents tell the one that leads now.
fn stand_by(shared: &Shared) {
    shared.standing().leads = false;
    shared.at_desk(|desk| clear(shared, desk));
}

fn clear(shared: &Shared, desk: &mut Desk) {
    let counters = desk.counters;
    *desk = Desk::new(&shared.config, clock::unix_nanos());
    desk.counters = counters;
}

/// Keeps what is new until another one leads, or has led; if it does so no more, the seat is ours again.
async fn keep(shared: &Shared, chair: &mut Chair, mut seat: Seat) -> Option<Seat> {
    let mut news = shared.news.subscribe();
    loop {
        if tokio::time::timeout(LOOK, news.changed()).await.is_ok() {
            tokio::time::sleep(GATHER).await;
        }
        let unkept = shared.desk().unkept();
        let done = if unkept.is_empty() { seat.look().await } else { seat.keep_agents(&unkept).await };
        let Err(trouble) = done else {
            shared.standing().trouble.clear();
            continue;
        };
        shared.desk().not_kept(unkept);
        wait(shared, &trouble).await;
        if trouble.is_answer() {
            // The session is fine, and so is our place; another try may be, too.
            continue;
        }
        drop(seat);
        seat = match chair.regain(async |trouble| wait(shared, trouble).await).await {
            Ok(seat) => seat,
            Err(free) => return free,
        };
        shared.desk().keep_all_again();
    }
}
