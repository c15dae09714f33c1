//! A completion as it lies in its ring.

use std::num::NonZeroU16;

use ferroce_transport::{Completion, PlainCompletion, Status, Time, TimeSource, VendorCode, WorkKind};
use ferroce_wire::{Qpn, Rkey};

/// Words of a completion in its ring.
pub(crate) const WORDS: usize = 5;

const HAS_IMM: u64 = 1 << 16;
const HAS_INVALIDATED: u64 = 1 << 17;
const HAS_SOURCE: u64 = 1 << 18;
const SOLICITED: u64 = 1 << 19;
/// A record tells of it, and is to be told when it is taken off.
pub(crate) const TOLD: u64 = 1 << 22;
const OVER_IPV6: u64 = 1 << 23;
/// Where the source of the time stands, in two bits.
const TIME_SOURCE: u32 = 20;
const TIME_SOURCES: [TimeSource; 4] =
    [TimeSource::Turn, TimeSource::Kernel, TimeSource::AfterCall, TimeSource::Unsure];
/// Where the vendor code stands.
const VENDOR_CODE: u32 = 24;
/// Where the source port stands.
const SOURCE_PORT: u32 = 32;

/// A completion as words.
pub(crate) fn encode(completion: &Completion, time: Time) -> [u64; WORDS] {
    let mut head = u64::from(completion.status.code()) | u64::from(completion.kind.code()) << 8;
    let mut extra = 0;
    if let Some(imm) = completion.imm {
        head |= HAS_IMM;
        extra = imm;
    } else if let Some(key) = completion.invalidated {
        head |= HAS_INVALIDATED;
        extra = key.0;
    }
    if completion.source_qp.is_some() {
        head |= HAS_SOURCE;
    }
    if completion.solicited {
        head |= SOLICITED;
    }
    if completion.over_ipv6 {
        head |= OVER_IPV6;
    }
    // The device has a better time for few.
    let mut time = time;
    if completion.time_source != TimeSource::Turn {
        let source = TIME_SOURCES.iter().position(|source| *source == completion.time_source);
        head |= (source.unwrap_or(0) as u64) << TIME_SOURCE;
        time = completion.time;
    }
    head |= u64::from(completion.vendor_code.map_or(0, VendorCode::code)) << VENDOR_CODE;
    head |= u64::from(completion.source_port.map_or(0, NonZeroU16::get)) << SOURCE_PORT;
    let source = completion.source_qp.map_or(0, Qpn::get);
    [
        completion.id,
        head,
        u64::from(completion.byte_len) | u64::from(extra) << 32,
        u64::from(completion.qpn.get()) | u64::from(source) << 32,
        time.nanos(),
    ]
}

/// A completion of work that went well as words, if there is nothing more to tell of it.
#[inline]
pub(crate) fn encode_plain(plain: &PlainCompletion, time: Time) -> [u64; WORDS] {
    let PlainCompletion { id, kind, qpn, byte_len, solicited } = *plain;
    let solicited = if solicited { SOLICITED } else { 0 };
    [id, u64::from(kind.code()) << 8 | solicited, byte_len.into(), qpn.get().into(), time.nanos()]
}

/// The completion that these words are. It is inlined wherever it is called: a completion that is returned by way of the stack is copied in larger pieces
/// than it was written in, and the processor waits for that.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "fields are taken apart as they were put together")]
pub(crate) fn decode(words: &[u64; WORDS]) -> Completion {
    let [id, head, lengths, numbers, time] = *words;
    // Of nearly all there is nothing to tell but that they went well, and how long they were.
    if head & !(0xff << 8) == 0
        && let Some(kind) = WorkKind::from_code((head >> 8) as u8)
    {
        let (byte_len, qpn, time) = (lengths as u32, Qpn::new(numbers as u32), Time::from_nanos(time));
        return Completion { id, kind, byte_len, qpn, time, ..Completion::EMPTY };
    }
    let extra = (lengths >> 32) as u32;
    let source = Qpn::new((numbers >> 32) as u32);
    Completion {
        id,
        status: Status::from_code(head as u8).unwrap_or(Status::LocalQpOperation),
        vendor_code: VendorCode::from_code((head >> VENDOR_CODE) as u8),
        kind: WorkKind::from_code((head >> 8) as u8).unwrap_or(WorkKind::Send),
        byte_len: lengths as u32,
        imm: (head & HAS_IMM != 0).then_some(extra),
        invalidated: (head & HAS_INVALIDATED != 0).then_some(Rkey(extra)),
        qpn: Qpn::new(numbers as u32),
        source_qp: (head & HAS_SOURCE != 0).then_some(source),
        source_port: NonZeroU16::new((head >> SOURCE_PORT) as u16),
        over_ipv6: head & OVER_IPV6 != 0,
        solicited: head & SOLICITED != 0,
        time: Time::from_nanos(time),
        time_source: TIME_SOURCES[(head >> TIME_SOURCE & 3) as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_completion_is_written_as_what_it_is() {
        let kinds = (0..=u8::MAX).filter_map(WorkKind::from_code);
        for (kind, solicited) in kinds.flat_map(|kind| [(kind, false), (kind, true)]) {
            let (id, qpn, byte_len) = (u64::MAX - 3, Qpn::new(0xff_fffe), u32::MAX);
            let plain = PlainCompletion { id, kind, qpn, byte_len, solicited };
            let time = Time::from_nanos(987_654_321);
            assert_eq!(encode_plain(&plain, time), encode(&plain.whole(), time));
            assert_eq!(decode(&encode_plain(&plain, time)), Completion { time, ..plain.whole() });
        }
    }

    #[test]
    fn completions_come_back_as_they_went_in() {
        let plain = Completion {
            id: u64::MAX - 5,
            status: Status::Success,
            vendor_code: None,
            kind: WorkKind::ReceiveWithImm,
            byte_len: u32::MAX,
            imm: Some(0),
            invalidated: None,
            qpn: Qpn::new(0x01_beef),
            source_qp: Some(Qpn::new(0)),
            source_port: NonZeroU16::new(u16::MAX),
            over_ipv6: true,
            solicited: true,
            time: Time::ZERO,
            time_source: TimeSource::Turn,
        };
        let invalidated = Completion {
            imm: None,
            invalidated: Some(Rkey(0xffff_ffff)),
            source_qp: None,
            source_port: None,
            over_ipv6: false,
            solicited: false,
            kind: WorkKind::Receive,
            ..plain
        };
        let mut all = vec![plain, invalidated];
        all.extend(Status::ALL.map(|status| Completion { status, ..invalidated }));
        all.extend(VendorCode::ALL.iter().map(|code| Completion { vendor_code: Some(*code), ..plain }));
        for completion in all {
            let time = Time::from_nanos(123_456_789_012);
            assert_eq!(decode(&encode(&completion, time)), Completion { time, ..completion });
            // A better time than that of the turn stays.
            for time_source in [TimeSource::Kernel, TimeSource::AfterCall, TimeSource::Unsure] {
                let stamped = Completion { time: Time::from_nanos(77), time_source, ..completion };
                assert_eq!(decode(&encode(&stamped, time)), stamped);
            }
        }
    }
}
