//! What refusing a packet costs: instructions by class, beside their budgets.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Args;
use super::callgrind;
use super::checkout::Checkout;
use super::line::{Line, whole};
use crate::say::{complain, say};
use crate::shell::Cmd;

/// Its name for `--only`.
pub(crate) const NAME: &str = "refusals";

/// Lots of packets of the two runs whose difference counts: what happens once for all of them falls out of it.
const LOTS: [u32; 2] = [100, 1100];

/// The same for a quick look.
const FEW_LOTS: [u32; 2] = [10, 60];

/// A class of refused packets.
struct Class {
    name: String,
    counted_as: String,
    budget: f64,
}

/// The benchmark, as it describes itself.
struct Program {
    path: PathBuf,
    /// Packets of a lot.
    lot: f64,
    classes: Vec<Class>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    callgrind::check()?;
    let program = Program::build()?;
    let chosen =
        |class: &&Class| args.rest.is_empty() || args.rest.iter().any(|part| class.name.contains(part));
    let classes: Vec<&Class> = program.classes.iter().filter(chosen).collect();
    ensure!(!classes.is_empty(), "no class has {:?} in its name", args.rest);
    let mut measured = Vec::new();
    for (at, class) in classes.iter().enumerate() {
        complain!("class {} of {}, {}", at + 1, classes.len(), class.name);
        measured.push((*class, program.measure(class, if args.quick { FEW_LOTS } else { LOTS })?));
    }
    if args.json {
        let classes: Vec<Value> = measured.iter().map(|(class, cost)| class.to_json(*cost)).collect();
        say!("{:#}", json!({ "refusals": classes }));
    } else {
        say!("\n| class | counted as | instructions | budget |\n|---|---|---|---|");
        for (Class { name, counted_as, budget }, cost) in &measured {
            say!("| {name} | `{counted_as}` | {cost:.0} | {budget:.0} |");
        }
    }
    if args.quick {
        // So few packets say little.
        return Ok(());
    }
    let over = over_budget(&measured);
    if !over.is_empty() {
        bail!(
            "above the budget: {}; see what became dearer, or why it must and raise the budget",
            over.join(", ")
        );
    }
    Ok(())
}

/// What is to be said of the classes that cost too much.
fn over_budget(measured: &[(&Class, f64)]) -> Vec<String> {
    let over = measured.iter().filter(|(class, cost)| *cost > class.budget);
    over.map(|(class, cost)| format!("{} takes {cost:.0} instructions of {:.0}", class.name, class.budget))
        .collect()
}

impl Program {
    /// Builds the benchmark, and has it tell what it can send.
    fn build() -> Result<Self> {
        let path = Checkout::here().build("device", NAME)?;
        let (mut lot, mut classes) = (None, Vec::new());
        for line in Cmd::new(&path).arg("--classes").output()?.lines() {
            let line = Line::parse(line).context("reading what the benchmark says")?;
            if line.text("kind")? == "program" {
                lot = Some(line.number("lot")?);
            } else {
                classes.push(Class {
                    name: line.text("class")?.to_owned(),
                    counted_as: line.text("counted_as")?.to_owned(),
                    budget: line.number("budget")?,
                });
            }
        }
        let lot = lot.context("the benchmark did not say how many packets a lot has")?;
        Ok(Self { path, lot, classes })
    }

    /// Instructions for each packet of a class.
    fn measure(&self, class: &Class, [few, many]: [u32; 2]) -> Result<f64> {
        let count = |lots: u32| {
            let lots = lots.to_string();
            callgrind::count(&self.path, &["--class", &class.name, "--lots", &lots], None)
        };
        let difference = count(many)? - count(few)?;
        // What the kernel turns away costs nothing here, and the rest of a run not always the same.
        Ok((difference / (f64::from(many - few) * self.lot)).max(0.0))
    }
}

impl Class {
    fn to_json(&self, cost: f64) -> Value {
        let Self { name, counted_as, budget } = self;
        json!({
            "class": name,
            "counted_as": counted_as,
            "instructions": whole(cost),
            "budget": whole(*budget),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_class_above_its_budget_is_complained_of() {
        let class = Class { name: "stray".into(), counted_as: "strays".into(), budget: 1500.0 };
        assert_eq!(over_budget(&[(&class, 1500.0)]), [""; 0]);
        assert_eq!(over_budget(&[(&class, 1501.0)]), ["stray takes 1501 instructions of 1500"]);
    }
}
