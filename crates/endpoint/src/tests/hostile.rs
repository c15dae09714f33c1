//! A peer that lies: it speaks the protocol with a queue pair of its own, and breaks a rule.

use ferroce_verbs::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, RemoteRegion, Rkey, Service,
};

use super::*;
use crate::core::State as Stand;
use crate::error::{Cause, Error, Violation};
use crate::frame::{Exposure, Header, Kind};
use crate::hello::{Grant, Hello};

/// The liar.
struct Liar {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    inbox: MemoryRegion,
}

/// An honest end and a liar.
fn liar() -> (Connection, Liar) {
    let (one, two) = (open(113, 1), open(113, 2));
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let honest = Half::new(&one, None, nowhere, &Options::new()).unwrap();
    let pd = two.protection_domain().unwrap();
    let cq = two.completion_queue(1024).unwrap();
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).max_inline(256).build().unwrap();
    let inbox = pd.allocate(64 * 256, Access::LOCAL_WRITE).unwrap();
    for slot in 0..64 {
        qp.receive(inbox.slice(slot * 256..(slot + 1) * 256)).id(slot as u64).post().unwrap();
    }
    let first = honest.queue_pair();
    first.connect(&qp.local_address()).unwrap();
    qp.connect(&first.local_address()).unwrap();
    let queue_pairs = [first.abort_handle(), qp.abort_handle()];
    let line = Box::new(Wire { ended: Arc::default(), queue_pairs });
    let hello = Hello { depth: 60, slot: 256, max_message: 1 << 20, window: Grant::None };
    let connection = honest.open(&hello.emit(), line, nowhere, nowhere).unwrap();
    (connection, Liar { qp, cq, pd, inbox })
}

impl Liar {
    fn say(&self, header: Header, body: &[u8]) {
        let mut frame = header.emit().to_vec();
        frame.extend(body);
        self.qp.send_inline(&frame).post().unwrap();
    }

    /// What the honest end answers: which rule it says was broken.
    fn accused_of(&self) -> u8 {
        loop {
            let done = self.cq.wait(SOON).unwrap();
            if done.kind == ferroce_verbs::WorkKind::Receive && done.is_success() {
                let at = usize::try_from(done.id).unwrap() * 256;
                let bytes = self.inbox.to_vec(at..at + 17).unwrap();
                if bytes[0] == Kind::Fault as u8 {
                    return bytes[16];
                }
            }
            done.result().unwrap();
        }
    }
}

const HONEST: Header = Header { kind: Kind::Data, tell: false, imm: None, returned: 0, pulled: 0, len: 0 };

/// Says one thing, and sees which rule it breaks.
fn lie(header: Header, body: &[u8], violation: Violation) {
    let (connection, liar) = liar();
    liar.say(header, body);
    caught(&connection, &liar, violation);
}

fn caught(connection: &Connection, liar: &Liar, violation: Violation) {
    let lost = Error::Lost(Cause::Violation(violation));
    loop {
        match connection.recv().wait_for(SOON) {
            Ok(Some(_)) => {}
            other => {
                assert_eq!(other.map(|_| ()), Err(lost.clone()));
                break;
            }
        }
    }
    assert_eq!(connection.send(b"no").wait_for(SOON), Err(lost));
    assert_eq!(connection.state(), Stand::Lost(Cause::Violation(violation)));
    assert_eq!(connection.counters().violations, 1);
    assert_eq!(liar.accused_of(), violation as u8);
}

#[test]
fn lengths_that_are_not_true() {
    lie(Header { len: 5, ..HONEST }, b"four", Violation::Length);
    lie(Header { len: u32::MAX, ..HONEST }, b"four", Violation::Length);
}

#[test]
fn headers_without_sense() {
    let (connection, liar) = liar();
    liar.qp.send_inline(&[0; 16]).post().unwrap();
    caught(&connection, &liar, Violation::Header);
    let (connection, short) = self::liar();
    short.qp.send_inline(&[1; 3]).post().unwrap();
    caught(&connection, &short, Violation::Header);
}

#[test]
fn credits_that_were_never_spent() {
    lie(Header { returned: 1, ..HONEST }, b"", Violation::Credit);
    lie(Header { returned: 0xffff, ..HONEST }, b"", Violation::Credit);
    lie(Header { pulled: 1, ..HONEST }, b"", Violation::Pulled);
}

#[test]
fn answers_to_nothing_and_words_after_the_last() {
    lie(Header { kind: Kind::Ack, len: 1, ..HONEST }, &[1], Violation::OutOfTurn);
    lie(Header { kind: Kind::Ack, len: 1, ..HONEST }, &[0], Violation::OutOfTurn);
    lie(Header { kind: Kind::Farewell, len: 8, ..HONEST }, &[0; 8], Violation::OutOfTurn);
    let (connection, liar) = liar();
    liar.say(Header { kind: Kind::Goodbye, len: 8, ..HONEST }, &[0; 8]);
    liar.say(HONEST, b"");
    assert!(matches!(connection.recv().wait_for(SOON), Ok(None) | Err(Error::Lost(_))));
    let lost = Cause::Violation(Violation::OutOfTurn);
    while connection.state() != Stand::Lost(lost) {
        let _ = connection.remote("nothing").wait_for(Duration::from_millis(5));
    }
}

#[test]
fn messages_that_were_taken_before_they_were_sent() {
    for kind in [Kind::Update, Kind::Goodbye, Kind::Farewell] {
        let header = Header { kind, len: 8, ..HONEST };
        lie(header, &1u64.to_be_bytes(), Violation::Credit);
        lie(header, &u64::MAX.to_be_bytes(), Violation::Credit);
        lie(Header { len: 7, ..header }, &[0; 7], Violation::Length);
        lie(Header { len: 0, ..header }, &[], Violation::Length);
    }
    // One was sent, and two cannot be taken; and what was taken stays so.
    for (first, second) in [(0, 2), (1, 0)] {
        let (connection, liar) = liar();
        connection.send(b"one").wait_for(SOON).unwrap();
        let header = Header { kind: Kind::Update, len: 8, ..HONEST };
        liar.say(header, &u64::to_be_bytes(first));
        liar.say(header, &u64::to_be_bytes(second));
        caught(&connection, &liar, Violation::Credit);
    }
}

#[test]
fn announced_memory_that_cannot_be_read() {
    let place = |length, rkey| RemoteRegion { address: 4096, length, rkey: Rkey(rkey) }.to_bytes();
    let header = Header { kind: Kind::Announce, len: 20, ..HONEST };
    // A key that opens nothing ends the liar's own queue pair too, so no reason reaches it.
    let (connection, liar) = liar();
    liar.say(header, &place(100, 77));
    let lost = Cause::Violation(Violation::Key);
    assert_eq!(connection.recv().wait_for(SOON).map(|_| ()), Err(Error::Lost(lost)));
    assert_eq!(connection.state(), Stand::Lost(lost));
    assert_eq!(connection.counters().violations, 1);
    // Shorter than it says.
    let (connection, liar) = self::liar();
    let real = liar.pd.allocate(4096, Access::REMOTE_READ).unwrap();
    liar.say(header, &RemoteRegion { length: 4097, ..real.remote() }.to_bytes());
    assert_eq!(connection.recv().wait_for(SOON).map(|_| ()), Err(Error::Lost(lost)));
    lie(header, &place(65 << 20, 77), Violation::TooLong);
    lie(header, &place(u64::MAX, 77), Violation::TooLong);
    lie(header, &place(0, 77), Violation::TooLong);
    lie(Header { len: 19, ..header }, &place(1, 1)[..19], Violation::Length);
}

#[test]
fn exposures_without_sense_or_without_end() {
    let header = Header { kind: Kind::Expose, len: 3, ..HONEST };
    lie(header, b"abc", Violation::Exposure);
    lie(Header { kind: Kind::Conceal, len: 4, ..HONEST }, &[0; 4], Violation::Exposure);
    lie(Header { kind: Kind::Concealed, len: 4, ..HONEST }, &[0; 4], Violation::Exposure);
    let region = RemoteRegion { address: 0, length: 1, rkey: Rkey(1) };
    let exposure = |id| Exposure { id, access: Access::REMOTE_READ, region, name: String::new() }.emit();
    let (connection, liar) = liar();
    let header =
        |body: &[u8]| Header { kind: Kind::Expose, len: u32::try_from(body.len()).unwrap(), ..HONEST };
    // Twice the same.
    for _ in 0..2 {
        let body = exposure(7);
        liar.say(header(&body), &body);
    }
    caught(&connection, &liar, Violation::Exposure);
}

#[test]
fn more_messages_than_there_is_room_for() {
    let (connection, liar) = liar();
    // One more than the depth; it would have a place, which is meant for something else.
    for _ in 0..65 {
        liar.say(HONEST, b"");
    }
    while connection.counters().violations == 0 {
        let _ = connection.remote("nothing").wait_for(Duration::from_millis(5));
    }
    assert_eq!(connection.state(), Stand::Lost(Cause::Violation(Violation::Overdrawn)));
    assert_eq!(liar.accused_of(), Violation::Overdrawn as u8);
}

#[test]
fn a_message_longer_than_its_place() {
    let (connection, liar) = liar();
    let long = liar.pd.allocate(32 * 1024, Access::empty()).unwrap();
    liar.qp.send(&long).post().unwrap();
    let lost = Error::Lost(Cause::Violation(Violation::TooLong));
    assert_eq!(connection.recv().wait_for(SOON).map(|_| ()), Err(lost));
}

#[test]
fn memory_that_was_never_opened() {
    let (connection, liar) = liar();
    liar.qp.write_inline(b"x", RemoteRegion { address: 4096, length: 1, rkey: Rkey(99) }).post().unwrap();
    let lost = Error::Lost(Cause::Violation(Violation::Access));
    assert_eq!(connection.recv().wait_for(SOON).map(|_| ()), Err(lost));
}

#[test]
fn an_accusation_is_passed_on() {
    let (connection, liar) = liar();
    liar.say(Header { kind: Kind::Fault, len: 1, ..HONEST }, &[5]);
    let lost = Error::Lost(Cause::Accused(Violation::Credit));
    assert_eq!(connection.recv().wait_for(SOON).map(|_| ()), Err(lost));
}

/// It was: the sum of bytes to be read overflowed.
#[test]
fn memory_that_is_longer_than_any() {
    let (connection, liar) = liar();
    let region = RemoteRegion { address: 0, length: u64::MAX, rkey: Rkey(1) };
    let body = Exposure { id: 1, access: Access::REMOTE_READ, region, name: "all".to_owned() }.emit();
    liar.say(Header { kind: Kind::Expose, len: u32::try_from(body.len()).unwrap(), ..HONEST }, &body);
    let all = connection.remote("all").wait_for(SOON).unwrap();
    let len = usize::try_from(all.len()).unwrap();
    for len in [len, len / 2 + 2] {
        let read = connection.read(&all, 0, len).wait_for(SOON).map(|_| ());
        assert!(matches!(read, Err(Error::Create(_))), "{read:?}");
    }
    assert_eq!(connection.state(), Stand::Open);
}
