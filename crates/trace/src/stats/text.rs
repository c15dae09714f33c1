//! Figures as text.

use std::fmt;

use ferroce_wire::Qpn;

use super::stage::QUANTILES;
use super::{QpFigures, Row, Stats};
use crate::show::{Nanos, Span};

/// Queue pairs, queues and stretches of time that are shown.
const SHOWN: usize = 20;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.span.unwrap_or((0, 0));
        writeln!(
            f,
            "{} events in {}, {} request(s) outstanding at the end",
            self.events,
            Span(last - first),
            self.outstanding
        )?;
        if self.lost > 0 {
            writeln!(f, "{} events were lost: figures are too low", self.lost)?;
        }
        if self.overwritten > 0 {
            writeln!(
                f,
                "{} events are missing: later ones took their places, or the file was cut off",
                self.overwritten
            )?;
        }
        if self.sample > 1 {
            writeln!(f, "one of {} requests was recorded: counts are a share of all", self.sample)?;
        }
        self.rows.values().try_for_each(|row| row.fmt(f))?;
        self.over_time(f)?;
        self.by_queue_pair(f)?;
        self.by_queue(f)
    }
}

impl Stats {
    fn over_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, rows) = self.series.rows(SHOWN);
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nover time, each second, in stretches of {}", Span(width))?;
        let names =
            ["FROM", "POSTED", "ENDED", "ERRORS", "PKTS OUT", "PKTS IN", "BYTES OUT", "BYTES IN", "OPEN"];
        let [from, posted, ended, errors, out, came, bytes_out, bytes_in, open] = names;
        writeln!(
            f,
            "  {from:>16} {posted:>10} {ended:>10} {errors:>8} {out:>10} {came:>10} {bytes_out:>12} {bytes_in:>12} {open:>7}"
        )?;
        for (from, bucket) in rows {
            let rate = |count: u64| u128::from(count) * 1_000_000_000 / u128::from(width);
            writeln!(
                f,
                "  {:>16} {:>10} {:>10} {:>8} {:>10} {:>10} {:>12} {:>12} {:>7}",
                Nanos(from).to_string(),
                rate(bucket.posted),
                rate(bucket.ended),
                rate(bucket.errors),
                rate(bucket.out),
                rate(bucket.came),
                rate(bucket.bytes_out),
                rate(bucket.bytes_came),
                bucket.depth,
            )?;
        }
        Ok(())
    }

    fn by_queue_pair(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranked = self.ranked();
        if ranked.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nqueue pairs, those with most errors first")?;
        let name = |source: usize, qpn: Qpn| match self.names.len() {
            0 | 1 => qpn.to_string(),
            _ => format!("{qpn} of record {}", source + 1),
        };
        for (source, qpn, figures) in ranked.iter().take(SHOWN) {
            writeln!(f, "  {}: {figures}", name(*source, *qpn))?;
        }
        if ranked.len() > SHOWN || self.others != QpFigures::default() {
            writeln!(f, "  all, also those that are left out here: {}", self.sum())?;
        }
        Ok(())
    }

    fn by_queue(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deepest = self.deepest();
        if deepest.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nqueues, deepest first: work that they held at most, and on average")?;
        for (source, queue, depth) in deepest.iter().take(SHOWN) {
            let of = if self.names.len() > 1 { format!(" of record {}", source + 1) } else { String::new() };
            writeln!(f, "  {queue}{of}: {} at most, {:.2} on average", depth.most, depth.mean())?;
        }
        match deepest.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, from, count, bytes, errors, times } = self;
        let sizes = match from {
            0 => "0 bytes".to_owned(),
            from => format!("{from} to {} bytes", from * 2 - 1),
        };
        writeln!(f, "\n{}, {sizes}: {count} request(s), {bytes} bytes, {errors} error(s)", op.name())?;
        write!(f, "  {:<20}", "")?;
        QUANTILES.iter().try_for_each(|(name, _)| write!(f, " {name:>12}"))?;
        writeln!(f)?;
        for (stage, _, values) in times.quantiles() {
            write!(f, "  {:<20}", stage.name())?;
            values.iter().try_for_each(|nanos| write!(f, " {:>12}", Span(*nanos).to_string()))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for QpFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "two places are shown")]
        let share = if self.ended == 0 {
            0.0
        } else {
            100.0 * (self.errors + self.flushed) as f64 / self.ended as f64
        };
        write!(f, "{} posted, {} ended, {share:.2} % of them in error", self.posted, self.ended)?;
        for (count, what) in [
            (self.errors, "failed"),
            (self.flushed, "flushed"),
            (self.out, "packets out"),
            (self.came, "packets in"),
            (self.repeats, "sent again"),
            (self.timeouts, "time-outs"),
            (self.probes, "tail probes"),
            (self.rnr_came, "RNR NAKs in"),
            (self.rnr_sent, "RNR NAKs out"),
            (self.nak_came, "NAKs in"),
            (self.nak_sent, "NAKs out"),
            (self.taken, "taken by fault injection"),
            (self.refused, "refused"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}
