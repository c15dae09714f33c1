//! PostgreSQL: what several controllers share, and several analyzers.
//!
//! Of each kind one process leads, and the others stand by. The one that leads holds an advisory lock for as long as
//! its session lasts, and writes in that session only: what a later leader has written is never overwritten by an
//! earlier one. When the session breaks, the process goes on with what it has in memory and looks for the database; if
//! another has led meanwhile, it stands by.

mod agents;
mod error;
mod findings;
mod seat;
mod tls;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

pub use self::error::DatabaseError;

pub(crate) use self::agents::{AgentEntry, AgentNews, AnalyzerPlace};
pub(crate) use self::error::DatabaseTrouble;
pub(crate) use self::seat::{Chair, Role, Seat};

use self::tls::Tls;

/// The server gives up what takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One that does not give up by itself is given up: a connection, or a question.
const SILENCE: Duration = Duration::from_secs(15);

/// How long a connection to one of several hosts may take.
const EACH: Duration = Duration::from_secs(3);

/// A connection that is silent for so long is looked at by both ends.
const SILENT: Duration = Duration::from_secs(5);

/// Where the database is that controllers and analyzers share.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// Such as `postgres://USER:PASSWORD@HOST/NAME`, or `postgres:///NAME?host=/run/postgresql`.
    pub url: String,
    /// The certificate of the CA of the database, as PEM; one on another machine needs it.
    pub ca: Option<PathBuf>,
    /// Findings that were over longer ago are forgotten.
    pub forgets_after: Duration,
}

impl DatabaseConfig {
    /// The database at this URL, without TLS; findings are kept for 90 days.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ca: None, forgets_after: Duration::from_hours(90 * 24) }
    }
}

impl std::fmt::Debug for DatabaseConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may have a password.
        let Self { url: _, ca, forgets_after } = self;
        let mut shown = f.debug_struct("DatabaseConfig");
        shown.field("ca", ca).field("forgets_after", forgets_after).finish_non_exhaustive()
    }
}

/// A database that was looked at, and can be connected to.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    config: tokio_postgres::Config,
    tls: Option<Tls>,
    /// What people are told of it: no password.
    shown: String,
    forgets_after: Duration,
}

impl Database {
    /// Looks at what was asked for; the database may be away.
    pub(crate) fn read(from: &DatabaseConfig) -> Result<Self, DatabaseError> {
        // Other schemes would be read as lists of settings.
        let is_known = ["postgres://", "postgresql://"].iter().any(|scheme| from.url.starts_with(scheme));
        let config = (is_known || !from.url.contains("://")).then(|| from.url.parse().ok()).flatten();
        let mut config: tokio_postgres::Config = config.ok_or(DatabaseError::Url)?;
        let tls = from.ca.as_deref().map(Tls::trusting).transpose().map_err(DatabaseError::Ca)?;
        let hosts: Vec<String> = config.get_hosts().iter().map(shown).collect();
        if hosts.is_empty() {
            return Err(DatabaseError::NoHost);
        }
        if hosts.iter().any(|host| host.contains('@')) {
            return Err(DatabaseError::Url);
        }
        let addresses = config.get_hostaddrs().iter();
        let is_far = addresses.map(|address| !address.to_canonical().is_loopback());
        let is_far = is_far.chain(config.get_hosts().iter().map(|host| !is_near(host)));
        if tls.is_none() && is_far.into_iter().any(|is_far| is_far) {
            return Err(DatabaseError::NotLocal { host: hosts.join(", ") });
        }
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        config.connect_timeout(EACH).keepalives(true).keepalives_idle(SILENT).tcp_user_timeout(PATIENCE);
        // Of several hosts, the one that can be written to.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("ferroce mesh");
        }
        let name = config.get_dbname().or_else(|| config.get_user()).unwrap_or("postgres");
        let shown = format!("the database {name} at {}", hosts.join(", "));
        Ok(Self { config, tls, shown, forgets_after: from.forgets_after })
    }
}

fn shown(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// Whether it is on this machine.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        }
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Database, DatabaseError> {
        Database::read(&DatabaseConfig::new(url))
    }

    #[test]
    fn a_database_of_another_machine_needs_the_certificate_of_its_ca() {
        for url in [
            "postgres://u@127.0.0.1/mesh",
            "postgres://u@localhost:5433/mesh",
            "postgres://u@[::1]/mesh",
            "postgres:///mesh?host=/run/postgresql&user=u",
            "host=127.0.0.2 user=u",
        ] {
            read(url).unwrap();
        }
        for url in [
            "postgres://u@192.0.2.1/mesh",
            "postgres://u@db.example/mesh",
            "postgres://u@127.0.0.1,192.0.2.1/mesh",
            "host=localhost hostaddr=192.0.2.1 user=u",
        ] {
            let error = read(url).unwrap_err();
            assert!(matches!(error, DatabaseError::NotLocal { .. }), "{url}: {error:?}");
        }
        assert!(matches!(read("postgres://u:%").unwrap_err(), DatabaseError::Url));
        assert!(matches!(read("user=u").unwrap_err(), DatabaseError::NoHost));
        let config = DatabaseConfig { ca: Some("/nowhere/ca.pem".into()), ..DatabaseConfig::new("host=a") };
        assert!(matches!(Database::read(&config).unwrap_err(), DatabaseError::Ca(_)));
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let config = DatabaseConfig::new("postgres://u:secret@127.0.0.1/mesh");
        let database = Database::read(&config).unwrap();
        let shown = format!("{config:?} {database:?} {}", database.shown);
        assert!(!shown.contains("secret"), "{shown}");
        assert_eq!(database.shown, "the database mesh at 127.0.0.1");
        for url in [
            "postgres://u:secret@127.0.0.1/mesh?no_such_option=secret",
            "postgresql+asyncpg://u:secret@127.0.0.1/mesh?ssl=x",
            "Postgres://u:secret@127.0.0.1/mesh?sslmode=prefer",
            "postgres://u:se@secret@127.0.0.1/mesh",
        ] {
            let error = read(url).unwrap_err();
            assert!(matches!(error, DatabaseError::Url), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }
}
