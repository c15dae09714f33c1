//! A message that is alone leaves in the call that posts it, and leaves what the long way leaves: random programs are run with
//! and without that way, and every packet, completion, byte and field of the queue pairs is compared.

#[path = "direct/rig.rs"]
#[allow(dead_code, reason = "the tests of messages without packets use the rest")]
mod rig;

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_sim::Device;
use ferroce_transport::{
    Acks, Data, Gather, PayloadSource, ReceiveRequest, SendFlags, SendOp, SendRequest, Sge, Time, Window,
};
use ferroce_wire::{DataPacket, Imm, Lkey, Packet, PayloadLen};
use proptest::prelude::*;
use rig::{Setup, Two};

/// A packet as it left, and its payload.
type Sent = (Packet<PayloadLen>, Vec<u8>);

/// Two queue pairs that are connected, and the network between them.
struct World {
    two: Two,
    windows: [Window; 2],
    /// What is on its way to each side.
    coming: [VecDeque<Sent>; 2],
    now: Time,
    /// Whether messages that are alone go their way.
    is_short: bool,
    /// How many did.
    alone: usize,
    /// All that has left.
    left: Vec<Sent>,
}

/// What a program, or the network, does.
#[derive(Clone, Debug)]
enum Step {
    Post {
        side: usize,
        what: What,
        how: How,
        length: u32,
        flags: u8,
    },
    Receive {
        side: usize,
        length: u32,
    },
    /// The oldest packet arrives, or is lost.
    Arrive {
        side: usize,
        is_lost: bool,
    },
    /// An acknowledgement that is owed leaves, and whatever else there is.
    Send {
        side: usize,
    },
    Wait {
        micros: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum What {
    Send,
    Write,
    SendImm,
    Read,
}

#[derive(Clone, Copy, Debug)]
enum How {
    OnePiece,
    TwoPieces,
    Inline,
    BadKey,
}

impl World {
    fn new(setup: &Setup, is_short: bool) -> Self {
        let mut two = Two::new(setup);
        for side in [0, 1] {
            for (index, byte) in two.memory(side).iter_mut().enumerate() {
                *byte = (index % 251).to_le_bytes()[0];
            }
        }
        let windows = [Window::new(), Window::new()];
        let (now, left, coming) = (Time::from_nanos(1000), Vec::new(), Default::default());
        Self { two, windows, coming, now, is_short, alone: 0, left }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Post { side, what, how, length, flags } => self.post(side, what, how, length, flags),
            Step::Receive { side, length } => {
                let sges = [self.two.sge(side, 0x8000, length)];
                let request = ReceiveRequest { id: 7, sges: &sges };
                let _ = self.two.pairs[side].post_receive(&request, &mut self.two.devices.0[side]);
            }
            Step::Arrive { side, is_lost } => {
                if let Some((packet, bytes)) = self.coming[side].pop_front().filter(|_| !is_lost) {
                    let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
                    let packet = packet.map_payload(|_| &bytes[..]);
                    pair.handle_packet(self.now, &packet, None, &mut self.windows[side], device);
                }
            }
            Step::Send { side } => self.send(side, Acks::Send),
            Step::Wait { micros } => {
                self.now = self.now + Duration::from_micros(micros);
                for side in [0, 1] {
                    let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
                    if pair.poll_timeout().is_some_and(|due| due <= self.now) {
                        pair.handle_timeout(self.now, &mut self.windows[side], device);
                    }
                }
            }
        }
    }

    fn post(&mut self, side: usize, what: What, how: How, length: u32, flags: u8) {
        let (remote, sge) = (self.two.remote(1 - side, 0x4000), self.two.sge(side, 0x100, length));
        let op = match what {
            What::Send => SendOp::Send,
            What::Write => SendOp::Write(remote),
            What::SendImm => SendOp::SendImm(Imm(5)),
            What::Read => SendOp::Read(remote),
        };
        let pieces = match how {
            How::BadKey => vec![Sge { lkey: Lkey(sge.lkey.0 ^ 1), ..sge }],
            How::TwoPieces => vec![sge, self.two.sge(side, 0x200, 3)],
            How::OnePiece | How::Inline => vec![sge],
        };
        let bytes = vec![0x5a; length as usize];
        let data = if let How::Inline = how { Data::Inline(&bytes) } else { Data::Gather(&pieces) };
        let flags = SendFlags::from_bits_truncate(flags);
        let request = SendRequest { id: 9, op, data, flags, dest: None };
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let mut went = Vec::new();
        if self.is_short
            && pair.post_alone(self.now, &request, &mut self.windows[side], device, into(&mut went))
        {
            self.alone += 1;
            return self.leave(side, went);
        }
        assert!(went.is_empty(), "nothing leaves that was not taken");
        let _ = pair.post_send(&request, device);
        self.send(side, Acks::Hold);
    }

    /// As a device sends: in a burst, and then packet by packet.
    fn send(&mut self, side: usize, acks: Acks) {
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let (window, mut went) = (&mut self.windows[side], Vec::new());
        pair.poll_data(self.now, 64, Some(acks), window, device, into(&mut went));
        while went.len() < 128
            && let Some(transmit) = pair.poll_transmit(self.now, acks, window, device)
        {
            went.push((transmit.packet, bytes(device, &transmit.payload)));
        }
        self.leave(side, went);
    }

    fn leave(&mut self, side: usize, went: Vec<Sent>) {
        self.left.extend(went.iter().cloned());
        self.coming[1 - side].extend(went);
    }

    /// Everything that can be seen, and everything that cannot.
    fn state(&mut self) -> String {
        let completions = [self.two.completions(0), self.two.completions(1)];
        format!("{:?} {:?} {completions:?}", self.two.pairs, self.windows)
    }
}

fn into(went: &mut Vec<Sent>) -> impl FnMut(&mut Device, &DataPacket, &PayloadSource<'_>) -> bool {
    |device, data, payload| {
        // What memory refuses is for the machine to say so.
        if let PayloadSource::Gather(pieces) = payload
            && Gather::any(&mut pieces.clone(), |piece| {
                ferroce_transport::Host::check_local(device, rig::DOMAIN, piece, false).is_err()
            })
        {
            return false;
        }
        went.push((data.to_packet(), bytes(device, payload)));
        true
    }
}

fn bytes(device: &Device, payload: &PayloadSource<'_>) -> Vec<u8> {
    let slice = |address, len: u32| device.memory.slice(address, len as usize).to_vec();
    match *payload {
        PayloadSource::Nothing => Vec::new(),
        PayloadSource::Inline(bytes) => bytes.to_vec(),
        PayloadSource::Gather(gather) => {
            Gather::flat_map(gather, |piece: Sge| slice(piece.address, piece.length)).collect()
        }
        PayloadSource::Remote { address, len, .. } => slice(address, len),
    }
}

/// Runs the same program both ways; how many messages were alone.
fn compare(setup: &Setup, steps: &[Step]) -> usize {
    let (mut long, mut short) = (World::new(setup, false), World::new(setup, true));
    for (number, step) in steps.iter().enumerate() {
        long.run(step);
        short.run(step);
        assert_eq!(long.left, short.left, "what left, after step {number}, {step:?}");
        assert_eq!(long.state(), short.state(), "after step {number}, {step:?}");
    }
    for side in [0, 1] {
        assert!(long.two.memory(side) == short.two.memory(side), "memory of {side}");
    }
    assert_eq!(long.alone, 0);
    short.alone
}

/// Receives of both sides, so that a peer may count on some before it hears of more.
fn receives() -> Vec<Step> {
    [0, 1].repeat(6).into_iter().map(|side| Step::Receive { side, length: 4096 }).collect()
}

/// A message and the answer, again and again, with the acknowledgement of each behind the next.
fn conversation(rounds: usize, what: What, how: How, length: u32) -> Vec<Step> {
    let flags = (SendFlags::SIGNALED | SendFlags::SOLICITED).bits();
    let mut steps = receives();
    for round in 0..rounds {
        let side = round % 2;
        steps.push(Step::Receive { side: 1 - side, length: 4096 });
        steps.push(Step::Post { side, what, how, length, flags });
        steps.push(Step::Wait { micros: 3 });
        steps.extend([false; 2].map(|is_lost| Step::Arrive { side: 1 - side, is_lost }));
    }
    steps
}

#[test]
fn every_message_of_a_conversation_is_alone() {
    for what in [What::Send, What::Write] {
        for (how, length) in [(How::OnePiece, 64), (How::OnePiece, 1024), (How::Inline, 64), (How::Inline, 0)]
        {
            assert_eq!(
                compare(&Setup::default(), &conversation(40, what, how, length)),
                40,
                "{what:?} {how:?}"
            );
        }
    }
}

#[test]
fn what_is_out_of_the_ordinary_is_not_alone() {
    let setup = Setup::default();
    let of = |what, how, length| compare(&setup, &conversation(8, what, how, length));
    assert_eq!(of(What::SendImm, How::OnePiece, 64), 0);
    assert_eq!(of(What::Read, How::OnePiece, 64), 0);
    assert_eq!(of(What::Send, How::TwoPieces, 64), 0);
    assert_eq!(of(What::Send, How::BadKey, 64), 0);
    assert_eq!(of(What::Write, How::OnePiece, 1025), 0, "two packets");
    assert_eq!(of(What::Send, How::Inline, 65), 0, "more than may be inline");
    let paced = Setup { rate: 1000, ..setup };
    assert_eq!(compare(&paced, &conversation(8, What::Send, How::OnePiece, 64)), 0);
    // The first is, and those that find it under way are not.
    let post = Step::Post { side: 0, what: What::Write, how: How::OnePiece, length: 64, flags: 2 };
    assert_eq!(compare(&setup, &[post.clone(), post.clone(), post]), 1);
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0..2_usize;
    let what = prop_oneof![
        6 => Just(What::Send),
        6 => Just(What::Write),
        1 => Just(What::SendImm),
        1 => Just(What::Read),
    ];
    let how = prop_oneof![
        8 => Just(How::OnePiece),
        1 => Just(How::TwoPieces),
        4 => Just(How::Inline),
    ];
    let length = prop_oneof![4 => Just(64_u32), 1 => Just(0), 2 => 0..70_u32, 1 => 1000..2100_u32];
    prop_oneof![
        4 => (side.clone(), what, how, length, 0..8_u8).prop_map(|(side, what, how, length, flags)| Step::Post {
            side, what, how, length, flags
        }),
        3 => (side.clone(), prop_oneof![9 => Just(4096_u32), 1 => 0..64_u32])
            .prop_map(|(side, length)| Step::Receive { side, length }),
        24 => (side.clone(), prop::bool::weighted(0.04))
            .prop_map(|(side, is_lost)| Step::Arrive { side, is_lost }),
        8 => side.prop_map(|side| Step::Send { side }),
        4 => prop_oneof![5 => 1..50_u64, 1 => 1000..100_000_u64].prop_map(|micros| Step::Wait { micros }),
    ]
}

proptest! {
    #[test]
    fn random_programs_do_the_same_both_ways(steps in prop::collection::vec(step(), 1..200)) {
        compare(&Setup::default(), &[receives(), steps].concat());
    }
}

/// The test above says something only if its programs have such messages.
#[test]
fn random_programs_have_messages_that_are_alone() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let programs = prop::collection::vec(step(), 100..200);
    let mut alone = 0;
    for _ in 0..20 {
        let steps = programs.new_tree(&mut runner).expect("a program").current();
        alone += compare(&Setup::default(), &[receives(), steps].concat());
    }
    assert!(alone > 60, "{alone} messages of 20 programs");
}
