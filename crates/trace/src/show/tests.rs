use ferroce_record::{
    Begun, Completed, CompletedFlags, Event, HEADERS, Packet as PacketEvent, Posted, Queue, Stamped, Timer,
};
use ferroce_transport::{Status, VendorCode, WorkKind};
use ferroce_wire::{Lkey, Packet, Qpn, Rkey};

use super::*;
use crate::assemble::Assembler;

const QPN: Qpn = Qpn::new(0x11);

/// A WRITE of 4096 bytes whose first packet is lost, and that the peer then refuses.
fn refused_write() -> Vec<Event> {
    let posted = Posted {
        queue: Queue::Send(QPN),
        work: 2,
        id: 2,
        op: WorkOp::Write,
        flags: PostedFlags::SIGNALED | PostedFlags::SOLICITED,
        pieces: 1,
        length: 4096,
        address: 0x7f8b_4000_0000,
        lkey: Lkey(0x5678),
        remote: 0x7f8b_5000_0000,
        key: Rkey(0x8765_4321),
        imm: 0,
    };
    // RC RDMA WRITE Only to queue pair 0x22: BTH and RETH.
    let write = [
        0x0a, 0x40, 0xff, 0xff, 0, 0, 0, 0x22, 0x80, 0, 0, 1, 0, 0, 0x7f, 0x8b, 0x50, 0, 0, 0, 0x87, 0x65,
        0x43, 0x21, 0, 0, 0x10, 0,
    ];
    // RC Acknowledge: NAK, remote access error, of PSN 1.
    let nak = [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1, 0x62, 0, 0, 0];
    let packet = |flags: PacketFlags, headers: &[u8], payload: u16| -> Event {
        let packet = PacketEvent {
            qpn: QPN,
            flags: flags | PacketFlags::WORK,
            work: 2,
            payload,
            headers_len: 0,
            repeat: u8::from(flags.contains(PacketFlags::REPEAT)),
            headers: [0; HEADERS],
        };
        packet.with_headers(headers).0.into()
    };
    let completed = Completed {
        queue: Queue::Send(QPN),
        work: 2,
        id: 2,
        status: Status::RemoteAccess,
        vendor_code: VendorCode::ALL.iter().copied().find(|code| code.status() == Status::RemoteAccess),
        kind: WorkKind::Write,
        flags: CompletedFlags::empty(),
        byte_len: 0,
        imm: 0,
        cq: 1,
        qpn: QPN,
        source_qp: 0,
        invalidated: Rkey(0),
    };
    vec![
        posted.into(),
        Begun { qpn: QPN, work: 2, psn: 1, packets: 1 }.into(),
        packet(PacketFlags::OUT, &write, 4096),
        packet(PacketFlags::OUT | PacketFlags::TAKEN, &write, 4096),
        Timer {
            qpn: QPN,
            kind: ferroce_record::TimerKind::Acknowledgement,
            psn: 1,
            work: 2,
            tries: 1,
            most: 7,
        }
        .into(),
        packet(PacketFlags::OUT | PacketFlags::REPEAT, &write, 4096),
        packet(PacketFlags::empty(), &nak, 0),
        completed.into(),
        ferroce_record::Polled { qpn: QPN, cq: 1, id: 2, is_receive: false, is_forgotten: false }.into(),
    ]
}

#[test]
fn a_block_says_what_was_posted_what_went_over_the_wire_and_what_came_of_it() {
    let mut assembler = Assembler::new();
    for (number, event) in (0_u64..).zip(refused_write()) {
        assembler.take(&Stamped { time: 1_500_000_000 + number * number * 700, ring: 1, number, event });
    }
    assert_eq!(assembler.oddities(), []);
    assembler.settle();
    let work = assembler.next_over().unwrap();
    let vendor = work.completed.unwrap().1.vendor_code.unwrap();
    let expected = format!(
        "work 2 of the send queue of queue pair 0x000011, posted at 1.500000000 s
  WQE
    Work Request ID: 0x0000000000000002
    Opcode: RDMA WRITE (0)
    Send Flags: 0x06 (signaled, solicited)
    Remote Address: 0x00007f8b50000000
    Remote Key: 0x87654321
    Scatter/Gather Elements: 1, 4096 bytes
    SGE[0]: Address: 0x00007f8b40000000, Length: 4096, LKey: 0x00005678
  packets
       +2.800 us out RC RDMA WRITE Only qp=0x000022 psn=0x000001 ack-request migrated va=0x00007f8b50000000 rkey=0x87654321 len=4096 data=4096 [taken by fault injection]
      +17.500 us out RC RDMA WRITE Only qp=0x000022 psn=0x000001 ack-request migrated va=0x00007f8b50000000 rkey=0x87654321 len=4096 data=4096 [sent again]
      +25.200 us in  RC Acknowledge qp=0x000011 psn=0x000001 migrated NAK Remote Access Error msn=0x000000
  CQE
    Work Request ID: 0x0000000000000002
    Status: remote access error: the peer's memory is not open for this (10)
    Opcode: Write (1)
    Vendor Error: {:#06x} ({vendor})
    Byte Length: 0
    QP Number: 0x000011
  states: POSTED, PROCESSING +700 ns, ERROR +34.300 us; PENDING +34.300 us, POLLED +44.800 us
",
        vendor.code()
    );
    assert_eq!(Block(&work).to_string(), expected);
}

#[test]
fn work_that_stays_in_the_process_or_is_not_over_says_so() {
    let all = refused_write();
    let mut assembler = Assembler::new();
    let begun = Begun { qpn: QPN, work: 2, psn: 1, packets: 0 };
    for (number, event) in [all[0], begun.into()].into_iter().enumerate() {
        let number = number as u64;
        assembler.take(&Stamped { time: number, ring: 1, number, event });
    }
    let text = Block(&assembler.finish()[0]).to_string();
    assert!(text.contains("  packets: none, it stayed in this process\n"), "{text}");
    assert!(text.ends_with("  states: POSTED, PROCESSING +1 ns\n") && !text.contains("CQE"), "{text}");
}

#[test]
fn long_headers_are_put_together_again() {
    let headers: Vec<u8> = (0..56).collect();
    let packet = PacketEvent {
        qpn: QPN,
        flags: PacketFlags::WORK,
        work: 2,
        payload: 5,
        headers_len: 0,
        repeat: 0,
        headers: [0; HEADERS],
    };
    let (packet, more) = packet.with_headers(&headers);
    let mut assembler = Assembler::new();
    let events = [refused_write()[0], packet.into(), more.unwrap().into()];
    for (number, event) in (0_u64..).zip(events) {
        assembler.take(&Stamped { time: number, ring: 1, number, event });
    }
    let work = &assembler.finish()[0];
    assert_eq!((work.packets[0].headers(), work.packets[0].wire_len()), (headers, 56 + 8 + 4));
    assert!(Packet::parse_kept(&work.packets[0].headers(), 68).is_err(), "these bytes are none");
    assert!(Block(work).to_string().contains("68 bytes that are no packet: "), "{}", Block(work));
}
