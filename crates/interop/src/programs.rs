//! Programs of ours over the kernel's device in the guest, and with one end there and the other on our own device here: endpoints,
//! brokers and the key-value store. It is the same program at both ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::doctor::bring;
use crate::far::Far;
use crate::lab::Family;
use crate::{Args, Result};

/// Seconds after which a program hangs.
const PATIENCE: u32 = 110;
/// What every program in the guest begins with.
const OVER: &str = "ulimit -l unlimited; export FERROCE_PROVIDER=system; export RUST_BACKTRACE=0; ";

/// The programs, as they were built.
#[derive(clap::Args)]
pub(crate) struct Programs {
    /// Only run programs of ours over the kernel's device, and between it and ours: `ferroce-meets`
    #[arg(long, value_name = "FILE", requires = "kv")]
    meets: Option<PathBuf>,
    /// The key-value store
    #[arg(long, value_name = "FILE")]
    kv: Option<PathBuf>,
    /// A suite of tests that run over a card
    #[arg(long, value_name = "FILE")]
    suite: Vec<PathBuf>,
    /// How often objects are left in each of the ways that leak
    #[arg(long, value_name = "TIMES", default_value_t = 20)]
    rounds: u32,
}

/// One part: its name, and what it does.
type Part<'a> = (String, Box<dyn Fn() -> Result<()> + 'a>);

/// Runs them, if they were given.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let Programs { meets: Some(meets), kv: Some(kv), suite, rounds } = &args.programs else {
        return Ok(false);
    };
    bring::bring(args.guest, meets, MEETS)?;
    bring::bring(args.guest, kv, KV)?;
    let stage = Stage { guest: args.guest, here: Family::V4.near(), meets, kv };
    let mut parts: Vec<Part<'_>> = vec![
        ("ends_here".into(), Box::new(|| stage.near(meets, &format!("alone {}:7471", stage.here))?.wait())),
        ("ends_there".into(), Box::new(|| stage.far(&format!("{MEETS} alone {}:7471", stage.guest)))),
        ("ends_visit_there".into(), Box::new(|| stage.visit_there())),
        ("ends_visit_here".into(), Box::new(|| stage.visit_here())),
        (
            "mesh_there".into(),
            Box::new(|| stage.far(&format!("{MEETS} mesh --me 0,1,2 --members {}", stage.members("222")))),
        ),
        ("mesh_of_both".into(), Box::new(|| stage.mesh_of_both())),
        ("kv_here".into(), Box::new(|| stage.near(kv, &stage.store())?.wait())),
        ("kv_there".into(), Box::new(|| stage.store_there())),
        ("kv_nodes_there".into(), Box::new(|| stage.nodes_there())),
        ("kv_nodes_here".into(), Box::new(|| stage.nodes_here())),
        ("wear".into(), Box::new(|| stage.wear(*rounds))),
    ];
    for (number, suite) in suite.iter().enumerate() {
        let name = format!("suite{number}");
        bring::bring(args.guest, suite, &name)?;
        for test in tests(suite)? {
            let line = format!(
                "FERROCE_CARD_TEST={test} FERROCE_CARD=rxe0 FERROCE_ADDRESS={} {name} --exact {test} --test-threads=1",
                stage.guest
            );
            let run = move || stage.far(&line);
            parts.push((format!("suite_{test}"), Box::new(run)));
        }
    }
    // These come last: they take the kernel's device away.
    let again = "ip -6 addr replace fd77::2/64 dev eth0 nodad";
    parts.push((
        "port_down_and_up".into(),
        Box::new(move || stage.far(&format!("{MEETS} port rxe0 eth0 && {again}"))),
    ));
    let again = "rdma link add rxe0 type rxe netdev eth0";
    parts.push((
        "card_taken_away".into(),
        Box::new(move || stage.far(&format!("{MEETS} gone rxe0 && {again}"))),
    ));
    let wanted =
        |name: &str| args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()));
    let (mut passed, mut wrong) = (0, Vec::new());
    for (name, part) in parts.iter().filter(|(name, _)| wanted(name)) {
        match part() {
            Ok(()) => {
                eprintln!("rxe_programs::{name} ... ok");
                passed += 1;
            }
            Err(error) => {
                eprintln!("rxe_programs::{name} ... FAILED\n{error}");
                wrong.push(name.as_str());
                end_all(args.guest)?;
            }
        }
    }
    println!("rxe_programs: {passed} passed, {} failed: {wrong:?}", wrong.len());
    if wrong.is_empty() && passed > 0 { Ok(true) } else { Err(format!("{wrong:?} failed").into()) }
}

/// What the programs are called in the guest.
const MEETS: &str = "ferroce-meets";
const KV: &str = "ferroce-kv";

/// Ends what a part has left in the guest when it failed: the next one has the same addresses. What was brought there is started by
/// its path; the brackets keep this line from finding itself.
fn end_all(guest: IpAddr) -> Result<()> {
    let ours = "/opt/ferroc[e]/";
    let line = format!(
        "pkill -KILL -f {ours}; for look in $(seq 500); do pgrep -f {ours} >/dev/null || exit 0; usleep 20000; done; exit 1"
    );
    Far::connect(guest)?.run(&line).map(drop)
}

/// The names of the tests of a suite.
fn tests(suite: &Path) -> Result<Vec<String>> {
    let said = Command::new(suite).arg("--list").output()?;
    let text = String::from_utf8(said.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Both hosts, and the programs of this one.
#[derive(Clone, Copy)]
struct Stage<'a> {
    guest: IpAddr,
    here: IpAddr,
    meets: &'a Path,
    kv: &'a Path,
}

/// A program at this end. It ends with this.
struct Near {
    child: Child,
    line: String,
}

impl Near {
    /// Waits for the first line that it says.
    fn first_line(&mut self, wanted: &str) -> Result<()> {
        let out = self.child.stdout.as_mut().ok_or("no output")?;
        let mut byte = [0];
        while !self.line.ends_with('\n') && out.read(&mut byte)? == 1 {
            self.line.push(char::from(byte[0]));
        }
        if self.line.trim() == wanted {
            Ok(())
        } else {
            Err(format!("{:?} instead of {wanted:?}", self.line).into())
        }
    }

    /// Waits for its end, which must be a success.
    fn wait(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let mut said = self.line.clone();
        let errors = self.child.stderr.take();
        if let Some(mut out) = self.child.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        for line in errors.into_iter().flat_map(|errors| BufReader::new(errors).lines()) {
            said.extend(["\n", &line?]);
        }
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("here: {status}: {said}").into()) }
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        // After `wait` it is gone already, and this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stage<'_> {
    /// Starts a program here, over our own device.
    fn near(&self, program: &Path, line: &str) -> Result<Near> {
        let child = Command::new("timeout")
            .args(["-k", "5", &PATIENCE.to_string()])
            .arg(program)
            .args(line.split_whitespace())
            .env("FERROCE_PROVIDER", "soft")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Near { child, line: String::new() })
    }

    /// Starts a program in the guest, over the kernel's device.
    fn start(&self, line: &str) -> Result<Far> {
        let mut far = Far::connect(self.guest)?;
        // The shell of busybox has an `ip` of its own.
        far.start(&format!("{OVER} timeout {PATIENCE} dash -c '{line}' 2>&1"))?;
        Ok(far)
    }

    /// Runs a program in the guest.
    fn far(&self, line: &str) -> Result<()> {
        ended(self.start(line)?)
    }

    fn visit_there(&self) -> Result<()> {
        let mut listener = self.start(&format!("{MEETS} listen {}:7472", self.guest))?;
        heard(&mut listener, "listens")?;
        self.near(self.meets, &format!("visit {}:7472", self.guest))?.wait()?;
        ended(listener)
    }

    fn visit_here(&self) -> Result<()> {
        let mut listener = self.near(self.meets, &format!("listen {}:7472", self.here))?;
        listener.first_line("listens")?;
        self.far(&format!("{MEETS} visit {}:7472", self.here))?;
        listener.wait()
    }

    /// Members at these hosts: 1 is here, 2 is there.
    fn members(&self, hosts: &str) -> String {
        let host = |digit| if digit == '1' { self.here } else { self.guest };
        let members = hosts
            .chars()
            .enumerate()
            .map(|(number, digit)| format!("{}:{}", host(digit), 7481 + 10 * number));
        members.collect::<Vec<_>>().join(",")
    }

    fn mesh_of_both(&self) -> Result<()> {
        let members = self.members("1122");
        let near = self.near(self.meets, &format!("mesh --me 0,1 --members {members}"))?;
        let far = self.start(&format!("{MEETS} mesh --me 2,3 --members {members}"))?;
        let (near, far) = (near.wait(), ended(far));
        both(near, far)
    }

    /// The load of the store with all of it here.
    fn store(&self) -> String {
        format!("load --near --address {} --nodes 2 --clients 2 --seconds 3 --keys 16", self.here)
    }

    /// Starts the nodes in the guest. They end when `exec 3>&-` ends their input.
    fn nodes(members: &str) -> String {
        format!(
            "rm -f /tmp/kv /tmp/kv.end; mkfifo /tmp/kv; \
             for id in 0 1; do {KV} node --id $id --nodes 2 --members {members} </tmp/kv & done; exec 3>/tmp/kv"
        )
    }

    /// The same in the guest.
    fn store_there(&self) -> Result<()> {
        let members = self.members("2222");
        let (nodes, clients) = (Self::nodes(&members), self.clients(&members));
        self.far(&format!("{nodes}; {KV} {clients}; code=$?; exec 3>&-; wait; exit $code"))
    }

    /// That of clients whose nodes run elsewhere.
    fn clients(&self, members: &str) -> String {
        format!("load --members {members} --nodes 2 --seconds 3 --keys 16")
    }

    fn nodes_there(&self) -> Result<()> {
        let members = self.members("2211");
        let nodes = Self::nodes(&members);
        let nodes = self
            .start(&format!("{nodes}; while [ ! -e /tmp/kv.end ]; do usleep 50000; done; exec 3>&-; wait"))?;
        let clients = self.near(self.kv, &self.clients(&members))?.wait();
        Far::connect(self.guest)?.run("touch /tmp/kv.end")?;
        both(clients, ended(nodes))
    }

    fn nodes_here(&self) -> Result<()> {
        let members = self.members("1122");
        let node = |id| self.near(self.kv, &format!("node --id {id} --nodes 2 --members {members}"));
        let (first, second) = (node(0)?, node(1)?);
        self.far(&format!("{KV} {}", self.clients(&members)))?;
        first.wait()?;
        second.wait()
    }

    fn wear(&self, rounds: u32) -> Result<()> {
        let mut far = Far::connect(self.guest)?;
        // Each round of each way takes less than a second in an emulated guest.
        let seconds = 60 + 3 * u64::from(rounds);
        far.be_patient(std::time::Duration::from_secs(seconds + 20))?;
        far.start(&format!("{OVER} timeout {seconds} {MEETS} wear rxe0 --rounds {rounds} 2>&1"))?;
        ended(far)
    }
}

/// Waits for a line of a command in the guest.
fn heard(far: &mut Far, wanted: &str) -> Result<()> {
    let line = far.line()?;
    if line == wanted {
        return Ok(());
    }
    let (status, rest) = far.finish()?;
    Err(format!("there: {status}: {line}\n{rest}").into())
}

/// Waits for the end of a command in the guest, which must be a success.
fn ended(mut far: Far) -> Result<()> {
    let (status, said) = far.finish()?;
    if status == 0 { Ok(()) } else { Err(format!("there: {status}: {said}").into()) }
}

/// Both went well; else what each says.
fn both(near: Result<()>, far: Result<()>) -> Result<()> {
    match (near, far) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(near), Err(far)) => Err(format!("{near}\n{far}").into()),
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
    }
}
