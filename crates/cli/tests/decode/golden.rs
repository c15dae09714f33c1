//! Output that is compared with a file.

use std::path::Path;
use std::{env, fs};

/// Compares text with the golden file of this name.
#[track_caller]
pub(crate) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    for (line, (seen, expected)) in (1..).zip(text.lines().zip(expected.lines())) {
        assert_eq!(seen, expected, "line {line} of {name}; UPDATE_GOLDEN=1 rewrites it");
    }
    assert_eq!(text.len(), expected.len(), "length of {name}; UPDATE_GOLDEN=1 rewrites it");
}
