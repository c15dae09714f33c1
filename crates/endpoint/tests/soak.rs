//! Messages of random size over a bad link to a receiver that stalls: nothing is lost, and memory is bounded.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::thread;
use std::time::Duration;

use ferroce_endpoint::*;
use ferroce_verbs::FaultPlan;
use ferroce_verbs::time::park;

/// No single message takes so long.
const STUCK: Duration = Duration::from_secs(60);

const MIB: u64 = 1 << 20;

/// Numbers without a pattern (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Every order of magnitude from 0 to 16 MiB is as likely as the next.
    fn size(&mut self) -> usize {
        let bits = self.roll() % 25;
        usize::try_from(self.roll() % ((1 << bits) + 1)).unwrap()
    }
}

/// What the message with this seed consists of.
fn fill(seed: u64, into: &mut Vec<u8>, len: usize) {
    let mut dice = Dice(seed | 1);
    into.clear();
    while into.len() < len {
        into.extend(dice.roll().to_le_bytes());
    }
    into.truncate(len);
}

#[test]
fn ten_gibibytes_or_a_part_of_them() {
    let total = match std::env::var("FERROCE_SOAK") {
        Ok(minutes) if !minutes.is_empty() => 10 << 30,
        _ => 256 * MIB,
    };
    let seed = 0x5eed;
    let open = |host: u8| {
        let faults = FaultPlan { loss: 0.01, seed: host.into(), ..FaultPlan::default() };
        Context::builder("lo").address([127, 0, 116, host]).faults(faults).open().unwrap()
    };
    let (one, two) = (open(1), open(2));
    let options = |context: &Context| Options::new().context(context).max_message(16 * MIB);
    let listener = Listener::bind_with("127.0.116.1:0", &options(&one)).unwrap();
    let address = listener.local_addr();
    let (sent, received) = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let connection = Connection::connect_with(address, &options(&two)).wait().unwrap();
            let (mut dice, mut bytes, mut message, mut count) = (Dice(seed), 0, Vec::new(), 0_u32);
            while bytes < total {
                let len = dice.size();
                fill(seed ^ u64::from(count), &mut message, len);
                let sum = crc32fast::hash(&message);
                match count % 3 {
                    // Copied, or filled in place and not copied.
                    0 => {
                        let buffer = connection.allocate(len).unwrap();
                        buffer.write_at(0, &message).unwrap();
                        connection.send_buffer(buffer, sum).wait_for(STUCK).unwrap();
                    }
                    _ => connection.send_with_imm(&message, sum).wait_for(STUCK).unwrap(),
                }
                bytes += len as u64;
                count += 1;
            }
            connection.close().wait_for(STUCK).unwrap();
            (count, connection.memory(), connection.counters())
        });
        let connection = listener.accept().wait_for(STUCK).unwrap();
        let (mut dice, mut sizes, mut expected) = (Dice(seed + 1), Dice(seed), Vec::new());
        let mut count = 0_u32;
        while let Some(message) = connection.recv().wait_for(STUCK).unwrap() {
            let len = sizes.size();
            assert_eq!(message.len(), len, "message {count}");
            let sum = message.imm();
            let bytes = message.into_vec();
            assert_eq!(sum, Some(crc32fast::hash(&bytes)), "message {count}");
            if count.is_multiple_of(16) {
                fill(seed ^ u64::from(count), &mut expected, len);
                assert!(bytes == expected, "message {count}");
            }
            count += 1;
            if dice.roll() % 32 == 0 {
                park(Some(Duration::from_micros(dice.roll() % 20_000)));
            }
        }
        (sender.join().unwrap(), (count, connection.memory(), connection.counters()))
    });
    assert_eq!(sent.0, received.0, "every message arrived");
    assert!(sent.2.stalls > 0, "the receiver has slowed the sender: {:?}", sent.2);
    let most = options(&one).most_memory();
    for (side, memory) in [("sender", sent.1), ("receiver", received.1)] {
        println!(
            "{side}: {} messages, peak of memory {} KiB, bound {} KiB",
            sent.0,
            memory.peak >> 10,
            most >> 10
        );
        // The one message or buffer that the program itself holds comes on top.
        assert!(memory.peak <= most + 16 * MIB, "{side}: {memory:?}, bound {most}");
    }
}
