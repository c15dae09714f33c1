//! What happens, act by act.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferroce::{
    Access, AddressVector, Completion, DatagramHeader, Gid, MemoryRegion, QKey, Service, Status, Work,
};
use ferroce_device::now;
use serde_json::json;

use super::LOSS;
use super::host::{Host, Pair};
use super::stage::Stage;

/// Where bob's receives go, and where he keeps what is read and counted.
const RECEIVE: usize = 4096;
const SHELF: usize = 8192;
const COUNTER: usize = 16_384;

/// Shows the two hosts, and how they reach each other.
pub(crate) fn introduce(stage: &mut Stage, pair: &Pair) -> anyhow::Result<()> {
    stage.title("ferroce demo: RDMA between two network cards made of software")?;
    for host in [&pair.ann, &pair.bob] {
        let port = host.context().port();
        let text = format!(
            "{}  {}  card {}, path MTU {}, queue pair {}",
            host.name,
            host.place.address,
            host.context().query().name,
            port.active_mtu,
            host.qp.qpn()
        );
        stage.note(&text)?;
    }
    let path = pair.ann.qp.path().context("they are connected")?;
    stage.note(&format!("path {path}"))?;
    Ok(())
}

/// Every verb, with its work request and its completion.
pub(crate) fn every_verb(stage: &mut Stage, pair: &Pair) -> anyhow::Result<()> {
    let Pair { ann, bob } = pair;
    stage.section("Every verb once: what is posted (WQE) and what is reported (CQE)")?;

    stage.step("SEND", "a message into a receive that bob has posted")?;
    receive(stage, bob, 10)?;
    let from = ann.put(0, b"hello, bob")?;
    let what = format!("SEND 10 B from 0x{:x}, lkey {}", ann.region.address(), ann.region.lkey());
    run(stage, ann, 1, &what, ann.qp.send(from))?;
    received(stage, bob)?;

    stage.step("SEND with imm", "the same, with four bytes beside it")?;
    receive(stage, bob, 11)?;
    run(stage, ann, 2, "SEND 10 B, immediate 0x2a", ann.qp.send(from).imm(42))?;
    received(stage, bob)?;

    stage.step("WRITE", "into bob's memory; his program does not notice")?;
    let there = bob.region.remote().slice(SHELF as u64..SHELF as u64 + 12);
    let from = ann.put(64, b"on the shelf")?;
    let what = format!("WRITE 12 B to {}", place(&bob.region, SHELF));
    run(stage, ann, 3, &what, ann.qp.write(from, there))?;
    let text = bob.text(SHELF, 12)?;
    ensure!(text == "on the shelf", "bob's memory has {text:?}");
    stage.shown(&format!("bob's memory: {text:?}"), json!({ "memory": text }))?;

    stage.step("WRITE with imm", "the same, and bob hears of it")?;
    receive(stage, bob, 12)?;
    run(stage, ann, 4, "WRITE 12 B, immediate 0x2a", ann.qp.write(from, there).imm(42))?;
    received(stage, bob)?;

    stage.step("READ", "bob's memory into ann's; again he does not notice")?;
    bob.region.write_at(SHELF, b"bob's secret")?;
    let what = format!("READ 12 B from {}", place(&bob.region, SHELF));
    let into = ann.region.slice(128..140);
    run(stage, ann, 5, &what, ann.qp.read(into, there))?;
    let text = ann.text(128, 12)?;
    ensure!(text == "bob's secret", "ann read {text:?}");
    stage.shown(&format!("ann's memory: {text:?}"), json!({ "memory": text }))?;

    atomics(stage, pair)?;
    datagram(stage, pair)
}

/// The verbs that change eight bytes at once.
fn atomics(stage: &mut Stage, Pair { ann, bob }: &Pair) -> anyhow::Result<()> {
    let word = bob.region.remote().slice(COUNTER as u64..COUNTER as u64 + 8);
    let before = ann.region.slice(256..264);
    let brought = || ann.region.load_u64(256);
    bob.region.store_u64(COUNTER, 7)?;

    stage.step("COMPARE & SWAP", "eight bytes: if 7 is there, store 40")?;
    run(stage, ann, 6, "COMPARE AND SWAP 7 -> 40", ann.qp.compare_swap(before, word, 7, 40))?;
    let (was, is) = (brought()?, bob.region.load_u64(COUNTER)?);
    ensure!((was, is) == (7, 40), "it was {was} and is {is}");
    stage.shown(&format!("it was {was}, and is {is}"), json!({ "was": was, "is": is }))?;

    stage.step("FETCH & ADD", "add 2, and tell what was there")?;
    run(stage, ann, 7, "FETCH AND ADD 2", ann.qp.fetch_add(before, word, 2))?;
    let (was, is) = (brought()?, bob.region.load_u64(COUNTER)?);
    ensure!((was, is) == (40, 42), "it was {was} and is {is}");
    stage.shown(&format!("it was {was}, and is {is}"), json!({ "was": was, "is": is }))?;

    stage.step("ATOMIC WRITE", "eight bytes, never seen half")?;
    let bytes = 4711_u64.to_ne_bytes();
    run(stage, ann, 8, "ATOMIC WRITE 8 B", ann.qp.atomic_write_inline(&bytes, word))?;
    let is = bob.region.load_u64(COUNTER)?;
    ensure!(is == 4711, "bob's counter is {is}");
    stage.shown(&format!("bob's counter: {is}"), json!({ "is": is }))?;
    Ok(())
}

/// A message to a host that is not connected.
fn datagram(stage: &mut Stage, Pair { ann, bob }: &Pair) -> anyhow::Result<()> {
    const QKEY: QKey = QKey(0x0f0f);
    stage.step("UD SEND", "a datagram: no connection, and no promise that it arrives")?;
    let open = |host: &Host| {
        let qp = host.pd.queue_pair(Service::Ud).address(host.place.address).completion_queue(&host.cq);
        let qp = qp.build()?;
        qp.activate(QKEY)?;
        anyhow::Ok(qp)
    };
    let (from, to) = (open(ann)?, open(bob)?);
    let room = DatagramHeader::LEN + 64;
    to.receive(bob.region.slice(RECEIVE..RECEIVE + room)).id(13).post()?;
    let index = ann.context().gid_index(ann.place.address).context("ann has her own address")?;
    let address = ann.pd.address_handle(&AddressVector::new(Gid::from(bob.place.address), index))?;
    let text = ann.put(320, b"post card")?;
    let work = from.send_to(&address, to.qpn(), QKEY, text);
    let what = format!("UD SEND 9 B to {}", to.qpn());
    run(stage, ann, 9, &what, work)?;
    let done = bob.done()?;
    done.result()?;
    let header = DatagramHeader::read(&bob.region, RECEIVE)?;
    let text = bob.text(RECEIVE + DatagramHeader::LEN, 9)?;
    ensure!(text == "post card", "bob got {text:?}");
    stage.completed(bob.name, &done, &format!("{text:?} from {}", header.source.ip()), None)?;
    Ok(())
}

/// What a peer may not do.
pub(crate) fn protection(stage: &mut Stage, pair: &Pair) -> anyhow::Result<()> {
    let Pair { ann, bob } = pair;
    stage.section("A protection error: bob's keys decide what ann may do")?;
    let locked = bob.pd.allocate(4096, Access::REMOTE_READ)?;
    stage.step("WRITE", "to memory that bob opened for READ alone")?;
    let what = format!("WRITE 12 B to {}", place(&locked, 0));
    let work = ann.qp.write(ann.region.slice(64..76), locked.remote().slice(..12));
    stage.posted(ann.name, 20, &what)?;
    work.id(20).post()?;
    let done = ann.done()?;
    expect(&done, Status::RemoteAccess)?;
    stage.completed(ann.name, &done, "", None)?;
    stage.note(&format!(
        "  ann's queue pair is now in state {}: what follows is flushed",
        ann.qp.state().name()
    ))?;
    ann.qp.send(ann.region.slice(..10)).id(21).post()?;
    stage.posted(ann.name, 21, "SEND 10 B")?;
    let done = ann.done()?;
    expect(&done, Status::Flushed)?;
    stage.completed(ann.name, &done, "", None)?;
    ensure!(locked.to_vec(..)?.iter().all(|byte| *byte == 0), "bob's memory has changed");
    pair.meet_again()?;
    let facts = json!({ "changed": false, "state": ann.qp.state().name() });
    stage.shown("bob's memory did not change; both reset and connect again", facts)?;
    Ok(())
}

/// A message without a receive.
pub(crate) fn not_ready(stage: &mut Stage, Pair { ann, bob }: &Pair) -> anyhow::Result<()> {
    stage.section("RNR: a message comes, and no receive is posted")?;
    let before = ann.qp.counters().rnr_received;
    let start = now();
    stage.posted(ann.name, 30, "SEND 10 B")?;
    ann.qp.send(ann.region.slice(..10)).id(30).post()?;
    while ann.qp.counters().rnr_received == before {
        ensure!(now().since(start) < Duration::from_secs(10), "no RNR NAK within 10 s");
        Stage::moment(&ann.cq);
    }
    stage.note("  bob's card says \"receiver not ready\", and ann's tries again after 0.32 ms")?;
    receive(stage, bob, 31)?;
    let done = ann.done()?;
    done.result()?;
    let times = ann.qp.counters().rnr_received - before;
    stage.completed(ann.name, &done, "", Some(now().since(start)))?;
    received(stage, bob)?;
    stage.shown(&format!("RNR NAKs until the receive was there: {times}"), json!({ "rnr_naks": times }))?;
    Ok(())
}

/// Packets get lost.
pub(crate) fn loss(stage: &mut Stage, Pair { ann: eve, bob: joe }: &Pair) -> anyhow::Result<()> {
    const BYTES: usize = 1 << 20;
    stage.section(&format!("Loss: two more cards, and {:.0} % of their packets vanish", LOSS * 100.0))?;
    let pattern: Vec<u8> = (0..BYTES).map(|i| (i / 7 + i / 4096).to_le_bytes()[0]).collect();
    let from = eve.put(0, &pattern)?;
    let packets = BYTES / eve.context().port().active_mtu.bytes();
    let what = format!("WRITE 1 MiB, in {packets} packets");
    run(stage, eve, 40, &what, eve.qp.write(from, joe.region.remote().slice(..BYTES as u64)))?;
    ensure!(joe.region.to_vec(..BYTES)? == pattern, "joe has other bytes than eve sent");
    let counters = eve.qp.counters();
    ensure!(counters.retransmitted > 0, "nothing was lost, although it was to be");
    let text = format!("joe has every byte; packets sent again by eve: {}", counters.retransmitted);
    let facts = json!({ "packets": packets, "retransmitted": counters.retransmitted, "equal": true });
    stage.shown(&text, facts)?;
    Ok(())
}

/// The way without packets.
pub(crate) fn paths(stage: &mut Stage, Pair { ann, .. }: &Pair) -> anyhow::Result<()> {
    stage.section("Paths: two queue pairs of one process need no packets")?;
    let tim = Pair::connect(Host::new("ann", &ann.place)?, Host::new("tim", &ann.place)?)?;
    let path = tim.ann.qp.path().context("they are connected")?;
    stage.note(&format!("path {path}"))?;
    let before = ann.context().counters();
    let from = tim.ann.put(0, b"hello, tim")?;
    let there = tim.bob.region.remote().slice(..10);
    run(stage, &tim.ann, 50, "WRITE 10 B", tim.ann.qp.write(from, there))?;
    let text = tim.bob.text(0, 10)?;
    ensure!(text == "hello, tim", "tim's memory has {text:?}");
    let sent = ann.context().counters().packets_sent - before.packets_sent;
    let facts = json!({ "memory": text, "packets": sent, "path": path.to_string() });
    stage.shown(&format!("tim's memory: {text:?}; packets sent: {sent}"), facts)?;
    Ok(())
}

/// Where to go from here.
pub(crate) fn farewell(stage: &mut Stage) -> anyhow::Result<()> {
    Ok(stage.end("Now try: ferroce perf write --lat, ferroce devices, ferroce --help")?)
}

/// Posts work, waits for its completion and shows both.
fn run(stage: &mut Stage, host: &Host, id: u64, what: &str, work: Work<'_>) -> anyhow::Result<()> {
    stage.posted(host.name, id, what)?;
    let start = now();
    work.id(id).post()?;
    let done = host.done()?;
    let took = now().since(start);
    done.result()?;
    Ok(stage.completed(host.name, &done, "", Some(took))?)
}

fn receive(stage: &mut Stage, host: &Host, id: u64) -> anyhow::Result<()> {
    host.qp.receive(host.region.slice(RECEIVE..RECEIVE + 64)).id(id).post()?;
    Ok(stage.posted(host.name, id, "RECEIVE up to 64 B")?)
}

fn received(stage: &mut Stage, host: &Host) -> anyhow::Result<()> {
    let done = host.done()?;
    done.result()?;
    let imm = done.imm.map_or_else(String::new, |imm| format!(", immediate 0x{imm:x}"));
    // A WRITE with immediate data takes a receive and leaves it empty.
    let what = if matches!(done.kind, ferroce::WorkKind::Receive) {
        format!("{} B{imm}: {:?}", done.byte_len, host.text(RECEIVE, done.byte_len as usize)?)
    } else {
        format!("{} B written{imm}", done.byte_len)
    };
    Ok(stage.completed(host.name, &done, &what, None)?)
}

/// A place in a region, as work names it.
fn place(region: &MemoryRegion, offset: usize) -> String {
    format!("0x{:x}, rkey {}", region.address() + offset as u64, region.rkey())
}

fn expect(done: &Completion, status: Status) -> anyhow::Result<()> {
    if done.status == status {
        return Ok(());
    }
    bail!("work {} ended with {:?} instead of {status:?}", done.id, done.status)
}
