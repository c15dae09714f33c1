//! Round trips over time, as a picture.

use std::fmt::Write as _;
use std::time::Duration;

use super::figures::{Figures, Point};
use crate::output::figure;

/// Points of the picture, and of its edges.
const SIZE: [f64; 2] = [960.0, 420.0];
const LEFT: f64 = 76.0;
const TOP: f64 = 48.0;
const BELOW: f64 = 44.0;
const RIGHT: f64 = 24.0;

/// Lines across.
const LINES: u32 = 5;

/// Draws a dot for each probe, by when it was sent and how long its round trip was; lost ones at the top edge.
pub(super) fn draw(title: &str, figures: &Figures) -> String {
    let points: &[Point] = figures.points.as_deref().unwrap_or_default();
    let time = figures.time().max(Duration::from_millis(1)).as_secs_f64();
    let longest =
        points.iter().filter_map(|point| point.round_trip).max().unwrap_or(Duration::from_micros(1));
    // A single outlier must not press all others to the floor: it is cut off at ten times the p99, and says so.
    let usual = Duration::from_nanos(figures.round_trip.value_at_quantile(0.99).saturating_mul(10).max(1000));
    let top = micros(longest.min(usual)) * 1.05;
    let [width, height] = SIZE;
    let (across, up) = (width - LEFT - RIGHT, height - TOP - BELOW);
    let x = |at: Duration| LEFT + at.as_secs_f64() / time * across;
    let y = |value: f64| TOP + up - (value / top).min(1.0) * up;
    let mut svg = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        // A string takes everything.
        let _ = writeln!(svg, "{text}");
    };
    line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
    ));
    line(format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"));
    let lost = points.iter().filter(|point| point.round_trip.is_none()).count();
    line(format_args!(
        "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\">Round trips to {}: {} probes, {lost} lost</text>",
        escaped(title),
        points.len()
    ));
    for step in 0..=LINES {
        let value = top * f64::from(step) / f64::from(LINES);
        let at = y(value);
        line(format_args!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            width - RIGHT
        ));
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{} us</text>",
            LEFT - 8.0,
            at + 4.0,
            figure(value)
        ));
        let seconds = time * f64::from(step) / f64::from(LINES);
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{} s</text>",
            LEFT + across * f64::from(step) / f64::from(LINES),
            height - 16.0,
            figure(seconds)
        ));
    }
    let mut ports: Vec<u16> = points.iter().map(|point| point.port).collect();
    ports.sort_unstable();
    ports.dedup();
    for point in points {
        let hue = ports.binary_search(&point.port).map_or(0, |place| place * 360 / ports.len().max(1));
        match point.round_trip {
            Some(round_trip) => line(format_args!(
                "<circle class=\"probe\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\" fill=\"hsl({},70%,40%)\"/>",
                x(point.at),
                y(micros(round_trip)),
                (hue + 215) % 360
            )),
            None => line(format_args!(
                "<path class=\"lost\" d=\"M{:.1} {TOP}v8\" stroke=\"#c00\" stroke-width=\"2\"/>",
                x(point.at)
            )),
        }
    }
    line(format_args!("</svg>"));
    svg
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
