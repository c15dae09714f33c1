//! The tables as a picture: two heat maps in SVG, beside each other.

use std::fmt::Write as _;

use super::matrix::{Matrix, Side, Trust};
use crate::output::figure;

/// Points of a cell.
const CELL: usize = 56;
/// Points around a map: for the numbers of members, and above for what it is.
const LEFT: usize = 48;
const TOP: usize = 92;
const BELOW: usize = 108;

/// A colour as red, green and blue.
type Color = [f64; 3];

/// From little to much.
const BLUES: [Color; 2] = [[232.0, 240.0, 250.0], [8.0, 64.0, 129.0]];
const REDS: [Color; 2] = [[253.0, 240.0, 230.0], [165.0, 30.0, 20.0]];

/// Draws both tables.
pub(super) fn draw(matrix: &Matrix) -> String {
    let map = LEFT + matrix.len() * CELL + 24;
    // What was measured must fit above a small map, and what is noise below it.
    let panel = map.max(520);
    let (width, height) = (2 * panel, TOP + matrix.len() * CELL + BELOW);
    let mut svg = Svg(String::new());
    svg.line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">"
    ));
    svg.line(format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"));
    let [bandwidth, latency] = matrix.sides();
    for (side, colors, x) in [(bandwidth, BLUES, 0), (latency, REDS, panel)] {
        svg.map(matrix, &side, colors, x);
    }
    svg.line(format_args!("</svg>"));
    svg.0
}

struct Svg(String);

impl Svg {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = writeln!(self.0, "{text}");
    }

    fn map(&mut self, matrix: &Matrix, side: &Side<'_>, colors: [Color; 2], x: usize) {
        let Side { name, unit, how, .. } = side;
        let (count, left) = (matrix.len(), x + LEFT);
        self.text((left, 24), "start", "black", &format!("{name} in {unit}"), 17);
        self.text((left, 44), "start", "#555", how, 12);
        self.text((left, 64), "start", "#555", "from each row to each column", 12);
        let range = side.range();
        for from in 0..count {
            let middle = from * CELL + CELL / 2;
            self.text((left - 10, TOP + middle + 5), "end", "black", &from.to_string(), 13);
            self.text((left + middle, TOP - 8), "middle", "black", &from.to_string(), 13);
            for to in 0..count {
                let place = (left + to * CELL, TOP + from * CELL);
                self.cell(matrix, side, (from, to), place, (range, colors));
            }
        }
        if let Some((least, most)) = range {
            self.legend(
                (left, TOP + count * CELL + 20),
                colors,
                &[figure(least), format!("{} {unit}", figure(most))],
            );
        }
        for (place, note) in side.notes().iter().enumerate() {
            self.text((left, TOP + count * CELL + 66 + 16 * place), "start", "#555", note, 12);
        }
    }

    fn cell(
        &mut self,
        matrix: &Matrix,
        side: &Side<'_>,
        (from, to): (usize, usize),
        (x, y): (usize, usize),
        (range, colors): (Option<(f64, f64)>, [Color; 2]),
    ) {
        let (value, unit, trust) = (side.at(from, to), side.unit, side.trust(from, to));
        let share = value.zip(range).map(|(value, range)| share(value, range));
        let edge = CELL - 2;
        let fill = share.map_or_else(|| "#eeeeee".to_owned(), |share| hex(mix(colors, share)));
        let addresses = matrix.addresses();
        let text = value.map_or_else(String::new, |value| format!("{}{}", figure(value), trust.mark()));
        let told = value.map_or_else(
            || "not measured".to_owned(),
            |value| {
                let beside = side.beside(from, to).map(|(name, value)| format!(", {name} {}", figure(value)));
                let noise = if trust == Trust::Noise { ", noise" } else { "" };
                format!("{} {unit}{}{noise}", figure(value), beside.collect::<String>())
            },
        );
        // What cannot be told from the others has a broken edge.
        let noisy = value.is_some() && trust == Trust::Noise;
        let stroke = if noisy { " stroke=\"#888\" stroke-width=\"2\" stroke-dasharray=\"4 3\"" } else { "" };
        self.line(format_args!(
            "<rect class=\"cell\" x=\"{x}\" y=\"{y}\" width=\"{edge}\" height=\"{edge}\" rx=\"3\" fill=\"{fill}\"{stroke}>\
             <title>{from} ({}) to {to} ({}): {told}</title></rect>",
            addresses[from], addresses[to]
        ));
        let ink = if share.is_some_and(|share| share > 0.5) { "white" } else { "black" };
        self.text((x + edge / 2, y + edge / 2 + 5), "middle", ink, &text, 13);
    }

    /// Which colour is how much.
    fn legend(&mut self, (x, y): (usize, usize), colors: [Color; 2], ends: &[String; 2]) {
        const STEPS: usize = 32;
        for step in 0..STEPS {
            let fill = hex(mix(colors, step as f64 / (STEPS - 1) as f64));
            self.line(format_args!(
                "<rect x=\"{}\" y=\"{y}\" width=\"5\" height=\"10\" fill=\"{fill}\"/>",
                x + 5 * step
            ));
        }
        self.text((x, y + 26), "start", "#555", &ends[0], 12);
        self.text((x + 5 * STEPS, y + 26), "end", "#555", &ends[1], 12);
    }

    fn text(&mut self, (x, y): (usize, usize), anchor: &str, fill: &str, text: &str, size: usize) {
        self.line(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{fill}\" font-size=\"{size}\">{text}</text>"
        ));
    }
}

/// Where a value lies between the least and the most, from 0 to 1.
fn share(value: f64, (least, most): (f64, f64)) -> f64 {
    if most > least { (value - least) / (most - least) } else { 0.5 }
}

fn mix([from, to]: [Color; 2], share: f64) -> Color {
    [0, 1, 2].map(|channel| from[channel] + (to[channel] - from[channel]) * share)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 255")]
fn hex(color: Color) -> String {
    let [red, green, blue] = color.map(|channel| channel.round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let addresses = [[127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 4]].map(Into::into);
        let mut matrix = Matrix::new(&addresses, 65_536, false);
        for (from, to, rates) in [(0, 1, [1e9, 1e9]), (1, 0, [3.1e9, 2.9e9]), (1, 2, [0.5e9, 3.5e9])] {
            rates.iter().for_each(|rate| matrix.cell(from, to).add_bandwidth(*rate));
        }
        matrix
    }

    #[test]
    fn every_pair_has_a_cell_in_its_colour() {
        let svg = draw(&matrix());
        assert_eq!(svg.matches("class=\"cell\"").count(), 2 * 9);
        let cell = |told: &str| svg.lines().find(|line| line.contains(told)).unwrap();
        assert!(cell("0 (127.0.0.2) to 1 (127.0.0.3): 1.00 GB/s").contains(&hex(BLUES[0])));
        assert!(cell("1 (127.0.0.3) to 0 (127.0.0.2): 3.00 GB/s").contains(&hex(BLUES[1])));
        assert!(cell("2 (127.0.0.4) to 1 (127.0.0.3): not measured").contains("#eeeeee"));
        assert!(svg.contains(">3.00 GB/s</text>"), "the legend");
        assert!(cell(": 3.00 GB/s, least repeat 2.90</title>").contains("rx=\"3\" fill"));
        let noise = cell("1 (127.0.0.3) to 2 (127.0.0.4): 2.00 GB/s, least repeat 0.50, noise</title>");
        assert!(noise.contains("stroke-dasharray"), "{noise}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "{svg}");
        assert!(svg.contains(">2.00~</text>") && svg.contains("~ 1 of 3 cells are noise"), "{svg}");
    }

    #[test]
    fn it_is_xml() {
        // Every element is closed, in the order in which they were opened.
        let svg = draw(&matrix());
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn one_value_is_in_the_middle() {
        assert!((share(5.0, (5.0, 5.0)) - 0.5).abs() < 1e-9);
        assert_eq!(hex([0.0, 127.6, 255.0]), "#0080ff");
    }
}
