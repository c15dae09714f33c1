//! What benchmarks say to `cargo xtask bench pairs`: a JSON object in each line.

use serde_json::json;

/// A figure of ours, measured once, as a line.
#[must_use]
pub fn sample(figure: &str, unit: &str, value: f64) -> String {
    json!({ "kind": "sample", "side": "ours", "figure": figure, "unit": unit, "value": value }).to_string()
}
