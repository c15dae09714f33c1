//! Every opcode of RoCEv2 in one table.
//!
//! The opcode byte of the base transport header has two parts (IBA 9.2.1): three
//! bits of [`Service`] and five bits of [`Operation`]. The table below lists each
//! operation once, with the services that know it; [`Opcode::info`] combines both.

use core::fmt;

use bitflags::bitflags;

use crate::header::{
    Aeth, AtomicAckEth, AtomicEth, AtomicMasks, Bth, CNP_RESERVED_LEN, Deth, Feth, Ieth, Imm, Reth, Xrceth,
};
use crate::payload_rule::PayloadRule;

/// The transport service: the upper three bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc = 0b000,
    /// Unreliable connection.
    Uc = 0b001,
    /// Unreliable datagram.
    Ud = 0b011,
    /// Congestion notification (RoCEv2 annex A17).
    Cnp = 0b100,
    /// Extended reliable connection (annex A14).
    Xrc = 0b101,
    /// Requests of our own on a reliable connection, in the range for manufacturers.
    RcOwn = 0b110,
    /// The same on an extended reliable connection.
    XrcOwn = 0b111,
}

impl Service {
    /// All services with a place in the table.
    pub const ALL: [Self; 7] =
        [Self::Rc, Self::Uc, Self::Ud, Self::Cnp, Self::Xrc, Self::RcOwn, Self::XrcOwn];

    /// The usual name, in upper case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc | Self::RcOwn => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Cnp => "CNP",
            Self::Xrc | Self::XrcOwn => "XRC",
        }
    }
}

/// Which end of a connection sends the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The requester, on behalf of a work request.
    Request,
    /// The responder, answering one.
    Response,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

bitflags! {
    /// Extended transport headers, in the order in which they follow the base transport header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Headers: u16 {
        /// Which shared receive queue an XRC request is for.
        const XRCETH = 1 << 0;
        /// Q_Key and source queue pair of a datagram.
        const DETH = 1 << 1;
        /// What a FLUSH is to make visible or persistent.
        const FETH = 1 << 2;
        /// Remote address, key and length.
        const RETH = 1 << 3;
        /// Remote address, key and operands of an atomic.
        const ATOMIC_ETH = 1 << 4;
        /// Masks of a masked atomic.
        const ATOMIC_MASKS = 1 << 10;
        /// Acknowledgement syndrome and message sequence number.
        const AETH = 1 << 5;
        /// The value before an atomic.
        const ATOMIC_ACK_ETH = 1 << 6;
        /// Immediate data.
        const IMM_DT = 1 << 7;
        /// The key that the responder is to invalidate.
        const IETH = 1 << 8;
        /// The 16 reserved bytes of a congestion notification.
        const CNP = 1 << 9;
    }
}

impl Headers {
    /// Their length on the wire together.
    #[must_use]
    pub const fn wire_len(self) -> usize {
        const LENGTHS: [(Headers, usize); 11] = [
            (Headers::XRCETH, Xrceth::LEN),
            (Headers::DETH, Deth::LEN),
            (Headers::FETH, Feth::LEN),
            (Headers::RETH, Reth::LEN),
            (Headers::ATOMIC_ETH, AtomicEth::LEN),
            (Headers::ATOMIC_MASKS, AtomicMasks::LEN),
            (Headers::AETH, Aeth::LEN),
            (Headers::ATOMIC_ACK_ETH, AtomicAckEth::LEN),
            (Headers::IMM_DT, Imm::LEN),
            (Headers::IETH, Ieth::LEN),
            (Headers::CNP, CNP_RESERVED_LEN),
        ];
        let mut len = 0;
        let mut i = 0;
        while i < LENGTHS.len() {
            if self.contains(LENGTHS[i].0) {
                len += LENGTHS[i].1;
            }
            i += 1;
        }
        len
    }
}

/// The services that know an operation.
#[derive(Clone, Copy)]
enum Spoken {
    /// RC and XRC.
    Reliable,
    /// RC, XRC and UC.
    Connected,
    /// RC, XRC, UC and UD.
    Everywhere,
    /// A congestion notification.
    Congestion,
    /// RC and XRC between two of our own make.
    Own,
}

impl Spoken {
    const fn includes(self, service: Service) -> bool {
        match service {
            Service::Rc | Service::Xrc => !matches!(self, Self::Congestion | Self::Own),
            Service::Uc => matches!(self, Self::Connected | Self::Everywhere),
            Service::Ud => matches!(self, Self::Everywhere),
            Service::Cnp => matches!(self, Self::Congestion),
            Service::RcOwn | Service::XrcOwn => matches!(self, Self::Own),
        }
    }
}

/// Writes the enum, its names and its rows from one table.
macro_rules! operations {
    ($($(#[$doc:meta])* $code:literal $variant:ident $name:literal $spoken:ident $role:ident $position:ident
        [$($header:ident)*] $payload:ident;)*) => {
        /// What a packet does, whatever its service: the lower five bits of an opcode.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Operation {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Operation {
            /// All operations, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The lower five bits of the opcode.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8 & 0x1f
            }

            /// Its name, without that of the service.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        const ROWS: &[Row] = &[$(Row {
            operation: Operation::$variant,
            spoken: Spoken::$spoken,
            role: Role::$role,
            position: Position::$position,
            headers: Headers::empty()$(.union(Headers::$header))*,
            payload: PayloadRule::$payload,
        },)*];
    };
}

struct Row {
    operation: Operation,
    spoken: Spoken,
    role: Role,
    position: Position,
    headers: Headers,
    payload: PayloadRule,
}

operations! {
    /// Start of a SEND of several packets.
    0x00 SendFirst "SEND First" Connected Request First [] FullMtu;
    /// Middle of a SEND.
    0x01 SendMiddle "SEND Middle" Connected Request Middle [] FullMtu;
    /// End of a SEND.
    0x02 SendLast "SEND Last" Connected Request Last [] OneToMtu;
    /// End of a SEND with immediate data.
    0x03 SendLastImm "SEND Last with Immediate" Connected Request Last [IMM_DT] OneToMtu;
    /// A SEND of one packet.
    0x04 SendOnly "SEND Only" Everywhere Request Only [] UpToMtu;
    /// A SEND of one packet with immediate data.
    0x05 SendOnlyImm "SEND Only with Immediate" Everywhere Request Only [IMM_DT] UpToMtu;
    /// Start of an RDMA WRITE of several packets.
    0x06 WriteFirst "RDMA WRITE First" Connected Request First [RETH] FullMtu;
    /// Middle of an RDMA WRITE.
    0x07 WriteMiddle "RDMA WRITE Middle" Connected Request Middle [] FullMtu;
    /// End of an RDMA WRITE.
    0x08 WriteLast "RDMA WRITE Last" Connected Request Last [] OneToMtu;
    /// End of an RDMA WRITE with immediate data.
    0x09 WriteLastImm "RDMA WRITE Last with Immediate" Connected Request Last [IMM_DT] OneToMtu;
    /// An RDMA WRITE of one packet.
    0x0a WriteOnly "RDMA WRITE Only" Connected Request Only [RETH] UpToMtu;
    /// An RDMA WRITE of one packet with immediate data.
    0x0b WriteOnlyImm "RDMA WRITE Only with Immediate" Connected Request Only [RETH IMM_DT] UpToMtu;
    /// Asks for remote memory.
    0x0c ReadRequest "RDMA READ Request" Reliable Request Only [RETH] Nothing;
    /// Start of an RDMA READ response of several packets.
    0x0d ReadResponseFirst "RDMA READ Response First" Reliable Response First [AETH] FullMtu;
    /// Middle of an RDMA READ response.
    0x0e ReadResponseMiddle "RDMA READ Response Middle" Reliable Response Middle [] FullMtu;
    /// End of an RDMA READ response.
    0x0f ReadResponseLast "RDMA READ Response Last" Reliable Response Last [AETH] OneToMtu;
    /// An RDMA READ response of one packet; also answers FLUSH and ATOMIC WRITE, empty.
    0x10 ReadResponseOnly "RDMA READ Response Only" Reliable Response Only [AETH] UpToMtu;
    /// Acknowledges, or refuses.
    0x11 Acknowledge "Acknowledge" Reliable Response Only [AETH] Nothing;
    /// Acknowledges an atomic and carries the value before it.
    0x12 AtomicAcknowledge "ATOMIC Acknowledge" Reliable Response Only [AETH ATOMIC_ACK_ETH] Nothing;
    /// Compares and swaps eight bytes.
    0x13 CompareSwap "Compare and Swap" Reliable Request Only [ATOMIC_ETH] Nothing;
    /// Adds to eight bytes.
    0x14 FetchAdd "Fetch and Add" Reliable Request Only [ATOMIC_ETH] Nothing;
    /// End of a SEND that invalidates a key of the receiver.
    0x16 SendLastInv "SEND Last with Invalidate" Reliable Request Last [IETH] OneToMtu;
    /// A SEND of one packet that invalidates a key of the receiver.
    0x17 SendOnlyInv "SEND Only with Invalidate" Reliable Request Only [IETH] UpToMtu;
    /// Makes earlier writes visible or persistent (annex A19).
    0x1c Flush "FLUSH" Reliable Request Only [FETH RETH] Nothing;
    /// Writes eight bytes at once (annex A19).
    0x1d AtomicWrite "ATOMIC WRITE" Reliable Request Only [RETH] EightBytes;
    /// Tells a sender that its packets met congestion. Its lower five bits are those of SEND
    /// Middle, so that here it is listed by its whole opcode.
    0x81 Congestion "Congestion Notification" Congestion Response Only [CNP] Nothing;
    /// Compares some bits of eight bytes and swaps some: an addition of our own. The lower five bits
    /// are those of the standard compare and swap.
    0xd3 MaskedCompareSwap "Masked Compare and Swap" Own Request Only [ATOMIC_ETH ATOMIC_MASKS] Nothing;
    /// Adds to several fields of eight bytes: an addition of our own.
    0xd4 MaskedFetchAdd "Masked Fetch and Add" Own Request Only [ATOMIC_ETH ATOMIC_MASKS] Nothing;
}

/// An opcode that exists: a service and an operation that it knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

/// What an opcode says about its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The service.
    pub service: Service,
    /// The operation.
    pub operation: Operation,
    /// Request or response.
    pub role: Role,
    /// First, middle, last or only packet of its message.
    pub position: Position,
    /// Extended transport headers that follow the base transport header.
    pub headers: Headers,
    /// Length of the base and extended transport headers together.
    pub header_len: usize,
    /// How much payload follows.
    pub payload: PayloadRule,
}

static TABLE: [Option<OpcodeInfo>; 256] = table();

impl Opcode {
    /// The opcode with this byte, if there is one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match &TABLE[byte as usize] {
            Some(_) => Some(Self(byte)),
            None => None,
        }
    }

    /// The opcode of this operation in this service, if the service knows it.
    #[must_use]
    pub const fn new(service: Service, operation: Operation) -> Option<Self> {
        let byte = (service as u8) << 5 | operation.code();
        match &TABLE[byte as usize] {
            // What stands at the end of the list shares its lower bits with standard operations.
            Some(info) if info.operation as u8 == operation as u8 => Some(Self(byte)),
            _ => None,
        }
    }

    /// An opcode that the caller's types show to exist.
    pub(crate) const fn known(service: Service, operation: Operation) -> Self {
        debug_assert!(Self::new(service, operation).is_some());
        Self((service as u8) << 5 | operation.code())
    }

    /// All opcodes, in the order of their bytes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).filter_map(Self::from_byte)
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// What it says about its packet.
    #[must_use]
    pub const fn info(self) -> &'static OpcodeInfo {
        match &TABLE[self.0 as usize] {
            Some(info) => info,
            None => unreachable!(),
        }
    }
}

const fn table() -> [Option<OpcodeInfo>; 256] {
    let mut table = [None; 256];
    let mut i = 0;
    while i < ROWS.len() * Service::ALL.len() {
        let (row, service) = (&ROWS[i / Service::ALL.len()], Service::ALL[i % Service::ALL.len()]);
        if row.spoken.includes(service) {
            let headers = row.headers.union(added_by(service, row.role));
            table[((service as u8) << 5 | row.operation.code()) as usize] = Some(OpcodeInfo {
                service,
                operation: row.operation,
                role: row.role,
                position: row.position,
                headers,
                header_len: Bth::LEN + headers.wire_len(),
                payload: row.payload,
            });
        }
        i += 1;
    }
    table
}

/// Headers that a service adds to those of the operation.
const fn added_by(service: Service, role: Role) -> Headers {
    match (service, role) {
        (Service::Ud, _) => Headers::DETH,
        (Service::Xrc | Service::XrcOwn, Role::Request) => Headers::XRCETH,
        _ => Headers::empty(),
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info();
        match info.service {
            Service::Cnp => f.write_str(info.operation.name()),
            service => write!(f, "{} {}", service.name(), info.operation.name()),
        }
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({self}, 0x{:02x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_opcodes_of_each_service_and_no_other() {
        let count =
            |service| Opcode::all().filter(|opcode| opcode.info().service as u8 == service as u8).count();
        assert_eq!(count(Service::Rc), 25);
        assert_eq!(count(Service::Uc), 12);
        assert_eq!(count(Service::Ud), 2);
        assert_eq!(count(Service::Xrc), 25);
        assert_eq!(count(Service::Cnp), 1);
        assert_eq!(count(Service::RcOwn), 2);
        assert_eq!(count(Service::XrcOwn), 2);
        assert_eq!(Opcode::all().count(), 69);
    }

    #[test]
    fn well_known_opcodes_have_their_bytes() {
        let byte = |service, operation| Opcode::new(service, operation).map(Opcode::byte);
        assert_eq!(byte(Service::Rc, Operation::SendOnly), Some(0x04));
        assert_eq!(byte(Service::Rc, Operation::Acknowledge), Some(0x11));
        assert_eq!(byte(Service::Rc, Operation::AtomicWrite), Some(0x1d));
        assert_eq!(byte(Service::Uc, Operation::WriteOnlyImm), Some(0x2b));
        assert_eq!(byte(Service::Ud, Operation::SendOnly), Some(0x64));
        assert_eq!(byte(Service::Ud, Operation::SendOnlyImm), Some(0x65));
        assert_eq!(byte(Service::Cnp, Operation::Congestion), Some(0x81));
        assert_eq!(byte(Service::Xrc, Operation::SendOnly), Some(0xa4));
        assert_eq!(byte(Service::Xrc, Operation::Flush), Some(0xbc));
        assert_eq!(byte(Service::RcOwn, Operation::MaskedCompareSwap), Some(0xd3));
        assert_eq!(byte(Service::XrcOwn, Operation::MaskedFetchAdd), Some(0xf4));
        assert_eq!(byte(Service::Rc, Operation::MaskedCompareSwap), None);
        assert_eq!(byte(Service::RcOwn, Operation::CompareSwap), None);
        assert_eq!(byte(Service::Uc, Operation::ReadRequest), None);
        assert_eq!(byte(Service::Uc, Operation::SendOnlyInv), None);
        assert_eq!(byte(Service::Ud, Operation::SendFirst), None);
        assert_eq!(byte(Service::Rc, Operation::Congestion), None);
        assert_eq!(byte(Service::Cnp, Operation::SendMiddle), None);
    }

    #[test]
    fn every_opcode_comes_back_from_its_parts() {
        for opcode in Opcode::all() {
            let info = opcode.info();
            assert_eq!(Opcode::new(info.service, info.operation), Some(opcode));
        }
    }

    #[test]
    fn xrc_requests_name_their_queue_and_responses_do_not() {
        for opcode in Opcode::all().filter(|opcode| opcode.info().service == Service::Xrc) {
            let info = opcode.info();
            assert_eq!(info.headers.contains(Headers::XRCETH), info.role == Role::Request, "{opcode}");
        }
    }
}
