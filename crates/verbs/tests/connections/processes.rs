//! Several processes: those that share an address share its ports, and one that dies leaves no peer waiting.

use std::net::SocketAddr;
use std::time::Duration;

use ferroce_verbs::cm::{self, CmError, CmOptions, ListenError, Listener};
use ferroce_verbs::{Context, Service};

use crate::child::{self, Other, eventually, listen, tell};
use crate::common::{End, SOON, nic, open};
use crate::parties::{hasty, patient, talk_to};

const NAME: &str = "processes::the_other_process";

/// What a child of this binary does; nothing in the parent.
#[test]
fn the_other_process() {
    let Some(role) = child::role() else { return };
    let mut words = role.split(' ');
    let mut next = || words.next().expect("a word");
    let what = next();
    let address: std::net::Ipv4Addr = next().parse().unwrap();
    let context = Context::builder("lo").address(address).open().unwrap();
    match what {
        "serve" => serve(&context, next().parse().unwrap()),
        "hold" => hold(&context, next().parse().unwrap()),
        "ask" => ask(&context, next().parse().unwrap()),
        other => panic!("no such role: {other}"),
    }
}

/// Serves connections: each echoes one message.
fn serve(context: &Context, port: u16) {
    let listener = Listener::bind(context, port, 8).unwrap();
    tell("listening");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let request = listener.accept(None).unwrap();
                let end = End::new(context, Service::Rc);
                end.qp.receive(end.region.slice(..64)).post().unwrap();
                let options = patient().private_data(&port.to_be_bytes());
                let Ok(link) = request.accept(&end.qp, &options) else { continue };
                end.done();
                end.qp.send(end.region.slice(..5)).post().unwrap();
                end.done();
                link.wait_disconnected(None).unwrap();
            }
        });
        // Ends this process with its parent, or when that says so.
        listen();
        std::process::exit(0);
    });
}

/// Takes a request, and does nothing about it.
fn hold(context: &Context, port: u16) {
    let listener = Listener::bind(context, port, 8).unwrap();
    tell("listening");
    let request = listener.accept(None).unwrap();
    tell("holding");
    listen();
    drop(request);
}

/// Asks, and does nothing else.
fn ask(context: &Context, peer: SocketAddr) {
    let end = End::new(context, Service::Rc);
    let asking = cm::start_connect(peer, &end.qp, &patient()).unwrap();
    tell("asking");
    listen();
    drop(asking);
}

fn start(role: &str, heard: &str) -> Other {
    let mut other = Other::start(NAME, role, &[]);
    assert_eq!(other.hear(), heard);
    other
}

#[test]
fn processes_of_one_address_listen_on_ports_of_their_own() {
    let mut servers =
        [start("serve 127.0.134.1 5001", "listening"), start("serve 127.0.134.1 5002", "listening")];
    // One of them shares the address with the client, the other has one of its own.
    for from in [[127, 0, 134, 1], [127, 0, 134, 2]] {
        let context = open(from);
        for port in [5001_u16, 5002, 5001] {
            let end = End::new(&context, Service::Rc);
            let peer = SocketAddr::from(([127, 0, 134, 1], port));
            let link = cm::connect(peer, &end.qp, &patient()).unwrap();
            assert_eq!(link.private_data()[..2], port.to_be_bytes(), "the right process");
            talk_to(&end);
            link.disconnect();
            link.wait_disconnected(SOON).unwrap();
        }
        let end = End::new(&context, Service::Rc);
        let error = cm::connect("127.0.134.1:5003".parse().unwrap(), &end.qp, &patient()).unwrap_err();
        assert!(matches!(error, CmError::NotListening { .. }), "{error}");
    }
    let context = open([127, 0, 134, 1]);
    match Listener::bind(&context, 5002, 1) {
        Err(ListenError::Taken { pid, .. }) => assert_eq!(pid, servers[1].pid()),
        other => panic!("{other:?}"),
    }
    // A process that dies frees its port.
    servers[1].kill();
    let listener = Listener::bind(&context, 5002, 1).unwrap();
    assert_eq!(listener.port(), 5002);
    for server in servers.iter_mut().take(1) {
        server.say("end");
    }
}

#[test]
fn a_server_that_dies_before_it_answers() {
    for (net, shares) in [(135, true), (136, false)] {
        let mut server = start(&format!("hold 127.0.{net}.1 5001"), "listening");
        let context = open([127, 0, net, if shares { 1 } else { 2 }]);
        let end = End::new(&context, Service::Rc);
        let options = CmOptions { response_timeout: Duration::from_millis(100), ..hasty() };
        let options = options.timeout(Duration::from_secs(6));
        let peer = SocketAddr::from(([127, 0, net, 1], 5001));
        let asking = cm::start_connect(peer, &end.qp, &options).unwrap();
        assert_eq!(server.hear(), "holding");
        server.kill();
        // A process that shares the address answers for the dead one; else there is silence.
        match (asking.wait().unwrap_err(), shares) {
            (CmError::NotListening { .. }, true) | (CmError::TimedOut { .. }, _) => {}
            (other, _) => panic!("{other}"),
        }
    }
}

#[test]
fn a_client_that_dies_before_it_confirms() {
    for (net, shares) in [(137, true), (138, false)] {
        let context = open([127, 0, net, 1]);
        let listener = Listener::bind(&context, 5001, 8).unwrap();
        let from = if shares { 1 } else { 2 };
        let mut client = start(&format!("ask 127.0.{net}.{from} 127.0.{net}.1:5001"), "asking");
        let request = listener.accept(SOON).unwrap();
        client.kill();
        let end = End::new(&context, Service::Rc);
        let error = request.accept(&end.qp, &hasty()).unwrap_err();
        match (&error, shares) {
            (CmError::Refused { .. }, true) | (CmError::TimedOut { sent: "REP", .. }, _) => {}
            (other, _) => panic!("{other}"),
        }
        assert_eq!(end.qp.state(), ferroce_verbs::State::Err);
        let manager = nic([127, 0, net, 1]).connections().unwrap();
        eventually("nothing is half open", || manager.census().1 == 0);
    }
}
