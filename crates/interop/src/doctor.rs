//! `ferroce doctor` in the guest: one thing after the other is broken there, and it names what was broken, and that
//! alone. Its advice is followed then, and it has nothing to complain of.
//!
//! All of a case is one script, since the way to the guest may be what is broken. These cases come last: some of them
//! take the kernel's device away, and its counters with it.

pub(crate) mod bring;
pub(crate) mod faults;

use serde_json::Value;

use self::faults::{Fault, Then};
use crate::cases::{CASES, There};
use crate::far::Far;
use crate::lab::{Family, Link};
use crate::pair::{Asks, check};
use crate::run::{is_wanted, progress, set_mtu};
use crate::selftest;
use crate::table::{Cell, Column, Table};
use crate::{Args, Result};

/// Where the results of these cases stand.
const COLUMN: Column = Column { link: Link::Usual, family: Family::V4, asks: Asks::We };

/// A finding, and how it is told.
struct Found {
    level: &'static str,
    check: &'static str,
    /// What it is about.
    about: &'static str,
    /// Words of its sentence.
    what: &'static str,
    /// How the commands begin that it tells and that mend it, in this order.
    told: &'static [&'static str],
}

/// Levels from which on something is said that a guest that is well has no reason for.
const COMPLAINTS: [&str; 3] = ["unknown", "warning", "fault"];

/// What scripts use.
const PRELUDE: &str = "\
port=/sys/class/infiniband/rxe0/ports/1; other=/sys/class/infiniband/rxe1/ports/1; libs=/usr/lib/x86_64-linux-gnu; \
for_sure() { for i in $(seq 500); do eval \"$1\" && return; usleep 20000; done; echo \"#never $1\"; exit 1; }; \
unused() { for_sure '! ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q uverbs'; }; \
modules() { while read -r name rest; do echo $name; done </proc/modules; }; \
again() { ip link set eth0 mtu 1500 up; ip addr replace 10.77.0.2/24 dev eth0; \
ip -6 addr replace fd77::2/64 dev eth0 nodad; modprobe rdma_rxe; \
[ -e $port ] || rdma link add rxe0 type rxe netdev eth0; echo 0 >$port/hw_counters/lifespan; \
for_sure 'grep -q ffff: $port/gids/1'; }";

/// Runs the cases of `ferroce` in the guest that are wanted: the selftest, and then what is broken.
pub(crate) fn run(args: &Args, table: &mut Table) -> Result<()> {
    if args.mtu.is_some_and(|mtu| mtu != COLUMN.link.mtu()) {
        return Ok(());
    }
    let mut is_there = false;
    for case in CASES.iter().filter(|case| is_wanted(args, case)) {
        let Some(there) = case.there() else { continue };
        if !is_there {
            set_mtu(args.guest, COLUMN.link)?;
            let program = args.ferroce.as_deref().ok_or("the program `ferroce` was not given")?;
            bring::bring(args.guest, program, "ferroce")?;
            is_there = true;
        }
        let done = match there {
            There::Tests => selftest::some(args.guest),
            There::Diagnoses(fault) => visit(args, fault),
        };
        let wrong = done.err().map(|error| error.to_string());
        progress(case, COLUMN, wrong.as_deref());
        table.push(Cell { case: case.name, column: COLUMN, wrong });
    }
    Ok(())
}

/// Breaks something, lets the doctor look, follows its advice, and lets it look again.
fn visit(args: &Args, fault: &Fault) -> Result<()> {
    let mut far = Far::connect(args.guest)?;
    far.start(&script(fault))?;
    let (status, said) = far.finish()?;
    let judged = judge(fault, &said);
    if status != 0 {
        let why = judged.err().map_or_else(String::new, |error| format!(": {error}"));
        return Err(format!("the script ended with {status}{why}: {}", said.trim()).into());
    }
    judged
}

/// One line for a shell. A step that fails ends it; all is put back in any case.
fn script(fault: &Fault) -> String {
    let Fault { breaks, broken, doctor, finds, then, mended, restores } = fault;
    let mut steps = vec![PRELUDE.to_owned()];
    // Complaints of what is not there to be taken back would mix with the answer.
    steps.push(format!("trap 'set +e; {{ {restores}; }} >/dev/null 2>&1' EXIT; set -e"));
    let look = |number: u8| {
        let look = format!("set +e; was=$(modules); {doctor}; echo \"#{number} $?\"");
        format!("{look}; [ \"$was\" = \"$(modules)\" ] || echo '#loaded a module'; set -e")
    };
    let wait = |what: &str| (!what.is_empty()).then(|| format!("for_sure '{what}'"));
    steps.push((*breaks).to_owned());
    steps.extend(wait(broken));
    steps.push(look(1));
    match (finds, then) {
        (None, _) | (_, Then::End) => return steps.join("; "),
        // This is root, and there is no sudo.
        (Some(found), Then::AsAdvised) => {
            steps.extend(found.told.iter().map(|line| line.trim_start_matches("sudo ").to_owned()));
        }
        (Some(_), Then::Mend(way)) => steps.push((*way).to_owned()),
    }
    steps.extend(wait(mended));
    steps.push(look(2));
    steps.join("; ")
}

/// Whether the doctor said what it should, at first and in the end.
fn judge(fault: &Fault, said: &str) -> Result<()> {
    let mut looks = Vec::new();
    let mut json = String::new();
    for line in said.lines() {
        match line.strip_prefix('#') {
            Some(word) => match word.split_once(' ') {
                Some(("1" | "2", code)) => looks.push((std::mem::take(&mut json), code.to_owned())),
                _ => return Err(format!("the doctor, or the guest, {word}").into()),
            },
            None => json.extend([line, "\n"]),
        }
    }
    let looks_again = fault.finds.is_some() && !matches!(fault.then, Then::End);
    check("times that the doctor looked", looks.len(), 1 + usize::from(looks_again))?;
    for (number, (json, code)) in looks.iter().enumerate() {
        let found = fault.finds.as_ref().filter(|_| number == 0);
        let judged = findings(json).and_then(|findings| one_look(found, &findings, code));
        judged.map_err(|error| format!("{}: {error}", ["broken", "mended"][number]))?;
    }
    Ok(())
}

fn findings(text: &str) -> Result<Vec<Value>> {
    // Before it, what was broken may have had something to say.
    let start = text.find('{').ok_or_else(|| format!("no JSON in {text:?}"))?;
    let mut all = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    match all.next().ok_or("no JSON")??["findings"].take() {
        Value::Array(findings) => Ok(findings),
        _ => Err("no findings".into()),
    }
}

fn one_look(found: Option<&Found>, findings: &[Value], code: &str) -> Result<()> {
    let is_complaint = |finding: &&Value| COMPLAINTS.iter().any(|level| finding["level"] == **level);
    let complaints: Vec<&Value> = findings.iter().filter(is_complaint).collect();
    let Some(found) = found else {
        check("complaints", shown(&complaints), String::new())?;
        return check("the exit code", code, "0");
    };
    let is_meant = |finding: &Value| {
        finding["level"] == found.level
            && finding["check"] == found.check
            && finding["about"].as_str().unwrap_or_default() == found.about
            && finding["what"].as_str().unwrap_or_default().contains(found.what)
    };
    let meant = findings.iter().find(|finding| is_meant(finding));
    let meant = meant.ok_or_else(|| {
        format!(
            "no {} of {} about {:?} that says {:?}, but {}",
            found.level,
            found.check,
            found.about,
            found.what,
            shown(&complaints)
        )
    })?;
    let others: Vec<&Value> = complaints.into_iter().filter(|finding| *finding != meant).collect();
    check("other complaints", shown(&others), String::new())?;
    let mut commands = meant["commands"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for told in found.told {
        let is_told = commands.any(|command| command.starts_with(told));
        check(&format!("whether it tells {told:?}"), is_told, true)?;
    }
    check("the exit code", code, if found.level == "fault" { "1" } else { "0" })
}

fn shown(findings: &[&Value]) -> String {
    let lines = findings.iter().map(|finding| {
        let [level, check, about, what] =
            ["level", "check", "about", "what"].map(|key| finding[key].as_str().unwrap_or("-"));
        format!("{level} {check} ({about}): {what}")
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::faults::{DOWN, WELL};
    use super::*;
    use crate::cases::Case;

    fn look(number: u32, findings: &Value, code: u32) -> String {
        format!("{:#}\n#{number} {code}\n", json!({ "summary": {}, "findings": findings }))
    }

    fn down() -> Value {
        json!({ "level": "fault", "check": "links", "about": "rxe0/1",
            "what": "the port is down, because eth0 is switched off", "commands": ["ip link set eth0 up"] })
    }

    fn note() -> Value {
        json!({ "level": "note", "check": "mtu", "about": "rxe0/1", "what": "could be 4096", "commands": [] })
    }

    fn error(fault: &Fault, said: &str) -> String {
        judge(fault, said).unwrap_err().to_string()
    }

    #[test]
    fn what_was_broken_is_named_and_then_mended() {
        let said = look(1, &json!([note(), down()]), 1) + &look(2, &json!([note()]), 0);
        judge(&DOWN, &said).unwrap();
        judge(&WELL, &look(1, &json!([note()]), 0)).unwrap();
    }

    #[test]
    fn anything_else_is_a_failure() {
        let well = look(2, &json!([]), 0);
        for (key, value) in
            [("level", "warning"), ("check", "gids"), ("about", "rxe1/1"), ("what", "the port is down")]
        {
            let mut other = down();
            other[key] = value.into();
            assert!(
                error(&DOWN, &(look(1, &json!([other]), 1) + &well)).contains("broken: no fault of links"),
                "{key}"
            );
        }
        let mut untold = down();
        untold["commands"] = json!(["ip link show"]);
        assert!(error(&DOWN, &(look(1, &json!([untold]), 1) + &well)).contains("whether it tells"));
        let mut another = note();
        another["level"] = "unknown".into();
        assert!(error(&DOWN, &(look(1, &json!([down(), another]), 1) + &well)).contains("other complaints"));
        assert!(error(&DOWN, &(look(1, &json!([down()]), 0) + &well)).contains("exit code"));
        let still = look(1, &json!([down()]), 1) + &look(2, &json!([down()]), 1);
        assert!(error(&DOWN, &still).contains("mended: complaints"));
        assert!(error(&DOWN, &look(1, &json!([down()]), 1)).contains("times that the doctor looked"));
        assert!(error(&WELL, "ferroce: not found\n#1 127\n").contains("no JSON"));
        assert!(error(&WELL, &(look(1, &json!([]), 0) + "#loaded a module\n")).contains("loaded a module"));
        assert!(error(&WELL, "#never grep -q x y\n").contains("never grep"));
    }

    fn faults(case: &'static Case) -> Option<&'static Fault> {
        match case.there()? {
            There::Diagnoses(fault) => Some(fault),
            There::Tests => None,
        }
    }

    #[test]
    fn a_script_is_one_line_that_fits() {
        for fault in CASES.iter().filter_map(faults) {
            let script = script(fault);
            assert!(!script.contains('\n') && script.len() < 4000, "{script}");
            assert!(![fault.restores, fault.broken, fault.mended].concat().contains('\''), "{script}");
        }
    }
}
