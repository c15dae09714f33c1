//! Processes that come and go on one port, at any moment and in any way, while the rest goes on.
//!
//! Each process owns a slot and sends pings to the slots of others: alone, or as the second packet of a run
//! that is steered by its first. Whatever goes wrong is counted in a file that all of them share, so that
//! a process may be killed at any instruction.

mod member;
mod tally;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferroce_sys::clock;
use tally::Tally;

use super::tests::eventually;
use super::{Group, names};

/// Tells a child of this test what to be.
const ROLE: &str = "FERROCE_TEST_CHURN";

/// How a run goes.
#[derive(Clone, Copy, Debug)]
struct Plan {
    address: [u8; 4],
    processes: usize,
    time: Duration,
    leader_lives: Duration,
    /// How long until all are killed at once.
    all_live: Duration,
    planted: &'static str,
}

#[test]
fn a_member_of_the_churn() {
    if let Ok(role) = std::env::var(ROLE) {
        member::live(&role);
    }
}

#[test]
fn processes_come_and_go() {
    let minutes = std::env::var("FERROCE_SOAK").ok().and_then(|text| text.parse::<u64>().ok());
    let time = minutes.map_or(Duration::from_secs(20), |minutes| Duration::from_secs(60 * minutes));
    let plan = Plan {
        address: [127, 0, 60, 1],
        processes: 100,
        time,
        leader_lives: Duration::from_millis(100),
        all_live: Duration::from_secs(5),
        planted: "",
    };
    let tally = run(&plan);
    assert_eq!(tally.misdelivered.get(), 0, "{tally}");
    assert_eq!(tally.two_owners.get(), 0, "{tally}");
    assert_eq!(tally.lost.get(), 0, "{tally}");
    assert_eq!(tally.failed_joins.get(), 0, "{tally}");
    assert!(tally.echoed.get() > 1000 && tally.echoed_riders.get() > 10, "{tally}");
    // A fifth of what a free machine does: how many fit into the time is the scheduler's affair.
    assert!(tally.leader_kills.get() * 2000 > u64::try_from(time.as_millis()).unwrap_or(0), "{tally}");
    // Without dropping what is for an earlier owner, these would be hundreds.
    assert!(tally.stale.get() * 1000 < tally.echoed.get(), "{tally}");
}

/// The checker finds what it is there for: the first socket joins a group that is about to die.
#[test]
fn a_first_socket_that_is_shared_is_found() {
    let plan = Plan {
        address: [127, 0, 60, 2],
        processes: 30,
        time: Duration::from_secs(60),
        leader_lives: Duration::from_millis(30),
        all_live: Duration::from_secs(1),
        planted: "shared-first",
    };
    let found = |tally: &Tally| {
        tally.misdelivered.get() + tally.two_owners.get() + tally.lost.get() + tally.failed_joins.get() > 0
    };
    let tally = run_until(&plan, found);
    assert!(found(&tally), "{tally}");
}

/// The same for packets of an earlier owner.
#[test]
fn a_slot_that_is_not_drained_is_found() {
    let plan = Plan {
        address: [127, 0, 60, 3],
        processes: 40,
        time: Duration::from_secs(60),
        leader_lives: Duration::from_millis(30),
        all_live: Duration::from_secs(5),
        planted: "no-drain",
    };
    let tally = run_until(&plan, |tally| tally.stale.get() > 20);
    assert!(tally.stale.get() > 20, "{tally}");
    assert_eq!(tally.misdelivered.get(), 0, "{tally}");
}

fn run(plan: &Plan) -> Tally {
    run_until(plan, |_| false)
}

/// Lets processes come and go until the time is over, or enough was seen; then sees what is left.
fn run_until(plan: &Plan, enough: impl Fn(&Tally) -> bool) -> Tally {
    let path = std::env::temp_dir().join(format!("ferroce-churn-{}-{}", std::process::id(), plan.address[3]));
    let tally = Tally::create(&path);
    let mut children: Vec<Child> = Vec::new();
    let mut dice = ferroce_sys::Random::from_system().unwrap();
    let (begin, mut kill_leader) = (clock::now(), clock::now() + plan.leader_lives);
    let end = begin + plan.time;
    let mut kill_all = begin + plan.all_live;
    while clock::now() < end && !enough(&tally) {
        children.retain_mut(|child| child.try_wait().expect("it is our child").is_none());
        for _ in 0..4 {
            if children.len() < plan.processes {
                children.push(start(plan, &path));
                tally.processes.add(1);
            }
        }
        if clock::now() >= kill_leader {
            kill_leader = clock::now() + plan.leader_lives;
            let leader = u32::try_from(tally.leader.get()).unwrap_or(0);
            if let Some(child) = children.iter_mut().find(|child| child.id() == leader) {
                child.kill().expect("it is our child");
                tally.leader_kills.add(1);
            }
        }
        if dice.next_u32().is_multiple_of(3) && children.len() > 2 {
            let victim = dice.next_u32() as usize % children.len();
            children[victim].kill().expect("it is our child");
            tally.kills.add(1);
        }
        if clock::now() >= kill_all {
            kill_all = clock::now() + plan.all_live;
            for child in &mut children {
                child.kill().expect("it is our child");
            }
            tally.kills_of_all.add(1);
        }
        clock::pause(Duration::from_millis(10));
    }
    for child in &mut children {
        child.kill().expect("it is our child");
    }
    for mut child in children {
        child.wait().expect("it is our child");
    }
    drop(std::fs::remove_file(&path));
    nothing_is_left(plan, &tally);
    eprintln!("{plan:?}: {tally}");
    tally
}

fn start(plan: &Plan, path: &std::path::Path) -> Child {
    let role = format!("{} {}", std::net::Ipv4Addr::from(plan.address), path.display());
    let mut command = Command::new(std::env::current_exe().expect("this binary has a name"));
    command.args(["--exact", "churn::a_member_of_the_churn", "--nocapture"]);
    command.env(ROLE, role).env("FERROCE_TEST_PLANTED", plan.planted).stdout(Stdio::null());
    command.spawn().expect("this binary runs")
}

/// No socket, no name, no shared file in the hands of a process, no lock on one.
fn nothing_is_left(plan: &Plan, tally: &Tally) {
    let group = Group { interface: "lo".to_owned(), address: Some(plan.address.into()) };
    let name = names::of_leader(&group, ferroce_sys::unix::own_uid(), names::Place::Usual);
    let hex = format!("{:08X}:12B7", u32::from_ne_bytes(plan.address));
    let files = tally.noted_files();
    assert!(!files.is_empty(), "every member has noted its file");
    let left = || {
        let text = |path| std::fs::read_to_string(path).unwrap();
        let is_of_file = |line: &&str| {
            let inode = line.split_whitespace().nth(5).and_then(|of| of.rsplit(':').next()?.parse().ok());
            inode.is_some_and(|inode: u64| files.contains(&inode))
        };
        if text("/proc/net/udp").contains(&hex) {
            Some("a socket".to_owned())
        } else if text("/proc/net/unix").contains(&name) {
            Some("a name".to_owned())
        } else if let Some(lock) = text("/proc/locks").lines().find(is_of_file) {
            Some(format!("the lock {lock}"))
        } else {
            holder_of(&files).map(|path| format!("a shared file, {}", path.display()))
        }
    };
    // The kernel takes the last sockets away a moment after the process.
    let end = clock::now() + Duration::from_secs(10);
    while let Some(left) = left() {
        assert!(clock::now() < end, "this is left: {left}");
        clock::pause(Duration::from_millis(5));
    }
}

/// A descriptor, of any process that may be seen, of one of these shared files.
fn holder_of(files: &[u64]) -> Option<std::path::PathBuf> {
    let entries = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_file = |path: &std::path::PathBuf| {
        let is_shared = std::fs::read_link(path).is_ok_and(|link| {
            link.to_str().is_some_and(|link| link.starts_with("/memfd:ferroce-switchboard"))
        });
        // The link leads to the file itself, although it has no name.
        is_shared
            && std::fs::metadata(path)
                .is_ok_and(|file| files.contains(&std::os::unix::fs::MetadataExt::ino(&file)))
    };
    entries("/proc".into())
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()))
        .flat_map(|entry| entries(entry.path().join("fd")))
        .map(|entry| entry.path())
        .find(is_file)
}

/// What is looked for would be seen.
#[test]
fn a_shared_file_and_its_locks_can_be_seen() {
    let group = Group { interface: "lo".to_owned(), address: Some([127, 0, 60, 4].into()) };
    let slot = super::Membership::join(&group, true).and_then(|member| member.take()).expect("a slot");
    let inode = slot.member().inner().table.inode();
    let held = holder_of(&[inode]).expect("by this process");
    assert!(held.starts_with(format!("/proc/{}", std::process::id())), "{}", held.display());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    assert!(locks.lines().any(|line| line.contains(&format!(":{inode} "))), "{locks}");
    drop(slot);
    // A program that another test starts has copies of all descriptors until it runs.
    eventually("the file is closed", || holder_of(&[inode]).is_none());
}
