//! A controller and an analyzer with as many agents as a large network has, over real connections.
//!
//! `cargo xtask bench --only meshd` runs this. The agents are simulated: they register, keep their leases, hear what to
//! probe and report windows with a line for each flow of their pinglists, and do not probe. Controller, analyzer and four
//! crowds of agents are processes of their own.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferroce_meshd::proto::v1;
use ferroce_meshd::proto::v1::analysis_client::AnalysisClient;
use ferroce_meshd::proto::v1::mesh_client::MeshClient;
use ferroce_meshd::proto::v1::report_request::What;
use ferroce_meshd::{
    AnalyzerServer, AnalyzerServerConfig, Controller, ControllerConfig, Keeping, Listener, StoreConfig,
    report_delay, tallies,
};
use ferroce_testkit::figure::{Called, Outcome};
use ferroce_testkit::process::{Parent, Peer};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// Processes of agents.
const CROWDS: usize = 4;

/// RNICs below a ToR.
const BELOW: usize = 32;

/// Connections of one crowd that are being made at once.
const AT_ONCE: usize = 64;

/// The Q_Key of responders.
const QKEY: u32 = 0x1111_1111;

/// How large it all is.
#[derive(Clone, Copy)]
struct Size {
    agents: usize,
    window: Duration,
    rounds: u32,
}

fn main() -> Outcome<()> {
    let Some(called) = Called::new(play)? else { return Ok(()) };
    let size = if called.quick {
        Size { agents: 128, window: Duration::from_secs(2), rounds: 2 }
    } else {
        Size { agents: 10_240, window: Duration::from_secs(20), rounds: 5 }
    };
    let mut controller = called.peer("controller", 1)?;
    controller.say(size.window.as_millis())?;
    let place = controller.hear()?;
    let mut analyzer = called.peer("analyzer", 2)?;
    analyzer.say(&place)?;
    let judge = analyzer.hear()?;
    let start = Instant::now();
    let mut crowds = Vec::new();
    for number in 0..CROWDS {
        let mut crowd = called.peer("crowd", 3)?;
        let count = size.agents / CROWDS;
        crowd.say(format!(
            "{place} {} {count} {} {}",
            number * count,
            size.window.as_millis(),
            size.rounds
        ))?;
        crowds.push(crowd);
    }
    for crowd in &mut crowds {
        crowd.hear()?;
    }
    println!("{} agents registered in {:.1} s", size.agents, start.elapsed().as_secs_f64());
    for crowd in &mut crowds {
        crowd.say("report")?;
    }
    let mut took = Vec::new();
    let (mut flows, mut settled) = (0_u64, 0_u64);
    for crowd in &mut crowds {
        let line = crowd.hear()?;
        let mut words = line.split(' ');
        flows += words.next().ok_or("no flows")?.parse::<u64>()?;
        settled += words.next().ok_or("no windows")?.parse::<u64>()?;
        took.extend(words.map(str::parse::<f64>).collect::<Result<Vec<_>, _>>()?);
    }
    let told = tallies(&judge)?;
    let kept: u64 = told.agents.iter().map(|agent| agent.kept).sum();
    let count = |name: &str| told.counters.iter().find(|one| one.name == name).map_or(0, |one| one.count);
    println!(
        "{flows} flows in each window; {settled} windows settled, {kept} kept, {} judged, {} too late",
        count("windows"),
        count("too_late"),
    );
    took.sort_by(f64::total_cmp);
    let at = |hundredths: usize| took[(took.len() * hundredths / 100).min(took.len() - 1)];
    println!(
        "a report is settled after (ms): median {:.1}, p99 {:.1}, longest {:.1}",
        at(50),
        at(99),
        at(100)
    );
    let peak = |peer: &mut Peer| -> Outcome<f64> {
        peer.say("size")?;
        Ok(peer.hear()?.parse::<f64>()? / 1024.0)
    };
    println!(
        "memory at most (MiB): controller {:.0}, analyzer {:.0}",
        peak(&mut controller)?,
        peak(&mut analyzer)?
    );
    if settled != kept {
        return Err("windows that were settled are not kept".into());
    }
    Ok(())
}

/// Is one of the other processes.
fn play(role: &str, _: u8) -> Outcome<()> {
    match role {
        "controller" => {
            let window = Duration::from_millis(Parent.hear()?.parse()?);
            let listener = Listener::bind(SocketAddr::from(([127, 0, 147, 1], 0)))?;
            let config = ControllerConfig { window, ..ControllerConfig::default() };
            let controller = Controller::start(listener, config)?;
            Parent.say(controller.address())?;
            tell_size()
        }
        "analyzer" => {
            let place = Parent.hear()?;
            let listener = Listener::bind(SocketAddr::from(([127, 0, 147, 2], 0)))?;
            let directory = std::env::temp_dir().join(format!("ferroce-crowd-{}", std::process::id()));
            fs::create_dir(&directory)?;
            let store = Some(Keeping::File(StoreConfig::new(directory.join("analyzer.db"))));
            let config = AnalyzerServerConfig { store, ..AnalyzerServerConfig::new(&place) };
            let analyzer = AnalyzerServer::start(listener, config)?;
            Parent.say(analyzer.address())?;
            let told = tell_size();
            fs::remove_dir_all(directory)?;
            told
        }
        _ => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(crowd(&Parent.hear()?))
        }
    }
}

/// Tells how much memory this process had at most, in KiB, as often as it is asked.
fn tell_size() -> Outcome<()> {
    while Parent.hear().is_ok_and(|line| !line.is_empty()) {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no size")?;
        Parent.say(line.split_whitespace().nth(1).ok_or("no size")?)?;
    }
    Ok(())
}

/// An agent that measures nothing.
struct Agent {
    name: String,
    address: IpAddr,
    client: MeshClient<Channel>,
    /// What it would probe: the ports of each target.
    targets: Arc<Mutex<BTreeMap<String, Vec<u32>>>>,
}

async fn crowd(order: &str) -> Outcome<()> {
    let words: Vec<&str> = order.split(' ').collect();
    let [place, first, count, window, rounds] = words[..] else {
        return Err("an order has five words".into());
    };
    let (first, count): (usize, usize) = (first.parse()?, count.parse()?);
    let (window, rounds): (u64, u32) = (window.parse()?, rounds.parse()?);
    let gate = Arc::new(Semaphore::new(AT_ONCE));
    let mut joining = Vec::new();
    for number in first..first + count {
        joining.push(tokio::spawn(join(place.to_owned(), number, Arc::clone(&gate))));
    }
    let mut agents = Vec::new();
    for one in joining {
        agents.push(one.await??);
    }
    Parent.say("registered")?;
    // Leases have to be kept meanwhile, so this thread must not wait for a line.
    tokio::task::spawn_blocking(|| Parent.hear()).await??;
    // Lists settle a moment after the last agent has come.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut reporting = Vec::new();
    for agent in agents {
        reporting.push(tokio::spawn(report(agent, window, rounds, Arc::clone(&gate))));
    }
    let (mut flows, mut settled, mut took) = (0_usize, 0, Vec::new());
    for one in reporting {
        let (of_agent, times) = one.await??;
        flows += of_agent;
        settled += times.len();
        took.extend(times.iter().map(|time| format!("{:.3}", time.as_secs_f64() * 1e3)));
    }
    Parent.say(format!("{flows} {settled} {}", took.join(" ")))?;
    Ok(())
}

async fn join(place: String, number: usize, gate: Arc<Semaphore>) -> Outcome<Agent> {
    let _place = gate.acquire().await?;
    let [high, low] = u16::try_from(number)?.to_be_bytes();
    // Nothing is sent there: it is a name.
    let address = IpAddr::from([10, 1, high, low]);
    let name = format!("agent{number}");
    let channel = Endpoint::from_shared(format!("http://{place}"))?.connect().await?;
    let mut client = MeshClient::new(channel).max_decoding_message_size(16 << 20);
    let rnic = v1::Rnic {
        address: address.to_string(),
        qpn: 0x100,
        qkey: QKEY,
        tor: format!("tor{}", number / BELOW),
        device: "rnic0".to_owned(),
        ..v1::Rnic::default()
    };
    let request =
        v1::RegisterRequest { agent: name.clone(), epoch: 1, host: name.clone(), rnics: vec![rnic] };
    let lease = client.register(request).await?.into_inner();
    let watch = v1::WatchRequest { agent: name.clone(), epoch: 1 };
    let mut lists = client.watch(watch).await?.into_inner();
    let targets: Arc<Mutex<BTreeMap<String, Vec<u32>>>> = Arc::default();
    let known = Arc::clone(&targets);
    tokio::spawn(async move {
        while let Ok(Some(list)) = lists.message().await {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            if list.whole {
                known.clear();
            }
            for pair in &list.removed {
                known.remove(&pair.to);
            }
            known.extend(list.set.into_iter().map(|target| (target.to, target.ports)));
        }
    });
    let (mut renewing, agent) = (client.clone(), name.clone());
    let every = Duration::from_millis(lease.lease_ms / 3 + lease.lease_ms * (number as u64 % 64) / 200);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            if renewing.renew(v1::RenewRequest { agent: agent.clone(), epoch: 1 }).await.is_err() {
                return;
            }
        }
    });
    Ok(Agent { name, address, client, targets })
}

/// Reports windows as they end: how many flows there are, and how long each window took to be settled.
async fn report(
    mut agent: Agent,
    window: u64,
    rounds: u32,
    gate: Arc<Semaphore>,
) -> Outcome<(usize, Vec<Duration>)> {
    let request = v1::RenewRequest { agent: agent.name.clone(), epoch: 1 };
    let lease = agent.client.renew(request).await?.into_inner();
    let (to, from) = mpsc::channel(1);
    let hello = v1::Hello { agent: agent.name.clone(), epoch: 1 };
    to.send(v1::ReportRequest { what: Some(What::Hello(hello)) }).await?;
    let mut replies = {
        let _place = gate.acquire().await?;
        let channel = Endpoint::from_shared(lease.analyzer)?.connect().await?;
        AnalysisClient::new(channel).report(ReceiverStream::new(from)).await?.into_inner()
    };
    replies.message().await?.ok_or("no answer to hello")?;
    let (mut took, mut flows) = (Vec::new(), 0);
    let delay = report_delay(&agent.name, Duration::from_millis(window));
    let length = window * 1_000_000;
    let now = unix_nanos();
    let first = now - now % length + length;
    for number in 1..=u64::from(rounds) {
        let end = first + (number - 1) * length;
        let due = Duration::from_nanos(end.saturating_sub(unix_nanos()));
        tokio::time::sleep(due + delay).await;
        let message = self::window(&agent, number, end - length, end);
        flows = message.flows.len();
        let start = Instant::now();
        to.send(v1::ReportRequest { what: Some(What::Window(message)) }).await?;
        let reply = replies.message().await?.ok_or("the stream ended")?;
        took.push(start.elapsed());
        if !reply.refusal.is_empty() || reply.number != number {
            return Err(format!("{}: window {number} is refused: {reply:?}", agent.name).into());
        }
    }
    Ok((flows, took))
}

fn window(agent: &Agent, number: u64, start: u64, end: u64) -> v1::Window {
    let targets = agent.targets.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut flows = Vec::new();
    for (to, ports) in &*targets {
        let Ok(to) = to.parse() else { continue };
        for port in ports {
            flows.push(v1::Flow {
                from: bytes(agent.address),
                to: bytes(to),
                port: *port,
                reply_port: *port,
                outcomes: Some(v1::Outcomes { ok: 4, ..v1::Outcomes::default() }),
                // Four round trips of about 23 us.
                round_trips: Some(v1::Histogram {
                    buckets: vec![181, 182, 184],
                    counts: vec![1, 2, 1],
                    min_ns: 21_600,
                    max_ns: 24_600,
                }),
            });
        }
    }
    v1::Window { epoch: 1, number, start_unix_ns: start, end_unix_ns: end, flows, ..v1::Window::default() }
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
