//! What cannot be recorded, and how that is said.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ferroce_testkit::judge;
use ferroce_testkit::neighbour::user;

use crate::program::{Program, alone};
use crate::support::{Folder, Out, command, trace};

#[test]
fn a_program_that_opens_no_device_or_is_none_is_said_in_one_line() {
    let folder = Folder::new("none");
    let file = folder.path("run.ftrace");
    let told = trace(&[&"-o", &file, &"--", &"true"]);
    assert_eq!(told.failure(), "ferroce: the program opened no device: nothing was recorded");
    let told = trace(&[&"-o", &file, &"--", &"false"]);
    assert_eq!(told.failure(), "ferroce: the program opened no device: nothing was recorded");
    let told = trace(&[&"-o", &file, &"--", &"no-such-program"]);
    assert!(told.failure().starts_with("ferroce: no-such-program cannot be run: "), "{told:?}");
    assert!(folder.names().is_empty());
    for wrong in [&["-o", "x"][..], &["--for", "1", "--", "true"], &["--attach", "1", "--", "true"]] {
        let words: Vec<&dyn AsRef<std::ffi::OsStr>> = wrong.iter().map(|word| word as _).collect();
        let told = trace(&words);
        assert_eq!(told.code, Some(2), "{told:?}");
    }
}

#[test]
fn processes_that_cannot_be_attached_to_are_said_in_one_line() {
    let folder = Folder::new("whom");
    let file = folder.path("run.ftrace");
    let refused = |pid: &str, text: &str| {
        for words in [&["explain", "--attach", pid][..], &["--attach", pid, "-o", file.to_str().unwrap()]] {
            let words: Vec<&dyn AsRef<std::ffi::OsStr>> = words.iter().map(|word| word as _).collect();
            let told = trace(&words);
            assert!(told.failure().contains(text), "{told:?}");
        }
    };
    // Numbers of processes end far before.
    refused("4294967", "there is no process 4294967");
    let mut quiet = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    refused(&quiet.id().to_string(), "has no device open");
    quiet.kill().unwrap();
    quiet.wait().unwrap();
    assert!(folder.names().is_empty());
}

#[test]
fn the_program_of_another_user_is_none_of_ours() {
    let (mut command, is_other) = user::this_program().unwrap();
    if !is_other {
        return;
    }
    command.args(crate::program::WORDS);
    crate::support::without_settings(&mut command);
    let (program, _) = Program::start(command, "127.0.159.11");
    let told = trace(&[&"explain", &"--attach", &program.pid().to_string()]);
    assert!(told.failure().contains("belongs to another user (uid "), "{told:?}");
}

#[test]
fn nothing_but_a_record_that_is_over_makes_room() {
    let folder = Folder::new("room");
    let refused = |name: &str, text: &str| {
        let path = folder.path(name);
        let told = trace(&[&"-o", &path, &"--", &"true"]);
        assert!(told.failure().contains(text), "{told:?}");
    };
    refused("nowhere/run.ftrace", "there is no folder ");
    fs::write(folder.path("letter"), "dear diary").unwrap();
    refused("letter", "letter is not replaced: ");
    assert_eq!(fs::read(folder.path("letter")).unwrap(), b"dear diary");
    fs::create_dir(folder.path("folder")).unwrap();
    refused("folder", "it is no file");
    // Not even root replaces what is behind a link, or no file at all.
    std::os::unix::fs::symlink("letter", folder.path("link")).unwrap();
    refused("link", "it is no file");
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    refused("pipe", "it is no file");

    let file = folder.path("run.ftrace");
    let (program, _) = Program::recorded(&file, None, "127.0.159.12");
    refused("run.ftrace", &format!("run.ftrace is not replaced: process {} writes it", program.pid()));
    let told = trace(&[&"show", &file]);
    assert!(
        told.code == Some(0) && told.err.contains("is still being written, or its program was killed"),
        "{told:?}"
    );
    let told = trace(&[&"--attach", &program.pid().to_string(), &"--dump", &"-o", &file]);
    assert!(told.failure().contains("is the record itself"), "{told:?}");
    program.kill();
    // One that no program writes any more makes room, with all beside it.
    fs::copy(&file, folder.path("run.2.ftrace")).unwrap();
    let told = trace(&[&"-o", &file, &"--", &"true"]);
    assert!(told.failure().contains("opened no device"), "{told:?}");
    assert_eq!(folder.names(), ["folder", "letter", "link", "pipe"]);
}

/// Says to the test below where a small disk is: it runs again, in a mount namespace that has one.
const SMALL_DISK: &str = "FERROCE_TEST_SMALL_DISK";

#[test]
fn a_full_disk_is_an_error_as_the_device_is_opened() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return on_a_small_disk(Path::new(&disk));
    }
    let disk = Folder::new("disk");
    let inside =
        "mount -t tmpfs -o size=3m tmpfs \"$FERROCE_TEST_SMALL_DISK\" || exit 77; exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.arg("--mount").args((!is_root()).then_some("--map-root-user"));
    let output = command
        .args(["sh", "-c", inside])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "wrong::a_full_disk_is_an_error_as_the_device_is_opened", "--nocapture"])
        .env(SMALL_DISK, disk.path(""))
        .output()
        .unwrap();
    if !judge::has_namespaces(output.status.code() != Some(77)) {
        return;
    }
    let told = Out::of(output);
    assert!(told.code == Some(0) && told.out.contains("1 passed"), "{}\n{}", told.out, told.err);
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0)
}

fn on_a_small_disk(disk: &Path) {
    let file = disk.join("run.ftrace");
    // The whole record has no room at all: the program says so, and so does `ferroce trace`.
    let mut whole = command(&[&"-o", &file, &"--"]);
    whole.arg(std::env::current_exe().unwrap()).args(crate::program::WORDS);
    let (program, said) = Program::start(whole, "127.0.159.13");
    assert!(
        said.starts_with("no device: ") && said.ends_with("No space left on device (os error 28)"),
        "{said}"
    );
    let (code, said) = program.end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("nothing was recorded: cannot make ") && said.contains("No space left"), "{said}");
    assert!(!file.exists());
    // A program that runs hears it too, and goes on.
    let (mut running, line) = Program::start(alone(), "127.0.159.13");
    let pid = running.pid().to_string();
    let told = trace(&[&"--attach", &pid, &"-o", &file, &"--for", &"10ms"]);
    assert!(told.failure().contains("No space left on device"), "{told:?}");
    // A small flight recorder fits, and what fills the disk later does it no harm.
    let small = disk.join("small.ftrace");
    let (mut recorded, other) = Program::recorded(&small, Some("1"), "127.0.159.14");
    running.does(&format!("connect {other}"));
    recorded.does(&format!("connect {line}"));
    assert!(fs::write(disk.join("rest"), vec![0; 4 << 20]).is_err(), "it is full now");
    recorded.does("write 2000");
    assert_eq!(recorded.end().0, Some(0));
    assert_eq!(trace(&[&"explain", &small]).code, Some(0));
    assert_eq!(running.end().0, Some(0));
}
