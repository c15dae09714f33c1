//! What a controller keeps: agents, their RNICs, and where the analyzer is.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_mesh::controller::{Registration, Rnic};
use tokio_postgres::Row;

use super::{DatabaseTrouble, Seat};

/// An agent that has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentEntry {
    pub(crate) registration: Registration,
    pub(crate) epoch: u64,
    /// It is one of the public rebuild, without leases.
    pub(crate) is_rebuild: bool,
}

/// Where the analyzer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnalyzerPlace {
    /// Empty if that is not known.
    pub(crate) url: String,
    /// Of several that share a database, those that led later have larger terms; 0 for one that has none.
    pub(crate) term: u64,
}

/// What is new since something was kept last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentNews {
    pub(crate) present: Vec<AgentEntry>,
    pub(crate) gone: Vec<String>,
    /// Where the analyzer is, if that is new.
    pub(crate) analyzer: Option<AnalyzerPlace>,
}

impl AgentNews {
    pub(crate) const fn is_empty(&self) -> bool {
        self.present.is_empty() && self.gone.is_empty() && self.analyzer.is_none()
    }
}

impl Seat {
    /// All agents, and where the analyzer is.
    pub(crate) async fn agents(&mut self) -> Result<(Vec<AgentEntry>, AnalyzerPlace), DatabaseTrouble> {
        let (agents, rnics, analyzer) = self
            .transact(async |transaction| {
                let agents = "SELECT name, epoch, is_rebuild FROM ferroce_mesh.agent ORDER BY name";
                let rnics = "SELECT agent, address, qpn, host, tor, device FROM ferroce_mesh.rnic ORDER BY agent, place";
                let analyzer = "SELECT url, term FROM ferroce_mesh.analyzer ORDER BY term DESC LIMIT 1";
                Ok((
                    transaction.query(agents, &[]).await?,
                    transaction.query(rnics, &[]).await?,
                    transaction.query_opt(analyzer, &[]).await?,
                ))
            })
            .await?;
        // Rows that others have changed to something that they cannot be are left out.
        let mut of: HashMap<String, Vec<Rnic>> = HashMap::new();
        for (agent, found) in rnics.iter().filter_map(rnic) {
            of.entry(agent).or_default().push(found);
        }
        let entry = |row: &Row| {
            let agent: String = row.try_get("name").ok()?;
            let epoch = row.try_get::<_, i64>("epoch").ok()?.cast_unsigned();
            let is_rebuild = row.try_get("is_rebuild").ok()?;
            let rnics = of.remove(&agent).unwrap_or_default();
            Some(AgentEntry { registration: Registration { agent, rnics }, epoch, is_rebuild })
        };
        let agents = agents.iter().filter_map(entry).collect();
        let place = analyzer.and_then(|row| {
            let term = row.try_get::<_, i64>("term").ok()?.cast_unsigned();
            Some(AnalyzerPlace { url: row.try_get("url").ok()?, term })
        });
        Ok((agents, place.unwrap_or_default()))
    }

    /// Keeps what is new: all of it, or nothing.
    pub(crate) async fn keep_agents(&mut self, news: &AgentNews) -> Result<(), DatabaseTrouble> {
        let AgentNews { present, gone, analyzer } = news;
        let names: Vec<&str> = present.iter().map(|entry| entry.registration.agent.as_str()).collect();
        let epochs: Vec<i64> = present.iter().map(|entry| entry.epoch.cast_signed()).collect();
        let are_rebuild: Vec<bool> = present.iter().map(|entry| entry.is_rebuild).collect();
        let all = || {
            let numbered = |entry: &'_ AgentEntry| (0_i64..).zip(entry.registration.rnics.clone());
            present.iter().flat_map(move |entry| {
                numbered(entry).map(|(place, rnic)| (entry.registration.agent.as_str(), place, rnic))
            })
        };
        let owners: Vec<&str> = all().map(|(agent, ..)| agent).collect();
        let places: Vec<i64> = all().map(|(_, place, _)| place).collect();
        let addresses: Vec<String> = all().map(|(.., rnic)| rnic.address.to_string()).collect();
        let qpns: Vec<i64> = all().map(|(.., rnic)| i64::from(rnic.qpn)).collect();
        let hosts: Vec<String> = all().map(|(.., rnic)| rnic.host).collect();
        let tors: Vec<String> = all().map(|(.., rnic)| rnic.tor).collect();
        let devices: Vec<String> = all().map(|(.., rnic)| rnic.device).collect();
        let old: Vec<&str> = gone.iter().map(String::as_str).chain(names.iter().copied()).collect();
        self.transact(async |transaction| {
            transaction.execute("DELETE FROM ferroce_mesh.agent WHERE name = ANY($1)", &[&old]).await?;
            let add = "INSERT INTO ferroce_mesh.agent SELECT * FROM unnest($1::text[], $2::bigint[], $3::boolean[])";
            transaction.execute(add, &[&names, &epochs, &are_rebuild]).await?;
            let add = "INSERT INTO ferroce_mesh.rnic SELECT * FROM \
                       unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[])";
            transaction.execute(add, &[&owners, &places, &addresses, &qpns, &hosts, &tors, &devices]).await?;
            if let Some(AnalyzerPlace { url, term }) = analyzer {
                transaction.execute("DELETE FROM ferroce_mesh.analyzer", &[]).await?;
                transaction.execute("INSERT INTO ferroce_mesh.analyzer VALUES ($1, $2)", &[url, &term.cast_signed()]).await?;
            }
            Ok(())
        })
        .await
    }
}

/// An RNIC and its agent; none if the row cannot be one.
fn rnic(row: &Row) -> Option<(String, Rnic)> {
    let text = |name| row.try_get::<_, String>(name).ok();
    let address = text("address")?.parse::<IpAddr>().ok()?;
    let qpn = u32::try_from(row.try_get::<_, i64>("qpn").ok()?).ok()?;
    Some((
        text("agent")?,
        Rnic { address, qpn, host: text("host")?, tor: text("tor")?, device: text("device")? },
    ))
}
