//! How much may be under way to one receiver: additive increase, multiplicative decrease,
//! in true socket-buffer bytes.
//!
//! One window serves all queue pairs that send to the same socket, because they share its buffer.

use core::time::Duration;

use crate::time::Time;

/// What a datagram with this many bytes of UDP payload costs in a Linux socket buffer:
/// its bookkeeping, and data in a block whose size is a power of two.
#[must_use]
pub const fn true_size(datagram: usize) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "datagrams have at most 64 KiB")]
    let data = (datagram + 100).next_power_of_two() as u32;
    576 + data
}

/// Where packets wait for their receiver, which says what each of them costs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// The buffer of a socket.
    Socket,
    /// A ring in memory, which has a few words for each packet and begins a long payload with a cache line.
    Ring,
}

/// Bytes of headers and ICRC that the cost of a packet allows for.
const HEADERS: u32 = 32;

/// Bytes that a packet takes in a ring beside its payload, at most: the longest headers of SENDs, WRITEs and answers to READs, a word
/// before them, and what is left out so that the payload begins with a cache line and the next packet with a word.
const IN_RING: u32 = 44 + 8 + 63 + 7;

/// The window towards one receiver.
#[derive(Clone, Debug)]
pub struct Window {
    room: Room,
    /// Bytes that may be under way.
    limit: u32,
    /// The limit is never less, and never more.
    bounds: (u32, u32),
    /// Bytes that are.
    in_flight: u32,
    /// Bytes acknowledged since the limit last grew.
    credit: u32,
    /// The smoothed round-trip time in nanoseconds.
    srtt: Option<u64>,
    last_cut: Option<Time>,
    /// How often the time before a probe is doubled, because probes were sent for nothing, and when that changed last.
    patience: (u32, Time),
}

impl Window {
    /// Never less: one batch too few and every loss stops the stream.
    pub const FLOOR: u32 = 256 * 1024;

    /// Never more: a longer queue only adds delay and bursts of loss.
    pub const CAP: u32 = 1024 * 1024;

    /// What the limit grows by for each limit's worth of acknowledgements: one largest batch.
    pub const BATCH: u32 = 64 * 1024;

    /// The shortest time before a probe.
    pub const MIN_PROBE: Duration = Duration::from_millis(1);

    /// The same where packets were lost of late: there it is more likely than a receiver that has no processor.
    pub const MIN_PROBE_IN_LOSS: Duration = Duration::from_micros(200);

    /// How often [`MIN_PROBE`](Self::MIN_PROBE) is doubled at most.
    const MOST_PATIENCE: u32 = 5;

    /// How long it takes until one doubling is forgotten.
    const FORGETS: Duration = Duration::from_secs(1);

    /// How long a loss is of late.
    pub const LATE: Duration = Duration::from_millis(20);

    /// A window that knows nothing of its receiver yet.
    #[must_use]
    pub const fn new() -> Self {
        Self::within(Room::Socket, Self::FLOOR, Self::CAP)
    }

    /// A window of so many bytes of a ring in memory, whose limit never changes: its room is known.
    #[must_use]
    pub const fn ring(limit: u32) -> Self {
        Self::within(Room::Ring, limit, limit)
    }

    const fn within(room: Room, least: u32, most: u32) -> Self {
        let patience = (0, Time::ZERO);
        Self {
            room,
            limit: least,
            bounds: (least, most),
            in_flight: 0,
            credit: 0,
            srtt: None,
            last_cut: None,
            patience,
        }
    }

    /// What a packet with this many bytes of payload costs where it waits for its receiver.
    #[inline]
    #[must_use]
    pub const fn packet_cost(&self, payload: u32) -> u32 {
        match self.room {
            Room::Socket => true_size((payload + HEADERS) as usize),
            Room::Ring => payload + IN_RING,
        }
    }

    /// Whether a packet is to ask for an acknowledgement where so much may still be sent behind it: there is to be one before nothing
    /// may be sent any more.
    #[inline]
    pub(crate) const fn asks_with(&self, room_behind: u32) -> bool {
        match self.room {
            Room::Socket => room_behind < Self::BATCH,
            Room::Ring => room_behind < self.limit / 2,
        }
    }

    /// Bytes that may be under way.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Bytes that are under way.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes that may still be sent now.
    #[must_use]
    pub const fn room(&self) -> u32 {
        self.limit.saturating_sub(self.in_flight)
    }

    /// Whether `cost` more may be sent. Something may always be, when nothing is under way.
    #[must_use]
    pub const fn allows(&self, cost: u32) -> bool {
        self.in_flight == 0 || self.in_flight.saturating_add(cost) <= self.limit
    }

    /// The smoothed round-trip time, once one was measured.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt.map(Duration::from_nanos)
    }

    /// How long to wait for an answer before asking again: four round trips, at least a millisecond, less where packets are
    /// being lost, and more where the receiver was only away.
    #[must_use]
    pub fn probe_after(&self, now: Time) -> Duration {
        Duration::from_nanos(self.probe_after_nanos(now))
    }

    /// The same in nanoseconds: it is asked for with each packet that leaves while nothing is under way.
    #[inline]
    pub(crate) fn probe_after_nanos(&self, now: Time) -> u64 {
        let least = if self.is_lossy(now) {
            nanos(Self::MIN_PROBE_IN_LOSS)
        } else {
            nanos(Self::MIN_PROBE) << self.patience_at(now)
        };
        self.srtt.map_or(nanos(Self::MIN_PROBE), |srtt| least.max(srtt.saturating_mul(4)))
    }

    /// Whether packets were lost of late.
    pub(crate) fn is_lossy(&self, now: Time) -> bool {
        self.last_cut.is_some_and(|cut| now.since(cut) < Self::LATE)
    }

    /// How long to wait before asking again where an answer left it open whether packets were lost: a round trip, at least the
    /// time that is waited where packets are lost, and more where the receiver was only away.
    pub(crate) fn asks_again_after(&self, now: Time) -> Duration {
        let least = nanos(Self::MIN_PROBE_IN_LOSS) << self.patience_at(now);
        Duration::from_nanos(self.srtt.map_or(least, |srtt| least.max(srtt)))
    }

    fn patience_at(&self, now: Time) -> u32 {
        let (doublings, since) = self.patience;
        if doublings == 0 {
            return 0;
        }
        let forgotten = now.since(since).as_secs() / Self::FORGETS.as_secs();
        doublings.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }

    /// A probe was sent for nothing: the receiver had what was sent again, and had no processor to say so. That is likely to
    /// happen again.
    pub(crate) fn on_needless_probe(&mut self, now: Time) {
        self.patience = ((self.patience_at(now) + 1).min(Self::MOST_PATIENCE), now);
    }

    /// A queue pair's bytes under way went from `before` to `after`.
    pub(crate) const fn change_in_flight(&mut self, before: u32, after: u32) {
        self.in_flight = self.in_flight.saturating_sub(before).saturating_add(after);
    }

    /// `cost` bytes arrived.
    pub(crate) fn on_acknowledged(&mut self, cost: u32) {
        // What was not used has not been tried.
        if self.in_flight < self.limit / 2 {
            return;
        }
        self.credit = self.credit.saturating_add(cost);
        if self.credit >= self.limit {
            self.credit = 0;
            self.limit = (self.limit + Self::BATCH).min(self.bounds.1);
        }
    }

    /// A round trip took this long.
    pub(crate) fn on_round_trip(&mut self, sample: Duration) {
        let sample = nanos(sample);
        self.srtt = Some(self.srtt.map_or(sample, |srtt| srtt.saturating_mul(7).saturating_add(sample) / 8));
    }

    /// Something was lost: cut the limit by a quarter, at most once per round trip.
    pub(crate) fn on_loss(&mut self, now: Time) {
        let pause = self.srtt().unwrap_or(Self::MIN_PROBE);
        if self.last_cut.is_some_and(|cut| now.since(cut) < pause) {
            return;
        }
        self.last_cut = Some(now);
        self.patience = (0, now);
        self.credit = 0;
        self.limit = (self.limit / 4 * 3).max(self.bounds.0);
    }
}

/// A time in nanoseconds; the longest that can be said for those that are longer.
#[expect(clippy::cast_possible_truncation, reason = "what is longer is told apart")]
#[inline]
const fn nanos(time: Duration) -> u64 {
    let nanos = time.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_sizes_are_those_that_linux_was_seen_to_charge() {
        assert_eq!(true_size(80), 832);
        assert_eq!(true_size(4112), 8768);
    }

    #[test]
    fn the_limit_stays_between_floor_and_cap() {
        let mut window = Window::new();
        window.in_flight = Window::CAP;
        for _ in 0..1000 {
            window.on_acknowledged(Window::CAP);
        }
        assert_eq!(window.limit(), Window::CAP);
        for round in 1..10 {
            window.on_loss(Time::from_nanos(round * 1_000_000_000));
        }
        assert_eq!(window.limit(), Window::FLOOR);
    }

    #[test]
    fn the_limit_of_a_ring_stays() {
        let mut window = Window::ring(1000);
        window.in_flight = 1000;
        for round in 1..10 {
            window.on_acknowledged(Window::CAP);
            assert_eq!(window.limit(), 1000);
            window.on_loss(Time::from_nanos(round * 1_000_000_000));
            assert_eq!(window.limit(), 1000);
        }
    }

    #[test]
    fn in_a_ring_a_packet_costs_what_it_takes_there() {
        let ring = Window::ring(60 * 1024);
        assert_eq!([0, 64, 4096].map(|payload| ring.packet_cost(payload)), [122, 186, 4218]);
        let socket = Window::new();
        assert_eq!([0, 64, 4096].map(|payload| socket.packet_cost(payload)), [832, 832, 8768]);
        assert!(ring.asks_with(30 * 1024 - 1) && !ring.asks_with(30 * 1024));
    }

    #[test]
    fn losses_within_one_round_trip_count_once() {
        let mut window = Window::new();
        window.limit = Window::CAP;
        window.on_round_trip(Duration::from_micros(100));
        window.on_loss(Time::from_nanos(1_000_000));
        window.on_loss(Time::from_nanos(1_099_999));
        assert_eq!(window.limit(), Window::CAP / 4 * 3);
        window.on_loss(Time::from_nanos(1_100_000));
        assert_eq!(window.limit(), Window::CAP / 16 * 9);
    }

    #[test]
    fn where_packets_are_lost_the_next_probe_comes_sooner() {
        let mut window = Window::new();
        let now = Time::from_nanos(1_000_000_000);
        window.on_round_trip(Duration::from_micros(20));
        assert_eq!(window.probe_after(now), Window::MIN_PROBE);
        window.on_loss(now);
        assert_eq!(window.probe_after(now), Window::MIN_PROBE_IN_LOSS);
        assert_eq!(window.probe_after(now + Window::LATE), Window::MIN_PROBE);
        let late = Window::LATE.saturating_sub(Duration::from_nanos(1));
        assert_eq!(window.probe_after(now + late), Window::MIN_PROBE_IN_LOSS);
        window.on_round_trip(Duration::from_millis(3));
        assert!(window.probe_after(now) > Window::MIN_PROBE, "four round trips in any case");
    }

    #[test]
    fn the_limit_is_for_all_that_is_under_way_but_for_the_first_packet() {
        let mut window = Window::new();
        assert!(window.allows(Window::CAP), "something may always be sent");
        window.change_in_flight(0, 1000);
        assert_eq!((window.in_flight(), window.room()), (1000, Window::FLOOR - 1000));
        assert!(window.allows(Window::FLOOR - 1000) && !window.allows(Window::FLOOR - 999));
        window.change_in_flight(400, 0);
        assert_eq!(window.in_flight(), 600);
        window.change_in_flight(600, Window::FLOOR + 1);
        assert_eq!(window.room(), 0);
    }

    #[test]
    fn a_limit_grows_by_a_batch_for_each_limit_that_arrived_while_half_of_it_was_used() {
        let mut window = Window::new();
        let half = Window::FLOOR / 2;
        window.change_in_flight(0, half - 1);
        window.on_acknowledged(Window::FLOOR);
        assert_eq!((window.limit(), window.credit), (Window::FLOOR, 0), "what was not used was not tried");
        window.change_in_flight(0, 1);
        window.on_acknowledged(Window::FLOOR - 1);
        assert_eq!((window.limit(), window.credit), (Window::FLOOR, Window::FLOOR - 1));
        window.on_acknowledged(1);
        assert_eq!((window.limit(), window.credit), (Window::FLOOR + Window::BATCH, 0));
        window.change_in_flight(0, Window::CAP);
        window.on_acknowledged(5);
        window.on_loss(Time::from_nanos(1));
        assert_eq!(window.credit, 0, "a loss begins anew");
    }

    #[test]
    fn a_round_trip_is_smoothed_over_eight() {
        let mut window = Window::new();
        assert_eq!(window.srtt(), None);
        window.on_round_trip(Duration::from_micros(800));
        assert_eq!(window.srtt(), Some(Duration::from_micros(800)));
        window.on_round_trip(Duration::from_micros(1600));
        assert_eq!(window.srtt(), Some(Duration::from_micros(900)));
        assert_eq!(window.probe_after(Time::ZERO), Duration::from_micros(3600), "four round trips");
    }

    #[test]
    fn probes_for_nothing_come_ever_more_seldom_until_a_loss_or_for_a_while() {
        let mut window = Window::new();
        window.on_round_trip(Duration::from_micros(10));
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let mut waits = Vec::new();
        for round in 1..=7 {
            window.on_needless_probe(at(round));
            waits.push(window.probe_after(at(round)).as_millis());
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(window.probe_after(at(1006)), Duration::from_millis(32));
        assert_eq!(
            window.probe_after(at(2007)),
            Duration::from_millis(8),
            "two seconds forget two doublings"
        );
        assert_eq!(window.probe_after(at(60_000)), Window::MIN_PROBE);
        window.on_loss(at(2008));
        assert_eq!(window.probe_after(at(2008)), Window::MIN_PROBE_IN_LOSS);
        assert_eq!(window.probe_after(at(2108)), Window::MIN_PROBE);
    }
}
