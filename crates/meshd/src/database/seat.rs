//! Which process leads: the one whose session has the lock.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls, Transaction};

use super::{Database, DatabaseTrouble, PATIENCE, SILENCE, SILENT};

/// The first half of our advisory locks: "fmsh".
const LOCKS: i32 = 0x666d_7368;

/// The second half of the lock that is held while tables are made.
const MAKING: i32 = 0;

/// The version of the tables.
const VERSION: i64 = 1;

/// When a database comes back, those that stood by let the one that led go first, by this much.
const BEHIND: Duration = Duration::from_secs(2);

/// What a process is that leads, or stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Controller,
    Analyzer,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Analyzer => "analyzer",
        }
    }

    const fn lock(self) -> i32 {
        match self {
            Self::Controller => 1,
            Self::Analyzer => 2,
        }
    }
}

/// A connection, which ends with this.
#[derive(Debug)]
struct Session {
    client: Client,
    connection: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A place that one process of a role has at a time.
#[derive(Debug)]
pub(crate) struct Chair {
    database: Database,
    role: Role,
    /// Where others find this process.
    place: String,
    /// The session that waits for the lock.
    waiting: Option<Session>,
    /// The number of our latest time in it, if no other has had it since, as far as we know.
    term: Option<i64>,
    /// The database was away.
    was_away: bool,
}

/// The place, for as long as the session lasts.
#[derive(Debug)]
pub(crate) struct Seat {
    session: Session,
    shown: String,
    term: i64,
    /// No other has had it since it was ours last.
    pub(crate) is_continued: bool,
}

impl Chair {
    pub(crate) const fn new(database: Database, role: Role, place: String) -> Self {
        Self { database, role, place, waiting: None, term: None, was_away: false }
    }

    /// Findings that were over longer ago are forgotten.
    pub(crate) const fn forgets_after(&self) -> Duration {
        self.database.forgets_after
    }

    /// Takes the place if it is free.
    pub(crate) async fn take(&mut self) -> Result<Seat, DatabaseTrouble> {
        let taken = self.try_take().await;
        self.was_away = !matches!(taken, Ok(_) | Err(DatabaseTrouble::Taken { .. }));
        taken
    }

    /// Takes the place again after a session broke, and calls `without` whenever the database does not help. Without a
    /// database no other process leads, so the one that led goes on until it can ask.
    ///
    /// # Errors
    /// Another process has led since. If it does so no more, the place is ours, to begin anew.
    pub(crate) async fn regain(
        &mut self,
        mut without: impl AsyncFnMut(&DatabaseTrouble),
    ) -> Result<Seat, Option<Seat>> {
        loop {
            match self.take().await {
                Ok(seat) if seat.is_continued => return Ok(seat),
                Ok(seat) => return Err(Some(seat)),
                Err(DatabaseTrouble::Taken { .. }) => return Err(None),
                Err(trouble) => without(&trouble).await,
            }
        }
    }

    async fn try_take(&mut self) -> Result<Seat, DatabaseTrouble> {
        let mut session = match self.waiting.take() {
            Some(session) => session,
            None => self.database.session().await?,
        };
        if self.was_away && self.term.is_none() {
            // The one that led before comes back, too, and agents need not go elsewhere.
            tokio::time::sleep(BEHIND).await;
        }
        let (shown, role, place) = (&self.database.shown, self.role, self.place.as_str());
        match limited(shown, lock(&mut session.client, role, place, self.term)).await? {
            Ok((term, is_continued)) => {
                self.term = Some(term);
                Ok(Seat { session, shown: shown.clone(), term, is_continued })
            }
            Err((term, place)) => {
                self.waiting = Some(session);
                // The server has not noticed yet that our own session is over.
                Err(if term.is_some() && term == self.term {
                    DatabaseTrouble::Lingering { shown: shown.clone() }
                } else {
                    self.term = None;
                    DatabaseTrouble::Taken { role: role.name(), place }
                })
            }
        }
    }
}

impl Seat {
    /// Something is asked or written, all of it or nothing.
    pub(super) async fn transact<T>(
        &mut self,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, DatabaseTrouble> {
        let client = &mut self.session.client;
        limited(&self.shown, async {
            let transaction = client.transaction().await?;
            let done = work(&transaction).await?;
            transaction.commit().await?;
            Ok(done)
        })
        .await
    }

    /// The number of this time: those of later leaders are larger.
    pub(crate) const fn term(&self) -> u64 {
        self.term.cast_unsigned()
    }

    /// Makes sure that the session is there.
    pub(crate) async fn look(&mut self) -> Result<(), DatabaseTrouble> {
        limited(&self.shown, self.session.client.batch_execute("")).await
    }
}

impl Database {
    async fn session(&self) -> Result<Session, DatabaseTrouble> {
        let Self { config, tls, shown, .. } = self;
        let mut session = limited(shown, async {
            match tls {
                Some(tls) => config.connect(tls.clone()).await.map(|(client, connection)| {
                    (client, tokio::spawn(async { connection.await.unwrap_or_default() }))
                }),
                None => config.connect(NoTls).await.map(|(client, connection)| {
                    (client, tokio::spawn(async { connection.await.unwrap_or_default() }))
                }),
            }
        })
        .await
        .map(|(client, connection)| Session { client, connection })?;
        let settings = settings(PATIENCE, SILENT);
        limited(shown, session.client.batch_execute(&settings)).await?;
        match limited(shown, prepare(&mut session.client)).await? {
            Some(VERSION) => Ok(session),
            Some(version) if version > VERSION => {
                Err(DatabaseTrouble::Newer { shown: shown.clone(), version, known: VERSION })
            }
            _ => Err(DatabaseTrouble::Foreign { shown: shown.clone() }),
        }
    }
}

/// The server ends a session whose other end is gone or stands still, so that its lock is free soon; it gives up what
/// takes long; and what it says to be written is on its disk.
fn settings(patience: Duration, silent: Duration) -> String {
    let (patience, silent) = (patience.as_millis(), silent.as_secs());
    // Versions before 14 do not know how long a session may be idle.
    format!(
        "SET statement_timeout = {patience}; SET tcp_user_timeout = {patience}; \
         SET tcp_keepalives_idle = {silent}; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
         SET idle_in_transaction_session_timeout = {patience}; \
         SELECT set_config(name, '{patience}', false) FROM pg_settings WHERE name = 'idle_session_timeout'; \
         SELECT set_config(name, 'on', false) FROM pg_settings \
         WHERE name = 'synchronous_commit' AND setting = 'off'"
    )
}

/// Makes the tables if there are none; the version of those that there are, none if they are not ours.
async fn prepare(client: &mut Client) -> Result<Option<i64>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1, $2)", &[&LOCKS, &MAKING]).await?;
    let known = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'ferroce_mesh'), \
                 to_regclass('ferroce_mesh.version') IS NOT NULL";
    let row = transaction.query_one(known, &[]).await?;
    let (is_there, is_ours): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if !is_there {
        transaction.batch_execute(include_str!("schema.sql")).await?;
    } else if !is_ours {
        return Ok(None);
    }
    let row = transaction.query_opt("SELECT max(version) FROM ferroce_mesh.version", &[]).await?;
    let version = row.map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?.flatten();
    transaction.commit().await?;
    Ok(version)
}

/// Takes the lock, and says in the table which process has it; or where that is.
async fn lock(
    client: &mut Client,
    role: Role,
    place: &str,
    before: Option<i64>,
) -> Result<Result<(i64, bool), (Option<i64>, String)>, tokio_postgres::Error> {
    let row = client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&LOCKS, &role.lock()]).await?;
    if !row.try_get::<_, bool>(0)? {
        let known = "SELECT term, place FROM ferroce_mesh.leader WHERE role = $1";
        let Some(row) = client.query_opt(known, &[&role.name()]).await? else {
            return Ok(Err((None, String::new())));
        };
        return Ok(Err((Some(row.try_get(0)?), row.try_get(1)?)));
    }
    let known =
        client.query_opt("SELECT term FROM ferroce_mesh.leader WHERE role = $1", &[&role.name()]).await?;
    let known: Option<i64> = known.map(|row| row.try_get(0)).transpose()?;
    let is_continued = before.is_some() && known == before;
    let term = known.unwrap_or_default() + i64::from(!is_continued);
    let said = "INSERT INTO ferroce_mesh.leader VALUES ($1, $2, $3) \
                ON CONFLICT (role) DO UPDATE SET term = $2, place = $3";
    client.execute(said, &[&role.name(), &term, &place]).await?;
    Ok(Ok((term, is_continued)))
}

async fn limited<T>(
    shown: &str,
    question: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DatabaseTrouble> {
    match timeout(SILENCE, question).await {
        Ok(done) => done.map_err(|error| DatabaseTrouble::of(shown, &error)),
        Err(_) => Err(DatabaseTrouble::Late { shown: shown.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ferroce_testkit::postgres::Postgres;

    use super::*;
    use crate::database::DatabaseConfig;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    fn chair(url: &str, role: Role, place: &str) -> Chair {
        Chair::new(Database::read(&DatabaseConfig::new(url)).unwrap(), role, place.to_owned())
    }

    /// Waits until the server has noticed that a session is over.
    async fn take(chair: &mut Chair) -> Seat {
        for _ in 0..500 {
            match chair.take().await {
                Ok(seat) => return seat,
                Err(DatabaseTrouble::Taken { .. } | DatabaseTrouble::Lingering { .. }) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(trouble) => panic!("{trouble}"),
            }
        }
        panic!("the place is not free");
    }

    #[test]
    fn one_of_each_role_leads_and_one_that_has_lost_its_session_knows_whether_another_has_led() {
        let Some(postgres) = Postgres::start(IpAddr::from([127, 0, 156, 40])).unwrap() else { return };
        run(async {
            let (mut first, mut second) = (
                chair(&postgres.url(), Role::Analyzer, "here"),
                chair(&postgres.url(), Role::Analyzer, "there"),
            );
            let seat = first.take().await.unwrap();
            assert!(!seat.is_continued);
            let taken = DatabaseTrouble::Taken { role: "analyzer", place: "here".to_owned() };
            assert_eq!(second.take().await.unwrap_err(), taken);
            chair(&postgres.url(), Role::Controller, "here").take().await.unwrap();
            // Its session is over; no other has led.
            drop(seat);
            let mut seat = take(&mut first).await;
            assert!(seat.is_continued);
            seat.look().await.unwrap();
            drop(seat);
            let seat = take(&mut second).await;
            let taken = DatabaseTrouble::Taken { role: "analyzer", place: "there".to_owned() };
            assert_eq!(first.take().await.unwrap_err(), taken);
            drop(seat);
            assert!(!take(&mut first).await.is_continued, "another has led");
        });
    }

    #[test]
    fn what_is_not_ours_is_left_as_it_is() {
        let Some(postgres) = Postgres::start(IpAddr::from([127, 0, 156, 41])).unwrap() else { return };
        run(async {
            let change = async |statement: &str| {
                let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
                let connection = tokio::spawn(connection);
                client.batch_execute(statement).await.unwrap();
                connection.abort();
            };
            change("CREATE SCHEMA ferroce_mesh; CREATE TABLE ferroce_mesh.letters (text text)").await;
            let mut one = chair(&postgres.url(), Role::Analyzer, "here");
            let trouble = one.take().await.unwrap_err();
            assert!(matches!(trouble, DatabaseTrouble::Foreign { .. }), "{trouble}");
            change("DROP SCHEMA ferroce_mesh CASCADE").await;
            // Several begin at once, and the tables are made once.
            let mut others = [1, 2, 3].map(|_| chair(&postgres.url(), Role::Analyzer, "there"));
            let [second, third, fourth] = &mut others;
            let all = tokio::join!(one.take(), second.take(), third.take(), fourth.take());
            assert_eq!(
                [all.0.is_ok(), all.1.is_ok(), all.2.is_ok(), all.3.is_ok()].map(u8::from).iter().sum::<u8>(),
                1
            );
            // Rows that cannot be ours are left out, and nothing else is.
            change(
                "INSERT INTO ferroce_mesh.agent VALUES ('a', 1, false), ('b', -1, true); \
                 INSERT INTO ferroce_mesh.rnic VALUES ('a', 0, '10.0.0.1', 17, 'h', 't', 'd'), \
                 ('a', 1, 'no address', 17, 'h', 't', 'd'), ('b', 0, '10.0.0.2', -5, 'h', 't', 'd'); \
                 INSERT INTO ferroce_mesh.analyzer VALUES ('one', 1), ('two', 2); \
                 INSERT INTO ferroce_mesh.report VALUES ('a', 1, 1, 1, 1, 1, 1, 1, '{NULL}'), \
                 ('b', 1, 1, 1, 1, 1, 1, 1, '{1,2,3,4,5,6,7,8,9}'); \
                 INSERT INTO ferroce_mesh.finding VALUES (-1, '', '', 1, NULL, 'NaN', 1, 1, 1)",
            )
            .await;
            let mut seat = chair(&postgres.url(), Role::Controller, "here").take().await.unwrap();
            let (agents, place) = seat.agents().await.unwrap();
            let rnics: Vec<usize> = agents.iter().map(|agent| agent.registration.rnics.len()).collect();
            assert_eq!((rnics, place.url.as_str(), place.term), (vec![1, 0], "two", 2));
            let kept = seat.kept().await.unwrap();
            let names: Vec<&str> = kept.agents.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!((names, kept.open.len(), kept.next), (vec!["b"], 1, 0));
            drop(seat);
            change("UPDATE ferroce_mesh.version SET version = 99").await;
            let trouble = chair(&postgres.url(), Role::Controller, "here").take().await.unwrap_err();
            assert!(
                matches!(trouble, DatabaseTrouble::Newer { version: 99, known: VERSION, .. }),
                "{trouble}"
            );
        });
    }
}
