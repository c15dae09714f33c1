//! Samples into medians, ratios and a table.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use super::line::Line;

/// A figure and all its samples.
#[derive(Debug, Default)]
pub(crate) struct Figure {
    name: String,
    unit: String,
    against: String,
    /// By repeat: ours and the baseline, measured one after the other.
    pairs: BTreeMap<u64, [Option<f64>; 2]>,
    /// Cores that other programs kept busy meanwhile.
    others: Vec<f64>,
    note: String,
}

const OURS: usize = 0;
const RAW: usize = 1;

impl Figure {
    /// Adds a sample to its figure.
    pub(crate) fn take(figures: &mut Vec<Self>, sample: &Line) -> Result<()> {
        let name = sample.text("figure")?;
        let at = figures.iter().position(|figure| figure.name == name).unwrap_or(figures.len());
        if at == figures.len() {
            let (unit, against) = (sample.text("unit")?.into(), sample.text("against")?.into());
            figures.push(Self { name: name.into(), unit, against, ..Self::default() });
        }
        let figure = &mut figures[at];
        let side = if sample.text("side")? == "ours" { OURS } else { RAW };
        let repeat = sample.count("repeat")?;
        figure.pairs.entry(repeat).or_default()[side] = Some(sample.number("value")?);
        figure.others.push(sample.number("others")?);
        if side == OURS {
            sample.text("note")?.clone_into(&mut figure.note);
        }
        Ok(())
    }

    fn side(&self, side: usize) -> Spread {
        Spread::of(self.pairs.values().filter_map(|pair| pair[side]))
    }

    /// Ours by raw, of the same repeat.
    fn ratio(&self) -> Spread {
        Spread::of(self.pairs.values().filter_map(|pair| Some(pair[OURS]? / pair[RAW]?)))
    }

    /// As JSON: each side as median, least and most.
    pub(crate) fn to_json(&self) -> Value {
        let Self { name, unit, against, note, .. } = self;
        json!({
            "figure": name,
            "unit": unit,
            "against": against,
            "ours": self.side(OURS).to_json(),
            "raw": self.side(RAW).to_json(),
            "ratio": self.ratio().to_json(),
            "others": Spread::of(self.others.iter().copied()).to_json(),
            "note": note,
        })
    }
}

/// A table for people.
pub(crate) fn render(figures: &[Figure]) -> String {
    let mut rows = vec![["figure", "ours", "raw", "beside", "ours/raw", "others"].map(String::from)];
    for figure in figures {
        let unit = &figure.unit;
        rows.push([
            format!("{} [{unit}]", figure.name),
            figure.side(OURS).show(),
            figure.side(RAW).show(),
            figure.against.clone(),
            figure.ratio().show(),
            Spread::of(figure.others.iter().copied()).show(),
        ]);
    }
    format!(
        "{}\nMedian (least to most) of the repeats. Ratios are of pairs measured one after the other; \
         `others` is how many\ncores were busy with something else. Streams are counted in slices of 2 ms, \
         of which nine in ten are slower.",
        aligned(&rows),
    )
}

/// Rows of cells as a table in Markdown whose columns line up; the first row is the heading.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule = widths.map(|width| "-".repeat(width));
    let (heading, body) = rows.split_at(rows.len().min(1));
    heading.iter().chain([&rule]).chain(body).map(line).collect()
}

/// Median and extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spread {
    Nothing,
    Of { median: f64, least: f64, most: f64 },
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        match (values.first(), values.get(values.len() / 2), values.last()) {
            (Some(&least), Some(&median), Some(&most)) => Self::Of { median, least, most },
            _ => Self::Nothing,
        }
    }

    pub(super) fn show(self) -> String {
        match self {
            Self::Nothing => "-".into(),
            Self::Of { median, least, most } => {
                format!("{} ({} to {})", short(median), short(least), short(most))
            }
        }
    }

    fn to_json(self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Of { median, least, most } => json!({ "median": median, "least": least, "most": most }),
        }
    }
}

/// Three digits that mean something.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(side: &str, repeat: u32, value: f64) -> Line {
        let line = format!(
            r#"{{"figure":"f","unit":"us","against":"UDP","side":"{side}","repeat":{repeat},"value":{value},"others":0.5,"note":"n"}}"#
        );
        Line::parse(&line).unwrap()
    }

    #[test]
    fn ratios_are_of_pairs() {
        let mut figures = Vec::new();
        for (side, repeat, value) in
            [("raw", 0, 1.0), ("ours", 0, 2.0), ("raw", 1, 100.0), ("ours", 1, 300.0), ("raw", 2, 7.0)]
        {
            Figure::take(&mut figures, &sample(side, repeat, value)).unwrap();
        }
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].ratio(), Spread::Of { median: 3.0, least: 2.0, most: 3.0 });
        assert_eq!(figures[0].side(RAW), Spread::Of { median: 7.0, least: 1.0, most: 100.0 });
        let table = render(&figures);
        assert!(table.contains("| f [us] | 300 (2.00 to 300) | 7.00 (1.00 to 100) | UDP"), "{table}");
        let raw = json!({ "median": 7.0, "least": 1.0, "most": 100.0 });
        assert_eq!(figures[0].to_json()["raw"], raw);
    }

    #[test]
    fn a_side_that_is_missing_is_a_dash() {
        let mut figures = Vec::new();
        Figure::take(&mut figures, &sample("ours", 0, 0.5)).unwrap();
        assert!(render(&figures).contains("| f [us] | 0.50 (0.50 to 0.50) | -   | UDP    | -"));
        assert_eq!(figures[0].to_json()["ratio"], Value::Null);
    }
}
