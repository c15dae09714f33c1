//! Programs that run already.

use ferroce_record::{Mode, Trace};

use crate::program::{Program, alone, connected};
use crate::support::{Folder, trace};

fn start(address: &str) -> (Program, String) {
    Program::start(alone(), address)
}

#[test]
fn a_program_that_hangs_because_its_peer_posted_no_receive_is_explained() {
    let (mut sender, mut receiver) = connected(start("127.0.158.11"), start("127.0.158.12"));
    sender.does("send");
    let (here, there) = (sender.pid().to_string(), receiver.pid().to_string());
    let told = trace(&[&"explain", &"--attach", &here, &"--for", &"300ms"]);
    assert_eq!(told.code, Some(0), "nothing has failed yet: {told:?}");
    for text in [
        "1 send(s) that are not over, the oldest (SEND 0) for more than ",
        "because: the peer has posted no receive: ",
    ] {
        assert!(told.out.contains(text), "{text:?} is not in {told:?}");
    }
    // From the side of the peer, as JSON.
    let told = trace(&[&"explain", &"--json", &"--attach", &there, &"--for", &"300ms"]);
    let json = told.json();
    let finding = &json["findings"][0];
    assert_eq!(
        (told.code, &finding["severity"], &json["has_error"]),
        (Some(0), &"warning".into(), &false.into())
    );
    assert!(finding["text"].as_str().unwrap().contains("answered RNR NAK"), "{json}");
    assert_eq!(finding["because"][0], "messages came while no receive was posted");
    let second = finding["because"][1].as_str().unwrap();
    assert!(
        second.ends_with(" was empty as the record began, and no receive was posted to it since"),
        "{json}"
    );
    // It goes on where the peer posts one, and nothing is left of having been looked at.
    receiver.does("receive");
    receiver.does("wait");
    sender.does("wait");
    for pid in [&here, &there] {
        let named = |entry: std::fs::DirEntry| {
            entry.file_name().to_string_lossy().contains(&format!("attach-{pid}-"))
        };
        assert!(!std::fs::read_dir(std::env::temp_dir()).unwrap().any(|entry| named(entry.unwrap())));
    }
    for program in [sender, receiver] {
        assert_eq!(program.end().0, Some(0));
    }
}

#[test]
fn a_program_is_recorded_from_now_on_and_until_it_is_told() {
    let folder = Folder::new("attach");
    let (mut writer, target) = connected(start("127.0.158.13"), start("127.0.158.14"));
    writer.does("write 100");
    let file = folder.path("now.ftrace");
    let pid = writer.pid().to_string();
    // The stream goes on until it is killed.
    writer.does("stream");
    let told = trace(&[&"--attach", &pid, &"-o", &file, &"--for", &"200ms"]);
    assert_eq!((told.code, told.out.as_str()), (Some(0), ""), "{told:?}");
    assert!(told.err.contains(&format!(", process {pid}\n")), "{told:?}");
    let record = Trace::open(&file).unwrap();
    assert!(record.header().has_ended && record.header().pid == writer.pid() && record.len() > 100);
    // It can be recorded again, into the same file: that of the last time makes room.
    let told = trace(&[
        &"--attach",
        &pid,
        &"-o",
        &file,
        &"--for",
        &"50ms",
        &"--flight",
        &"1",
        &"--sample",
        &"1/10",
        &"--json",
    ]);
    let json = told.json();
    assert_eq!((told.code, &json["records"][0]["pid"]), (Some(0), &writer.pid().into()), "{told:?}");
    let record = Trace::open(&file).unwrap();
    assert_eq!((record.header().mode, record.header().sample), (Mode::Flight, 10));
    let told = trace(&[&"stats", &file]);
    assert!(told.err.contains("has one of 10 work requests"), "{told:?}");
    // The peer records nothing, which is said where a copy is wanted.
    let told =
        trace(&[&"--attach", &target.pid().to_string(), &"--dump", &"-o", &folder.path("dump.ftrace")]);
    assert!(told.failure().contains("it records nothing"), "{told:?}");
    assert_eq!(folder.names(), ["now.ftrace"]);
}

#[test]
fn a_flight_recorder_is_copied_while_it_goes_on() {
    let folder = Folder::new("dump");
    let file = folder.path("flight.ftrace");
    let recorded = Program::recorded(&file, Some("1"), "127.0.158.15");
    let (mut writer, _target) = connected(recorded, start("127.0.158.16"));
    let pid = writer.pid().to_string();
    writer.does("write 20");
    for messages in [20, 520] {
        let copy = folder.path("copy.ftrace");
        let told = trace(&[&"--attach", &pid, &"--dump", &"-o", &copy]);
        assert_eq!(told.code, Some(0), "{told:?}");
        let told = trace(&[&"stats", &"--json", &"--op", &"write", &copy]);
        assert_eq!(told.json()["operations"][0]["count"], messages, "{told:?}");
        let told = trace(&[&"explain", &copy]);
        assert_eq!(told.code, Some(0), "{told:?}");
        writer.does("write 500");
    }
    // It records already: a moment of it is what it has, and another record is refused.
    let told = trace(&[&"stats", &"--attach", &pid]);
    assert!(told.code == Some(0) && told.err.contains("records already"), "{told:?}");
    let told = trace(&[&"--attach", &pid, &"-o", &folder.path("more.ftrace")]);
    let expected = format!("it records already, into {}", file.display());
    assert!(told.failure().contains(&expected), "{told:?}");
    assert_eq!(writer.end().0, Some(0));
    assert!(Trace::open(&file).unwrap().header().has_ended);
}
