//! Figures of benchmarks: ours beside another, measured in turn, and lines for `cargo xtask bench pairs`.
//!
//! The program of such a benchmark is both ends: it starts itself again as the other process, with a role.

use std::error::Error;
use std::time::Duration;

use serde_json::json;

use crate::process::Peer;
use crate::processor::pin;

/// What a measurement gives, or why there is none.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One side of a figure: the role of the other process, and what is measured here.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// What it is called in the table.
    pub name: &'static str,
    /// The role of the other process.
    pub role: &'static str,
    /// Measures with what the other process said first, for so long.
    pub measure: fn(&str, Duration) -> Outcome<f64>,
}

/// Two things that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What is measured.
    pub name: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// With our program.
    pub ours: Side,
    /// With the other one.
    pub beside: Side,
}

/// How a program was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    args: Vec<String>,
    /// Each process is to have a processor of its own: `--pin`.
    pub pinned: bool,
    /// To see that it works is enough: `--quick`, or no `--bench`, as `cargo test` calls it.
    pub quick: bool,
    /// Our side of each figure, once, as lines for `cargo xtask bench pairs`: `--once`.
    pub once: bool,
}

impl Called {
    /// Reads the arguments of this program. If they ask for the other process, it is played here, and there is nothing
    /// to measure: `None`.
    ///
    /// # Errors
    /// A role without a name or a number, or what the role fails with.
    pub fn new(play: impl FnOnce(&str, u8) -> Outcome<()>) -> Outcome<Option<Self>> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        let pinned = has("--pin");
        if let Some(at) = args.iter().position(|arg| arg == "--peer") {
            if pinned {
                pin(1)?;
            }
            let role = args.get(at + 1).ok_or("--peer needs the name of a role")?;
            let host = args.get(at + 2).ok_or("--peer needs an address")?.parse()?;
            return play(role, host).map(|()| None);
        }
        if pinned {
            pin(0)?;
        }
        let (quick, once) = (has("--quick") || !has("--bench"), has("--once"));
        Ok(Some(Self { args, pinned, quick, once }))
    }

    /// Whether it was called with this flag.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.args.iter().any(|arg| arg == flag)
    }

    /// The arguments that are no flags.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--"))
    }

    /// Starts this program again, in this role and with this number.
    ///
    /// # Errors
    /// It does not start.
    pub fn peer(&self, role: &str, host: u8) -> Outcome<Peer> {
        let host = host.to_string();
        let args = ["--bench", "--peer", role, &host];
        Ok(Peer::start(args.into_iter().chain(self.pinned.then_some("--pin")))?)
    }

    /// Measures all figures whose names have one of the words in them, each side so often in turn, so that a slow minute
    /// falls on both, and prints a table of the medians.
    ///
    /// # Errors
    /// A measurement failed.
    pub fn compare(&self, figures: &[Figure], repeats: usize, time: Duration) -> Outcome<()> {
        let words: Vec<&str> = self.words().collect();
        let is_asked_for = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
        let mut host = 1;
        let mut measure = |side: &Side| -> Outcome<f64> {
            // The last one may not be quite gone yet, so this one gets another address.
            host = if host < 250 { host + 1 } else { 2 };
            let mut peer = self.peer(side.role, host)?;
            (side.measure)(&peer.hear()?, time)
        };
        if !self.once {
            println!("{:26} {:>6}  {:>22} {:>28} {:>7}", "", "unit", "ours", "beside", "ratio");
        }
        for Figure { name, unit, ours, beside } in figures.iter().filter(|figure| is_asked_for(figure.name)) {
            if self.once {
                println!("{}", sample(name, unit, measure(ours)?));
                continue;
            }
            let (mut mine, mut others) = (Vec::new(), Vec::new());
            for _ in 0..repeats {
                others.push(measure(beside)?);
                mine.push(measure(ours)?);
            }
            let (mine, other) = (median(&mut mine), median(&mut others));
            let (left, right) = (format!("{} {mine:.2}", ours.name), format!("{} {other:.2}", beside.name));
            println!("{name:26} {unit:>6}  {left:>22} {right:>28} {:>6.2}x", mine / other);
        }
        Ok(())
    }
}

/// The value in the middle, the upper one of two.
///
/// # Panics
/// There is none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A figure of ours, measured once, as a line.
#[must_use]
pub fn sample(figure: &str, unit: &str, value: f64) -> String {
    json!({ "kind": "sample", "side": "ours", "figure": figure, "unit": unit, "value": value }).to_string()
}
