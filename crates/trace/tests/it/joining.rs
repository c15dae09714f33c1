//! Both ends of a packet are found, whatever happens on the way.

use ferroce_record::WorkOp;
use ferroce_trace::export::{Choice, HtmlOptions, Selection, Summary, html, mermaid, pcapng, perfetto, svg};
use ferroce_wire::Qpn;
use proptest::prelude::*;

use crate::made::{Fate, Made};

fn summary(made: &mut Made, ends: usize) -> Summary {
    let timeline = made.timeline(ends);
    let (mut bytes, all) = (Vec::new(), Selection::default());
    let summary = pcapng(&timeline, &all, &mut bytes, &mut |_| {}).unwrap();
    let others = [
        perfetto(&timeline, &all, &mut bytes, &mut |_| {}).unwrap(),
        html(&timeline, &HtmlOptions::default(), &mut bytes, &mut |_| {}).unwrap(),
    ];
    assert_eq!(others, [summary; 2], "all exports hold the same");
    summary
}

#[test]
fn a_packet_that_came_before_it_left_is_the_same() {
    let mut made = Made::new("joining-skew", false);
    made.behind = 10_000;
    made.traffic(5_000, 2);
    let summary = summary(&mut made, 2);
    assert_eq!(summary.joined * 2 + made.lone, summary.packets);
}

#[test]
fn a_selection_is_all_that_is_exported() {
    let mut made = Made::new("joining-selection", false);
    made.traffic(5_000, 3);
    let timeline = made.timeline(2);
    let count = |selection: Selection| pcapng(&timeline, &selection, &mut Vec::new(), &mut |_| {}).unwrap();
    let all = count(Selection::default());
    let middle = 1_200_000;
    let before = count(Selection { to: Some(middle), ..Selection::default() });
    let after = count(Selection { from: Some(middle + 1), ..Selection::default() });
    assert_eq!(before.packets + after.packets, all.packets);
    assert!(before.packets > 100 && after.packets > 100 && before.left_out == after.packets);
    let pairs = [0x11, 0x13, 0x15, 0x800, 0x99].map(|number| {
        count(Selection { queue_pair: Some(Qpn::new(number)), ..Selection::default() }).packets
    });
    assert_eq!(pairs.iter().sum::<u64>(), all.packets, "{pairs:?}");
    assert_eq!(all.packets, count(Selection { from: Some(0), ..Selection::default() }).packets);
}

#[test]
fn progress_is_told_up_to_the_end() {
    let mut made = Made::new("joining-progress", false);
    made.traffic(140_000, 1);
    let timeline = made.timeline(2);
    let mut told = Vec::new();
    let summary =
        pcapng(&timeline, &Selection::default(), &mut Vec::new(), &mut |done| told.push(done)).unwrap();
    assert_eq!(told, [65_536, 131_072, summary.events]);
}

/// A writer that has no room after so many bytes.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_an_export() {
    let mut made = Made::new("joining-full", false);
    made.traffic(3_000, 1);
    let timeline = made.timeline(2);
    let all = Selection::default();
    for room in [0, 1000, 70_000] {
        assert!(pcapng(&timeline, &all, &mut Full(room), &mut |_| {}).is_err());
        assert!(perfetto(&timeline, &all, &mut Full(room), &mut |_| {}).is_err());
        assert!(html(&timeline, &HtmlOptions::default(), &mut Full(room), &mut |_| {}).is_err());
    }
}

fn operations() -> impl Strategy<Value = (usize, WorkOp, u32, Fate)> {
    let op = prop_oneof![
        Just(WorkOp::Write),
        Just(WorkOp::Send),
        Just(WorkOp::Read),
        Just(WorkOp::FetchAdd),
        Just(WorkOp::CompareSwap),
    ];
    (0_usize..2, op, 0_u32..6000, 0_u32..12, 0_u32..6).prop_map(|(from, op, length, fate, place)| {
        let packets =
            if matches!(op, WorkOp::Write | WorkOp::Send) { length.div_ceil(1024).max(1) } else { 1 };
        let fate = match fate {
            0 => Fate::Lost(place % packets, true),
            1 => Fate::Lost(place % packets, false),
            2 if !matches!(op, WorkOp::Read) => Fate::AnswerLost,
            3 if op != WorkOp::Send => Fate::Refused,
            _ => Fate::Well,
        };
        (from, op, length, fate)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_packet_that_both_ends_have_is_found(
        list in proptest::collection::vec(operations(), 1..60),
        behind in 0_u64..8_000,
        ipv6 in any::<bool>(),
    ) {
        let mut made = Made::new("joining-property", ipv6);
        made.behind = behind;
        let mut link = made.link([5, 5]);
        for (from, op, length, fate) in list {
            made.operation(&mut link, from, op, length, fate);
        }
        let lone = made.lone;
        let both = summary(&mut made, 2);
        prop_assert_eq!(both.joined * 2 + lone, both.packets);
        prop_assert_eq!(summary(&mut made, 1).joined, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A record may have been damaged, or written by something else.
    #[test]
    fn any_record_is_exported(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..600),
    ) {
        let mut made = Made::new("joining-damaged", false);
        made.traffic(1_500, 2);
        drop(made.timeline(2));
        for name in ["client", "server"] {
            let path = made.directory().join(format!("{name}.ftrace"));
            let mut bytes = std::fs::read(&path).unwrap();
            // Events are behind the header and the rings.
            let start = bytes.len() - 60_000;
            for (place, value) in &changes {
                let place = place.index(60_000);
                bytes[start + place] = *value;
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let read = summary(&mut made, 2);
        prop_assert!(read.events > 0);
        let timeline = made.timeline(2);
        for work in 0..20 {
            let choice = Choice { work: Some(work), ..Choice::default() };
            let _ = svg(&timeline, &choice, &mut Vec::new(), &mut |_| {});
            let _ = mermaid(&timeline, &choice, &mut Vec::new(), &mut |_| {});
        }
    }
}
