//! What an analyzer keeps: findings, and which windows of which agents it has.

use std::collections::HashMap;

use tokio_postgres::{Row, Transaction};

use super::{DatabaseTrouble, Seat};
use crate::ledger::{Inbox, Mark};
use crate::proto::v1;
use crate::store::{AgentRow, Kept, News, OPEN, TOLD};

impl Seat {
    /// What was kept before.
    pub(crate) async fn kept(&mut self) -> Result<Kept, DatabaseTrouble> {
        self.transact(async |transaction| {
            let agents = transaction.query("SELECT * FROM ferroce_mesh.report ORDER BY agent", &[]).await?;
            let open = "SELECT * FROM ferroce_mesh.finding WHERE over IS NULL ORDER BY id LIMIT $1";
            let open = findings(transaction, open, OPEN).await?;
            let over =
                "SELECT * FROM ferroce_mesh.finding WHERE over IS NOT NULL ORDER BY over DESC LIMIT $1";
            let mut over = findings(transaction, over, TOLD).await?;
            over.reverse();
            let last = transaction.query_one("SELECT max(id) FROM ferroce_mesh.finding", &[]).await?;
            let next =
                last.try_get::<_, Option<i64>>(0)?.map_or(0, |last| last.cast_unsigned().wrapping_add(1));
            // A row that others have changed to something that it cannot be is left out.
            let agents = agents.iter().filter_map(|row| agent(row).ok()).collect();
            Ok(Kept { agents, open, over, next })
        })
        .await
    }

    /// Saves what is new: all of it, or nothing. Findings that were over before `oldest` are forgotten.
    pub(crate) async fn save(&mut self, news: &News, oldest: u64) -> Result<(), DatabaseTrouble> {
        self.transact(async |transaction| {
            save_agents(transaction, &news.agents).await?;
            if !news.findings.is_empty() {
                save_findings(transaction, &news.findings).await?;
                let forget = "DELETE FROM ferroce_mesh.finding WHERE over < $1";
                transaction.execute(forget, &[&oldest.cast_signed()]).await?;
            }
            Ok(())
        })
        .await
    }
}

async fn findings(
    transaction: &Transaction<'_>,
    query: &str,
    most: i64,
) -> Result<Vec<v1::Finding>, tokio_postgres::Error> {
    let rows = transaction.query(query, &[&most]).await?;
    let mut findings: Vec<v1::Finding> = rows.iter().filter_map(|row| finding(row).ok()).collect();
    let ids: Vec<i64> = findings.iter().map(|finding| finding.id.cast_signed()).collect();
    let names =
        "SELECT finding, name FROM ferroce_mesh.suspect WHERE finding = ANY($1) ORDER BY finding, place";
    let mut of: HashMap<u64, Vec<String>> = HashMap::new();
    for row in transaction.query(names, &[&ids]).await? {
        of.entry(row.try_get::<_, i64>(0)?.cast_unsigned()).or_default().push(row.try_get(1)?);
    }
    for finding in &mut findings {
        finding.suspects = of.remove(&finding.id).unwrap_or_default();
    }
    Ok(findings)
}

async fn save_findings(
    transaction: &Transaction<'_>,
    findings: &[v1::Finding],
) -> Result<(), tokio_postgres::Error> {
    let ids: Vec<i64> = findings.iter().map(|finding| finding.id.cast_signed()).collect();
    let text = |of: fn(&v1::Finding) -> &String| -> Vec<&String> { findings.iter().map(of).collect() };
    let (trouble, severity) = (text(|finding| &finding.trouble), text(|finding| &finding.severity));
    let since: Vec<i64> = findings.iter().map(|finding| finding.since_unix_ns.cast_signed()).collect();
    let over = |finding: &v1::Finding| Some(finding.over_unix_ns.cast_signed()).filter(|over| *over != 0);
    let over: Vec<Option<i64>> = findings.iter().map(over).collect();
    let number = |of: fn(&v1::Finding) -> f64| -> Vec<f64> { findings.iter().map(of).collect() };
    let [crossings, losses] = [number(|finding| finding.crossings), number(|finding| finding.losses)];
    let [expected, gain] = [number(|finding| finding.expected), number(|finding| finding.gain)];
    transaction.execute("DELETE FROM ferroce_mesh.finding WHERE id = ANY($1)", &[&ids]).await?;
    let add = "INSERT INTO ferroce_mesh.finding SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], \
               $4::bigint[], $5::bigint[], $6::float8[], $7::float8[], $8::float8[], $9::float8[])";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
        [&ids, &trouble, &severity, &since, &over, &crossings, &losses, &expected, &gain];
    transaction.execute(add, &values).await?;
    let suspects = findings.iter().flat_map(|finding| {
        (0_i64..).zip(&finding.suspects).map(|(place, name)| (finding.id.cast_signed(), place, name))
    });
    let (of, rest): (Vec<i64>, Vec<(i64, &String)>) =
        suspects.map(|(finding, place, name)| (finding, (place, name))).unzip();
    let (places, names): (Vec<i64>, Vec<&String>) = rest.into_iter().unzip();
    let add = "INSERT INTO ferroce_mesh.suspect SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])";
    transaction.execute(add, &[&of, &places, &names]).await?;
    Ok(())
}

async fn save_agents(
    transaction: &Transaction<'_>,
    agents: &[(String, AgentRow)],
) -> Result<(), tokio_postgres::Error> {
    if agents.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = agents.iter().map(|(name, _)| name.as_str()).collect();
    let column = |of: fn(&AgentRow) -> u64| -> Vec<i64> {
        agents.iter().map(|(_, row)| of(row).cast_signed()).collect()
    };
    let columns = [
        column(|row| row.inbox.settled().epoch),
        column(|row| row.inbox.settled().number),
        column(|row| row.through),
        column(|row| row.inbox.kept),
        column(|row| row.inbox.replays),
        column(|row| row.inbox.refused),
        column(|row| row.inbox.lost),
    ];
    // Arrays of arrays are taken apart whole, so that sums are written as text.
    let sums: Vec<String> = agents
        .iter()
        .map(|(_, row)| format!("{{{}}}", row.sums.map(|sum| sum.cast_signed().to_string()).join(",")))
        .collect();
    let add = "INSERT INTO ferroce_mesh.report \
               SELECT a, e, n, t, k, r, f, l, s::bigint[] FROM unnest($1::text[], $2::bigint[], $3::bigint[], \
               $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[]) \
               AS row (a, e, n, t, k, r, f, l, s) \
               ON CONFLICT (agent) DO UPDATE SET epoch = excluded.epoch, number = excluded.number, \
               through = excluded.through, kept = excluded.kept, replays = excluded.replays, \
               refused = excluded.refused, lost = excluded.lost, sums = excluded.sums";
    let [epoch, number, through, kept, replays, refused, lost] = &columns;
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
        [&names, epoch, number, through, kept, replays, refused, lost, &sums];
    transaction.execute(add, &values).await?;
    Ok(())
}

fn number(row: &Row, name: &str) -> Result<u64, tokio_postgres::Error> {
    row.try_get::<_, i64>(name).map(i64::cast_unsigned)
}

fn agent(row: &Row) -> Result<(String, AgentRow), tokio_postgres::Error> {
    let mark = Mark { epoch: number(row, "epoch")?, number: number(row, "number")? };
    let mut inbox = Inbox::settled_at(mark);
    inbox.kept = number(row, "kept")?;
    inbox.replays = number(row, "replays")?;
    inbox.refused = number(row, "refused")?;
    inbox.lost = number(row, "lost")?;
    let mut sums = [0; 8];
    for (sum, known) in sums.iter_mut().zip(row.try_get::<_, Vec<i64>>("sums")?) {
        *sum = known.cast_unsigned();
    }
    Ok((row.try_get("agent")?, AgentRow { inbox, sums, through: number(row, "through")? }))
}

fn finding(row: &Row) -> Result<v1::Finding, tokio_postgres::Error> {
    Ok(v1::Finding {
        id: number(row, "id")?,
        trouble: row.try_get("trouble")?,
        suspects: Vec::new(),
        severity: row.try_get("severity")?,
        since_unix_ns: number(row, "since")?,
        over_unix_ns: row.try_get::<_, Option<i64>>("over")?.unwrap_or_default().cast_unsigned(),
        crossings: row.try_get("crossings")?,
        losses: row.try_get("losses")?,
        expected: row.try_get("expected")?,
        gain: row.try_get("gain")?,
        // What it means for services is looked at anew in each window, and not kept.
        ..v1::Finding::default()
    })
}
