//! Figures as JSON.

use serde_json::{Map, Value, json};

use super::series::STRETCHES;
use super::stage::QUANTILES;
use super::{QpFigures, Stats};

impl Stats {
    /// All of it. Times are nanoseconds.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (first, last) = self.span.unwrap_or((0, 0));
        let (width, rows) = self.series.rows(STRETCHES);
        let over_time = rows.iter().map(|(from, bucket)| {
            json!({
                "from_ns": from,
                "posted": bucket.posted,
                "ended": bucket.ended,
                "errors": bucket.errors,
                "packets_out": bucket.out,
                "packets_in": bucket.came,
                "bytes_out": bucket.bytes_out,
                "bytes_in": bucket.bytes_came,
                "most_sends_outstanding": bucket.depth,
            })
        });
        let queue_pairs = self.ranked().into_iter().map(|(source, qpn, figures)| {
            let mut object = figures.to_json();
            object.insert("record".to_owned(), source.into());
            object.insert("qpn".to_owned(), qpn.get().into());
            Value::Object(object)
        });
        let queues = self.deepest().into_iter().map(|(source, queue, depth)| {
            json!({ "record": source, "queue": queue.to_string(), "most": depth.most, "mean": depth.mean() })
        });
        json!({
            "records": self.names,
            "events": self.events,
            "first_ns": first,
            "last_ns": last,
            "outstanding": self.outstanding,
            "events_lost": self.lost,
            "events_overwritten": self.overwritten,
            "sample": self.sample,
            "operations": self.operations(),
            "stretch_ns": width,
            "over_time": over_time.collect::<Vec<Value>>(),
            "queue_pairs": queue_pairs.collect::<Vec<Value>>(),
            "queue_pairs_beyond": self.others.to_json(),
            "all_queue_pairs": self.sum().to_json(),
            "queues": queues.collect::<Vec<Value>>(),
        })
    }

    fn operations(&self) -> Vec<Value> {
        let operation = |row: &super::Row| {
            let stage = |(stage, count, values): (super::Stage, u64, [u64; QUANTILES.len()])| {
                let mut object = Map::new();
                object.insert("count".to_owned(), count.into());
                for ((name, _), value) in QUANTILES.iter().zip(values) {
                    object.insert((*name).to_owned(), value.into());
                }
                (stage.key().to_owned(), Value::Object(object))
            };
            let stages: Map<String, Value> = row.times.quantiles().map(stage).collect();
            json!({
                "operation": row.op.name(),
                "from_bytes": row.from,
                "to_bytes": if row.from == 0 { 0 } else { row.from * 2 - 1 },
                "count": row.count,
                "bytes": row.bytes,
                "errors": row.errors,
                "times_ns": stages,
            })
        };
        self.rows.values().map(operation).collect()
    }
}

impl QpFigures {
    fn to_json(self) -> Map<String, Value> {
        self.named().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }
}
