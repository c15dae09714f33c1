//! Our own programs under `ferroce trace`.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;

use ferroce_record::{Mode, Trace};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::program::{Program, WORDS, alone, connected};
use crate::support::{Folder, command, trace};

/// The program under `ferroce trace` with these words.
fn under(words: &[&dyn AsRef<OsStr>], address: &str) -> (Program, String) {
    let mut command = command(words);
    command.arg("--").arg(std::env::current_exe().unwrap()).args(WORDS).process_group(0);
    Program::start(command, address)
}

#[test]
fn the_exit_code_of_the_program_is_handed_on() {
    let folder = Folder::new("code");
    let file = folder.path("run.ftrace");
    for (order, code) in [("exit 0", 0), ("exit 7", 7)] {
        let (mut program, _) = under(&[&"-o", &file], "127.0.158.21");
        program.begins(order);
        let (ended, said) = program.end();
        assert_eq!(ended, Some(code), "{said}");
        assert!(said.contains("run.ftrace: ") && said.contains(" events; "), "{said}");
        assert!(
            said.ends_with(&format!("what went wrong: ferroce trace explain {}\n", file.display())),
            "{said}"
        );
        assert_eq!(folder.names(), ["run.ftrace"], "the one of the last run made room");
    }
    let told = trace(&[&"-o", &file, &"--", &"sh", &"-c", &"kill -9 $$"]);
    assert_eq!(told.code, Some(137), "as a shell has it: {told:?}");
    assert!(told.err.contains("signal 9"), "{told:?}");
}

#[test]
fn ctrl_c_ends_the_program_and_its_record_is_told() {
    let folder = Folder::new("ctrl-c");
    let file = folder.path("run.ftrace");
    let target = Program::start(alone(), "127.0.158.23");
    let (mut program, _target) = connected(under(&[&"-o", &file], "127.0.158.22"), target);
    program.does("write 50");
    program.does("stream");
    // As a terminal does it: to the command and the program.
    let group = Pid::from_raw(i32::try_from(program.pid()).unwrap()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    let (ended, said) = program.end();
    assert_eq!(ended, Some(130), "{said}");
    assert!(said.contains("run.ftrace: ") && said.contains("signal 2"), "{said}");
    let told = trace(&[&"stats", &"--json", &"--op", &"write", &file]);
    assert!(told.json()["operations"][0]["count"].as_u64().unwrap() >= 50, "{told:?}");
}

#[test]
fn a_wish_to_end_is_handed_on_to_the_program() {
    let folder = Folder::new("term");
    let file = folder.path("run.ftrace");
    let (program, _) = under(&[&"-o", &file], "127.0.158.26");
    // To the command alone, as a service manager does it.
    let command = Pid::from_raw(i32::try_from(program.pid()).unwrap()).unwrap();
    kill_process(command, Signal::TERM).unwrap();
    // It does not wait for an end of its orders.
    let (ended, said) = program.ends();
    assert_eq!(ended, Some(143), "{said}");
    assert!(said.contains("run.ftrace: ") && said.contains("signal 15"), "{said}");
}

#[test]
fn a_share_of_the_work_and_a_flight_recorder_are_recorded_and_said() {
    let folder = Folder::new("share");
    let file = folder.path("share.ftrace");
    let target = Program::start(alone(), "127.0.158.25");
    let (mut program, target) =
        connected(under(&[&"-o", &file, &"--sample", &"1/10"], "127.0.158.24"), target);
    program.does("write 200");
    assert_eq!(program.end().0, Some(0));
    let told = trace(&[&"stats", &"--json", &file]);
    let writes = &told.json()["operations"][0]["count"];
    assert_eq!((told.code, writes), (Some(0), &20.into()), "{told:?}");
    assert!(told.err.contains("share.ftrace has one of 10 work requests\n"), "{told:?}");
    assert_eq!(target.end().0, Some(0));

    let file = folder.path("flight.ftrace");
    let target = Program::start(alone(), "127.0.158.25");
    let (mut program, target) = connected(under(&[&"-o", &file, &"--flight", &"1"], "127.0.158.24"), target);
    program.does("write 3000");
    assert_eq!(program.end().0, Some(0));
    assert!(Trace::open(&file).is_ok_and(|record| record.header().mode == Mode::Flight));
    let told = trace(&[&"explain", &file]);
    assert!(told.err.contains("flight.ftrace is of a flight recorder: the last "), "{told:?}");
    assert_eq!(target.end().0, Some(0));
}
