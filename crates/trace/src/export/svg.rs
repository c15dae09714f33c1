//! One operation as a picture for documents: light and dark, and nothing from elsewhere.

use std::fmt::Write as _;
use std::io::Write;

use super::operation::{Choice, Kind, Leg, Mark, Operation, operation};
use super::words::{duration, escaped};
use super::{ExportError, Summary};
use crate::timeline::Timeline;

/// Where things stand, in units of the picture.
const WIDTH: f64 = 940.0;
const LEFT: f64 = 242.0;
const RIGHT: f64 = 698.0;
const TOP: f64 = 116.0;
/// The height of a box.
const BOX: f64 = 42.0;
const BOX_WIDTH: f64 = 182.0;

const STYLE: &str = "
.back{fill:#fff}.ink{fill:#1b2026}.quiet{fill:#646d76}.rail{stroke:#aab2b9;stroke-width:1.2}
.box{fill:#eef3fb;stroke:#7f9fd1}.bad{fill:#fdeced;stroke:#c22f3a}.band{fill:#f1f2f0}
.request{stroke:#2a66c8}.answer{stroke:#3f8a80}.repeat{stroke:#b86e00}.lost{stroke:#c22f3a}
text.request,.tip.request{fill:#2a66c8}text.answer,.tip.answer{fill:#3f8a80}
text.repeat,.tip.repeat{fill:#b86e00}text.lost{fill:#c22f3a}
line,path{fill:none;stroke-width:1.7}.tip{stroke:none}
text.request,text.answer,text.repeat,text.lost{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
@media (prefers-color-scheme:dark){
.back{fill:#14191d}.ink{fill:#e4e8eb}.quiet{fill:#96a1ab}.rail{stroke:#58636d}
.box{fill:#1d2835;stroke:#4a6a97}.bad{fill:#3a1d20;stroke:#ff7d7f}.band{fill:#1c2227}
.request{stroke:#78aefb}.answer{stroke:#6fc3b4}.repeat{stroke:#efb04d}.lost{stroke:#ff7d7f}
text.request,.tip.request{fill:#78aefb}text.answer,.tip.answer{fill:#6fc3b4}
text.repeat,.tip.repeat{fill:#efb04d}text.lost{fill:#ff7d7f}
text.request,text.answer,text.repeat,text.lost{stroke:#14191d}}
";

/// Writes one operation as an SVG.
///
/// Times go from top to bottom; the longer nothing happens, the less it counts.
///
/// # Errors
/// No work request is the one that was asked for, or it cannot be written.
pub fn svg(
    timeline: &Timeline,
    choice: &Choice,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ExportError> {
    let (operation, summary) = operation(timeline, choice, progress)?;
    out.write_all(picture(&operation).as_bytes())?;
    out.flush()?;
    Ok(summary)
}

/// From times to places on the paper: those of two moments are a step apart at least.
struct Scale {
    places: Vec<(u64, f64)>,
    /// How long packets are under way.
    flight: u64,
}

impl Scale {
    fn new(operation: &Operation) -> Self {
        const STEP: f64 = 17.0;
        let known = operation.legs.iter().filter_map(|leg| leg.came?.checked_sub(leg.sent?));
        let flight = known.min().unwrap_or(2_000);
        let ends = operation.legs.iter().flat_map(|leg| ends(leg, flight));
        let mut moments: Vec<u64> = ends.chain(operation.marks.iter().map(|mark| mark.at)).collect();
        moments.sort_unstable();
        moments.dedup();
        let mut gaps: Vec<u64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable();
        let usual = gaps.get(gaps.len() / 2).copied().unwrap_or(1).max(1);
        let mut y = TOP;
        let mut places = Vec::with_capacity(moments.len());
        let mut before = None;
        for at in moments {
            if let Some(before) = before {
                y += STEP * stretch(at - before, usual);
            }
            places.push((at, y));
            before = Some(at);
        }
        Self { places, flight }
    }

    fn place(&self, at: u64) -> f64 {
        let next = self.places.partition_point(|(time, _)| *time < at);
        self.places.get(next).or(self.places.last()).map_or(TOP, |(_, y)| *y)
    }

    fn end(&self) -> f64 {
        self.places.last().map_or(TOP, |(_, y)| *y)
    }

    /// Where nothing happens for long: from, to, and how long.
    fn gaps(&self) -> impl Iterator<Item = (f64, f64, u64)> {
        const LONG: f64 = 70.0;
        self.places.windows(2).filter_map(|pair| {
            let [(before, top), (after, bottom)] = *pair else { return None };
            (bottom - top > LONG).then_some((top, bottom, after - before))
        })
    }
}

/// When a packet left and came; where one is not known, it was under way as long as others.
fn ends(leg: &Leg, flight: u64) -> [u64; 2] {
    let came = leg.came.filter(|_| leg.kind != Kind::Lost || leg.sent.is_none());
    let sent = leg.sent.or(came.map(|came| came.saturating_sub(flight))).unwrap_or(0);
    [sent, came.unwrap_or(sent.saturating_add(flight))]
}

/// How many steps a gap is: one up to the usual, and then one for each doubling.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn stretch(gap: u64, usual: u64) -> f64 {
    let ratio = gap as f64 / usual as f64;
    if ratio <= 1.0 { 1.0 } else { 1.0 + ratio.log2() * 0.75 }
}

fn picture(operation: &Operation) -> String {
    let scale = Scale::new(operation);
    let (boxes, low) = boxes(operation, &scale);
    let bottom = scale.end().max(low) + 26.0;
    let height = bottom + if operation.more > 0 || operation.is_local { 40.0 } else { 18.0 };
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"100%\" height=\"100%\" rx=\"10\"/>\n\
         <g font-family=\"system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif\" font-size=\"12\">\n",
        escaped(&operation.title)
    );
    let _ = writeln!(
        text,
        "<text class=\"ink\" x=\"{}\" y=\"34\" text-anchor=\"middle\" font-size=\"15\" font-weight=\"650\">{}</text>",
        WIDTH / 2.0,
        escaped(&operation.title)
    );
    for (top, bottom, gap) in scale.gaps() {
        let middle = f64::midpoint(top, bottom);
        let _ = writeln!(
            text,
            "<rect class=\"band\" x=\"24\" y=\"{:.1}\" width=\"{}\" height=\"18\" rx=\"4\"/>\
             <text class=\"quiet\" x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{} later</text>",
            middle - 9.0,
            WIDTH - 48.0,
            WIDTH / 2.0,
            middle + 4.0,
            duration(gap)
        );
    }
    let ends = [LEFT, RIGHT].into_iter().zip(&operation.ends).filter(|(_, [process, _])| !process.is_empty());
    for (x, [process, pair]) in ends {
        let _ = writeln!(
            text,
            "<line class=\"rail\" x1=\"{x}\" y1=\"98\" x2=\"{x}\" y2=\"{bottom:.1}\"/>\
             <text class=\"ink\" x=\"{x}\" y=\"70\" text-anchor=\"middle\" font-size=\"13\" font-weight=\"600\">{}</text>\
             <text class=\"quiet\" x=\"{x}\" y=\"88\" text-anchor=\"middle\">{}</text>",
            escaped(process),
            escaped(pair)
        );
    }
    operation.legs.iter().for_each(|leg| arrow(&mut text, leg, &scale, operation.start));
    text.push_str(&boxes);
    let below = match (operation.is_local, operation.more) {
        (true, _) => Some("no packets: it stayed in its process".to_owned()),
        (false, 0) => None,
        (false, more) => Some(format!("and {more} more packets")),
    };
    if let Some(below) = below {
        let _ = writeln!(
            text,
            "<text class=\"quiet\" x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\">{below}</text>",
            WIDTH / 2.0,
            height - 16.0
        );
    }
    text.push_str("</g>\n</svg>\n");
    text
}

/// The arrow of a packet, with its name along it.
fn arrow(text: &mut String, leg: &Leg, scale: &Scale, start: u64) {
    let [y0, y1] = ends(leg, scale.flight).map(|at| scale.place(at));
    let (x0, x1) = if leg.is_answer { (RIGHT, LEFT) } else { (LEFT, RIGHT) };
    let (class, is_lost) = match leg.kind {
        Kind::Request => ("request", false),
        Kind::Answer => ("answer", false),
        Kind::Repeat => ("repeat", false),
        Kind::Lost => ("lost", true),
    };
    let part = if is_lost { 0.64 } else { 1.0 };
    let (x, y) = (x0 + (x1 - x0) * part, y0 + (y1 - y0) * part);
    let turn = (y - y0).atan2(x - x0);
    let _ =
        write!(text, "<g><line class=\"{class}\" x1=\"{x0}\" y1=\"{y0:.1}\" x2=\"{x:.1}\" y2=\"{y:.1}\"/>");
    let around = turn.to_degrees();
    if is_lost {
        let _ = write!(
            text,
            "<path class=\"lost\" transform=\"translate({x:.1} {y:.1})\" d=\"M-5-5 5 5M5-5-5 5\"/>"
        );
    } else {
        let _ = write!(
            text,
            "<path class=\"tip {class}\" transform=\"translate({x:.1} {y:.1}) rotate({around:.2})\" d=\"M1 0-9-4-9 4z\"/>"
        );
    }
    let flat = if leg.is_answer { around - 180.0 } else { around };
    let (middle_x, middle_y) = (f64::midpoint(x0, x), f64::midpoint(y0, y));
    let fate = leg.fate.filter(|_| !is_lost).map(|fate| format!(", {fate}")).unwrap_or_default();
    let words = escaped(&format!("{}{fate}", leg.text));
    if let Some(fate) = leg.fate.filter(|_| is_lost) {
        let (away, anchor) = if leg.is_answer { (-12.0, "end") } else { (12.0, "start") };
        let _ = write!(
            text,
            "<text class=\"lost\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"10.5\">{fate}</text>",
            x + away,
            y + 4.0
        );
    }
    let place = format!("translate({middle_x:.1} {middle_y:.1}) rotate({flat:.2})");
    let _ = writeln!(
        text,
        "<text class=\"{class}\" transform=\"{place}\" y=\"-4\" text-anchor=\"middle\" font-size=\"11\">{words}</text>\
         <title>{words}, after {}</title></g>",
        duration(leg.first_at().saturating_sub(start))
    );
}

/// What happened at each end, beside its line; and how far down it goes.
fn boxes(operation: &Operation, scale: &Scale) -> (String, f64) {
    let mut text = String::new();
    let mut low = [TOP - BOX; 2];
    for mark in &operation.marks {
        let side = usize::from(mark.is_peer);
        let exact = scale.place(mark.at);
        let height = if mark.lines.len() > 1 { BOX } else { 24.0 };
        let y = (exact - height / 2.0).max(low[side] + 6.0);
        low[side] = y + height;
        mark_box(&mut text, mark, exact, y, height);
    }
    (text, low[0].max(low[1]))
}

fn mark_box(text: &mut String, mark: &Mark, exact: f64, y: f64, height: f64) {
    const AWAY: f64 = 26.0;
    let (x, edge, lane) = if mark.is_peer {
        (RIGHT + AWAY, RIGHT + AWAY, RIGHT)
    } else {
        (LEFT - AWAY - BOX_WIDTH, LEFT - AWAY, LEFT)
    };
    let class = if mark.is_bad { "box bad" } else { "box" };
    let middle = x + BOX_WIDTH / 2.0;
    let _ = write!(
        text,
        "<g><path class=\"rail\" d=\"M{lane} {exact:.1}L{edge} {:.1}\"/><circle class=\"{class}\" cx=\"{lane}\" \
         cy=\"{exact:.1}\" r=\"4\"/><rect class=\"{class}\" x=\"{x}\" y=\"{y:.1}\" width=\"{BOX_WIDTH}\" \
         height=\"{height}\" rx=\"6\"/>",
        y + height / 2.0
    );
    for (line, words) in mark.lines.iter().enumerate() {
        let (class, weight) = if line == 0 { ("ink", " font-weight=\"600\"") } else { ("quiet", "") };
        let down = if line == 0 { 16.0 } else { 32.0 };
        let _ = write!(
            text,
            "<text class=\"{class}\" x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\"{weight}>{}</text>",
            y + down,
            escaped(words)
        );
    }
    let _ = writeln!(text, "<title>{}</title></g>", mark.name);
}
