//! `ferroce trace` as a user meets it: the real binary, on records of one process and of two, and on files that are none.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ferroce_record::{
    Completed, CompletedFlags, Doorbell, Event, HEADERS, Mode, Packet, PacketFlags, Polled, Posted,
    PostedFlags, Queue, QueuePair, RecordConfig, Recorder, Region, RegionKind, Step, Way, WorkOp,
};
use ferroce_transport::{Access, State, Status, VendorCode, WorkKind};
use ferroce_wire::{Lkey, Qpn, Rkey, Service};
use serde_json::Value;

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ferroce-trace-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a record of these events, ten microseconds apart.
    fn record(&self, name: &str, events: &[Event]) -> PathBuf {
        let path = self.path(name);
        let config = RecordConfig { bytes: 1 << 20, ..RecordConfig::new(Mode::Whole, "a program") };
        let recorder = Recorder::create(&path, &config).unwrap();
        write(&recorder, events);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(recorder: &Recorder, events: &[Event]) {
    let mut ring = recorder.engine_ring().unwrap();
    for (number, event) in (1..).zip(events) {
        ring.push(number * 10_000, event);
    }
}

/// What a run left behind: exit code, standard output, standard error.
fn trace(args: &[&dyn AsRef<OsStr>]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.arg("trace").args(args.iter().map(AsRef::as_ref));
    let out = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

const HERE: Qpn = Qpn::new(0x11);
const THERE: Qpn = Qpn::new(0x22);

fn connected(qpn: Qpn, peer: Qpn) -> [Event; 2] {
    let address = |qpn: Qpn| [10, 0, 0, qpn.get().to_be_bytes()[3]].into();
    let (service, state, step) = (Service::Rc, State::Rts, Step::Made);
    let pair = QueuePair {
        qpn,
        step,
        service,
        state,
        send_cq: 1,
        receive_cq: 1,
        shared: None,
        sends: 8,
        receives: 8,
    };
    let (local, remote) = (address(qpn), address(peer));
    [pair.into(), Way { qpn, peer, local, remote, port: 0, mtu: 1024, is_local: false }.into()]
}

fn packet(qpn: Qpn, flags: PacketFlags, work: u32, dest: Qpn, syndrome: Option<u8>) -> Event {
    let mut headers = vec![if syndrome.is_some() { 0x11 } else { 0x0a }, 0x40, 0xff, 0xff, 0];
    headers.extend(&dest.get().to_be_bytes()[1..]);
    headers.push(0x80);
    headers.extend(&work.to_be_bytes()[1..]);
    match syndrome {
        Some(syndrome) => headers.extend([syndrome, 0, 0, 1]),
        None => headers.extend([0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0x77, 0, 0, 0, 64]),
    }
    let payload = if syndrome.is_some() { 0 } else { 64 };
    let packet = Packet { qpn, flags, work, payload, headers_len: 0, repeat: 0, headers: [0; HEADERS] };
    packet.with_headers(&headers).0.into()
}

/// A WRITE that ends well, or that the peer refuses.
fn write_request(work: u32, status: Status) -> Vec<Event> {
    let queue = Queue::Send(HERE);
    let id = u64::from(work) + 0x100;
    let posted = Posted {
        queue,
        work,
        id,
        op: WorkOp::Write,
        flags: PostedFlags::SIGNALED,
        pieces: 1,
        length: 64,
        address: 0x1000,
        lkey: Lkey(5),
        remote: 0x20_0000,
        key: Rkey(0x77),
        imm: 0,
    };
    let completed = Completed {
        queue,
        work,
        id,
        status,
        vendor_code: VendorCode::ALL.iter().copied().find(|code| code.status() == status),
        kind: WorkKind::Write,
        flags: CompletedFlags::empty(),
        byte_len: 0,
        imm: 0,
        cq: 1,
        qpn: HERE,
        source_qp: 0,
        invalidated: Rkey(0),
    };
    let syndrome = if status == Status::Success { 0x1f } else { 0x62 };
    vec![
        posted.into(),
        Doorbell { queue, first: work, count: 1 }.into(),
        packet(HERE, PacketFlags::OUT | PacketFlags::WORK, work, THERE, None),
        packet(HERE, PacketFlags::WORK, work, HERE, Some(syndrome)),
        completed.into(),
        Polled { qpn: HERE, cq: 1, id, is_receive: false, is_forgotten: false }.into(),
    ]
}

/// The end that asks: two WRITEs, of which the second is refused.
fn client() -> Vec<Event> {
    let mut events = connected(HERE, THERE).to_vec();
    events.extend(write_request(0, Status::Success));
    events.extend(write_request(1, Status::RemoteAccess));
    events
}

/// The end that refuses: its memory is too short.
fn server() -> Vec<Event> {
    let mut events = connected(THERE, HERE).to_vec();
    let (step, kind) = (Step::Made, RegionKind::Region);
    let (lkey, rkey, access) = (Lkey(6), Rkey(0x77), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    events.push(Region { step, kind, lkey, rkey, address: 0x20_0000, length: 52, access, domain: 1 }.into());
    events
}

#[test]
fn every_request_is_shown_with_all_that_happened_to_it() {
    let folder = Folder::new("show");
    let path = folder.record("run.ftrace", &client());
    let (code, out, err) = trace(&[&"show", &path]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for text in [
        "work 0 of the send queue of queue pair 0x000011, posted at 0.000030000 s\n  WQE\n",
        "    Work Request ID: 0x0000000000000101\n    Opcode: RDMA WRITE (0)\n",
        "      +20.000 us out RC RDMA WRITE Only qp=0x000022 psn=0x000001",
        "      +30.000 us in  RC Acknowledge qp=0x000011 psn=0x000001",
        "NAK Remote Access Error",
        "  states: POSTED, PROCESSING +20.000 us, ERROR +40.000 us; PENDING +40.000 us, POLLED +50.000 us\n",
    ] {
        assert!(out.contains(text), "{text:?} is not in:\n{out}");
    }
    assert_eq!(out.split("\n\n").count(), 2);
}

#[test]
fn filters_leave_requests_out() {
    let folder = Folder::new("filter");
    let path = folder.record("run.ftrace", &client());
    let shown = |args: &[&dyn AsRef<OsStr>]| {
        let args: Vec<&dyn AsRef<OsStr>> = [&"show" as &dyn AsRef<OsStr>, &"--json", &path]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let (code, out, _) = trace(&args);
        assert_eq!(code, Some(0));
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["work"].as_u64().unwrap();
        out.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(shown(&[]), [0, 1]);
    assert_eq!(shown(&[&"--errors"]), [1]);
    assert_eq!(shown(&[&"--qp", &"0x11"]), [0, 1]);
    assert_eq!(shown(&[&"--qp", &"18"]), [0; 0]);
    assert_eq!(shown(&[&"--id", &"0x100"]), [0]);
    assert_eq!(shown(&[&"--status", &"remote-access"]), [1]);
    assert_eq!(shown(&[&"--op", &"send,read"]), [0; 0]);
    assert_eq!(shown(&[&"--from", &"85us"]), [1]);
    assert_eq!(shown(&[&"--to", &"0.00005"]), [0]);
    assert_eq!(shown(&[&"--slowest", &"1"]).len(), 1);
    assert_eq!(shown(&[&"--count", &"1"]), [0]);
}

#[test]
fn an_error_is_explained_with_the_records_of_both_ends() {
    let folder = Folder::new("explain");
    let here = folder.record("here.ftrace", &client());
    let (code, out, err) = trace(&[&"explain", &here]);
    assert_eq!((code, err.as_str()), (Some(1), "ferroce: the record tells of errors\n"));
    assert!(
        out.starts_with("error: RDMA WRITE 1 (id 0x101) of queue pair 0x000011 failed at 0.000130000 s"),
        "{out}"
    );
    let text = "the record of the other end (queue pair 0x000022 at 10.0.0.34) would tell which memory its key opens";
    assert!(out.contains(text), "{out}");

    let there = folder.record("there.ftrace", &server());
    let (code, out, err) = trace(&[&"explain", &"--json", &here, &there]);
    assert_eq!(code, Some(1));
    assert!(err.contains("record 2 is ") && err.contains("there.ftrace: a program, process "), "{err}");
    let json: Value = serde_json::from_str(&out).unwrap();
    let because = json["findings"][0]["because"].as_array().unwrap();
    let last = because.last().unwrap().as_str().unwrap();
    assert!(last.ends_with("the WRITE of 64 bytes at 0x200000 ended 12 bytes behind"), "{last}");
    assert_eq!(json["has_error"], true);
}

#[test]
fn a_run_without_errors_ends_with_0() {
    let folder = Folder::new("good");
    let mut events = connected(HERE, THERE).to_vec();
    events.extend(write_request(0, Status::Success));
    let path = folder.record("run.ftrace", &events);
    let (code, out, err) = trace(&[&"explain", &path]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("All work ended well"), "{out}");
}

#[test]
fn figures_are_of_all_requests() {
    let folder = Folder::new("stats");
    let path = folder.record("run.ftrace", &client());
    let (code, out, err) = trace(&[&"stats", &path]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("RDMA WRITE, 64 to 127 bytes: 2 request(s), 64 bytes, 1 error(s)\n"), "{out}");
    assert!(out.contains("post to completion"), "{out}");
    let (_, out, _) = trace(&[&"stats", &"--json", &path]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["all_queue_pairs"]["naks_in"], 1);
    assert_eq!(json["operations"][0]["times_ns"]["post_to_completion"]["count"], 2);
}

#[test]
fn other_processes_of_a_run_are_read_too_unless_it_stays_alone() {
    let folder = Folder::new("several");
    let path = folder.record("run.ftrace", &client());
    folder.record("run.2.ftrace", &server());
    folder.record("run.3.ftrace", &connected(Qpn::new(0x33), Qpn::new(0x44)));
    folder.record("run.5.ftrace", &client());
    let (code, out, err) = trace(&[&"show", &"--count", &"1", &path]);
    assert_eq!(code, Some(0));
    assert!(
        err.contains("run.2.ftrace") && err.contains("run.3.ftrace") && !err.contains("run.5.ftrace"),
        "{err}"
    );
    assert!(out.starts_with("record 1: work 0 of"), "{out}");
    let (_, out, err) = trace(&[&"show", &"--alone", &"--count", &"1", &path]);
    assert!(err.is_empty() && out.starts_with("work 0 of"), "{err}{out}");
}

#[test]
fn files_that_are_no_records_say_so_in_one_line() {
    let folder = Folder::new("wrong");
    let whole = fs::read(folder.record("whole.ftrace", &client())).unwrap();
    let mut newer = whole.clone();
    newer[8] = 9;
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    for (path, complaint) in [
        (write("empty", &[]), "is empty"),
        (write("short", &whole[..100]), "ends before its first event"),
        (write("foreign", b"hello, this is something else"), "is no record of a device"),
        (write("newer", &newer), "is of version 9, and this program reads version 1"),
        (folder.path("missing"), "No such file or directory"),
    ] {
        for command in ["show", "explain", "stats"] {
            let (code, out, err) = trace(&[&command, &path]);
            assert_eq!((code, out.as_str()), (Some(1), ""), "{command}");
            assert!(
                err.starts_with("ferroce: ") && err.contains(complaint) && err.lines().count() == 1,
                "{err}"
            );
        }
    }
}

#[test]
fn of_files_that_are_cut_or_wrong_the_rest_is_shown() {
    let folder = Folder::new("cut");
    let whole = folder.record("whole.ftrace", &client());
    let bytes = fs::read(&whole).unwrap();
    let cut = folder.path("cut.ftrace");
    fs::write(&cut, &bytes[..bytes.len() - 70]).unwrap();
    let (code, out, err) = trace(&[&"show", &cut]);
    assert_eq!(code, Some(1));
    assert!(out.starts_with("work 0 of"), "{out}");
    // The rings before it still have what the end of the file had.
    assert!(err.ends_with("cut.ftrace was cut off: 14 events of it could be read\n"), "{err}");

    let missing = folder.path("missing.ftrace");
    let (code, out, err) = trace(&[&"show", &whole, &missing]);
    assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
    assert!(out.starts_with("work 0 of") && err.contains("missing.ftrace"), "{err}");
}

#[test]
fn what_is_missing_in_a_record_is_noted() {
    let folder = Folder::new("notes");
    let path = folder.path("flight.ftrace");
    let config = RecordConfig { bytes: 1, sample: 4, engines: 1, ..RecordConfig::new(Mode::Flight, "p") };
    let recorder = Recorder::create(&path, &config).unwrap();
    let many: Vec<Event> = (0..20).flat_map(|work| write_request(work, Status::Success)).collect();
    write(&recorder, &many);
    let (code, out, err) = trace(&[&"stats", &path]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("one of 4 requests was recorded"), "{out}");
    for text in [
        "is still being written, or its program was killed",
        "has one of 4 work requests",
        "before them are gone",
    ] {
        assert!(err.contains(text), "{text:?} is not in:\n{err}");
    }
}

#[test]
fn exports_leave_links_and_pipes_what_they_are() {
    let folder = Folder::new("links");
    let path = folder.record("run.ftrace", &client());
    let (code, _, err) = trace(&[&"export", &path, &"--format", &"html", &"-o", &path]);
    assert!(code == Some(1) && err.contains("run.ftrace is the record itself"), "{err}");
    let (target, link, pipe) = (folder.path("target.html"), folder.path("link.html"), folder.path("pipe"));
    fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink("target.html", &link).unwrap();
    let (code, _, err) = trace(&[&"export", &path, &"-o", &link]);
    assert_eq!(code, Some(0), "{err}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let page = fs::read(&target).unwrap();
    assert!(page.starts_with(b"<!doctype html>"));

    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    let (code, _, err) = trace(&[&"export", &path, &"--format", &"html", &"-o", &pipe]);
    assert_eq!((code, reader.join().unwrap() == page), (Some(0), true), "{err}");
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
}

#[test]
fn help_teaches_and_wrong_words_are_refused() {
    for command in ["show", "explain", "stats"] {
        let (code, out, _) = trace(&[&command, &"--help"]);
        assert!(code == Some(0) && out.contains("Examples:\n"), "{out}");
    }
    for (args, complaint) in [
        (&["show"][..], "<FILE>"),
        (&["show", "--status", "bad", "x"], "retry-exceeded"),
        (&["show", "--op", "sing", "x"], "receive"),
        (&["show", "--from", "1h", "x"], "expected a time"),
        (&["show", "--slowest", "1", "--count", "1", "x"], "cannot be used with"),
        (&["sing"], "unexpected argument 'sing'"),
        (&["shwo", "run.ftrace"], "unexpected argument 'shwo'"),
    ] {
        let args: Vec<&dyn AsRef<OsStr>> = args.iter().map(|arg| arg as &dyn AsRef<OsStr>).collect();
        let (code, _, err) = trace(&args);
        assert!(code == Some(2) && err.contains(complaint), "{err}");
    }
}
