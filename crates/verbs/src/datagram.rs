//! Where datagrams came from, and where answers to them go.

use std::num::NonZeroU16;

use ferroce_device::{AddressVector, SourcePort};
use ferroce_transport::Completion;
use ferroce_wire::header::DatagramPrefix;
use ferroce_wire::{Gid, Grh, QKey, Qpn};

use crate::address_handle::AddressHandle;
use crate::error::{HeaderError, ReplyError};
use crate::memory_region::MemoryRegion;
use crate::queue_pair::QueuePair;

/// What stands before every received datagram: the first 40 bytes of its receive, and of
/// [`byte_len`](crate::Completion::byte_len), are this header.
///
/// It is the IP header of the packet: over IPv6 all 40 bytes, over IPv4 the last 20. The UDP source port is not in
/// it: [`source_port`](crate::Completion::source_port) of the completion has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Where it came from.
    pub source: Gid,
    /// Where it was sent to: one of our own, or a multicast group.
    pub dest: Gid,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Hops that it had left.
    pub hop_limit: u8,
    /// The flow label of IPv6; 0 over IPv4, which has none.
    pub flow_label: u32,
}

impl DatagramHeader {
    /// Bytes before the data.
    pub const LEN: usize = Grh::LEN;

    /// Reads the header of the datagram that was received at `offset` of a region.
    ///
    /// # Errors
    /// There is none.
    pub fn read(region: &MemoryRegion, offset: usize) -> Result<Self, HeaderError> {
        let mut bytes = [0; Self::LEN];
        region.read_at(offset, &mut bytes)?;
        Self::of(&bytes, offset)
    }

    /// Reads the header at the beginning of a datagram that was copied out of its receive.
    ///
    /// # Errors
    /// There is none, or these are less than 40 bytes.
    pub fn parse(datagram: &[u8]) -> Result<Self, HeaderError> {
        let bytes = datagram.first_chunk().ok_or(HeaderError::TooShort { given: datagram.len() })?;
        Self::of(bytes, 0)
    }

    fn of(bytes: &[u8; Self::LEN], offset: usize) -> Result<Self, HeaderError> {
        match DatagramPrefix::parse(bytes).or_else(|_| DatagramPrefix::parse(&with_checksum(bytes))) {
            Ok(DatagramPrefix::V4(ip, _)) => Ok(Self {
                source: ip.source.into(),
                dest: ip.dest.into(),
                traffic_class: ip.tos,
                hop_limit: ip.ttl,
                flow_label: 0,
            }),
            Ok(DatagramPrefix::V6(grh)) => Ok(Self {
                source: grh.source,
                dest: grh.dest,
                traffic_class: grh.traffic_class,
                hop_limit: grh.hop_limit,
                flow_label: grh.flow_label,
            }),
            Err(_) => Err(HeaderError::NotThere { offset }),
        }
    }

    /// The address for an answer, from our GID of this index, with the traffic class and the flow label of
    /// the datagram. Its hop limit is what it had left when it came, and says nothing of the way back, so the
    /// answer begins with the usual one. [`QueuePair::reply_to`] finds the GID itself.
    #[must_use]
    pub const fn reply_to(&self, gid_index: usize) -> AddressVector {
        // A router that was congested has marked it so: that was on the way here, and the sender said no more than
        // that such marks are heard.
        let traffic_class = match self.traffic_class & ECN {
            CONGESTED => self.traffic_class & !ECN | CAPABLE,
            _ => self.traffic_class,
        };
        AddressVector {
            traffic_class,
            flow_label: self.flow_label,
            ..AddressVector::new(self.source, gid_index)
        }
    }
}

/// The bits of a traffic class in which a network says that it is congested.
const ECN: u8 = 3;
const CONGESTED: u8 = 3;
const CAPABLE: u8 = 2;

/// Which UDP source port an answer leaves from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyPort {
    /// The one that the device chooses, as for other datagrams.
    #[default]
    Usual,
    /// The one that the datagram left from. Networks that choose between ways by ports then choose for both
    /// directions alike. To peers on the same machine all ports are the same.
    Theirs,
}

/// Where the answer to a datagram goes, for [`QueuePair::send_to`] and its sisters.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The way back.
    pub address: AddressHandle,
    /// The queue pair that sent the datagram.
    pub qpn: Qpn,
    /// The Q_Key of our own queue pair: the datagram has shown it, so its sender knows it, and most programs
    /// have one for both sides.
    pub qkey: QKey,
}

/// The same with the checksum of IPv4 set right, if it can be nothing but IPv4. Packets that never left the machine come from some
/// cards with none: the kernel's soft device, for one, leaves it to a network card that does not see them.
fn with_checksum(bytes: &[u8; DatagramHeader::LEN]) -> [u8; DatagramHeader::LEN] {
    const BEGIN: usize = 20;
    const CHECKSUM: usize = BEGIN + 10;
    let mut bytes = *bytes;
    // The first half is undefined then, but it must not look like the beginning of IPv6.
    if bytes[0] >> 4 == 6 || bytes[BEGIN] != 0x45 {
        return bytes;
    }
    bytes[CHECKSUM..CHECKSUM + 2].fill(0);
    let words = bytes[BEGIN..].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let checksum = !u16::try_from(folded).unwrap_or(0);
    bytes[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

impl QueuePair {
    /// Where the answer to a datagram goes: to the queue pair that sent it, from the address that it was
    /// sent to, with its traffic class and flow label. `completion` is that of the receive, `header` stands
    /// before the datagram.
    ///
    /// ```
    /// use ferroce_verbs::{Access, Context, DatagramHeader, QKey, ReplyPort, Service};
    /// # let context = ferroce_verbs::Context::builder("ferroce_lo").address([127, 0, 41, 13]).open()?;
    /// let pd = context.protection_domain()?;
    /// let cq = context.completion_queue(8)?;
    /// let qp = pd.queue_pair(Service::Ud).send_queue(&cq, 4).receive_queue(&cq, 4).build()?;
    /// let inbox = pd.allocate(4096, Access::LOCAL_WRITE)?;
    /// qp.activate(QKey(7))?;
    /// qp.receive(&inbox).id(1).post()?;
    /// # let there = pd.address_handle(&ferroce_verbs::AddressVector::new(qp.local_address().gid, 0))?;
    /// # qp.send_inline_to(&there, qp.qpn(), QKey(7), b"a question").id(2).post()?;
    /// # let done = loop { let done = cq.wait(std::time::Duration::from_secs(20))?; if done.id == 1 { break done } };
    /// let header = DatagramHeader::read(&inbox, 0)?;
    /// let back = qp.reply_to(&done, &header, ReplyPort::Usual)?;
    /// qp.send_inline_to(&back.address, back.qpn, back.qkey, b"an answer").post()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The completion is not that of a datagram, or the way back leads nowhere.
    pub fn reply_to(
        &self,
        completion: &Completion,
        header: &DatagramHeader,
        port: ReplyPort,
    ) -> Result<Reply, ReplyError> {
        let qpn = completion.source_qp.ok_or(ReplyError::NotADatagram { id: completion.id })?;
        let domain = self.domain();
        // A group is no address to answer from.
        let ours = domain.device().gid_index(header.dest.ip()).unwrap_or(self.gid_index);
        let mut vector = header.reply_to(ours);
        if port == ReplyPort::Theirs {
            vector.source_port = SourcePort::prefer(completion.source_port.map(NonZeroU16::get));
        }
        let address = AddressHandle::new(domain, vector)?;
        Ok(Reply { address, qpn, qkey: self.query()?.attributes.qkey })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header from 192.0.2.1 to 192.0.2.2, class 0x28, 33 hops, behind twenty bytes of nothing.
    const PREFIX: [u8; 40] = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x45, 0x28, 0, 100, 0, 0, 0x40, 0, 33,
        17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ];

    #[test]
    fn a_header_of_ipv4_without_a_checksum_is_read() {
        let header = DatagramHeader::parse(&PREFIX).unwrap();
        assert_eq!((header.traffic_class, header.hop_limit), (0x28, 33));
        assert_eq!(header.source.ip().to_string(), "192.0.2.1");
        let right = with_checksum(&PREFIX);
        assert_ne!(right, PREFIX);
        assert_eq!(DatagramHeader::parse(&right), Ok(header));
    }

    #[test]
    fn what_may_be_ipv6_keeps_its_checksum() {
        let mut bytes = PREFIX;
        bytes[0] = 0x60;
        assert_eq!(with_checksum(&bytes), bytes);
    }
}
