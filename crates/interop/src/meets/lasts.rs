//! A card whose port goes down and up, and that is taken away: programs are told, and what can go on does.

use std::process::{Command, Stdio};

use ferroce_verbs::{
    Access, AsyncEvent, CompletionQueue, ConnectOptions, Context, MemoryRegion, PortEvent, PortState,
    QueuePair, Service, State, Status,
};

use crate::{Result, SOON, ensure};

/// Puts the interface of a card down and up, with work under way.
pub(crate) fn port(device: &str, interface: &str) -> Result<()> {
    let context = Context::open(device)?;
    let (idle, busy) = (Pair::new(&context, 14, 6)?, Pair::new(&context, 8, 2)?);
    idle.write(1)?;
    idle.ends_with(&[Status::Success])?;
    run("ip", &["link", "set", interface, "down"])?;
    let up = Up(interface);
    happens(&context, AsyncEvent::Port(1, PortEvent::Down))?;
    ensure(context.port().state == PortState::Down, || "the port is not down".to_owned())?;
    // A card tries as often as it was told; the kernel's soft device has no way to send, and says so at once.
    busy.write(2)?;
    busy.ends_with(&[Status::RetryExceeded, Status::LocalQpOperation])?;
    ensure(busy.ann.state() == State::Err, || format!("{:?} after work that failed", busy.ann.state()))?;
    drop(up);
    happens(&context, AsyncEvent::Port(1, PortEvent::Active))?;
    ensure(context.port().state == PortState::Active, || "the port is not up".to_owned())?;
    // What had nothing to do meanwhile, what is connected anew, and what is made now.
    busy.ann.reset()?;
    busy.bob.reset()?;
    busy.connect(14, 6)?;
    for pair in [&idle, &busy, &Pair::new(&context, 14, 6)?] {
        pair.write(3)?;
        pair.ends_with(&[Status::Success])?;
    }
    println!("a port that goes down and up ok");
    Ok(())
}

/// Takes a card away while work is under way. The kernel does not tell programs of soft-RoCE, and waits for them to let go of it: what
/// they have works on until then.
pub(crate) fn gone(device: &str) -> Result<()> {
    let context = Context::open(device)?;
    let pair = Pair::new(&context, 14, 6)?;
    let mut taking = Command::new("rdma").args(["link", "delete", device]).stdin(Stdio::null()).spawn()?;
    let works = || pair.write(1).and_then(|()| pair.ends_with(&[Status::Success]));
    for _ in 0..LOOKS {
        works()?;
        if !is_listed(device)? {
            break;
        }
    }
    ensure(!is_listed(device)?, || "the kernel does not take it away".to_owned())?;
    for _ in 0..50 {
        works()?;
    }
    ensure(taking.try_wait()?.is_none(), || "the kernel did not wait".to_owned())?;
    drop((pair, context));
    let status = taking.wait()?;
    ensure(status.success(), || format!("rdma link delete ended with {status}"))?;
    let again = Context::open(device).err().ok_or("a card that is gone was opened")?;
    println!("a card that is taken away ok: {}", ferroce_verbs::Chain::of(&again));
    Ok(())
}

/// How often it is looked whether the card is being taken away; each time is a process that starts.
const LOOKS: u32 = 300;

/// Whether the kernel still shows it.
fn is_listed(device: &str) -> Result<bool> {
    let output = Command::new("rdma").args(["link", "show"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(device))
}

/// Puts an interface up again: the way to this machine leads over it.
struct Up<'a>(&'a str);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        if let Err(error) = run("ip", &["link", "set", self.0, "up"]) {
            eprintln!("{error}");
        }
    }
}

/// Two queue pairs that are connected, and memory that both use.
struct Pair {
    queue: CompletionQueue,
    ann: QueuePair,
    bob: QueuePair,
    region: MemoryRegion,
}

impl Pair {
    fn new(context: &Context, timeout: u8, retry_count: u8) -> Result<Self> {
        let domain = context.protection_domain()?;
        let queue = context.completion_queue(32)?;
        let [ann, bob] = [(); 2].map(|()| domain.queue_pair(Service::Rc).completion_queue(&queue).build());
        let (ann, bob) = (ann?, bob?);
        let region = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let pair = Self { queue, ann, bob, region };
        pair.connect(timeout, retry_count)?;
        Ok(pair)
    }

    fn connect(&self, timeout: u8, retry_count: u8) -> Result<()> {
        let options = ConnectOptions { timeout, retry_count, ..ConnectOptions::default() };
        self.ann.connect_with(&self.bob.local_address(), &options)?;
        Ok(self.bob.connect_with(&self.ann.local_address(), &options)?)
    }

    fn write(&self, id: u64) -> Result<()> {
        Ok(self
            .ann
            .write(self.region.slice(..64), self.region.remote().slice(64..))
            .id(id)
            .signaled()
            .post()?)
    }

    fn ends_with(&self, wanted: &[Status]) -> Result<()> {
        let done = self.queue.wait(SOON)?;
        ensure(wanted.contains(&done.status), || {
            format!("work {} ended with {:?}, not {wanted:?}", done.id, done.status)
        })
    }
}

/// Waits for an event; others that come before it are passed over.
fn happens(context: &Context, wanted: AsyncEvent) -> Result<()> {
    let events = context.events();
    let mut seen = Vec::new();
    loop {
        match events.wait(SOON) {
            Ok(event) if event == wanted => return Ok(()),
            Ok(event) => seen.push(event),
            Err(error) => return Err(format!("{wanted:?} did not come, but {seen:?}: {error}").into()),
        }
    }
}

fn run(program: &str, words: &[&str]) -> Result<()> {
    let output = Command::new(program).args(words).output()?;
    ensure(output.status.success(), || {
        format!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr))
    })
}
