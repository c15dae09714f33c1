//! The conformance suite with everything written down. After each case a checker goes through the record.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

use ferroce_conformance::{column, run_recorded};

column!(wire: crate::run_recorded, Wire);
column!(local: crate::run_recorded, Local);
column!(wire_faults: crate::run_recorded, WireFaults);
column!(engines_local: crate::run_recorded, EnginesLocal);
column!(engines_wire: crate::run_recorded, EnginesWire);
column!(shared: crate::run_recorded, Shared);

/// What a recorder may do wrong. Each is tried at every event that it fits.
mod planted {
    use ferroce_conformance::{Case, Rig, Setup, run_on};
    use ferroce_record::{Event, Packet, PacketFlags, Stamped};
    use ferroce_trace::{Check, Checker, Timeline};
    use ferroce_verbs::Recording;

    /// A mistake: what becomes of an event; none if it is not one of those that it concerns.
    type Mistake = fn(&Stamped) -> Option<Vec<Stamped>>;

    fn with(event: &Stamped, changed: impl Into<Event>) -> Option<Vec<Stamped>> {
        Some(vec![Stamped { event: changed.into(), ..*event }])
    }

    /// A packet that belongs to work of this end.
    fn request(event: &Stamped) -> Option<Packet> {
        let Event::Packet(packet) = event.event else { return None };
        let of_work = PacketFlags::OUT | PacketFlags::WORK;
        packet.flags.contains(of_work).then_some(packet)
    }

    const MISTAKES: &[(&str, Mistake)] = &[
        ("a request is not told", |event| matches!(event.event, Event::Posted(_)).then(Vec::new)),
        ("a request is told twice", |event| {
            matches!(event.event, Event::Posted(_)).then(|| vec![*event, *event])
        }),
        ("a request has another number", |event| {
            let Event::Posted(mut posted) = event.event else { return None };
            posted.work = posted.work.wrapping_add(1000);
            with(event, posted)
        }),
        ("an end is not told", |event| matches!(event.event, Event::Completed(_)).then(Vec::new)),
        ("an end is told twice", |event| {
            matches!(event.event, Event::Completed(_)).then(|| vec![*event, *event])
        }),
        ("an end is that of another request", |event| {
            let Event::Completed(mut completed) = event.event else { return None };
            completed.work = completed.work.wrapping_sub(1);
            with(event, completed)
        }),
        ("a completion is taken twice", |event| {
            matches!(event.event, Event::Polled(_)).then(|| vec![*event, *event])
        }),
        ("a completion of another request is taken", |event| {
            let Event::Polled(mut polled) = event.event else { return None };
            polled.id ^= 1 << 60;
            with(event, polled)
        }),
        ("a packet belongs to no request", |event| {
            let mut packet = request(event)?;
            packet.flags -= PacketFlags::WORK;
            with(event, packet)
        }),
        ("a packet belongs to another request", |event| {
            let mut packet = request(event)?;
            packet.work = packet.work.wrapping_add(7);
            with(event, packet)
        }),
        ("a packet has another sequence number", |event| {
            let mut packet = request(event)?;
            packet.headers[9] ^= 0x40;
            with(event, packet)
        }),
    ];

    fn check(events: impl IntoIterator<Item = Stamped>) -> Check {
        let mut checker = Checker::new(true);
        events.into_iter().for_each(|event| checker.take(&event));
        checker.finish()
    }

    #[test]
    fn every_mistake_of_a_recorder_is_found() {
        let rig = Rig::open(Setup::Wire, 140);
        let mut recording = Recording::of(&[&rig.a.context, &rig.b.context]).unwrap();
        for case in ["write_arrives", "read_brings", "fetch_and_add", "send_arrives"] {
            run_on(&rig, Case::named(case));
        }
        drop(rig);
        recording.stop();
        let timeline = Timeline::open(&[recording.path().to_owned()]).unwrap();
        let events: Vec<Stamped> = timeline.events().map(|seen| seen.stamped).collect();
        let good = check(events.iter().copied());
        assert!(good.is_clean() && good.outstanding == 0, "{good}");
        for (name, mistake) in MISTAKES {
            let mut tried = 0;
            for (place, event) in events.iter().enumerate() {
                let Some(wrong) = mistake(event) else { continue };
                tried += 1;
                let (before, after) = (&events[..place], &events[place + 1..]);
                let found = check(before.iter().chain(&wrong).chain(after).copied());
                assert!(!found.is_clean() || found.outstanding > 0, "{name}, at {event:?}: {found}");
            }
            assert!(tried >= 4, "{name}: tried {tried} times");
        }
    }
}
