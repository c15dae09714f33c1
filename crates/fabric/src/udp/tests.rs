//! The fabric against the kernel of this machine, over loopback. Every fabric has a port of its own, so
//! that tests can run beside each other and beside a device.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use allocation_counter::measure;
use ferroce_sys::clock::since_1970;

use super::super::{PathError, PathErrorKind, Received, Route, Toward};
use super::senders::{PLACES, WISHES};
use super::*;

const V4: (&str, &str) = ("127.0.0.2", "127.0.0.3");
const V6: (&str, &str) = ("::1", "::1");

/// A fabric on a port of its own.
fn config(peer_port: u16) -> UdpConfig {
    UdpConfig { port: 0, peer_port, ..UdpConfig::new("lo") }
}

/// A receiver, and a sender that sends to it.
fn pair(segmentation: bool, coalescing: bool) -> (UdpFabric, UdpFabric) {
    let receiver = UdpFabric::open(&UdpConfig { coalescing, ..config(1) }).unwrap();
    let sender = UdpFabric::open(&UdpConfig { segmentation, ..config(receiver.local_port()) }).unwrap();
    (sender, receiver)
}

fn route(sender: &mut UdpFabric, (local, remote): (&str, &str), wanted: u16) -> Route {
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    let source_port = sender.source_port(wanted, local);
    Route { local, remote, source_port, traffic_class: 0, hop_limit: 64, flow_label: 0 }
}

/// A packet that tells which one it is, so that a wrong cut is seen.
fn packet(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((number * 31 + at) % 251).unwrap()).collect()
}

/// Puts a packet into the outbox, in a run with the one before it if it may be.
fn put(outbox: &mut Outbox, route: &Route, packet: &[u8], limits: (usize, usize)) {
    let to = Toward { route, slot: 0, is_known: false };
    let place = outbox.place(to, packet.len(), false, limits);
    outbox.room(packet.len()).unwrap().copy_from_slice(packet);
    outbox.commit(to, packet.len(), place);
}

fn send_one(sender: &mut UdpFabric, route: &Route, packet: &[u8]) -> Sent {
    let mut outbox = Outbox::new(65_536, 2);
    put(&mut outbox, route, packet, (1, 65_536));
    sender.send(&mut outbox)
}

/// Waits until something can be received. The time limit is only for a test that fails.
fn wait(receiver: &UdpFabric) {
    let mut poll = libc::pollfd { fd: receiver.descriptors()[0], events: libc::POLLIN, revents: 0 };
    // SAFETY: points to one entry on this stack.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 20_000) };
    assert_eq!(ready, 1, "nothing came");
}

/// Waits for this many packets.
fn collect(receiver: &mut UdpFabric, packets: usize) -> Vec<(Received, Vec<u8>)> {
    let mut all = Vec::new();
    let mut inbox = Inbox::new(8);
    while all.len() < packets {
        wait(receiver);
        receiver.receive(&mut inbox).unwrap();
        for (received, bytes) in inbox.iter() {
            all.extend(bytes.chunks(received.segment).map(|packet| (*received, packet.to_vec())));
        }
    }
    assert_eq!(receiver.dropped(), 0);
    all
}

#[test]
fn runs_arrive_whole_and_cut_right() {
    for (segmentation, coalescing) in [(true, true), (true, false), (false, true), (false, false)] {
        for ends in [V4, V6] {
            let (mut sender, mut receiver) = pair(segmentation, coalescing);
            assert_eq!((sender.uses_segmentation(), receiver.uses_coalescing()), (segmentation, coalescing));
            let route = route(&mut sender, ends, 0);
            let lengths = [4112, 4112, 4112, 20, 4128, 96, 96, 96, 96, 20, 21, 1, 1];
            let packets: Vec<_> = lengths.iter().enumerate().map(|(i, &len)| packet(i, len)).collect();
            let mut outbox = Outbox::new(65_536, 64);
            for packet in &packets {
                // Runs even where the sender cannot cut: it must then send them one by one.
                put(&mut outbox, &route, packet, (64, 65_487));
            }
            assert_eq!(outbox.runs().len(), 5);
            let sent = sender.send(&mut outbox);
            assert_eq!(sent, Sent { packets: 13, calls: 1, ..Sent::default() });
            assert!(outbox.is_empty());
            let came = collect(&mut receiver, packets.len());
            let merged = came.iter().any(|(received, _)| received.len > received.segment);
            assert_eq!(merged, segmentation && coalescing, "{segmentation} {coalescing} {ends:?}");
            let came: Vec<_> = came.into_iter().map(|(_, bytes)| bytes).collect();
            assert_eq!(came, packets, "{segmentation} {coalescing} {ends:?}");
        }
    }
}

#[test]
fn the_longest_runs_are_taken() {
    for ends in [V4, V6] {
        let (mut sender, mut receiver) = pair(true, true);
        let limits = sender.run_limits();
        assert!(sender.coalesces() && [64, 128].contains(&limits.0) && limits.1 <= 65_487, "{limits:?}");
        let route = route(&mut sender, ends, 0);
        for len in [20, 96, 4112] {
            let mut outbox = Outbox::new(65_536, 2);
            let packet = packet(len, len);
            let mut packets = 0;
            let to = Toward { route: &route, slot: 0, is_known: false };
            while packets == 0 || outbox.place(to, len, false, limits) > 0 {
                put(&mut outbox, &route, &packet, limits);
                packets += 1;
            }
            assert_eq!(packets, limits.0.min(limits.1 / len));
            let sent = sender.send(&mut outbox);
            assert_eq!(sent, Sent { packets: packets as u64, calls: 1, ..Sent::default() });
            let came = collect(&mut receiver, packets);
            assert!(came.iter().all(|(_, bytes)| *bytes == packet));
        }
        assert!(sender.uses_segmentation());
    }
}

#[test]
fn a_run_beyond_the_limit_does_not_end_segmentation() {
    let (mut sender, mut receiver) = pair(true, true);
    let route = route(&mut sender, V4, 0);
    let mut outbox = Outbox::new(65_536, 2);
    for number in 0..200 {
        put(&mut outbox, &route, &packet(number, 8), (200, 65_536));
    }
    assert_eq!(sender.send(&mut outbox).packets, 200);
    let came = collect(&mut receiver, 200);
    assert!(came.iter().enumerate().all(|(number, (_, bytes))| *bytes == packet(number, 8)));
    assert!(sender.uses_segmentation());
}

#[test]
fn addresses_ports_and_marks_are_reported() {
    for ends in [V4, V6] {
        let (mut sender, mut receiver) = pair(true, true);
        receiver.show_marks();
        let usual = route(&mut sender, ends, 0);
        let flow_label = if ends == V6 { 0xf_edcb } else { 0 };
        let marked = Route { traffic_class: 0x62, hop_limit: 3, flow_label, ..usual };
        let labelled = Route { flow_label, ..usual };
        let none = Route { hop_limit: 0, ..usual };
        for route in [usual, marked, none, labelled] {
            send_one(&mut sender, &route, b"here");
            let (received, bytes) = collect(&mut receiver, 1).remove(0);
            assert_eq!(bytes, b"here");
            assert_eq!(received.source, (route.local, sender.local_port()));
            assert_eq!(received.local, route.remote);
            assert_eq!(received.traffic_class, route.traffic_class);
            assert_eq!(received.hop_limit, route.hop_limit.max(1));
            assert_eq!(received.flow_label, route.flow_label);
        }
    }
}

#[test]
fn a_fabric_of_one_address_hears_only_that() {
    let address = Some("127.0.0.9".parse().unwrap());
    let mut receiver = UdpFabric::open(&UdpConfig { address, ..config(1) }).unwrap();
    let other =
        UdpConfig { address: Some("127.0.0.8".parse().unwrap()), port: receiver.local_port(), ..config(1) };
    let _neighbour = UdpFabric::open(&other).expect("the same port of another address is free");
    let mut sender = UdpFabric::open(&config(receiver.local_port())).unwrap();
    let elsewhere = route(&mut sender, ("127.0.0.2", "127.0.0.8"), 0);
    let here = route(&mut sender, ("127.0.0.2", "127.0.0.9"), 0);
    send_one(&mut sender, &elsewhere, b"not here");
    send_one(&mut sender, &here, b"here");
    let (received, bytes) = collect(&mut receiver, 1).remove(0);
    assert_eq!((bytes.as_slice(), received.local), (b"here".as_slice(), here.remote));
    // Its socket is one of IPv4: there is no way to IPv6.
    let foreign = route(&mut receiver, V6, 0);
    assert_eq!(send_one(&mut receiver, &foreign, b"x"), Sent { unreachable: 1, ..Sent::default() });
}

#[test]
fn one_address_of_ipv6_works_like_all() {
    let address = Some(Ipv6Addr::LOCALHOST.into());
    let mut receiver = UdpFabric::open(&UdpConfig { address, ..config(1) }).unwrap();
    let peer_port = receiver.local_port();
    let mut sender = UdpFabric::open(&UdpConfig { address, ..config(peer_port) }).unwrap();
    let (port, way) = any_port(&mut sender, V6);
    assert_eq!(send_one(&mut sender, &way, b"six").packets, 1);
    let (received, bytes) = collect(&mut receiver, 1).remove(0);
    assert_eq!((bytes.as_slice(), received.source), (b"six".as_slice(), (way.local, port)));
    let mapped = route(&mut sender, V4, 0);
    assert_eq!(send_one(&mut sender, &mapped, b"four").unreachable, 1);
}

/// A place among the ports for paths where other tests are not likely to be, and its own port is not.
fn spread(fabric: &UdpFabric) -> u16 {
    0xc000 + (fabric.local_port() % 0x3000 + 1000) % 0x3000
}

/// A port above 0xc000 that is free at the moment, promised by this fabric.
fn any_port(fabric: &mut UdpFabric, ends: (&str, &str)) -> (u16, Route) {
    let from = spread(fabric);
    let found = (from..=u16::MAX).map(|port| (port, route(fabric, ends, port)));
    found.take(WISHES).find(|(port, route)| route.source_port == *port).expect("no free port")
}

#[test]
fn packets_leave_from_the_promised_port() {
    for ends in [V4, V6] {
        let (mut sender, mut receiver) = pair(true, true);
        let (port, way) = any_port(&mut sender, ends);
        let own = sender.local_port();
        let main = route(&mut sender, ends, own);
        let mut outbox = Outbox::new(4096, 8);
        for route in [&way, &way, &main, &way] {
            put(&mut outbox, route, b"ports", (64, 65_487));
        }
        assert_eq!(sender.send(&mut outbox), Sent { packets: 4, calls: 3, ..Sent::default() });
        let ports: Vec<_> = collect(&mut receiver, 4).iter().map(|(came, _)| came.source.1).collect();
        assert_eq!(ports, [port, port, sender.local_port(), port]);
    }
}

/// Without these the IPv4 identification would be a counter that no program can know, and the ICRC wrong.
#[test]
fn no_socket_fragments_over_either_family() {
    let (mut sender, _receiver) = pair(true, true);
    let (port, _) = any_port(&mut sender, V4);
    for socket in [sender.main.socket(), sender.senders.get(port).unwrap().socket()] {
        assert_eq!(socket.get(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER).unwrap(), libc::IP_PMTUDISC_DO);
        assert_eq!(socket.get(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER).unwrap(), libc::IPV6_PMTUDISC_DO);
    }
}

#[test]
fn a_taken_port_falls_back_to_the_main_one() {
    let other = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let taken = other.local_addr().unwrap().port();
    let (mut sender, mut receiver) = pair(true, true);
    let way = route(&mut sender, V4, taken);
    assert_eq!(way.source_port, sender.local_port());
    assert_eq!(send_one(&mut sender, &way, b"x").packets, 1);
    assert_eq!(collect(&mut receiver, 1)[0].0.source.1, sender.local_port());
}

#[test]
fn more_ports_than_sockets_work_one_after_the_other() {
    let (mut sender, mut receiver) = pair(true, true);
    let base = spread(&sender);
    for wanted in (base..base + 40).chain(base..base + 40) {
        let way = route(&mut sender, V4, wanted);
        assert!([wanted, sender.local_port()].contains(&way.source_port));
        assert_eq!(send_one(&mut sender, &way, b"x").packets, 1);
        assert_eq!(collect(&mut receiver, 1)[0].0.source.1, way.source_port);
    }
    let promised: Vec<_> = (base..base + 40).map(|wanted| route(&mut sender, V4, wanted)).collect();
    let own = promised.iter().filter(|route| route.source_port != sender.local_port()).count();
    assert!((1..=WISHES).contains(&own), "{own} promises at once");
    let mut outbox = Outbox::new(4096, 64);
    for route in &promised {
        put(&mut outbox, route, b"x", (64, 65_487));
    }
    assert_eq!(sender.send(&mut outbox).packets, 40);
    let ports: Vec<_> = collect(&mut receiver, 40).iter().map(|(came, _)| came.source.1).collect();
    assert_eq!(ports, promised.iter().map(|route| route.source_port).collect::<Vec<_>>());
}

#[test]
fn ports_that_are_required_are_used_all_at_once() {
    let (mut sender, mut receiver) = pair(true, true);
    let local = V4.0.parse().unwrap();
    let base = spread(&sender);
    let mut outbox = Outbox::new(65_536, PLACES);
    let ports: Vec<u16> =
        (base..).filter(|port| sender.require_port(*port, local).is_ok()).take(200).collect();
    for &port in &ports {
        let way = Route { source_port: port, ..route(&mut sender, V4, 0) };
        put(&mut outbox, &way, b"x", (64, 65_487));
    }
    assert_eq!(sender.send(&mut outbox).packets, 200);
    let came: Vec<_> = collect(&mut receiver, 200).iter().map(|(came, _)| came.source.1).collect();
    assert_eq!(came, ports);
}

#[test]
fn a_required_port_is_shared_with_our_own_and_refused_if_another_program_has_it() {
    let (mut sender, mut other) = pair(true, true);
    let local = V4.0.parse().unwrap();
    let (port, _) = any_port(&mut sender, V4);
    assert_eq!(other.require_port(port, local), Ok(()), "as another process of this user would");
    let alone = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let taken = alone.local_addr().unwrap().port();
    assert_eq!(sender.require_port(taken, local), Err(PortRefusal::InUse));
    drop(alone);
    assert_eq!(sender.require_port(taken, local), Ok(()), "it is asked for again");
}

#[test]
fn a_port_that_was_not_promised_is_not_used() {
    let (mut sender, _receiver) = pair(true, true);
    // It was, once: the very port that the system had dealt to the sender.
    let port = if sender.local_port() == 0xdead { 0xbeef } else { 0xdead };
    let way = Route { source_port: port, ..route(&mut sender, V4, 0) };
    assert_eq!(send_one(&mut sender, &way, b"x"), Sent { unreachable: 1, ..Sent::default() });
}

#[test]
fn a_port_that_is_taken_has_its_own_error() {
    let first = UdpFabric::open(&config(1)).unwrap();
    let again = UdpConfig { port: first.local_port(), ..config(1) };
    let error = UdpFabric::open(&again).err().expect("it is taken");
    let SocketError::PortTaken { port, interface, address: None } = &error else { panic!("{error}") };
    assert_eq!((*port, interface.as_str()), (first.local_port(), "lo"));
    let text = error.to_string();
    for part in ["interface lo", "ss -lunp", "FERROCE_ADDRESS", &port.to_string()] {
        assert!(text.contains(part), "{text}");
    }
    let address = Some("127.0.0.7".parse().unwrap());
    let error = UdpFabric::open(&UdpConfig { address, ..again }).err().expect("it is taken");
    assert!(error.to_string().contains("127.0.0.7 on lo"), "{error}");
}

#[test]
fn what_does_not_exist_has_its_own_error() {
    for interface in ["", "no-such-if", "lo\0", "lo-with-a-name-too-long-for-linux"] {
        let error = UdpFabric::open(&UdpConfig { interface: interface.into(), ..config(1) }).err();
        assert!(matches!(error, Some(SocketError::NoSuchInterface { .. })), "{interface:?}: {error:?}");
    }
    let address = Some("192.0.2.1".parse().unwrap());
    let error = UdpFabric::open(&UdpConfig { address, ..config(1) }).err();
    assert!(matches!(error, Some(SocketError::NoSuchAddress { .. })), "{error:?}");
}

#[test]
fn what_cannot_be_sent_is_counted_and_the_rest_goes_on() {
    let (mut sender, mut receiver) = pair(true, true);
    let good = route(&mut sender, V4, 0);
    let gone = Route { local: "192.0.2.1".parse().unwrap(), ..good };
    let gone_six = Route { local: "2001:db8::1".parse().unwrap(), ..route(&mut sender, V6, 0) };
    let crossed = Route { remote: Ipv6Addr::LOCALHOST.into(), ..good };
    let mut outbox = Outbox::new(300_000, 64);
    for route in [good, gone, gone_six, crossed, good] {
        put(&mut outbox, &route, b"one", (64, 65_487));
        put(&mut outbox, &route, b"two", (64, 65_487));
    }
    put(&mut outbox, &good, &packet(0, 65_520), (1, 0));
    put(&mut outbox, &good, b"last", (1, 0));
    let sent = sender.send(&mut outbox);
    assert_eq!((sent.packets, sent.unreachable, sent.too_long, sent.no_room), (5, 6, 1, 0), "{sent:?}");
    let came: Vec<_> = collect(&mut receiver, 5).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(came, [b"one".as_slice(), b"two", b"one", b"two", b"last"]);
    assert!(sender.uses_segmentation(), "a source address that is gone is not about segmentation");
}

/// A socket that sends without checksums is refused segmentation by the kernel, like an interface
/// that cannot do it.
#[test]
fn refused_segmentation_falls_back_to_single_packets_for_good() {
    let (mut sender, mut receiver) = pair(true, true);
    sender.main.socket().set(libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let way = route(&mut sender, V4, 0);
    let mut outbox = Outbox::new(65_536, 64);
    for round in 0..2 {
        assert_eq!(sender.coalesces(), round == 0);
        for number in 0..10 {
            // Two runs, since five packets are the limit here.
            put(&mut outbox, &way, &packet(number, 100), (5, 65_487));
        }
        let sent = sender.send(&mut outbox);
        assert_eq!((sent.packets, sent.unreachable), (10, 0));
        let came = collect(&mut receiver, 10);
        assert!(came.iter().enumerate().all(|(number, (_, bytes))| *bytes == packet(number, 100)));
    }
    assert_eq!(sender.run_limits().0, 1);
}

#[test]
fn a_small_buffer_overflows_without_a_word() {
    let mut receiver = UdpFabric::open(&UdpConfig { receive_buffer: 106_496, ..config(1) }).unwrap();
    assert_eq!(receiver.receive_buffer(), 212_992);
    let mut sender = UdpFabric::open(&config(receiver.local_port())).unwrap();
    let way = route(&mut sender, V4, 0);
    let mut outbox = Outbox::new(5_000_000, 1000);
    let big = packet(1, 4112);
    for _ in 0..1000 {
        put(&mut outbox, &way, &big, (1, 0));
    }
    let sent = sender.send(&mut outbox);
    assert_eq!((sent.packets, sent.no_room), (1000, 0));
    // A mark that arrives says that nothing before it is still on its way.
    let mut whole = 0;
    let mut inbox = Inbox::new(64);
    loop {
        send_one(&mut sender, &way, b"mark");
        wait(&receiver);
        receiver.receive(&mut inbox).unwrap();
        whole += inbox.iter().filter(|(_, bytes)| *bytes == big.as_slice()).count();
        if inbox.iter().any(|(_, bytes)| bytes == b"mark") {
            break;
        }
    }
    assert!((1..500).contains(&whole), "{whole} of 1000 came");
}

#[test]
fn a_full_inbox_says_that_more_may_wait() {
    let (mut sender, mut receiver) = pair(false, false);
    let way = route(&mut sender, V4, 0);
    for number in 0..10 {
        send_one(&mut sender, &way, &packet(number, 10));
    }
    let mut inbox = Inbox::new(4);
    let mut came = 0;
    while came < 10 {
        wait(&receiver);
        receiver.receive(&mut inbox).unwrap();
        assert_eq!(inbox.is_full(), inbox.len() == 4);
        came += inbox.len();
    }
    receiver.receive(&mut inbox).unwrap();
    assert!(inbox.is_empty() && !inbox.is_full());
}

#[test]
fn datagrams_of_any_length_are_taken() {
    let (mut sender, mut receiver) = pair(true, true);
    let way = route(&mut sender, V4, 0);
    let stranger = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    stranger.send_to(&[], ("127.0.0.1", receiver.local_port())).unwrap();
    wait(&receiver);
    let mut inbox = Inbox::new(2);
    receiver.receive(&mut inbox).unwrap();
    let (received, bytes) = inbox.iter().next().unwrap();
    assert_eq!((received.len, received.segment, bytes.len()), (0, 1, 0));
    assert_eq!(received.source, (stranger.local_addr().unwrap().ip(), stranger.local_addr().unwrap().port()));
    let longest = packet(3, 65_507);
    assert_eq!(send_one(&mut sender, &way, &longest).packets, 1);
    assert_eq!(collect(&mut receiver, 1)[0].1, longest);
}

#[test]
fn what_is_dropped_leaves_no_gap() {
    let (mut sender, mut receiver) = pair(true, false);
    let way = route(&mut sender, V4, 0);
    let six = route(&mut sender, V6, 0);
    // No destination is known now; further down, only those of IPv4.
    receiver.main.socket().set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 0).unwrap();
    send_one(&mut sender, &way, b"dropped");
    wait(&receiver);
    let mut inbox = Inbox::new(4);
    receiver.receive(&mut inbox).unwrap();
    assert_eq!((inbox.len(), receiver.dropped()), (0, 1));
    receiver.main.socket().set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1).unwrap();
    let mut outbox = Outbox::new(4096, 8);
    for (number, route) in [six, way, six, way].iter().enumerate() {
        put(&mut outbox, route, &packet(number, 30), (1, 0));
    }
    assert_eq!(sender.send(&mut outbox).packets, 4);
    let mut came = Vec::new();
    while came.len() < 2 {
        wait(&receiver);
        receiver.receive(&mut inbox).unwrap();
        came.extend(inbox.iter().map(|(_, bytes)| bytes.to_vec()));
    }
    assert_eq!(came, [packet(1, 30), packet(3, 30)]);
    assert_eq!(receiver.dropped(), 3);
}

/// Sends so many packets to a receiver that does not read; how many of them it can read afterwards.
fn overfill(sender: &mut UdpFabric, receiver: &mut UdpFabric, way: &Route, count: usize) -> u64 {
    let mut outbox = Outbox::new(4096, 4);
    for number in 0..count {
        put(&mut outbox, way, &packet(number, 1024), (1, 0));
        assert_eq!(sender.send(&mut outbox).packets, 1);
    }
    let mut inbox = Inbox::new(8);
    let mut came = 0;
    loop {
        receiver.receive(&mut inbox).unwrap();
        came += inbox.iter().map(|(received, _)| received.packets()).sum::<u64>();
        if !inbox.is_full() {
            return came;
        }
    }
}

#[test]
fn what_finds_the_receive_buffer_full_is_counted() {
    for ends in [V4, V6] {
        let small = UdpConfig { receive_buffer: 32 << 10, coalescing: false, ..config(1) };
        let mut receiver = UdpFabric::open(&small).unwrap();
        let mut sender = UdpFabric::open(&config(receiver.local_port())).unwrap();
        let way = route(&mut sender, ends, 0);
        assert_eq!(receiver.overflowed(), 0);
        let mut lost = 0;
        for count in [2, 500, 1, 300] {
            // On loopback a packet has arrived, or is lost, when the call that sent it returns.
            let came = overfill(&mut sender, &mut receiver, &way, count);
            let fits = count < 10;
            assert_eq!(came == count as u64, fits, "{came} of {count} packets found room");
            lost += count as u64 - came;
            assert_eq!((receiver.overflowed(), receiver.dropped()), (lost, 0), "{ends:?}");
        }
        // What was lost at a socket before it is used for this is not counted here.
        let main = receiver.main.socket().clone();
        let again = UdpFabric::over(main, &small).unwrap();
        assert_eq!(again.overflowed(), 0);
        assert_eq!(receiver.overflowed(), lost);
    }
}

#[test]
fn sending_and_receiving_allocate_nothing() {
    let (mut sender, mut receiver) = pair(true, true);
    let (_, way) = any_port(&mut sender, V4);
    let mut outbox = Outbox::new(100_000, 64);
    let mut inbox = Inbox::new(16);
    let bytes = packet(0, 100);
    let mut round = || {
        assert_eq!(sender.source_port(way.source_port, way.local), way.source_port);
        for number in 0..100 {
            let marked = Route { traffic_class: number / 10, ..way };
            put(&mut outbox, &marked, &bytes, (64, 65_487));
        }
        assert_eq!(sender.send(&mut outbox).packets, 100);
        let mut came = 0;
        while came < 100 {
            wait(&receiver);
            receiver.receive(&mut inbox).unwrap();
            came += inbox.iter().map(|(received, bytes)| bytes.len() / received.segment).sum::<usize>();
        }
    };
    round();
    let allocated = measure(|| (0..20).for_each(|_| round()));
    assert_eq!(allocated.count_total, 0);
    assert!(measure(|| drop(std::hint::black_box(Box::new(1)))).count_total > 0, "the counter counts");
}

/// A packet of its own that asks for a stamp.
fn put_stamped(outbox: &mut Outbox, route: &Route, bytes: &[u8], ticket: u32) {
    outbox.room(bytes.len()).unwrap().copy_from_slice(bytes);
    outbox.commit_stamped(Toward { route, slot: 0, is_known: false }, bytes.len(), ticket);
}

/// A tiding that outlives the call which told it.
#[derive(Debug)]
enum News {
    Left(u32, u64),
    SentBack(PathError, Vec<u8>),
}

/// Tidings of a fabric, until there are as many as are waited for.
fn tidings(fabric: &mut UdpFabric, count: usize) -> Vec<News> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut poll = libc::pollfd { fd: fabric.descriptors()[1], events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one entry, which lives during the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 10_000) };
        assert_eq!(ready, 1, "{count} tidings were waited for, and these came: {all:?}");
        fabric.tidings(&mut |tiding| match tiding {
            Tiding::Left { ticket, at } => all.push(News::Left(ticket, at)),
            Tiding::SentBack(error, bytes) => all.push(News::SentBack(error, bytes.to_vec())),
        });
    }
    all
}

#[test]
fn stamped_packets_tell_when_they_left() {
    for ends in [V4, V6] {
        let (mut sender, mut receiver) = pair(true, true);
        sender.follow().unwrap();
        let main = route(&mut sender, ends, 0);
        let mut outbox = Outbox::new(4096, 16);
        let before = since_1970();
        for round in 0..3 {
            let (_, other) = any_port(&mut sender, ends);
            put(&mut outbox, &main, b"plain", (64, 65_487));
            put_stamped(&mut outbox, &main, b"first", 10 * round);
            put(&mut outbox, &main, b"plain", (64, 65_487));
            put_stamped(&mut outbox, &other, b"other", 10 * round + 1);
            put_stamped(&mut outbox, &main, b"second", 10 * round + 2);
            assert_eq!(sender.send(&mut outbox).packets, 5);
            collect(&mut receiver, 5);
            let came = tidings(&mut sender, 3);
            let mut left: Vec<_> = came
                .iter()
                .filter_map(
                    |news| if let News::Left(ticket, at) = news { Some((*ticket, *at)) } else { None },
                )
                .collect();
            left.sort_unstable();
            assert_eq!(left.iter().map(|(ticket, _)| *ticket % 10).collect::<Vec<_>>(), [0, 1, 2]);
            assert!(left.iter().all(|(ticket, _)| ticket / 10 == round));
            let times: Vec<u64> = left.iter().map(|(_, at)| *at).collect();
            let span = nanos(before)..=nanos(since_1970());
            assert!(times.iter().all(|at| span.contains(at)) && times[0] <= times[2], "{times:?} {span:?}");
        }
    }
}

/// As when packets wait for the neighbour's address, and then leave all at once.
#[test]
fn a_port_of_its_own_keeps_the_stamps_of_many_packets() {
    const PACKETS: u32 = 200;
    for ends in [V4, V6] {
        let (mut sender, _receiver) = pair(true, true);
        sender.follow().unwrap();
        let (_, way) = any_port(&mut sender, ends);
        let mut outbox = Outbox::new(4096, 256);
        (0..PACKETS).for_each(|ticket| put_stamped(&mut outbox, &way, b"many", ticket));
        assert_eq!(sender.send(&mut outbox).packets, u64::from(PACKETS));
        let came = tidings(&mut sender, PACKETS as usize);
        let left = came
            .iter()
            .filter_map(|news| if let News::Left(ticket, _) = news { Some(*ticket) } else { None });
        assert!(left.eq(0..PACKETS), "{came:?}");
    }
}

fn nanos(since: Duration) -> u64 {
    u64::try_from(since.as_nanos()).unwrap()
}

#[test]
fn a_closed_port_is_told_and_harms_no_other_packet() {
    for ends in [V4, V6] {
        let (mut sender, receiver) = pair(true, true);
        sender.follow().unwrap();
        let (port, way) = any_port(&mut sender, ends);
        drop(receiver);
        for _ in 0..20 {
            // If the news of the one before were taken for this one, it would count as lost.
            assert_eq!(send_one(&mut sender, &way, b"is it open?").packets, 1);
            let came = tidings(&mut sender, 1);
            let [News::SentBack(error, bytes)] = &came[..] else { panic!("{came:?}") };
            assert_eq!(
                (error.kind, error.source_port, error.remote),
                (PathErrorKind::NoPort, port, way.remote)
            );
            assert_eq!((error.offender, &bytes[..]), (way.remote, &b"is it open?"[..]));
        }
        let mut outbox = Outbox::new(4096, 16);
        for _ in 0..8 {
            put(&mut outbox, &way, b"alone", (1, 0));
        }
        assert_eq!(sender.send(&mut outbox).packets, 8, "none is lost to the news of another");
    }
}

/// The kernel tells of a packet that came back to one socket of a port. Of sixteen ports, some would tell another process.
#[test]
fn what_becomes_of_packets_from_a_required_port_is_told_though_another_process_has_it_too() {
    for ends in [V4, V6] {
        let (mut sender, other) = pair(true, true);
        let (mut neighbour, _) = pair(true, true);
        drop(other);
        sender.follow().unwrap();
        neighbour.follow().unwrap();
        let local = ends.0.parse().unwrap();
        let base = spread(&sender);
        let ports: Vec<u16> =
            (base..).filter(|port| neighbour.require_port(*port, local).is_ok()).take(16).collect();
        // The neighbour is a program that only sends: it has the ports, and no more.
        neighbour.ears = Ears::default();
        for port in ports {
            assert_eq!(sender.require_port(port, local), Ok(()));
            let way = Route { source_port: port, ..route(&mut sender, ends, 0) };
            assert_eq!(sender.require_port(port, local), Ok(()));
            assert_eq!(send_one(&mut sender, &way, b"is it open?").packets, 1);
            let came = tidings(&mut sender, 1);
            let [News::SentBack(error, bytes)] = &came[..] else { panic!("{came:?}") };
            assert_eq!(
                (error.source_port, error.remote, &bytes[..]),
                (port, way.remote, &b"is it open?"[..])
            );
        }
    }
}
