//! Another process of a test: this binary again, told by a variable what to do. Both speak in lines.

use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ferroce_fabric::udp::Socket;
use ferroce_wire::mad::{CmMad, CmMessage, CommId, Rep};

use super::{lanes, squatter};
use crate::error::refused;
use crate::inner::Inner;
use crate::join::{Joined, join};
use crate::membership::{Membership, Slot};
use crate::{Group, Locals, Mad, NoLane, SwitchError, communication_id};

const ROLE: &str = "FERROCE_TEST_ROLE";

/// What the child's lines begin with: the test harness writes to the same place.
const MARK: char = '@';

/// A child of this test. Dropping it ends it.
pub(super) struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts a process in a role, with an address.
    pub(super) fn start(role: &str, address: IpAddr) -> Self {
        Self::start_with(role, address, |_| {}).expect("this binary runs")
    }

    /// The same, after something was changed about how it starts.
    pub(super) fn start_with(
        role: &str,
        address: IpAddr,
        change: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe().expect("this binary has a name"));
        command.args(["--exact", "tests::the_other_process", "--nocapture"]);
        command.env(ROLE, format!("{role} {address}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn()?;
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Ok(Self { child, input, output })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the child listens");
    }

    pub(super) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("text");
            assert!(read > 0, "the child ended without an answer: {:?}", self.child.wait());
            if let Some(line) = line.strip_prefix(MARK) {
                return line.trim_end().to_owned();
            }
        }
    }

    pub(super) fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.pid()).expect("a process");
        // SAFETY: takes and gives plain numbers; the process is our child, and not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
}

impl Other {
    /// Whether a signal has stopped all its threads: that takes a moment.
    pub(super) fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it is there").flatten();
        tasks.into_iter().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(super) fn tell(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("the parent listens");
}

pub(super) fn listen() -> String {
    let mut line = String::new();
    if io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(1);
    }
    line.trim_end().to_owned()
}

/// What the other process does, if this is it.
pub(super) fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, address) = role.split_once(' ').expect("a role and an address");
    let group = Group { interface: "lo".to_owned(), address: address.parse().ok() };
    match role {
        "member" => drop(enter(&group).map(|slot| member(&slot))),
        "other-user" => {
            // SAFETY: takes and gives plain numbers.
            assert_eq!(unsafe { libc::setuid(65_534) }, 0);
            drop(enter(&group).map(|slot| member(&slot)));
        }
        "poor" => {
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 100 };
            // SAFETY: the pointer is to a limit that lives during the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
            drop(enter(&group));
        }
        "modest" => {
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 4096 };
            // SAFETY: the pointer is to a limit that lives during the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
            drop(enter(&group).map(|slot| member(&slot)));
        }
        "squatter" => squatter::play(),
        "fork" => fork(&group),
        "unequipped" => unequipped(&group),
        other => unreachable!("{other}"),
    }
}

/// Joins, and says what came of it.
fn enter(group: &Group) -> Result<Slot, SwitchError> {
    let slot = Membership::join(group, true).and_then(|member| member.take());
    match &slot {
        Ok(slot) => tell(&format!("slot {}", slot.number())),
        Err(error) => tell(&error.to_string()),
    }
    slot
}

/// Does what it is told.
fn member(slot: &Slot) {
    let (mut claims, mut taker) = (Vec::new(), None);
    loop {
        let line = listen();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["leads?"] => tell(&slot.member().leads().to_string()),
            ["claim", service] => match slot.claim(service.parse().expect("a number")) {
                Ok(claim) => {
                    claims.push(claim);
                    tell("claimed");
                }
                Err(error) => tell(&error.to_string()),
            },
            ["give up"] | ["forget"] => {
                claims.clear();
                tell("forgotten");
            }
            ["answer"] => answer(slot),
            ["gather", count] => gather(slot, count.parse().expect("a number")),
            ["lane", ref words @ ..] => lanes::play(slot, &mut taker, words),
            ["end"] => return,
            _ => unreachable!("{line}"),
        }
    }
}

/// Waits for so many requests, and says which came, by their communication ids.
fn gather(slot: &Slot, count: usize) {
    let come = std::iter::from_fn(|| slot.member().next_mad(Duration::from_secs(60)));
    let number = |mad: Mad| match CmMad::parse(&mad.bytes).map(|mad| mad.message) {
        Ok(CmMessage::Req(req)) => (req.local_comm_id.0 & 0x00ff_ffff).to_string(),
        other => format!("{other:?}"),
    };
    tell(&come.take(count).map(number).collect::<Vec<_>>().join(" "));
}

/// Waits for a request and accepts it.
fn answer(slot: &Slot) {
    let member: &Arc<Membership> = slot.member();
    let Some(mad) = member.next_mad(Duration::from_secs(60)) else { return tell("nothing came") };
    let Ok(CmMad { message: CmMessage::Req(req), transaction_id, .. }) = CmMad::parse(&mad.bytes) else {
        return tell("no request");
    };
    let local_comm_id = CommId(communication_id(slot.number(), 77));
    let rep = Rep { local_comm_id, remote_comm_id: req.local_comm_id, ..Rep::default() };
    let mut bytes = [0; CmMad::LEN];
    CmMad::new(transaction_id, rep).emit(&mut bytes);
    member.send_mad(mad.local, mad.remote, &bytes).expect("it is sent");
    tell(&format!("answered {:?} from {}", req.service_id, mad.remote));
}

/// Forks after joining: the child is clean, and joins by itself.
fn fork(group: &Group) {
    let slot = enter(group).expect("a slot");
    // SAFETY: the child does what is safe here: this process has no other thread that holds locks which the
    // child takes, but the switchboard's own, and those are what is tried.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let before = slot.member().take();
        let refused = matches!(before, Err(SwitchError::Forked));
        let mad = slot.member().send_mad([127, 0, 0, 1].into(), [127, 0, 0, 1].into(), &[0; 256]);
        let number = slot.number();
        let no_lane = slot.reach(1, &[]).is_err_and(|why| why == NoLane::Forked);
        let sockets = std::fs::read_to_string("/proc/self/net/udp").is_ok() && count_sockets() == 0;
        // Whatever it does with objects from before the fork, the parent does not notice.
        drop(slot);
        let again = Membership::join(group, true).and_then(|member| member.take());
        let own = again.as_ref().is_ok_and(|again| again.number() != number);
        let right = refused && no_lane && mad.is_err() && sockets && own;
        tell(&format!("child {}", if right { "right" } else { "wrong" }));
        listen();
        drop(again);
        // SAFETY: ends this process at once: the parent's buffers are not its own.
        unsafe { libc::_exit(0) };
    }
    member(&slot);
    drop(slot);
    let mut status = 0;
    // SAFETY: the pointer is to a number that lives during the call.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
}

/// Joins, but finds no descriptor for itself.
fn unequipped(group: &Group) {
    let Joined { sockets, table, record, role, .. } = join(group, true).expect("a group");
    let kept: Vec<RawFd> = sockets.iter().map(Socket::raw).collect();
    let known = kept.iter().all(|fd| record.tracks(*fd));
    let refuse = |_| Err(refused("a descriptor")(io::Error::from_raw_os_error(libc::EMFILE)));
    let gone = Box::new(|| ());
    let failed = Inner::new(group, sockets, table, record, Locals::new(true), refuse, gone).is_err();
    drop(role);
    let left = kept.iter().any(|fd| record.tracks(*fd)) || count_sockets() > 0;
    tell(if known && failed && !left { "clean" } else { "not clean" });
}

/// UDP sockets that this process holds.
fn count_sockets() -> usize {
    let udp = std::fs::read_to_string("/proc/self/net/udp").unwrap_or_default();
    let inodes: Vec<String> = udp
        .lines()
        .filter(|line| line.contains(":12B7 "))
        .filter_map(|line| line.split_whitespace().nth(9).map(|inode| format!("socket:[{inode}]")))
        .collect();
    let fds = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|link| inodes.iter().any(|inode| link.to_str() == Some(inode))).count()
}
