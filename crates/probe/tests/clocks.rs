//! What is measured over sockets does not depend on what the clocks of the two hosts show.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ferroce_probe::net::{CardClock, ProbeClock, ProberEnd, ResponderEnd, stamp_now};
use ferroce_probe::{
    Invalid, Outcome, Peer, ProbeEvent, ProberConfig, Report, ResponderConfig, Stamp, StampSource,
};
use ferroce_verbs::Context;
use ferroce_verbs::time::Time;

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(40);

const HOUR: i128 = 3_600_000_000_000;

/// How long a responder that stalls does nothing.
const STALL: Duration = Duration::from_millis(5);

/// A clock that is off by so many nanoseconds, and gains so many of each million.
#[derive(Clone, Copy, Debug)]
struct Off {
    offset: i128,
    ppm: i128,
}

const MILLION: i128 = 1_000_000;

/// Probes with each pair of clocks.
const PROBES: u64 = 8;

impl ProbeClock for Off {
    fn shows(&self, time: Time) -> Stamp {
        // Two hours ahead, so that none of them shows a time before its beginning.
        let shown = i128::from(time.nanos()) * (MILLION + self.ppm) / MILLION + 2 * HOUR + self.offset;
        Stamp::from_nanos(u64::try_from(shown).unwrap())
    }

    fn time_of(&self, stamp: Stamp) -> Time {
        let shown = i128::from(stamp.nanos()) - 2 * HOUR - self.offset;
        Time::from_nanos(u64::try_from(shown * MILLION / (MILLION + self.ppm)).unwrap_or(0))
    }
}

fn card(last: u8) -> (Context, IpAddr) {
    let address = IpAddr::from([127, 0, 133, last]);
    (Context::builder("lo").address(address).open().unwrap(), address)
}

/// Lets time pass with the processor awake: an idle one would make what comes next slower.
fn spin(time: Duration) {
    let end = stamp_now().plus(time);
    while stamp_now() < end {
        std::hint::spin_loop();
    }
}

/// A responder that does nothing while it is held.
#[derive(Debug, Default)]
struct Hold {
    wanted: AtomicBool,
    is_held: AtomicBool,
    stop: AtomicBool,
}

impl Hold {
    /// Holds the responder, or lets it go on, and waits until it does.
    fn set(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::SeqCst);
        let end = stamp_now().plus(SOON);
        while self.is_held.load(Ordering::SeqCst) != wanted {
            assert!(stamp_now() < end, "the responder does not hear: {self:?}");
            std::hint::spin_loop();
        }
    }

    /// The life of the responder: it never sleeps.
    fn answer<C: ProbeClock>(&self, responder: &mut ResponderEnd<C>) {
        while !self.stop.load(Ordering::SeqCst) {
            let held = self.wanted.load(Ordering::SeqCst);
            self.is_held.store(held, Ordering::SeqCst);
            if held {
                std::hint::spin_loop();
            } else {
                responder.turn().unwrap();
            }
        }
    }
}

/// A prober and a responder that can be held, each with a card and a clock of its own.
fn between<P: ProbeClock, R: ProbeClock + Send>(
    [here, there]: [u8; 2],
    (ours, theirs): (P, R),
    act: impl FnOnce(&mut ProberEnd<P>, Peer, &Hold),
) {
    let (context, address) = card(there);
    let config = ResponderConfig::default();
    let mut responder = ResponderEnd::open_by(&context, address, None, config, theirs).unwrap();
    let peer = Peer { address, qpn: responder.qpn() };
    let (context, address) = card(here);
    let patient = ProberConfig { timeout: SOON, late: SOON, stall: SOON, ..ProberConfig::default() };
    let mut prober = ProberEnd::open_by(&context, address, patient, ours).unwrap();
    let hold = Hold::default();
    thread::scope(|scope| {
        let answering = scope.spawn(|| hold.answer(&mut responder));
        let acted = std::panic::AssertUnwindSafe(|| act(&mut prober, peer, &hold));
        let done = std::panic::catch_unwind(acted);
        hold.stop.store(true, Ordering::SeqCst);
        answering.join().unwrap();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Waits for the end of the probe that is under way, without sleep.
fn report<P: ProbeClock>(prober: &mut ProberEnd<P>) -> Report {
    let end = stamp_now().plus(SOON);
    loop {
        assert!(stamp_now() < end, "the probe does not end: {:?}", prober.counters());
        prober.turn().unwrap();
        if let Some(ProbeEvent::Ended(report)) = prober.poll() {
            return report;
        }
    }
}

/// A probe whose responder does nothing for a while: after the probe has come, or before it leaves.
fn probe<P: ProbeClock>(prober: &mut ProberEnd<P>, peer: Peer, hold: &Hold, stalls: bool) -> Report {
    hold.set(true);
    if stalls {
        prober.probe(peer, None).unwrap();
        spin(STALL);
        hold.set(false);
    } else {
        spin(STALL);
        hold.set(false);
        prober.probe(peer, None).unwrap();
    }
    report(prober)
}

/// The true times, as the card had them, and what follows from them.
fn truth((ours, theirs): (Off, Off), report: &Report) -> [i128; 4] {
    let times = report.times;
    let at = |clock: Off, stamp: Option<Stamp>| i128::from(clock.time_of(stamp.unwrap()).nanos());
    let away = at(ours, times.t5) - at(ours, times.t2);
    let responder = at(theirs, times.t4) - at(theirs, times.t3);
    let program = at(ours, times.t6) - at(ours, Some(times.t1));
    [away - responder, responder, program - away, away + responder + program]
}

#[test]
fn clocks_that_are_off_and_drift_change_nothing_beyond_their_drift() {
    let clocks = [(HOUR, 100), (-HOUR, -100), (-HOUR, 100), (HOUR, -100), (0, 0)];
    let clocks = clocks.map(|(offset, ppm)| Off { offset, ppm });
    let all = clocks.iter().flat_map(|ours| clocks.iter().map(|theirs| (*ours, *theirs)));
    for both in all {
        between([3, 4], both, |prober, peer, hold| {
            let mut invalid = 0;
            for number in 0..PROBES {
                // A stalled responder makes its bracket, and what drift does to it, long.
                let report = probe(prober, peer, hold, number % 2 == 0);
                assert_eq!(report.times.source, StampSource::Kernel);
                let [truth @ .., brackets] = truth(both, &report);
                // 100 of each million of each bracket, and what is cut off when clocks are read.
                let drift = brackets / 10_000 + 8;
                if report.outcome == Outcome::Invalid(Invalid::NegativeRoundTrip) {
                    // A busy machine may hold the responder so long that drift is more than the round trip.
                    assert!(truth[0] <= drift, "drift explains {drift} ns only: {report:?}, {both:?}");
                    invalid += 1;
                    continue;
                }
                assert_eq!(report.outcome, Outcome::Ok, "{report:?}");
                let delays = report.delays.unwrap();
                let told = [delays.round_trip, delays.responder, delays.prober];
                for (told, truth) in told.into_iter().zip(truth) {
                    let wrong = i128::try_from(told.as_nanos()).unwrap() - truth;
                    assert!(wrong.abs() <= drift, "{wrong} ns, drift explains {drift}: {report:?}, {both:?}");
                }
                // All of it happened in one process, within the time that the card has seen pass.
                assert!(delays.round_trip < SOON && delays.responder < SOON && delays.prober < SOON);
            }
            assert_eq!((prober.outcomes().ok, prober.outcomes().invalid), (PROBES - invalid, invalid));
            assert!(invalid <= PROBES / 2, "only those that stalled can be: {:?}", prober.outcomes());
        });
    }
}

#[test]
fn time_passes_at_the_pace_of_an_off_clock() {
    for ours in [Off { offset: -HOUR, ppm: 100 }, Off { offset: HOUR, ppm: -100 }] {
        let (_silent, host) = card(6);
        let (context, address) = card(5);
        let soon = Duration::from_millis(50);
        let config = ProberConfig { timeout: soon, late: 2 * soon, stall: SOON, ..ProberConfig::default() };
        let mut prober = ProberEnd::open_by(&context, address, config, ours).unwrap();
        let begin = prober.now();
        prober.probe(Peer { address: host, qpn: 0x1234 }, None).unwrap();
        let ended = loop {
            assert!(prober.now() < begin.plus(SOON), "it does not end: {:?}", prober.counters());
            prober.sleep_until(prober.now().plus(SOON));
            prober.turn().unwrap();
            if let Some(ProbeEvent::Ended(report)) = prober.poll() {
                break report;
            }
        };
        assert_eq!((ended.outcome, prober.now() >= begin.plus(2 * soon)), (Outcome::TimeOut, true));
    }
}

/// A clock that runs twice as fast claims more time for the responder than there was.
#[test]
fn what_cannot_be_is_invalid_and_counted() {
    let double = Off { offset: 0, ppm: MILLION };
    between([7, 8], (CardClock, double), |prober, peer, hold| {
        for count in 1..=10 {
            let report = probe(prober, peer, hold, true);
            assert_eq!(report.outcome, Outcome::Invalid(Invalid::NegativeRoundTrip), "{report:?}");
            assert_eq!((report.delays, prober.outcomes().invalid), (None, count));
        }
        assert_eq!(prober.outcomes().ok, 0);
    });
    // One that runs backwards sends its answer before the probe has come.
    let back = Off { offset: HOUR, ppm: -2 * MILLION };
    between([9, 10], (CardClock, back), |prober, peer, hold| {
        let report = probe(prober, peer, hold, true);
        assert_eq!(report.outcome, Outcome::Invalid(Invalid::NegativeResponder), "{report:?}");
        assert_eq!(prober.outcomes().invalid, 1);
    });
}
