//! One of several analyzers leads: it goes on from what is in the database, and keeps there what is new.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::judge::Judge;
use super::keeper::GATHER;
use super::{Shared, lead};
use crate::clock;
use crate::database::{Chair, DatabaseTrouble, Seat};
use crate::store::Kept;

/// How often it is looked whether the session lasts, and whether another one leads.
const LOOK: Duration = Duration::from_millis(500);

/// Leads, stands by, and leads again.
pub(super) async fn run(shared: &Shared, mut chair: Chair) {
    let mut free = None;
    loop {
        shared.set_trouble("it stands by".to_owned());
        let (seat, kept) = begin(shared, &mut chair, free.take()).await;
        shared.assembly().begin_anew(&kept);
        // It was made once with this configuration, and can be made again.
        let Ok(judge) = Judge::new(&shared.config, &kept) else { return };
        shared.set_store_trouble(String::new());
        shared.term.store(seat.term(), Ordering::Relaxed);
        free = lead(shared, judge, keep(shared, &mut chair, seat)).await.flatten();
        // From here on nothing that is known is told: another process may lead.
        shared.leads.send_replace(false);
        shared.assembly().begin_anew(&Kept::default());
    }
}

/// Waits until no other leads, and reads what was kept.
async fn begin(shared: &Shared, chair: &mut Chair, mut free: Option<Seat>) -> (Seat, Kept) {
    loop {
        let taken = match free.take() {
            Some(seat) => Ok(seat),
            None => chair.take().await,
        };
        let trouble = match taken {
            Ok(mut seat) => match seat.kept().await {
                Ok(kept) => return (seat, kept),
                Err(trouble) => trouble,
            },
            Err(trouble) => trouble,
        };
        wait(shared, &trouble).await;
    }
}

async fn wait(shared: &Shared, trouble: &DatabaseTrouble) {
    shared.set_store_trouble(trouble.to_string());
    tokio::time::sleep(LOOK).await;
}

/// Keeps what is new until another one leads, or has led; if it does so no more, the seat is ours again.
async fn keep(shared: &Shared, chair: &mut Chair, mut seat: Seat) -> Option<Seat> {
    loop {
        let is_new = tokio::time::timeout(LOOK, shared.news.notified()).await.is_ok();
        let trouble = if is_new {
            tokio::time::sleep(GATHER).await;
            let (news, generation) = shared.assembly().unkept();
            let oldest = clock::unix_nanos().saturating_sub(clock::nanos(chair.forgets_after()));
            match seat.save(&news, oldest).await {
                Ok(()) => {
                    shared.assembly().kept(&news, generation);
                    shared.kept.send_replace(generation);
                    shared.set_store_trouble(String::new());
                    shared.ring();
                    continue;
                }
                Err(trouble) => {
                    shared.assembly().not_kept(news);
                    shared.news.notify_one();
                    trouble
                }
            }
        } else {
            match seat.look().await {
                Ok(()) => {
                    shared.set_store_trouble(String::new());
                    continue;
                }
                Err(trouble) => trouble,
            }
        };
        without(shared, &trouble).await;
        if trouble.is_answer() {
            // The session is fine, and so is our place; another try may be, too.
            continue;
        }
        drop(seat);
        seat = match chair.regain(async |trouble| without(shared, trouble).await).await {
            Ok(seat) => seat,
            Err(free) => return free,
        };
        shared.assembly().keep_all_again();
        shared.news.notify_one();
    }
}

/// For a moment nothing is kept; what is found is told all the same.
async fn without(shared: &Shared, trouble: &DatabaseTrouble) {
    shared.assembly().tell_unkept();
    shared.ring();
    wait(shared, trouble).await;
}
