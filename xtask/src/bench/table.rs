//! Samples into medians, ratios and a table.

use std::collections::BTreeMap;

use anyhow::Result;

use super::json::Object;

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
    pub(crate) fn take(figures: &mut Vec<Self>, sample: &Object) -> Result<()> {
        let name = sample.text("figure")?;
        let at = figures.iter().position(|figure| figure.name == name).unwrap_or(figures.len());
        if at == figures.len() {
            let (unit, against) = (sample.text("unit")?.into(), sample.text("against")?.into());
            figures.push(Self { name: name.into(), unit, against, ..Self::default() });
        }
        let figure = &mut figures[at];
        let side = if sample.text("side")? == "ours" { OURS } else { RAW };
        let repeat = sample.number("repeat")?.to_bits();
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
    pub(crate) fn to_json(&self) -> String {
        let Self { name, unit, against, note, .. } = self;
        let [ours, raw, ratio, others] =
            [self.side(OURS), self.side(RAW), self.ratio(), Spread::of(self.others.iter().copied())]
                .map(Spread::to_json);
        format!(
            "{{\"figure\":{name:?},\"unit\":{unit:?},\"against\":{against:?},\"ours\":{ours},\"raw\":{raw},\
             \"ratio\":{ratio},\"others\":{others},\"note\":{note:?}}}"
        )
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
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule = widths.map(|width| "-".repeat(width));
    let body: String = rows[1..].iter().map(line).collect();
    format!(
        "{}{}{body}\nMedian (least to most) of the repeats. Ratios are of pairs measured one after the other; \
         `others` is how many\ncores were busy with something else. Streams are counted in slices of 2 ms, of \
         which nine in ten are slower.",
        line(&rows[0]),
        line(&rule),
    )
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

    fn to_json(self) -> String {
        match self {
            Self::Nothing => "null".into(),
            Self::Of { median, least, most } => {
                format!("{{\"median\":{median},\"least\":{least},\"most\":{most}}}")
            }
        }
    }
}

/// Three digits that mean something.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(side: &str, repeat: u32, value: f64) -> Object {
        let line = format!(
            r#"{{"figure":"f","unit":"us","against":"UDP","side":"{side}","repeat":{repeat},"value":{value},"others":0.5,"note":"n"}}"#
        );
        Object::parse(&line).unwrap()
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
        assert!(figures[0].to_json().contains(r#""raw":{"median":7,"least":1,"most":100}"#));
    }

    #[test]
    fn a_side_that_is_missing_is_a_dash() {
        let mut figures = Vec::new();
        Figure::take(&mut figures, &sample("ours", 0, 0.5)).unwrap();
        assert!(render(&figures).contains("| f [us] | 0.50 (0.50 to 0.50) | -   | UDP    | -"));
        assert!(figures[0].to_json().contains("\"ratio\":null"));
    }
}
