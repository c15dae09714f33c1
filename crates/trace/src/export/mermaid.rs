//! One operation as a sequence diagram of Mermaid.

use std::fmt::Write as _;
use std::io::Write;

use super::operation::{Choice, Kind, Leg, Mark, operation};
use super::words::duration;
use super::{ExportError, Summary};
use crate::timeline::Timeline;

/// Writes one operation as a `sequenceDiagram` of Mermaid, which many pages of documents show.
///
/// # Errors
/// No work request is the one that was asked for, or it cannot be written.
pub fn mermaid(
    timeline: &Timeline,
    choice: &Choice,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ExportError> {
    let (operation, summary) = operation(timeline, choice, progress)?;
    let mut text = String::from("sequenceDiagram\n");
    // Writing to a string never fails.
    for (letter, [process, pair]) in ["L", "R"].into_iter().zip(&operation.ends) {
        if !process.is_empty() {
            let _ = writeln!(text, "    participant {letter} as {}<br/>{}", safe(process), safe(pair));
        }
    }
    let mut lines: Vec<(u64, String)> = Vec::new();
    let after = |at: u64| duration(at.saturating_sub(operation.start));
    lines.extend(operation.marks.iter().map(|mark| (mark.at, mark_line(mark, &after(mark.at)))));
    for leg in &operation.legs {
        let at = leg.first_at();
        lines.push((at, leg_line(leg, &after(at))));
    }
    lines.sort_by_key(|(at, _)| *at);
    for (_, line) in &lines {
        let _ = writeln!(text, "    {line}");
    }
    if operation.is_local {
        text.push_str("    Note over L: no packets, it stayed in this process\n");
    }
    if operation.more > 0 {
        let _ = writeln!(text, "    Note over L,R: and {} more packets", operation.more);
    }
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(summary)
}

fn mark_line(mark: &Mark, after: &str) -> String {
    let side = if mark.is_peer { "right of R" } else { "left of L" };
    format!("Note {side}: {}<br/>{after}", safe(&mark.lines.join(", ")))
}

fn leg_line(leg: &Leg, after: &str) -> String {
    let (from, to) = if leg.is_answer { ("R", "L") } else { ("L", "R") };
    let arrow = match (leg.kind, leg.is_answer) {
        (Kind::Lost, false) => "-x",
        (Kind::Lost, true) => "--x",
        (_, false) => "->>",
        (_, true) => "-->>",
    };
    let fate = leg.fate.map(|fate| format!(", {fate}")).unwrap_or_default();
    format!("{from}{arrow}{to}: {}{fate} ({after})", safe(&leg.text))
}

/// A text without what has a meaning there.
fn safe(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        match letter {
            ';' | '#' | '<' | '>' | '"' => {
                let _ = write!(safe, "#{};", u32::from(letter));
            }
            control if control.is_control() => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}
