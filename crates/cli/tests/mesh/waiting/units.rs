//! The units for systemd are ones, and their command lines are those of `ferroce`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_testkit::judge;

const PROGRAM: &str = "/usr/local/bin/ferroce";

/// The units, with the program that was just built in the place of the one that is to be installed.
fn units() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mesh/systemd");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let units: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "service"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(text.matches(PROGRAM).count(), 1, "{}", path.display());
            (path, text.replace(PROGRAM, env!("CARGO_BIN_EXE_ferroce")))
        })
        .collect();
    assert_eq!(units.len(), 3);
    units
}

#[test]
fn systemd_accepts_the_units() {
    if !judge::is_here("systemd-analyze") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mesh-units-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (path, text) in units() {
        let copy = folder.join(path.file_name().unwrap());
        fs::write(&copy, text).unwrap();
        let output =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // Of units of this machine it may have something to say, too.
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(output.status.success() && !said.contains(name), "{name}: {said}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn each_option_in_the_units_is_one() {
    let values =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mesh/systemd/mesh.env"));
    let values: Vec<(String, String)> = values
        .unwrap()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap())
        .chain(
            ["CREDENTIALS_DIRECTORY", "STATE_DIRECTORY"].map(|name| (name.to_owned(), "/run/x".to_owned())),
        )
        .collect();
    for (path, text) in units() {
        let text = text.replace("\\\n", " ");
        let mut line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap().to_owned();
        for (name, value) in &values {
            line = line.replace(&format!("${{{name}}}"), value);
        }
        assert!(!line.contains('$'), "{line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        // With --help at the end, all before it is read and nothing is done.
        let output = Command::new(words[0]).args(&words[1..]).arg("--help").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", path.display());
        let output = Command::new(words[0]).args(&words[1..]).args(["--no-such", "--help"]).output().unwrap();
        assert!(!output.status.success(), "options are read before --help");
    }
}
