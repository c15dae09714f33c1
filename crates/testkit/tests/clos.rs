//! The Clos network of kernel routers, judged by the kernel: its paths are as many as the wiring says, and what routers
//! count is what they said they would do.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::process::ExitCode;

use ferroce_testkit::clos::{Clos, Family, Node, Tuple};
use ferroce_testkit::namespaces;

fn main() -> ExitCode {
    if !namespaces::is_inside() {
        return namespaces::run_inside(&["nft"]);
    }
    let clos = Clos::build(7);
    for family in [Family::V4, Family::V6] {
        paths_are_as_many_as_the_wiring_says(&clos, family);
        counters_agree_with_routes(&clos, family);
    }
    let _ = io::stdout().write_all(b"test result: ok. 2 passed; 0 failed\n");
    ExitCode::SUCCESS
}

fn paths_are_as_many_as_the_wiring_says(clos: &Clos, family: Family) {
    let from = Node::Host(0, 0, 0);
    for to in Node::hosts().filter(|to| *to != from) {
        let tuples: Vec<Tuple> = (0..128).map(|port| Tuple { from, to, port: 0xc000 + port }).collect();
        let paths: BTreeSet<Vec<Node>> = clos.paths(&tuples, family).into_iter().collect();
        assert_eq!(paths.len(), from.paths_to(to), "{from} to {to}, {family:?}: {paths:?}");
    }
}

fn counters_agree_with_routes(clos: &Clos, family: Family) {
    clos.count();
    let from = Node::Host(0, 1, 0);
    let hosts: Vec<Node> = Node::hosts().filter(|to| *to != from).collect();
    let tuples: Vec<Tuple> = (0..100)
        .map(|index| Tuple {
            from,
            to: hosts[index % hosts.len()],
            port: 0xd000 + u16::try_from(index).expect("a small number"),
        })
        .collect();
    namespaces::enter(&from.to_string(), || {
        for tuple in &tuples {
            let socket = UdpSocket::bind((tuple.from.address(family), tuple.port)).expect("a free port");
            socket.send_to(b"any bytes", (tuple.to.address(family), 4791)).expect("a way out");
        }
    });
    // Packets wait in routers until neighbours are known; each look starts ten programs.
    let paths = clos.paths(&tuples, family);
    let differ = || {
        let counted = clos.counted(family);
        let crossed = |tuple: &Tuple| Clos::crossed(&counted, *tuple);
        let both = tuples.iter().zip(&paths).map(|(tuple, path)| (tuple, path, crossed(tuple)));
        both.filter(|(_, path, crossed)| path.iter().copied().collect::<BTreeSet<_>>() != *crossed).count()
    };
    let looks = (0..200).map(|_| differ());
    assert!(looks.into_iter().any(|differ| differ == 0), "{} tuples took another way, {family:?}", differ());
    for router in Node::routers() {
        clos.clear_filter(router);
    }
}
