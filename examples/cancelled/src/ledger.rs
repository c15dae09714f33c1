//! What must hold of one connection when all is over.

use anyhow::{bail, ensure};

/// How a send ended for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Finished,
    Before,
    InFlight,
}

/// What the end that connected knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// How the send of each message ended, by number.
    pub(crate) sends: Vec<Sent>,
    /// Atomics that were finished, and that were cancelled in flight.
    pub(crate) added: u64,
    pub(crate) maybe_added: u64,
}

/// What the end that accepted knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// The messages that arrived, in this order. Each had the right bytes.
    pub(crate) numbers: Vec<u32>,
    /// The sum of all atomics.
    pub(crate) sum: u64,
}

/// Checks that no message was lost or doubled, and that atomics were done once or not at all; how many of the sends
/// that were cancelled in flight arrived.
pub(crate) fn check(asked: &Asked, served: &Served) -> anyhow::Result<u64> {
    let Served { numbers, sum } = served;
    for pair in numbers.windows(2) {
        ensure!(pair[0] < pair[1], "message {} came after {}", pair[1], pair[0]);
    }
    let mut arrived = 0;
    let mut came = numbers.iter().peekable();
    for (number, sent) in asked.sends.iter().enumerate() {
        let is_there = came.next_if(|came| **came as usize == number).is_some();
        match (sent, is_there) {
            (Sent::Finished, true) | (Sent::Before | Sent::InFlight, false) => {}
            (Sent::InFlight, true) => arrived += 1,
            (Sent::Finished, false) => bail!("message {number} was sent, and is lost"),
            (Sent::Before, true) => bail!("message {number} was never begun, and has come"),
        }
    }
    ensure!(came.next().is_none(), "a message came that no sender has: {numbers:?}");
    let (least, most) = (asked.added, asked.added + asked.maybe_added);
    ensure!((least..=most).contains(sum), "the atomics add up to {sum}, which is not in {least} to {most}");
    Ok(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        let sends = vec![Sent::Finished, Sent::Before, Sent::InFlight, Sent::InFlight, Sent::Finished];
        Asked { sends, added: 5, maybe_added: 2 }
    }

    fn arrived(numbers: &[u32], sum: u64) -> anyhow::Result<u64> {
        check(&asked(), &Served { numbers: numbers.to_vec(), sum })
    }

    #[test]
    fn what_must_not_be_is_found() {
        assert_eq!(arrived(&[0, 4], 5).unwrap(), 0);
        assert_eq!(arrived(&[0, 2, 4], 6).unwrap(), 1);
        assert_eq!(arrived(&[0, 2, 3, 4], 7).unwrap(), 2);
        for (numbers, sum, expected) in [
            (&[0, 2][..], 5, "message 4 was sent, and is lost"),
            (&[0, 1, 4], 5, "message 1 was never begun"),
            (&[0, 0, 4], 5, "message 0 came after 0"),
            (&[0, 3, 2, 4], 5, "message 2 came after 3"),
            (&[0, 4, 5], 5, "no sender has"),
            (&[0, 4], 4, "add up to 4"),
            (&[0, 4], 8, "add up to 8"),
        ] {
            let error = arrived(numbers, sum).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
