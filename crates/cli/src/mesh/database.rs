//! The options of a controller or an analyzer that shares a database with others.

use std::path::PathBuf;

use ferroce_meshd::DatabaseConfig;

/// The database, if there is one.
#[derive(Debug, clap::Args)]
pub(super) struct DatabaseArgs {
    /// Share a PostgreSQL database with others of its kind: one leads, the others stand by and take over;
    /// postgres://USER:PASSWORD@HOST/NAME, on this machine, or with --database-ca
    #[arg(long, value_name = "URL", env = "FERROCE_DATABASE", hide_env_values = true)]
    database: Option<String>,

    /// The certificate of the CA of the database, as PEM; then it may be on another machine
    #[arg(long, value_name = "FILE", requires = "database")]
    database_ca: Option<PathBuf>,
}

impl DatabaseArgs {
    pub(super) fn config(&self) -> Option<DatabaseConfig> {
        let url = self.database.as_ref()?;
        Some(DatabaseConfig { ca: self.database_ca.clone(), ..DatabaseConfig::new(url) })
    }
}
