//! A C compiler is asked how the structures of the installed headers lie in memory, and what their numbers are.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use ferroce_cabi::{Layout, cm, constants, layouts};
use ferroce_testkit::judge;

#[test]
fn every_field_lies_where_c_has_it_and_every_number_is_the_same() {
    if !judge::is_here("gcc") || !judge::has_file("/usr/include/infiniband/verbs.h") {
        return;
    }
    compare("layout", "infiniband/verbs.h", layouts(), constants(), 500);
}

#[test]
fn so_it_is_for_connection_management() {
    if !judge::is_here("gcc") || !judge::has_file("/usr/include/rdma/rdma_cma.h") {
        return;
    }
    compare("layout-cm", "rdma/rdma_cma.h", cm::all_layouts(), cm::constants(), 100);
}

/// Has C say how these structures lie in memory and what these numbers are: at least so many facts.
fn compare(
    name: &str,
    header: &str,
    layouts: Vec<Layout>,
    constants: Vec<(&'static str, i128)>,
    at_least: usize,
) {
    let (program, expected) = program(header, layouts, constants);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, program).unwrap();
    let compiled = Command::new("gcc").arg("-o").arg(&binary).arg(&source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(expected.len() > at_least, "only {} things to compare", expected.len());
    let differing: Vec<_> =
        expected.iter().zip(told.lines()).filter(|(ours, theirs)| ours.as_str() != *theirs).collect();
    assert!(differing.is_empty(), "ours and C's: {differing:#?}");
    assert_eq!(expected.len(), told.lines().count());
}

/// A C program that prints offsets, sizes and numbers, and what it has to print.
fn program(
    header: &str,
    layouts: Vec<Layout>,
    constants: Vec<(&'static str, i128)>,
) -> (String, Vec<String>) {
    let (mut c, mut expected) = (String::new(), Vec::new());
    let _ = write!(c, "#include <stdio.h>\n#include <stddef.h>\n#include <{header}>\nint main(void) {{\n");
    for layout in layouts {
        let name = layout.name;
        let _ = writeln!(c, "printf(\"{name} %zu\\n\", sizeof({name}));");
        expected.push(format!("{name} {}", layout.size));
        for (field, offset, size) in layout.fields {
            let field = field.trim_start_matches("r#");
            let _ = writeln!(
                c,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));"
            );
            expected.push(format!("{name}.{field} {offset} {size}"));
        }
    }
    for (name, value) in constants {
        let _ = writeln!(c, "printf(\"{name} %lld\\n\", (long long)({name}));");
        expected.push(format!("{name} {value}"));
    }
    c.push_str("return 0;\n}\n");
    (c, expected)
}
