//! Agents of other makers, and those that mean no good.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use ferroce_mesh::controller::RegistryConfig;
use ferroce_meshd::proto::rebuild::controller_service_client::ControllerServiceClient;
use ferroce_meshd::proto::v1::mesh_client::MeshClient;
use ferroce_meshd::proto::{rebuild, v1};
use ferroce_meshd::tls::{Authority, Credentials, Validity};
use ferroce_meshd::{
    Agent, AgentConfig, AgentRnic, AnalyzerServer, AnalyzerServerConfig, Controller, ControllerConfig,
    Listener, tallies,
};
use ferroce_testkit::judge;
use ferroce_verbs::Context;
use ferroce_verbs::time::{now, park};
use prost::Message;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const LIMIT: Duration = Duration::from_secs(30);
const QKEY: u32 = 0x1111_1111;

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < end, "after {LIMIT:?} still waiting for: {what}");
        park(Some(Duration::from_millis(20)));
    }
}

fn controller(address: &str, config: ControllerConfig) -> Controller {
    Controller::start(Listener::bind(address.parse().unwrap()).unwrap(), config).unwrap()
}

async fn channel(url: String) -> Channel {
    Endpoint::from_shared(url).unwrap().connect().await.unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, work).await.unwrap() })
}

fn rnic(address: &str) -> v1::Rnic {
    v1::Rnic {
        address: address.into(),
        gid: String::new(),
        qpn: 17,
        qkey: QKEY,
        tor: "t1".into(),
        device: "d".into(),
    }
}

fn request(agent: &str, rnics: Vec<v1::Rnic>) -> v1::RegisterRequest {
    v1::RegisterRequest { agent: agent.into(), epoch: 5, host: "h".into(), rnics }
}

#[test]
fn hostile_registrations_are_refused_with_a_reason_and_counted() {
    let registry = RegistryConfig { rnics: 2, agents: 2, ..RegistryConfig::default() };
    let controller =
        controller("127.0.145.1:0", ControllerConfig { registry, ..ControllerConfig::default() });
    let url = format!("http://{}", controller.address());
    run(async {
        let mut client = MeshClient::new(channel(url).await);
        client.register(request("honest", vec![rnic("10.0.0.1")])).await.unwrap();
        let with = |change: fn(&mut v1::Rnic)| {
            let mut other = rnic("10.0.0.2");
            change(&mut other);
            request("liar", vec![other])
        };
        let cases = [
            (request("", vec![rnic("10.0.0.2")]), "no name"),
            (request("li\nar", vec![rnic("10.0.0.2")]), "no name"),
            (request(&"x".repeat(100_000), vec![rnic("10.0.0.2")]), "no name"),
            (request("liar", vec![]), "no RNIC"),
            (request("liar", vec![rnic("10.0.0.2"); 2]), "named twice"),
            (request("liar", vec![rnic("10.0.0.2"); 2000]), "3 RNICs, and may have 2"),
            (request("liar", vec![rnic("10.0.0.1")]), "belongs to agent honest"),
            (request("liar", vec![rnic("::ffff:10.0.0.1")]), "belongs to agent honest"),
            (with(|rnic| rnic.address = "everywhere".into()), "no address"),
            (with(|rnic| rnic.address = "0.0.0.0".into()), "not the address of one RNIC"),
            (with(|rnic| rnic.gid = "::ffff:10.0.0.9".into()), "does not belong to"),
            (with(|rnic| rnic.qpn = 1), "cannot be a responder's"),
            (with(|rnic| rnic.qkey = 1), "Q_Key 0x1"),
            (with(|rnic| rnic.tor = "t".repeat(129)), "no name"),
        ];
        for (request, why) in cases {
            let status = client.register(request).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert!(status.message().contains(why), "{}, not {why}", status.message());
            assert!(status.message().len() < 400, "{}", status.message());
        }
        let huge = request("liar", vec![rnic(&"9".repeat(1000)); 1000]);
        assert_eq!(
            client.register(huge).await.unwrap_err().code(),
            Code::OutOfRange,
            "more than is read at all"
        );
        let mut old = request("honest", vec![rnic("10.0.0.1")]);
        old.epoch = 4;
        let status = client.register(old).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.metadata().get("known-epoch").unwrap(), "5");
        client.register(request("second", vec![rnic("10.0.0.3")])).await.unwrap();
        let full = client.register(request("third", vec![rnic("10.0.0.4")])).await.unwrap_err();
        assert!(full.message().contains("2 agents"), "{}", full.message());
        for analyzer in ["http://192.0.2.1:50052", "", "x"] {
            let request = v1::RosterRequest { analyzer: analyzer.into(), term: 0 };
            assert_eq!(client.roster(request).await.unwrap_err().code(), Code::InvalidArgument, "{analyzer}");
        }
    });
    let counters = controller.counters();
    assert_eq!(controller.size(), (2, 2));
    assert_eq!(
        (counters.registered, counters.refused_names, counters.refused_lists),
        (2, 4, 3),
        "{counters:?}"
    );
    assert_eq!((counters.refused_taken, counters.refused_rnics), (2, 5), "{counters:?}");
    assert_eq!((counters.refused_full, counters.old_epochs), (1, 1), "{counters:?}");
}

#[test]
fn there_are_so_many_streams_and_no_more() {
    let controller =
        controller("127.0.145.2:0", ControllerConfig { watches: 1, ..ControllerConfig::default() });
    let url = format!("http://{}", controller.address());
    run(async {
        let mut client = MeshClient::new(channel(url).await);
        client.register(request("a", vec![rnic("10.0.0.1")])).await.unwrap();
        let watch = || v1::WatchRequest { agent: "a".into(), epoch: 5 };
        let unknown = v1::WatchRequest { agent: "b".into(), epoch: 5 };
        assert_eq!(client.watch(unknown).await.unwrap_err().code(), Code::NotFound);
        let mut first = client.watch(watch()).await.unwrap().into_inner();
        let list = first.message().await.unwrap().unwrap();
        assert!(list.whole && list.set.is_empty(), "{list:?}");
        let refused = client.watch(watch()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        drop(first);
        // Its place is free once the controller has seen that it is gone.
        while client.watch(watch()).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    assert!(controller.counters().watches_refused >= 1);
}

#[test]
fn an_agent_of_the_rebuild_sees_no_list_of_others_and_tells_nothing_in_their_names() {
    let controller = controller("127.0.145.3:0", ControllerConfig::default());
    let url = format!("http://{}", controller.address());
    run(async {
        let mut ours = MeshClient::new(channel(url.clone()).await);
        ours.register(request("ours", vec![rnic("10.0.0.1")])).await.unwrap();
        let mut client = ControllerServiceClient::new(channel(url).await);
        let list = |gid: &str| rebuild::PinglistRequest {
            agent_id: "theirs".into(),
            requester_gid: gid.into(),
            ..rebuild::PinglistRequest::default()
        };
        let unknown = client.get_pinglist(list("10.0.0.2")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
        let rnic =
            rebuild::RnicInfo { gid: "::ffff:10.0.0.2".into(), qpn: 9, ..rebuild::RnicInfo::default() };
        let registration = rebuild::AgentRegistrationRequest {
            agent_id: "theirs".into(),
            hostname: "h2".into(),
            tor_id: "t1".into(),
            rnics: vec![rnic],
            ..rebuild::AgentRegistrationRequest::default()
        };
        let answer = client.register_agent(registration.clone()).await.unwrap().into_inner();
        assert!(answer.success, "{answer:?}");
        let wrong = rebuild::AgentRegistrationRequest { agent_id: "ours".into(), ..registration };
        let answer = client.register_agent(wrong).await.unwrap().into_inner();
        assert!(!answer.success && !answer.message.is_empty(), "{answer:?}");
        let targets = client.get_pinglist(list("10.0.0.2")).await.unwrap().into_inner().targets;
        assert_eq!((targets.len(), targets[0].target_gid.as_str()), (1, "::ffff:10.0.0.1"));
        let foreign = client.get_pinglist(list("10.0.0.1")).await.unwrap_err();
        assert_eq!(foreign.code(), Code::PermissionDenied, "{foreign:?}");
        for (source, failed, accepted) in
            [("10.0.0.2", 2, true), ("10.0.0.1", 2, false), ("10.0.0.2", 99, false)]
        {
            let line = rebuild::PathSummary {
                source_gid: source.into(),
                probe_total: 10,
                probe_success: 8,
                probe_failed: failed,
                ..rebuild::PathSummary::default()
            };
            let report = rebuild::ProbeAnalysisReport { agent_id: "theirs".into(), summaries: vec![line] };
            let ack = client.report_probe_analysis(report).await.unwrap().into_inner();
            assert_eq!(
                (ack.accepted, ack.sla_violations),
                (accepted, u32::from(accepted)),
                "{source} {failed}"
            );
        }
    });
    let counters = controller.counters();
    assert_eq!((counters.rebuild_summaries, counters.rebuild_refused), (1, 2), "{counters:?}");
    assert_eq!((counters.rebuild_probes, counters.rebuild_failed), (10, 2), "{counters:?}");
}

/// A Python with grpcio, which is installed once; none if that cannot be.
fn python() -> Option<PathBuf> {
    static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(install);
    PYTHON.clone()
}

fn install() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpcio");
    let (python, done) = (home.join("bin/python"), home.join("done"));
    if !done.exists() {
        let quiet = |command: &mut Command| {
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let packages = ["grpcio==1.85.1", "grpcio-tools==1.85.1"];
        if quiet(Command::new("python3").args(["-m", "venv"]).arg(&home))
            && quiet(
                Command::new(&python)
                    .args(["-m", "pip", "install", "--timeout", "5", "--retries", "1"])
                    .args(packages),
            )
        {
            fs::write(&done, "").unwrap();
        }
    }
    judge::has_file(done.to_str().unwrap()).then_some(python)
}

#[test]
fn an_agent_in_python_registers_gets_its_pinglist_and_reports() {
    let Some(python) = python() else { return };
    let quick = ControllerConfig { settle: Duration::from_millis(20), ..ControllerConfig::default() };
    let controller = controller("127.0.146.1:0", quick);
    let place: SocketAddr = controller.address();
    let listener = Listener::bind("127.0.146.2:0".parse().unwrap()).unwrap();
    let analyzer = AnalyzerServer::start(listener, AnalyzerServerConfig::new(&place.to_string())).unwrap();
    let address: IpAddr = "127.0.147.1".parse().unwrap();
    let context = Context::builder("ferroce_lo").address(address).open().unwrap();
    let rnic = AgentRnic { context, address, tor: "t1".to_owned(), device: "ferroce_lo".to_owned() };
    let agent = Agent::start(AgentConfig::new("ours", "ours", &place.to_string()), vec![rnic]).unwrap();
    wait_for("our own agent", || agent.state().is_registered.then_some(()));
    wait_for("the analyzer", || analyzer.trouble().is_empty().then_some(()));
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stranger-{}", std::process::id()));
    fs::create_dir_all(&out).unwrap();
    let output = Command::new(python)
        .arg(crate_root.join("tests/stranger.py"))
        .args([&crate_root.join("proto"), &out])
        .args([place.to_string(), analyzer.address().to_string(), address.to_string()])
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(&out);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["registered"], serde_json::json!([true, ""]), "{told}");
    assert_eq!(told["thief"], false, "our RNIC is ours: {told}");
    let below = told["below"].as_array().unwrap();
    assert_eq!((below.len(), below[0][0].as_str()), (1, Some("::ffff:127.0.147.1")), "{told}");
    assert_eq!(told["between"], serde_json::json!([]), "{told}");
    assert_eq!(told["report"], serde_json::json!([true, 1]), "{told}");
    assert_eq!(told["lease"], serde_json::json!([30_000, 20_000]), "{told}");
    assert_eq!(told["whole"][0], true, "{told}");
    assert_eq!(told["whole"][1].as_array().unwrap().len(), 1, "one of the two of the other ToR: {told}");
    let answered = told["answered"].as_array().unwrap();
    assert!((1..=2).contains(&answered.len()), "those of the other ToR that probe it: {told}");
    assert_eq!(told["analyzer"], format!("http://{}", analyzer.address()), "{told}");
    assert_eq!(told["settled 1"], serde_json::json!([[0, ""], [1, ""], [2, ""]]), "{told}");
    assert_eq!(
        told["settled 2"],
        serde_json::json!([[2, ""], [2, ""], [3, ""]]),
        "a replay settles nothing: {told}"
    );
    let tallies = tallies(&analyzer.address().to_string()).unwrap();
    let other = tallies.agents.iter().find(|tally| tally.agent == "other").unwrap();
    assert_eq!((other.kept, other.replays, other.outcomes[0].count), (3, 1, 9), "{other:?}");
    // It is probed like any other: it has no responder, and that is seen.
    wait_for("probes of the stranger", || (agent.state().targets >= 2).then_some(()));
}

/// Registers twice over TLS, with messages that it is given: prints how each ended.
const REGISTER: &str = r#"
import grpc, sys
place, ca, certificate, key, *messages = sys.argv[1:]
read = lambda path: open(path, "rb").read()
credentials = grpc.ssl_channel_credentials(read(ca), read(key), read(certificate))
with grpc.secure_channel(place, credentials) as channel:
    register = channel.unary_unary("/ferroce.mesh.v1.Mesh/Register")
    for message in messages:
        try:
            register(bytes.fromhex(message), timeout=20)
            print("ok")
        except grpc.RpcError as error:
            print(error.code().name, error.details())
"#;

#[test]
fn an_agent_in_python_is_what_its_certificate_says() {
    let Some(python) = python() else { return };
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stranger-tls-{}", std::process::id()));
    let day = Validity::starting_now(Duration::from_hours(24));
    let authority = Authority::open(&home, day).unwrap();
    let address: IpAddr = "127.0.146.3".parse().unwrap();
    let ours = Credentials::read(&authority.issue("controller", &[address], day).unwrap()).unwrap();
    let theirs = authority.issue("python", &[], day).unwrap();
    let listener = Listener::bind_tls(SocketAddr::new(address, 0), &ours).unwrap();
    let controller = Controller::start(listener, ControllerConfig::default()).unwrap();
    let message = |agent: &str| {
        let bytes = request(agent, vec![rnic("10.0.0.1")]).encode_to_vec();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let output = Command::new(python)
        .args(["-c", REGISTER, &controller.address().to_string()])
        .args([&theirs.ca, &theirs.certificate, &theirs.key])
        .args([message("python"), message("ours")])
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(&home);
    let [told, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let expected = "ok\nPERMISSION_DENIED the certificate is for python, not for \"ours\"\n";
    assert_eq!(told, expected, "{errors}");
    assert_eq!((controller.size(), controller.counters().foreign_names), ((1, 1), 1));
}
