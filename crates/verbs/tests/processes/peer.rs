//! The other process, and how the two are connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_verbs::*;

use crate::child::{Other, listen, tell};
use crate::common::{End, SOON};

/// The word that atomics count in.
pub(crate) const WORD: usize = 8000;

/// The byte that a spinning target looks at, and what it waits for.
pub(crate) const LAST: usize = 8191;
pub(crate) const SEEN: u8 = 0xa5;

/// The part of both regions that a storm works on.
pub(crate) const STORM: std::ops::Range<usize> = 2000..6000;

/// An end here, connected to one in another process.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) end: End,
    pub(crate) remote: RemoteRegion,
    pub(crate) other: Other,
}

impl Link {
    /// A new process in this role, at the second address, and an end here at the first one. If both are the same, the processes
    /// share memory.
    pub(crate) fn start(role: &str, net: u8, [here, there]: [u8; 2], options: &ConnectOptions) -> Self {
        let context =
            Context::builder("lo").address([127, 0, net, here]).shared(here == there).open().unwrap();
        let end = End::new(&context, Service::Rc);
        Self::with(end, role, [127, 0, net, there], options)
    }

    /// A new process for an end that is there already.
    pub(crate) fn with(end: End, role: &str, there: [u8; 4], options: &ConnectOptions) -> Self {
        let is_near = end.qp.local_address().gid.ip() == std::net::IpAddr::from(there);
        let there = std::net::Ipv4Addr::from(there).to_string();
        let shared = if is_near { "1" } else { "0" };
        let variables = [("FERROCE_ADDRESS", &*there), ("FERROCE_SHARED", shared)];
        let mut other = Other::start("the_other_process", role, &variables);
        let peer: QpAddress = other.hear().parse().unwrap();
        let remote = RemoteRegion::from_bytes(&from_hex(&other.hear())).unwrap();
        end.qp.connect_with(&peer, options).unwrap();
        other.say(&end.qp.local_address().to_string());
        other.say(&to_hex(&end.region.remote().to_bytes()));
        assert_eq!(other.hear(), "connected");
        let path = if is_near { Path::Shared } else { Path::Wire };
        assert_eq!(end.qp.path().unwrap().path, path, "{}", end.qp.path().unwrap());
        Self { end, remote, other }
    }
}

/// The life of the other process.
pub(crate) fn play(role: &str) {
    let context = Context::open("lo").unwrap();
    let end = End::new(&context, Service::Rc);
    tell(&end.qp.local_address().to_string());
    tell(&to_hex(&end.region.remote().to_bytes()));
    let peer = listen().parse().unwrap();
    let remote = RemoteRegion::from_bytes(&from_hex(&listen())).unwrap();
    end.qp.connect_with(&peer, &impatient()).unwrap();
    if role == "rest" {
        write_and_poll(&end, &remote);
    }
    tell("connected");
    match role {
        "sleep" | "rest" => {
            assert_eq!(listen(), "wake up");
            tell(&end.region.load_u64(WORD).unwrap().to_string());
        }
        "spin" => {
            while end.region.load_u8(LAST).unwrap() != SEEN {
                std::hint::spin_loop();
            }
            tell("seen");
        }
        "stream" => stream(&end, &remote),
        "storm" => storm(&end, &remote),
        "keys" => crate::deregistrations::storm(&end),
        other => panic!("no such role: {other}"),
    }
}

/// How the other process is connected: 268 ms of silence, once, and it gives up.
fn impatient() -> ConnectOptions {
    ConnectOptions { timeout: 16, retry_count: 0, ..Default::default() }
}

/// Works for a while without ever sleeping, so that the driver steps back.
fn write_and_poll(end: &End, remote: &RemoteRegion) {
    for id in 0..200 {
        end.qp.write(end.region.slice(..64), remote.slice(4000..4064)).id(id).post().unwrap();
        let done = loop {
            if let Some(done) = end.cq.poll_one() {
                break done;
            }
            std::thread::yield_now();
        };
        assert_eq!((done.id, done.status), (id, Status::Success));
    }
}

/// Works on the memory of the peer until it is killed, or until the peer is gone.
fn storm(end: &End, remote: &RemoteRegion) {
    let mut under_way = 0;
    for id in 0_u64.. {
        let there = remote.slice(STORM.start as u64..STORM.end as u64);
        let work = match id % 2 {
            0 => end.qp.write(end.region.slice(STORM), there),
            _ => end.qp.read(end.region.slice(STORM), there),
        };
        under_way += u32::from(work.id(id).post().is_ok());
        while let Some(done) = if under_way >= 16 { end.cq.wait(SOON).ok() } else { end.cq.poll_one() } {
            under_way -= 1;
            if !done.is_success() {
                return;
            }
        }
    }
}

/// Messages of a stream, so that it is one however slow the machine.
pub(crate) const AT_LEAST: u64 = 300;

/// Writes to the peer until told that it is enough, and says how it went.
fn stream(end: &End, remote: &RemoteRegion) {
    let enough = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&enough);
    let listener = std::thread::spawn(move || {
        listen();
        told.store(true, Ordering::SeqCst);
    });
    let (mut posted, mut done, mut errors) = (0_u64, 0_u64, 0_u64);
    loop {
        while (posted < AT_LEAST || !enough.load(Ordering::SeqCst)) && posted - done < 4 {
            let work = end.qp.write(end.region.slice(..4000), remote.slice(4000..8000));
            work.id(posted).post().unwrap();
            posted += 1;
        }
        if done == posted {
            break;
        }
        let completion = end.cq.wait(SOON).unwrap();
        errors += u64::from(!completion.is_success());
        done += 1;
    }
    listener.join().unwrap();
    tell(&format!("{errors} errors of {done}"));
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|c| u8::try_from(c.to_digit(16).expect("a digit")).expect("small")).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
