//! Why a database cannot be used.

use std::error::Error as _;

use thiserror::Error;

use crate::tls::CredentialsError;

/// Why a database is not even looked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// It is not known where it is. What was said is not repeated: it may have a password.
    #[error(
        "this does not say where a PostgreSQL database is; write postgres://USER:PASSWORD@HOST/NAME, \
         with %40 for @ in a password"
    )]
    Url,
    /// It is not known where it is.
    #[error("the host of the database is missing; write postgres://USER@HOST/NAME")]
    NoHost,
    /// It is on another machine, and cannot be told from another one there.
    #[error("{host} is not on this machine; name the certificate of the CA of the database")]
    NotLocal {
        /// Its host.
        host: String,
    },
    /// The certificate is none.
    #[error("the certificate of the CA of the database cannot be used")]
    Ca(#[source] CredentialsError),
}

/// What the client says of answers that it did not expect: the connection is fine.
const READING: [&str; 3] = ["error deserializing", "error converting", "query returned an unexpected"];

/// Why a database that was looked at does not help now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum DatabaseTrouble {
    #[error("no connection to {shown}: {why}")]
    Away { shown: String, why: String },
    #[error("{shown} does not answer in time")]
    Late { shown: String },
    #[error("{shown} has a schema ferroce_mesh that is not ours; it is left as it is")]
    Foreign { shown: String },
    #[error("{shown} was written by a later version ({version}; this one knows {known})")]
    Newer { shown: String, version: i64, known: i64 },
    #[error("{shown} has not noticed yet that the last session of this process is over")]
    Lingering { shown: String },
    /// Another process leads.
    #[error("the {role} at {place} leads")]
    Taken { role: &'static str, place: String },
    #[error("{shown} says: {why}")]
    Said { shown: String, why: String },
}

impl DatabaseTrouble {
    pub(super) fn of(shown: &str, error: &tokio_postgres::Error) -> Self {
        let shown = shown.to_owned();
        if let Some(said) = error.as_db_error() {
            return Self::Said { shown, why: said.message().to_owned() };
        }
        let (text, source) = (error.to_string(), error.source());
        let is_read = READING.iter().any(|reading| text.starts_with(reading));
        let why = source.map_or_else(|| text.clone(), |source| format!("{text}: {source}"));
        if is_read { Self::Said { shown, why } } else { Self::Away { shown, why } }
    }

    /// Whether the session may go on: the database has answered.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(self, Self::Said { .. })
    }
}
