//! Secrets as they are made, and as brokers take them.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process;

use ferroce::broker::Secret;

use crate::run::ferroce;

#[test]
fn a_secret_that_is_printed_is_one_that_brokers_take() {
    let [one, other] = [(), ()].map(|()| ferroce(&["secret"]).success().stdout);
    assert_eq!(one.lines().count(), 1, "{one}");
    assert_eq!(one.parse::<Secret>().unwrap().reveal(), one.trim_end());
    assert_ne!(one, other);
}

#[test]
fn a_file_with_a_secret_is_its_owners_alone_and_never_written_over() {
    let path = env::temp_dir().join(format!("ferroce-secret-command-{}", process::id()));
    let make = || ferroce(&["secret", "--file", path.to_str().unwrap()]);
    assert_eq!(make().success().stdout, "", "nothing is shown");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = Secret::from_file(&path).unwrap();
    let out = make();
    assert!(out.failure().contains("a file that is there is left alone"), "{}", out.stderr);
    assert_eq!(Secret::from_file(&path).unwrap().reveal(), secret.reveal());
    fs::remove_file(&path).unwrap();
    // A link that leads to nothing yet could lead anywhere.
    let target = path.with_extension("target");
    symlink(&target, &path).unwrap();
    let out = make();
    let is_written = target.exists();
    fs::remove_file(&path).unwrap();
    assert!(!is_written && out.failure().contains("cannot write"), "{}", out.stderr);
}
