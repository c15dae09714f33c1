//! Which path two processes of one address take, by the settings of both, and what each of them is told of it.

use std::error::Error;
use std::process::Command;

use ferroce_verbs::*;

use crate::NET;
use crate::child::{Other, ROLE, command, listen, tell};
use crate::common::{End, SOON};
use crate::peer::{from_hex, to_hex};

/// What the one that asks for its path hears.
const SHARED: &str = "shared: the peer's process shares memory with this one";
const OFF: &str = "wire: sharing memory is switched off in this process (FERROCE_SHARED, FERROCE_PATH)";
const REFUSED: &str = "wire: the peer's process takes no part in sharing memory";
const FORBIDDEN: &str = "wire: other paths are forbidden";
const LIMITED: &str = "wire: files of this process may not be so long; raise `ulimit -f`";
const MIDDLEWARE: &str = "wire: packets are captured or faults injected";

/// What a queue pair begins with that may not take the path that there is.
const NO: &str = "no, ";

/// What each writes into the memory of the other.
const MESSAGE: &[u8] = b"by whichever path";

/// Connects an end, and says which path it takes and why, or why it takes none.
fn connected(end: &End, peer: &QpAddress) -> String {
    match end.qp.connect(peer) {
        Ok(()) => end.qp.path().unwrap().to_string(),
        Err(error) => {
            let mut cause: &dyn Error = &error;
            let mut text = format!("{NO}{cause}");
            while let Some(next) = cause.source() {
                cause = next;
                text += &format!(": {cause}");
            }
            text
        }
    }
}

/// Writes to the peer over whichever path it is.
fn write(end: &End, remote: &RemoteRegion) {
    end.qp.write_inline(MESSAGE, remote.slice(..MESSAGE.len() as u64)).post().unwrap();
    assert!(end.cq.wait(SOON).unwrap().is_success());
}

/// The other process.
pub(crate) fn play() {
    let context = Context::open("lo").unwrap();
    let end = End::new(&context, Service::Rc);
    tell(&end.qp.local_address().to_string());
    tell(&to_hex(&end.region.remote().to_bytes()));
    let peer = listen().parse().unwrap();
    let remote = RemoteRegion::from_bytes(&from_hex(&listen())).unwrap();
    tell(&connected(&end, &peer));
    if listen() == "write" {
        write(&end, &remote);
        tell("written");
        listen();
    }
}

/// Connects two processes with settings of their own, this one first: what each is told. What both can reach, each writes to.
fn told(
    last: u8,
    here: impl FnOnce(ContextBuilder) -> ContextBuilder,
    there: &[(&str, &str)],
) -> [String; 2] {
    let end = End::new(&here(device(last)).open().unwrap(), Service::Rc);
    told_of(end, command("the_other_process", "choice", &variables(last, there)), true)
}

fn device(last: u8) -> ContextBuilder {
    Context::builder("lo").address([127, 0, NET, last])
}

fn variables<'a>(last: u8, more: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
    let address = ("FERROCE_ADDRESS", format!("127.0.{NET}.{last}"));
    std::iter::once(address).chain(more.iter().map(|(name, value)| (*name, (*value).to_owned()))).collect()
}

fn told_of(end: End, other: Command, is_first: bool) -> [String; 2] {
    let mut other = Other::start_by(other);
    let peer = other.hear().parse().unwrap();
    let remote = RemoteRegion::from_bytes(&from_hex(&other.hear())).unwrap();
    let first = is_first.then(|| connected(&end, &peer));
    other.say(&end.qp.local_address().to_string());
    other.say(&to_hex(&end.region.remote().to_bytes()));
    let there = other.hear();
    let here = first.unwrap_or_else(|| connected(&end, &peer));
    if ![&here, &there].iter().any(|told| told.starts_with(NO)) {
        write(&end, &remote);
        other.say("write");
        assert_eq!(other.hear(), "written");
        assert_eq!(end.region.to_vec(..MESSAGE.len()).unwrap(), MESSAGE);
    }
    other.say("end");
    other.join();
    [here, there]
}

#[test]
fn processes_of_one_user_and_address_share_memory_unless_told_not_to() {
    assert_eq!(told(31, |device| device, &[]), [SHARED, SHARED]);
    assert_eq!(told(32, |device| device, &[("FERROCE_SHARED", "0")]), [REFUSED, OFF]);
    assert_eq!(told(33, |device| device, &[("FERROCE_PATH", "forbid")]), [REFUSED, FORBIDDEN]);
    assert_eq!(told(34, |device| device.shared(false), &[]), [OFF, REFUSED]);
    assert_eq!(told(35, |device| device.path(PathPolicy::Forbid), &[]), [FORBIDDEN, REFUSED]);
    assert_eq!(told(36, |device| device.faults(FaultPlan::default()), &[]), [MIDDLEWARE, REFUSED]);
}

#[test]
fn what_must_share_memory_is_not_connected_where_the_peer_does_not() {
    let no = |reason: &'static str| move |told: &String| told.starts_with(NO) && told.contains(reason);
    let [here, there] = told(41, |device| device.path(PathPolicy::Require), &[("FERROCE_PATH", "forbid")]);
    assert!(no(REFUSED)(&here) && there == FORBIDDEN, "{here}; {there}");
    let [here, there] = told(42, |device| device.shared(false), &[("FERROCE_PATH", "require")]);
    assert!(here == OFF && no(REFUSED)(&there), "{here}; {there}");
    let [here, there] = told(43, |device| device, &[("FERROCE_PATH", "shared"), ("FERROCE_SHARED", "0")]);
    assert!(here == REFUSED && no(OFF)(&there), "{here}; {there}");
    assert_eq!(
        told(44, |device| device.path(PathPolicy::Shared), &[("FERROCE_PATH", "require")]),
        [SHARED; 2]
    );
}

/// Queue pairs that are connected by hand agree on nothing: one of these sends by the network, the other through memory, and each takes
/// what comes.
#[test]
fn a_queue_pair_of_its_own_policy_takes_what_comes_by_the_other_path() {
    let end = End::new(&device(45).open().unwrap(), Service::Rc);
    let qp = end.pd.queue_pair(Service::Rc).completion_queue(&end.cq).path(PathPolicy::Forbid).build();
    let other = command("the_other_process", "choice", &variables(45, &[]));
    assert_eq!(told_of(End { qp: qp.unwrap(), ..end }, other, true), [FORBIDDEN, SHARED]);
}

/// A process whose files may not be so long makes no rings. It takes those that it is offered. It was: the reason was lost on its way.
#[test]
fn a_process_with_a_limit_of_file_sizes_takes_the_wire_and_says_why() {
    let end = End::new(&device(46).open().unwrap(), Service::Rc);
    let program = std::env::current_exe().unwrap();
    let mut other = Command::new("sh");
    other.args(["-c", "ulimit -f 64 && exec \"$0\" --exact the_other_process --nocapture"]).arg(program);
    other.env(ROLE, "choice").envs(variables(46, &[]));
    assert_eq!(told_of(end, other, false), [SHARED, LIMITED]);
}
