//! What an analyzer keeps in a file: findings, and which windows of which agents it has.
//!
//! It is one SQLite database, which one analyzer has at a time. What is saved outlives the end of the process, however
//! it ends, and that of the machine. How large it may become is bounded, and so is how long findings stay that are over.

mod error;

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

pub use self::error::StoreError;
use crate::clock;
use crate::ledger::{Inbox, Mark};
use crate::proto::v1;

/// Says of a database that it is ours: "fmsh".
const APPLICATION: i64 = 0x666d_7368;

/// The version of the tables.
const VERSION: i64 = 1;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Findings that are over and are told again after a restart.
pub(crate) const TOLD: i64 = 256;

/// Findings that are open and are gone on with after a restart.
pub(crate) const OPEN: i64 = 65_536;

/// Where an analyzer keeps what it knows, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The file; it is made if it is not there.
    pub path: PathBuf,
    /// Bytes that it may have at most.
    pub most: u64,
    /// Findings that were over longer ago are forgotten.
    pub forgets_after: Duration,
}

impl StoreConfig {
    /// The usual limits: 1 GiB, 90 days.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), most: 1 << 30, forgets_after: Duration::from_hours(90 * 24) }
    }
}

/// What is known of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentRow {
    pub(crate) inbox: Inbox,
    /// The sums of all outcomes, in the order of their names.
    pub(crate) sums: [u64; 8],
    /// When its latest window ended.
    pub(crate) through: u64,
}

/// What is new since something was saved last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct News {
    pub(crate) agents: Vec<(String, AgentRow)>,
    pub(crate) findings: Vec<v1::Finding>,
}

/// What was kept before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    pub(crate) agents: Vec<(String, AgentRow)>,
    pub(crate) open: Vec<v1::Finding>,
    /// The latest that are over, the oldest first.
    pub(crate) over: Vec<v1::Finding>,
    /// No finding had this number, or a larger one.
    pub(crate) next: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Store {
    config: StoreConfig,
    connection: Connection,
}

impl Store {
    /// Opens the file, or makes it; and what is in it.
    pub(crate) fn open(config: &StoreConfig) -> Result<(Self, Kept), StoreError> {
        let said = |source| StoreError::of(source, &config.path, config.most);
        let connection = Connection::open(&config.path).map_err(said)?;
        let mut store = Self { config: config.clone(), connection };
        store.prepare()?;
        let kept = store.read().map_err(said)?;
        Ok((store, kept))
    }

    fn prepare(&mut self) -> Result<(), StoreError> {
        let StoreConfig { path, most, .. } = self.config.clone();
        let said = |source| StoreError::of(source, &path, most);
        let connection = &mut self.connection;
        connection.busy_timeout(Duration::ZERO).map_err(said)?;
        // A lock that is taken once is kept, so that no other analyzer writes here.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(said)?;
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let (application, version) =
            (pragma("application_id").map_err(said)?, pragma("user_version").map_err(said)?);
        let is_new = application == 0 && version == 0 && pragma("schema_version").map_err(said)? == 0;
        if !is_new && application != APPLICATION {
            return Err(StoreError::Foreign { path });
        }
        if version > VERSION {
            return Err(StoreError::Newer { path, version, known: VERSION });
        }
        connection.pragma_update(None, "journal_mode", "WAL").map_err(said)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(said)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(said)?;
        let pages = i64::try_from(most / PAGE).unwrap_or(i64::MAX).clamp(16, 1 << 30);
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).map_err(said)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(said)?;
        if is_new {
            transaction.execute_batch(include_str!("schema.sql")).map_err(said)?;
            transaction.pragma_update(None, "application_id", APPLICATION).map_err(said)?;
            transaction.pragma_update(None, "user_version", VERSION).map_err(said)?;
        }
        transaction.commit().map_err(said)
    }

    fn read(&self) -> rusqlite::Result<Kept> {
        let agents = self
            .connection
            .prepare("SELECT * FROM agent")?
            .query_map([], agent)?
            .collect::<rusqlite::Result<_>>()?;
        let open = self.findings("SELECT * FROM finding WHERE over IS NULL ORDER BY id LIMIT ?1", OPEN)?;
        let mut over =
            self.findings("SELECT * FROM finding WHERE over IS NOT NULL ORDER BY over DESC LIMIT ?1", TOLD)?;
        over.reverse();
        let last = self.connection.query_row("SELECT max(id) FROM finding", [], |row| row.get(0));
        let last: Option<i64> = last.optional()?.flatten();
        Ok(Kept { agents, open, over, next: last.map_or(0, |last| last.cast_unsigned() + 1) })
    }

    fn findings(&self, query: &str, most: i64) -> rusqlite::Result<Vec<v1::Finding>> {
        let mut findings: Vec<v1::Finding> =
            self.connection.prepare(query)?.query_map([most], finding)?.collect::<rusqlite::Result<_>>()?;
        let mut names =
            self.connection.prepare("SELECT name FROM suspect WHERE finding = ?1 ORDER BY place")?;
        for finding in &mut findings {
            let suspects = names.query_map([finding.id.cast_signed()], |row| row.get(0))?;
            finding.suspects = suspects.collect::<rusqlite::Result<_>>()?;
        }
        Ok(findings)
    }

    /// Saves what is new: all of it, or nothing.
    pub(crate) fn save(&mut self, news: &News, now: u64) -> Result<(), StoreError> {
        let oldest = now.saturating_sub(clock::nanos(self.config.forgets_after));
        let saved = self.connection.transaction().and_then(|transaction| {
            for (name, row) in &news.agents {
                save_agent(&transaction, name, row)?;
            }
            for finding in &news.findings {
                save_finding(&transaction, finding)?;
            }
            if !news.findings.is_empty() {
                transaction.execute("DELETE FROM finding WHERE over < ?1", [oldest.cast_signed()])?;
            }
            transaction.commit()
        });
        saved.map_err(|source| StoreError::of(source, &self.config.path, self.config.most))
    }
}

fn save_agent(transaction: &Transaction<'_>, name: &str, row: &AgentRow) -> rusqlite::Result<()> {
    let AgentRow { inbox, sums, through } = row;
    let Mark { epoch, number } = inbox.settled();
    let [epoch, number, through] = [epoch, number, *through].map(u64::cast_signed);
    let counts = [inbox.kept, inbox.replays, inbox.refused, inbox.lost].map(u64::cast_signed);
    let sums = sums.map(u64::cast_signed);
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO agent VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            name, epoch, number, through, counts[0], counts[1], counts[2], counts[3], sums[0], sums[1],
            sums[2], sums[3], sums[4], sums[5], sums[6], sums[7],
        ])?;
    Ok(())
}

fn save_finding(transaction: &Transaction<'_>, finding: &v1::Finding) -> rusqlite::Result<()> {
    let id = finding.id.cast_signed();
    let over = Some(finding.over_unix_ns.cast_signed()).filter(|over| *over != 0);
    transaction.prepare_cached("DELETE FROM finding WHERE id = ?1")?.execute([id])?;
    transaction.prepare_cached("INSERT INTO finding VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?.execute(
        params![
            id,
            finding.trouble,
            finding.severity,
            finding.since_unix_ns.cast_signed(),
            over,
            finding.crossings,
            finding.losses,
            finding.expected,
            finding.gain,
        ],
    )?;
    let mut add = transaction.prepare_cached("INSERT INTO suspect VALUES (?1, ?2, ?3)")?;
    for (place, name) in (0_i64..).zip(&finding.suspects) {
        add.execute(params![id, place, name])?;
    }
    Ok(())
}

fn number(row: &Row<'_>, name: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(name).map(i64::cast_unsigned)
}

fn agent(row: &Row<'_>) -> rusqlite::Result<(String, AgentRow)> {
    let mark = Mark { epoch: number(row, "epoch")?, number: number(row, "number")? };
    let mut inbox = Inbox::settled_at(mark);
    inbox.kept = number(row, "kept")?;
    inbox.replays = number(row, "replays")?;
    inbox.refused = number(row, "refused")?;
    inbox.lost = number(row, "lost")?;
    let mut sums = [0; 8];
    let names = crate::window::named(&ferroce_mesh::Outcomes::default());
    for (sum, (name, _)) in sums.iter_mut().zip(names) {
        *sum = number(row, name)?;
    }
    Ok((row.get("name")?, AgentRow { inbox, sums, through: number(row, "through")? }))
}

fn finding(row: &Row<'_>) -> rusqlite::Result<v1::Finding> {
    Ok(v1::Finding {
        id: number(row, "id")?,
        trouble: row.get("trouble")?,
        suspects: Vec::new(),
        severity: row.get("severity")?,
        since_unix_ns: number(row, "since")?,
        over_unix_ns: row.get::<_, Option<i64>>("over")?.unwrap_or_default().cast_unsigned(),
        crossings: row.get("crossings")?,
        losses: row.get("losses")?,
        expected: row.get("expected")?,
        gain: row.get("gain")?,
        // What it means for services is looked at anew in each window, and not kept.
        ..v1::Finding::default()
    })
}

#[cfg(test)]
mod tests;
