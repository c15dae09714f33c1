//! What refusing a packet costs: instructions by class, beside their budgets.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::Args;
use super::json::Object;
use crate::say::{complain, say};
use crate::shell::{Cmd, on_path, root};

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
    path: String,
    /// Packets of a lot.
    lot: f64,
    classes: Vec<Class>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    ensure!(
        on_path("valgrind"),
        "valgrind is not on PATH: it counts the instructions; install the package valgrind"
    );
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
        let lines: Vec<String> = measured.iter().map(|(class, cost)| class.to_json(*cost)).collect();
        say!("{{\"refusals\":[\n{}\n]}}", lines.join(",\n"));
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
    /// Builds the benchmark, and has it tell where it is and what it can send.
    fn build() -> Result<Self> {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["bench", "-q", "-p", "ferroce-device", "--bench", NAME, "--", "--classes"]);
        // What cargo says goes to the terminal as it is.
        let output =
            command.current_dir(root()).stderr(Stdio::inherit()).output().context("starting cargo bench")?;
        ensure!(output.status.success(), "the benchmark of refusals failed: {}", output.status);
        let (mut program, mut classes) = (None, Vec::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let object = Object::parse(line).with_context(|| format!("the benchmark said {line:?}"))?;
            if object.text("kind")? == "program" {
                program = Some((object.text("path")?.to_owned(), object.number("lot")?));
            } else {
                classes.push(Class {
                    name: object.text("class")?.to_owned(),
                    counted_as: object.text("counted_as")?.to_owned(),
                    budget: object.number("budget")?,
                });
            }
        }
        let (path, lot) = program.context("the benchmark did not say where it is")?;
        Ok(Self { path, lot, classes })
    }

    /// Instructions for each packet of a class.
    fn measure(&self, class: &Class, lots: [u32; 2]) -> Result<f64> {
        let [few, many] = lots;
        let difference = self.count(class, many)? - self.count(class, few)?;
        // What the kernel turns away costs nothing here, and the rest of a run not always the same.
        Ok((difference / (f64::from(many - few) * self.lot)).max(0.0))
    }

    /// Instructions of a whole run.
    fn count(&self, class: &Class, lots: u32) -> Result<f64> {
        // Threads take turns, and the profile itself is of no use.
        let valgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=try"];
        let run = Cmd::new("valgrind").args(valgrind).arg(&self.path);
        let (done, said) = run.args(["--class", &class.name, "--lots", &lots.to_string()]).captured()?;
        ensure!(done, "{lots} lots of the class {} failed: {said}", class.name);
        collected(&said).with_context(|| format!("callgrind said no number of instructions: {said}"))
    }
}

impl Class {
    fn to_json(&self, cost: f64) -> String {
        let Self { name, counted_as, budget } = self;
        format!(
            "{{\"class\":\"{name}\",\"counted_as\":\"{counted_as}\",\"instructions\":{cost:.0},\"budget\":{budget:.0}}}"
        )
    }
}

/// The instructions that callgrind says it has seen.
fn collected(said: &str) -> Option<f64> {
    let (_, count) = said.lines().rev().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
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

    #[test]
    fn instructions_are_read_from_what_callgrind_says() {
        let said =
            "==7== Events    : Ir\n==7== Collected : 14527464\n==7== \n==7== I   refs:      14,527,464\n";
        assert_eq!(collected(said), Some(14_527_464.0));
        assert_eq!(collected("==7== Command: ./refusals\n"), None);
    }
}
