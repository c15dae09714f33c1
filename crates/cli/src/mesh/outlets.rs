//! What leaves an analyzer, and where to.

use std::path::PathBuf;
use std::time::Duration;

use ferroce_meshd::outlet::{OutletState, OutletsConfig, WindowsConfig};

use super::say;

/// What leaves an analyzer; nothing, if nothing is said.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What leaves the analyzer")]
pub(super) struct OutletArgs {
    /// Send the series of /metrics after each window to Prometheus, or to another that takes remote-write 1.0, such as
    /// http://127.0.0.1:9090/api/v1/write; Prometheus needs --web.enable-remote-write-receiver
    #[arg(long, value_name = "URL")]
    remote_write: Option<String>,

    /// Send the same series to an OpenTelemetry collector over OTLP/HTTP, such as http://127.0.0.1:4318/v1/metrics
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,

    /// Tell this program, as JSON, when a finding opens, changes or closes; each event has an id, and may come twice
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,

    /// Write raw windows here, a Parquet file for each: a row for each flow of each agent
    #[arg(long, value_name = "DIR")]
    windows: Option<PathBuf>,

    /// Days after which files of windows are removed
    #[arg(long, value_name = "N", default_value_t = 7, requires = "windows", value_parser = clap::value_parser!(u32).range(1..))]
    windows_days: u32,

    /// Bytes that files of windows may have together; then the oldest are removed
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 30, requires = "windows")]
    windows_limit: u64,
}

impl OutletArgs {
    pub(super) fn config(&self) -> OutletsConfig {
        let windows = self.windows.as_ref().map(|directory| WindowsConfig {
            longest: Duration::from_hours(24 * u64::from(self.windows_days)),
            most: self.windows_limit,
            ..WindowsConfig::new(directory)
        });
        OutletsConfig {
            remote_write: self.remote_write.clone(),
            otlp: self.otlp.clone(),
            webhook: self.webhook.clone(),
            windows,
            ..OutletsConfig::default()
        }
    }
}

/// Why something does not leave now, behind something else that is told.
pub(super) fn troubles(states: &[OutletState]) -> String {
    let told = states.iter().filter(|state| !state.trouble.is_empty());
    told.map(|state| format!("; {}: {}", state.name, state.trouble)).collect()
}

/// Prints what left.
pub(super) fn print(states: &[OutletState]) -> anyhow::Result<()> {
    for OutletState { name, to, sent, refused, dropped, trouble, .. } in states {
        let trouble = if trouble.is_empty() { String::new() } else { format!("; {trouble}") };
        say(&format!("{name} to {to}: {sent} sent, {refused} refused, {dropped} dropped{trouble}"))?;
    }
    Ok(())
}
