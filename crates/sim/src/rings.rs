//! Memory that hosts have in common in place of a network: packets of connections go through the rings of the shared path, as
//! those of a device do. The rings are the real ones.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferroce_lane::{Consumer, LaneFile, Producer};
use ferroce_transport::Time;

use crate::node::Datagram;

/// Bytes of requests that may be under way through a ring, as in a device.
pub(crate) const WINDOW: u32 = 192 * 1024;

/// Bytes that must be free for a packet of a connection that has no window.
const SPARE: usize = 32 << 10;

/// The same for all others: the longest packet, and as much that is left out before it at the end of the ring.
const ONE: usize = 2 * (ferroce_wire::MAX_PACKET_LEN + GAP + 17);

/// Bytes that are left out at most so that a long payload begins with a cache line.
const GAP: usize = 63;

/// How long a connection that finds no room waits until it looks again.
pub(crate) const LOOK: Duration = Duration::from_micros(50);

/// How long it waits for a host that takes nothing out, until what it sends is lost.
const STUCK: Duration = Duration::from_millis(100);

/// The kind of all records.
const PACKET: u8 = 64;

/// The rings of all hosts, one for each direction; none where packets go over the network.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    /// By receiving and sending host.
    lanes: BTreeMap<(usize, usize), Lane>,
}

#[derive(Debug)]
struct Lane {
    producer: Producer,
    consumer: Consumer,
    /// Of each packet in it: the queue pair that has sent it, and its length without what was left out.
    packets: VecDeque<(usize, usize)>,
    /// Packets that the receiver has not been shown.
    hidden: usize,
    stuck_since: Option<Time>,
}

impl Rings {
    /// Between all of these hosts; queue pairs of one host have one, too.
    pub(crate) fn between(hosts: usize) -> Self {
        let lane = |to, from| {
            let file = LaneFile::create().expect("memory for a lane");
            let (producer, consumer) = file.split();
            let (packets, hidden, stuck_since) = (VecDeque::new(), 0, None);
            ((to, from), Lane { producer, consumer, packets, hidden, stuck_since })
        };
        let all = (0..hosts).flat_map(|to| (0..hosts).map(move |from| (to, from)));
        Self { lanes: all.map(|(to, from)| lane(to, from)).collect() }
    }

    /// Whether packets go this way.
    pub(crate) fn lead(&self, from: usize, to: usize) -> bool {
        self.lanes.contains_key(&(to, from))
    }

    /// Whether a queue pair may send a packet now: it finds room, or has waited too long.
    pub(crate) fn let_through(&mut self, from: usize, to: usize, has_window: bool, now: Time) -> bool {
        let Some(lane) = self.lanes.get_mut(&(to, from)) else { return true };
        if lane.producer.has_free(if has_window { ONE } else { SPARE }) {
            lane.stuck_since = None;
            return true;
        }
        now.since(*lane.stuck_since.get_or_insert(now)) >= STUCK
    }

    /// Puts a packet in; false if there is no room.
    pub(crate) fn put(&mut self, datagram: &Datagram) -> bool {
        let Some(lane) = self.lanes.get_mut(&(datagram.to, datagram.from)) else { return false };
        let len = datagram.bytes.len();
        let taken = if len > 1024 { len + GAP } else { len };
        let Some(room) = lane.producer.room(taken) else { return false };
        room[..len].copy_from_slice(&datagram.bytes);
        lane.producer.commit(PACKET, taken);
        lane.packets.push_back((datagram.slot, len));
        lane.hidden += 1;
        true
    }

    /// Shows others what a host has put in; which of them have something new.
    pub(crate) fn show(&mut self, from: usize) -> Vec<usize> {
        let lanes = self.lanes.iter_mut().filter(|((_, sender), _)| *sender == from);
        let shown = lanes.filter_map(|((to, _), lane)| {
            lane.hidden = 0;
            lane.producer.publish().then_some(*to)
        });
        shown.collect()
    }

    /// Whether a host has been shown packets that it has not taken.
    pub(crate) fn hold(&self, to: usize) -> bool {
        self.to(to).any(|(_, lane)| lane.packets.len() > lane.hidden)
    }

    /// The next packet that a host has been shown.
    pub(crate) fn take(&mut self, to: usize) -> Option<Datagram> {
        let lanes = self.lanes.iter_mut().filter(|((receiver, _), _)| *receiver == to);
        for ((_, from), lane) in lanes {
            if !lane.consumer.look() {
                assert_eq!(lane.consumer.lie(), None, "an honest ring");
                continue;
            }
            let record = lane.consumer.next().expect("it was seen");
            let (slot, len) = lane.packets.pop_front().expect("as many as records");
            assert_eq!(record.kind(), PACKET);
            let bytes = record.bytes()[..len].to_vec();
            return Some(Datagram { from: *from, slot, to, bytes, fault: None });
        }
        None
    }

    /// A host is done with what it has taken.
    pub(crate) fn release(&mut self, to: usize) {
        let lanes = self.lanes.iter_mut().filter(|((receiver, _), _)| *receiver == to);
        lanes.for_each(|(_, lane)| lane.consumer.release());
    }

    /// The rings from and to a host: the hosts that they lead from, and those that they lead to.
    pub(crate) fn of(&self, host: usize) -> Vec<(usize, usize)> {
        let ends = self.lanes.keys().map(|(to, from)| (*from, *to));
        ends.filter(|(from, to)| *from == host || *to == host).collect()
    }

    /// All rings from and to a host are given up, with what is in them: from now on its packets go over the network.
    pub(crate) fn give_up(&mut self, host: usize) -> Vec<Datagram> {
        let mut lost = Vec::new();
        for (&(to, from), lane) in &mut self.lanes {
            if to == host || from == host {
                lane.producer.publish();
                while lane.consumer.look() {
                    let Some(record) = lane.consumer.next() else { break };
                    let (slot, len) = lane.packets.pop_front().expect("as many as records");
                    let bytes = record.bytes()[..len].to_vec();
                    lost.push(Datagram { from, slot, to, bytes, fault: None });
                }
            }
        }
        self.lanes.retain(|(to, from), _| *to != host && *from != host);
        lost
    }

    fn to(&self, to: usize) -> impl Iterator<Item = (&(usize, usize), &Lane)> {
        self.lanes.iter().filter(move |((receiver, _), _)| *receiver == to)
    }
}
