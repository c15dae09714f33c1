//! Certificates: what they allow, and programs that have the wrong ones, or none.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferroce_meshd::proto::rebuild::controller_service_client::ControllerServiceClient;
use ferroce_meshd::proto::v1::analysis_client::AnalysisClient;
use ferroce_meshd::proto::v1::mesh_client::MeshClient;
use ferroce_meshd::proto::{rebuild, v1};
use ferroce_meshd::tls::{Authority, AuthorityError, CredentialFiles, Credentials, Validity};
use ferroce_meshd::{
    Agent, AgentConfig, AgentError, AgentRnic, AnalyzerServer, AnalyzerServerConfig, BackoffConfig,
    Controller, ControllerConfig, Inquiry, Listener, findings,
};
use ferroce_verbs::Context;
use ferroce_verbs::time::{now, park};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, version};
use tonic::Code;
use tonic::codegen::http::Uri;
use tonic::codegen::{BoxFuture, Poll, Service};
use tonic::transport::{Channel, Endpoint};

/// No step takes longer.
const LIMIT: Duration = Duration::from_secs(60);

const BACKOFF: BackoffConfig =
    BackoffConfig { first: Duration::from_millis(50), longest: Duration::from_millis(400) };

const DAY: Duration = Duration::from_hours(24);

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

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, work).await.unwrap() })
}

/// A directory of a test's own, with a CA.
struct Ca {
    path: PathBuf,
    authority: Authority,
}

impl Ca {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let authority = Authority::open(&path, Validity::starting_now(DAY)).unwrap();
        Self { path, authority }
    }

    fn files(&self, name: &str, addresses: &[&str]) -> CredentialFiles {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.authority.issue(name, &addresses, Validity::starting_now(DAY)).unwrap()
    }

    fn make(&self, name: &str, addresses: &[&str]) -> Credentials {
        Credentials::read(&self.files(name, addresses)).unwrap()
    }
}

impl Drop for Ca {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn controller(ca: &Ca, address: &str) -> Controller {
    let credentials = ca.make("controller", &[address]);
    let listener = Listener::bind_tls(format!("{address}:0").parse().unwrap(), &credentials).unwrap();
    let config = ControllerConfig {
        window: Duration::from_millis(500),
        settle: Duration::from_millis(50),
        ..ControllerConfig::default()
    };
    Controller::start(listener, config).unwrap()
}

fn analyzer(ca: &Ca, address: &str, controller: SocketAddr) -> AnalyzerServer {
    let credentials = ca.make("analyzer", &[address]);
    let listener = Listener::bind_tls(format!("{address}:0").parse().unwrap(), &credentials).unwrap();
    let config =
        AnalyzerServerConfig { backoff: BACKOFF, ..AnalyzerServerConfig::new(&controller.to_string()) };
    AnalyzerServer::start(listener, config).unwrap()
}

fn agent(
    credentials: Credentials,
    name: &str,
    address: &str,
    controller: SocketAddr,
) -> Result<Agent, Box<AgentError>> {
    let address: IpAddr = address.parse().unwrap();
    let context = Context::builder("ferroce_lo").address(address).open().unwrap();
    let config = AgentConfig {
        backoff: BACKOFF,
        credentials: Some(credentials),
        ..AgentConfig::new(name, name, &format!("https://{controller}"))
    };
    let rnic = AgentRnic { context, address, tor: "t".to_owned(), device: "d".to_owned() };
    Agent::start(config, vec![rnic]).map_err(Box::new)
}

#[test]
fn agents_with_certificates_register_probe_and_report_under_their_names_only() {
    let ca = Ca::new("agents");
    let controller = controller(&ca, "127.0.150.1");
    let analyzer = analyzer(&ca, "127.0.150.2", controller.address());
    let names = ["host1", "host2"];
    let agents = names.map(|name| {
        let address = format!("127.0.150.1{}", name.len() + usize::from(name.ends_with('2')));
        agent(ca.make(name, &[]), name, &address, controller.address()).unwrap()
    });
    let operator = ca.make("operator", &[]);
    let place = format!("https://{}", analyzer.address());
    let tallies = wait_for("windows with probes of both agents", || {
        let tallies = Inquiry::with(&place, Some(operator.clone())).tallies().unwrap();
        let told = |of: &v1::AgentTally| of.outcomes.iter().any(|counter| counter.count > 10);
        (tallies.agents.iter().filter(|of| told(of)).count() == 2).then_some(tallies)
    });
    let heard: Vec<&str> = tallies.agents.iter().map(|of| of.agent.as_str()).collect();
    assert_eq!(heard, names);
    assert_eq!(analyzer.trouble(), "");
    assert_eq!(controller.size(), (2, 2));
    for agent in &agents {
        let state = agent.state();
        assert!(state.is_registered && state.is_reporting, "{state:?}");
    }
    assert_eq!((controller.counters().foreign_names, analyzer.counters().foreign_names), (0, 0));
    // The certificate of another agent: it does not even begin.
    let thief = agent(ca.make("host3", &[]), "host1", "127.0.150.19", controller.address()).unwrap_err();
    assert_eq!(thief.to_string(), "the certificate is for host3, so it cannot be agent host1");
}

/// A program of another maker: it trusts the first CA, and shows what it is told to.
fn foreign(trusts: &Ca, shows: Option<&CredentialFiles>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusts.path.join("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shows {
        None => config.with_no_client_auth(),
        Some(files) => {
            let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&files.key).unwrap()).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

async fn shake_hands(config: Arc<ClientConfig>, to: SocketAddr) -> TlsStream<tokio::net::TcpStream> {
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let name = ServerName::from(to.ip());
    TlsConnector::from(config).connect(name, stream).await.unwrap()
}

/// What a service says to a program after its handshake, if it refuses it.
fn refusal(config: Arc<ClientConfig>, to: SocketAddr) -> String {
    run(async {
        let mut stream = shake_hands(config, to).await;
        stream.read_u8().await.unwrap_err().to_string()
    })
}

#[test]
fn programs_with_wrong_certificates_or_none_are_refused_with_a_reason_and_counted() {
    let (ca, other) = (Ca::new("strangers"), Ca::new("strangers-other"));
    let controller = controller(&ca, "127.0.151.1");
    let place = controller.address();
    assert!(refusal(foreign(&ca, None), place).contains("CertificateRequired"));
    let theirs = other.files("host1", &[]);
    let said = refusal(foreign(&ca, Some(&theirs)), place);
    // Both CAs have one name, so the judge finds the wrong signature.
    assert!(said.contains("DecryptError") || said.contains("UnknownCA"), "{said}");
    let old = Validity { from: 1_000_000_000, until: 1_100_000_000 };
    let expired = ca.authority.issue("old", &[], old).unwrap();
    let said = refusal(foreign(&ca, Some(&expired)), place);
    assert!(said.contains("CertificateExpired"), "{said}");
    // Each is counted a moment after it is told.
    wait_for("one without a certificate and two with wrong ones", || {
        let counters = controller.counters();
        ((counters.refused_no_certificate, counters.refused_certificates) == (1, 2)).then_some(())
    });
    // A program that does not know our CA hangs up itself.
    let inquiry = Inquiry::with(&place.to_string(), Some(Credentials::read(&theirs).unwrap()));
    let error = inquiry.counters().unwrap_err();
    assert_eq!(
        told(&error),
        format!("no connection to {place}: its certificate is refused here: it was made by another CA")
    );
    wait_for("the count of a broken handshake", || {
        (controller.counters().broken_handshakes == 1).then_some(())
    });
    assert_eq!(controller.counters().connections, 0);
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[test]
fn a_certificate_that_expires_while_a_program_runs_is_told_to_it() {
    let ca = Ca::new("expires");
    let controller = controller(&ca, "127.0.151.2");
    let place = controller.address().to_string();
    let short = Validity::starting_now(Duration::from_secs(2));
    let files = ca.authority.issue("short", &[], short).unwrap();
    let credentials = Credentials::read(&files).unwrap();
    let inquiry = Inquiry::with(&place, Some(credentials));
    let error = wait_for("the end of a certificate", || inquiry.counters().err());
    assert_eq!(
        told(&error),
        format!(
            "no connection to {place}: it refuses the certificate that is shown to it: it expired some time ago"
        )
    );
    let error = Credentials::read(&files).unwrap_err();
    assert!(told(&error).ends_with(": it expired 1 minute ago"), "{}", told(&error));
}

#[test]
fn a_server_is_what_its_certificate_says() {
    let ca = Ca::new("servers");
    // The certificate of an agent, on a server at another address.
    let credentials = ca.make("host1", &["127.0.151.99"]);
    let listener = Listener::bind_tls("127.0.151.3:0".parse().unwrap(), &credentials).unwrap();
    let controller = Controller::start(listener, ControllerConfig::default()).unwrap();
    let place = controller.address().to_string();
    let error = Inquiry::with(&place, Some(ca.make("operator", &[]))).counters().unwrap_err();
    assert_eq!(
        told(&error),
        format!(
            "no connection to {place}: its certificate is refused here: it is for host1 and 127.0.151.99, not for 127.0.151.3"
        )
    );
}

#[test]
fn plain_text_to_tls_and_tls_to_plain_text_are_told_so() {
    let ca = Ca::new("mixed");
    let with = controller(&ca, "127.0.151.4");
    let error = ferroce_meshd::counters(&with.address().to_string()).unwrap_err();
    assert!(told(&error).ends_with(" speaks TLS only; it needs certificates"), "{}", told(&error));
    let mut stream = TcpStream::connect(with.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("this service speaks TLS only"),
        "{answer}"
    );
    wait_for("both counted", || (with.counters().refused_plain_text == 2).then_some(()));

    let listener = Listener::bind("127.0.151.5:0".parse().unwrap()).unwrap();
    let without = Controller::start(listener, ControllerConfig::default()).unwrap();
    let place = without.address().to_string();
    let error = Inquiry::with(&place, Some(ca.make("operator", &[]))).counters().unwrap_err();
    assert!(
        told(&error).ends_with("what answers there does not speak TLS; is it run without certificates?"),
        "{}",
        told(&error)
    );
    wait_for("it counted", || (without.counters().refused_tls == 1).then_some(()));
    // Neither has the one a reason to write the other's address.
    let error = findings("https://127.0.151.5:1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"https://127.0.151.5:1\" is a service with TLS, which needs certificates"
    );
}

/// Hands out a connection once.
struct Once(Option<TokioIo<TlsStream<tokio::net::TcpStream>>>);

impl Service<Uri> for Once {
    type Response = TokioIo<TlsStream<tokio::net::TcpStream>>;
    type Error = std::io::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = self.0.take().unwrap();
        Box::pin(async { Ok(stream) })
    }
}

async fn channel(config: Arc<ClientConfig>, to: SocketAddr) -> Channel {
    let stream = Once(Some(TokioIo::new(shake_hands(config, to).await)));
    Endpoint::from_shared(format!("https://{to}")).unwrap().connect_with_connector(stream).await.unwrap()
}

#[test]
fn what_is_said_in_anothers_name_is_refused_and_counted_whichever_protocol_it_is_said_in() {
    let ca = Ca::new("names");
    let controller = controller(&ca, "127.0.151.6");
    let analyzer = analyzer(&ca, "127.0.151.7", controller.address());
    let thief = foreign(&ca, Some(&ca.files("thief", &[])));
    let rnic = |address: &str| v1::Rnic {
        address: address.into(),
        qpn: 17,
        qkey: 0x1111_1111,
        tor: "t".into(),
        device: "d".into(),
        ..v1::Rnic::default()
    };
    let register = |agent: &str, address: &str| v1::RegisterRequest {
        agent: agent.into(),
        epoch: 5,
        host: "h".into(),
        rnics: vec![rnic(address)],
    };
    run(async {
        let honest = foreign(&ca, Some(&ca.files("honest", &[])));
        let mut ours = MeshClient::new(channel(honest, controller.address()).await);
        ours.register(register("honest", "10.0.0.1")).await.unwrap();
        let mut client = MeshClient::new(channel(Arc::clone(&thief), controller.address()).await);
        let is_denied = |status: tonic::Status| {
            assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
            assert!(status.message().starts_with("the certificate is for thief, not for "), "{status:?}");
        };
        is_denied(client.register(register("honest", "10.0.0.2")).await.unwrap_err());
        let agent = || "honest".to_owned();
        is_denied(client.renew(v1::RenewRequest { agent: agent(), epoch: 5 }).await.unwrap_err());
        is_denied(client.watch(v1::WatchRequest { agent: agent(), epoch: 5 }).await.unwrap_err());
        let analyzer_url = "https://10.0.0.2:1".to_owned();
        is_denied(client.roster(v1::RosterRequest { analyzer: analyzer_url, term: 0 }).await.unwrap_err());
        client.register(register("thief", "10.0.0.2")).await.unwrap();

        let channel_of = channel(Arc::clone(&thief), controller.address()).await;
        let mut rebuild_client = ControllerServiceClient::new(channel_of);
        let registration = rebuild::AgentRegistrationRequest {
            agent_id: agent(),
            ..rebuild::AgentRegistrationRequest::default()
        };
        is_denied(rebuild_client.register_agent(registration).await.unwrap_err());
        let list = rebuild::PinglistRequest { agent_id: agent(), ..rebuild::PinglistRequest::default() };
        is_denied(rebuild_client.get_pinglist(list).await.unwrap_err());
        let report = rebuild::ProbeAnalysisReport { agent_id: agent(), summaries: Vec::new() };
        is_denied(rebuild_client.report_probe_analysis(report).await.unwrap_err());

        let mut analysis = AnalysisClient::new(channel(thief, analyzer.address()).await);
        let hello = v1::Hello { agent: agent(), epoch: 5 };
        let hello = v1::ReportRequest { what: Some(v1::report_request::What::Hello(hello)) };
        let mut replies = analysis.report(tokio_stream::iter([hello])).await.unwrap().into_inner();
        is_denied(replies.message().await.unwrap_err());
    });
    assert_eq!((controller.counters().foreign_names, analyzer.counters().foreign_names), (7, 1));
    assert_eq!(controller.size(), (2, 2));
}

#[test]
fn connections_that_say_nothing_are_bounded_in_number_and_time_and_keep_nobody_out() {
    let ca = Ca::new("slow");
    let controller = controller(&ca, "127.0.151.8");
    let silent: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(controller.address()).unwrap()).collect();
    // One that says the beginning of something is no better.
    let mut slow = TcpStream::connect(controller.address()).unwrap();
    slow.write_all(&[22, 3, 1, 2, 0]).unwrap();
    let inquiry = Inquiry::with(&controller.address().to_string(), Some(ca.make("operator", &[])));
    inquiry.counters().unwrap();
    let counters = controller.counters();
    assert_eq!(counters.crowded_handshakes, 46, "of 302, 256 have a place: {counters:?}");
    assert_eq!(counters.connections, 1, "{counters:?}");
    wait_for("the end of the others", || (controller.counters().late_handshakes == 255).then_some(()));
    drop((silent, slow));
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_reason() {
    let ca = Ca::new("files");
    let other = Ca::new("files-other");
    let good = ca.files("host1", &["127.0.0.1"]);
    assert_eq!(Credentials::read(&good).unwrap().names(), ["host1"]);
    assert_eq!(good, CredentialFiles::beside(&ca.path.join("host1")));
    let theirs = other.files("host1", &[]);
    let write = |name: &str, bytes: &[u8], mode: u32| {
        let path = ca.path.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let [certificate, key] = [&good.certificate, &good.key].map(|path| fs::read(path).unwrap());
    let cut = write("cut.pem", &certificate[..certificate.len() / 2], 0o644);
    let cut_key = write("cut.key", &key[..key.len() / 2], 0o600);
    let open = write("open.key", &key, 0o644);
    let long = write("long.pem", &vec![b'x'; (1 << 20) + 1], 0o644);
    let words = write("words.pem", b"no certificate at all", 0o644);
    let middle = certificate.len() / 2;
    let mut damaged = certificate.clone();
    damaged[middle] = if damaged[middle] == b'A' { b'B' } else { b'A' };
    let damaged = write("damaged.pem", &damaged, 0o644);
    let old = Validity { from: 1_000_000_000, until: 1_100_000_000 };
    let expired = ca.authority.issue("old", &[], old).unwrap();
    let from = |change: &dyn Fn(&mut CredentialFiles)| {
        let mut files = good.clone();
        change(&mut files);
        told(&Credentials::read(&files).unwrap_err())
    };
    let cases: [(String, &str, &str); 11] = [
        (from(&|files| files.ca = ca.path.join("none")), "none", "No such file"),
        (from(&|files| files.certificate.clone_from(&cut)), "cut.pem", "is cut off or damaged"),
        (from(&|files| files.key.clone_from(&cut_key)), "cut.key", "is cut off or damaged"),
        (from(&|files| files.key.clone_from(&open)), "open.key", "chmod 600"),
        (from(&|files| files.certificate.clone_from(&long)), "long.pem", "longer than 1 MiB"),
        (from(&|files| files.certificate.clone_from(&words)), "words.pem", "holds no certificate"),
        (from(&|files| files.key.clone_from(&theirs.key)), "host1.key", "does not belong to"),
        (from(&|files| files.certificate.clone_from(&damaged)), "damaged.pem", ""),
        (from(&|files| files.ca.clone_from(&theirs.ca)), "ca.pem", "it was made by another CA"),
        (from(&|files| files.clone_from(&expired)), "old.pem", "it expired "),
        (from(&|files| files.ca.clone_from(&files.key.clone())), "host1.key", "holds no certificate"),
    ];
    for (said, file, why) in cases {
        assert!(said.contains(file) && said.contains(why), "{said}: not {file} and {why}");
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&good.key), mode(&ca.path.join("ca.key"))), (0o600, 0o600));
}

#[test]
fn a_ca_overwrites_nothing_and_knows_its_own_key() {
    let ca = Ca::new("authority");
    ca.files("host1", &[]);
    let again = Authority::open(&ca.path, Validity::starting_now(DAY)).unwrap();
    assert!(!again.is_new() && ca.authority.is_new());
    let refused = again.issue("host1", &[], Validity::starting_now(DAY)).unwrap_err();
    assert!(matches!(&refused, AuthorityError::Exists { path } if path.ends_with("host1.pem")), "{refused}");
    let second = again.issue("host2", &[], Validity::starting_now(DAY)).unwrap();
    assert_eq!(Credentials::read(&second).unwrap().names(), ["host2"], "the CA that was there made it");
    for name in ["", "ca", "a b", "../x", "*", "*.rack", "a/b", "-", "127.0.0.1", &"x".repeat(300)] {
        let refused = again.issue(name, &[], Validity::starting_now(DAY)).unwrap_err();
        assert!(matches!(refused, AuthorityError::Name { .. }), "{name}: {refused}");
    }
    let ca_key = ca.path.join("ca.key");
    fs::set_permissions(&ca_key, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = Authority::open(&ca.path, Validity::starting_now(DAY)).unwrap_err();
    assert!(told(&refused).contains("chmod 600"), "{}", told(&refused));
    fs::remove_file(&ca_key).unwrap();
    let refused = Authority::open(&ca.path, Validity::starting_now(DAY)).unwrap_err();
    assert!(matches!(refused, AuthorityError::NoKey { .. }), "{refused}");
    // The key of another CA beside it.
    let other = Ca::new("authority-other");
    fs::copy(other.path.join("ca.key"), ca.path.join("ca.key")).unwrap();
    let mixed = Authority::open(&ca.path, Validity::starting_now(DAY)).unwrap();
    let refused = mixed.issue("host3", &[], Validity::starting_now(DAY)).unwrap_err();
    assert!(matches!(refused, AuthorityError::Foreign { .. }), "{refused}");
    assert!(!ca.path.join("host3.key").exists());
}
