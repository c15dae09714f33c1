//! What the kernel has dropped at a socket.

use super::socket::Socket;

/// Datagrams that the kernel has dropped at a socket. Its own count goes round after 2^32, this one does not if
/// it is looked at before.
///
/// The kernel counts anyway, and is asked only when the count is wanted: to have it told with each packet
/// (`SO_RXQ_OVFL`) would cost time with each packet, and would not tell of losses after the last one that was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drops {
    last: u32,
    sum: u64,
}

impl Drops {
    /// Those from now on.
    #[must_use]
    pub fn from_now(socket: &Socket) -> Self {
        Self { last: socket.drops(), sum: 0 }
    }

    /// How many there were.
    pub fn look(&mut self, socket: &Socket) -> u64 {
        self.count(socket.drops())
    }

    /// How many there were when this was looked at.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    fn count(&mut self, now: u32) -> u64 {
        self.sum += u64::from(now.wrapping_sub(self.last));
        self.last = now;
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_goes_round_goes_on() {
        let mut drops = Drops { last: u32::MAX - 2, sum: 0 };
        assert_eq!([drops.count(u32::MAX), drops.count(3), drops.count(3)], [2, 6, 6]);
    }
}
