//! `cargo xtask picture`: the demo's real output as an SVG for the README.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::say::say;
use crate::shell::{Cmd, root, target_dir};

/// Where the picture is kept.
const FILE: &str = "docs/demo.svg";

/// A character of the fonts that a browser takes for `monospace` is 0.6 times as wide as high.
const FONT: f64 = 13.0;
const ADVANCE: f64 = FONT * 0.6;
const LINE: f64 = 17.0;
const MARGIN: f64 = 18.0;
const COLUMNS: f64 = 80.0;

pub(crate) fn run() -> Result<()> {
    Cmd::cargo("build --release --locked -p ferroce-cli").run()?;
    let binary = target_dir().join("release/ferroce");
    let demo = Cmd::new(&binary).args(["--color", "always", "demo"]);
    let (fine, text) = demo.captured()?;
    ensure!(fine, "`{demo}` failed: {text}");
    let file = root().join(FILE);
    fs::write(&file, svg(&text)).with_context(|| format!("cannot write {}", file.display()))?;
    say!("{FILE}: {} lines of the demo", text.lines().count());
    Ok(())
}

/// How a stretch of text looks.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    bold: bool,
    faint: bool,
    color: Option<&'static str>,
}

impl Look {
    /// What an escape sequence changes.
    fn change(&mut self, codes: &str) {
        for code in codes.split(';') {
            match code {
                "1" => self.bold = true,
                "2" => self.faint = true,
                "31" => self.color = Some("#ff7b72"),
                "32" => self.color = Some("#7ee787"),
                "36" => self.color = Some("#79c0ff"),
                _ => *self = Self::default(),
            }
        }
    }

    fn attributes(self) -> String {
        let fill = if self.faint { "#8b949e" } else { self.color.unwrap_or("#e6edf3") };
        let weight = if self.bold { " font-weight=\"bold\"" } else { "" };
        format!("fill=\"{fill}\"{weight}")
    }
}

/// The lines of a terminal as a picture.
fn svg(text: &str) -> String {
    let height = MARGIN * 2.0 + LINE * text.lines().count() as f64;
    let width = MARGIN * 2.0 + ADVANCE * COLUMNS;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"The output of ferroce demo\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"{FONT:.0}\" xml:space=\"preserve\">\n"
    );
    let mut look = Look::default();
    for (number, line) in text.lines().enumerate() {
        let y = MARGIN + LINE * number as f64 + FONT;
        let mut column = 0;
        for (change, piece) in pieces(line) {
            if let Some(codes) = change {
                look.change(codes);
            }
            let lead = piece.chars().take_while(|c| *c == ' ').count();
            let shown = piece.trim();
            if !shown.is_empty() {
                // The length is given, so that columns stay columns in any font.
                let x = MARGIN + ADVANCE * (column + lead) as f64;
                let long = ADVANCE * shown.chars().count() as f64;
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.0}\" textLength=\"{long:.1}\" {}>{}</text>",
                    look.attributes(),
                    escaped(shown)
                );
            }
            column += piece.chars().count();
        }
    }
    svg + "</g>\n</svg>\n"
}

/// A line cut at its escape sequences: which one stands before, and the text up to the next.
fn pieces(line: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    line.split("\x1b[").enumerate().map(|(index, part)| match part.split_once('m') {
        Some((codes, rest)) if index > 0 => (Some(codes), rest),
        _ => (None, part),
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_codes_become_colours() {
        let svg = svg("\x1b[1mtitle\x1b[0m\n  a < b  \x1b[1;31mbad & red\x1b[0m plain\n");
        for part in [
            "<text x=\"18.0\" y=\"31\" textLength=\"39.0\" fill=\"#e6edf3\" font-weight=\"bold\">title</text>",
            "fill=\"#e6edf3\">a &lt; b</text>",
            "fill=\"#ff7b72\" font-weight=\"bold\">bad &amp; red</text>",
            "fill=\"#e6edf3\">plain</text>",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains('\x1b'));
    }

    #[test]
    fn columns_stay_columns() {
        let svg = svg("ab \x1b[32mcd\x1b[0m");
        let x = format!("x=\"{:.1}\"", MARGIN + 3.0 * ADVANCE);
        assert!(svg.contains(&x), "{svg}");
    }
}
