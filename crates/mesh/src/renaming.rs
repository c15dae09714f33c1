//! From one description to another: what has the same name is the same thing.

use std::collections::HashMap;

use crate::observation::{FlowKey, Tuple};
use crate::topology::{HostId, Node, RnicId, SwitchId, Topology};

/// The numbers of another description for those of one; none for what the other does not have.
#[derive(Clone, Debug)]
pub(crate) struct Renaming {
    rnics: Vec<Option<u32>>,
    switches: Vec<Option<u32>>,
    hosts: Vec<Option<u32>>,
}

impl Renaming {
    pub(crate) fn new(before: &Topology, after: &Topology) -> Self {
        Self {
            rnics: by_name(before.rnics(), after.rnics(), |rnic| &rnic.name),
            switches: by_name(before.switches(), after.switches(), |switch| &switch.name),
            hosts: by_name(before.hosts(), after.hosts(), |host| &host.name),
        }
    }

    pub(crate) fn rnic(&self, id: RnicId) -> Option<RnicId> {
        self.rnics.get(id.0 as usize).copied().flatten().map(RnicId)
    }

    pub(crate) fn switch(&self, id: SwitchId) -> Option<SwitchId> {
        self.switches.get(id.0 as usize).copied().flatten().map(SwitchId)
    }

    pub(crate) fn host(&self, id: HostId) -> Option<HostId> {
        self.hosts.get(id.0 as usize).copied().flatten().map(HostId)
    }

    pub(crate) fn node(&self, node: Node) -> Option<Node> {
        match node {
            Node::Rnic(id) => self.rnic(id).map(Node::Rnic),
            Node::Switch(id) => self.switch(id).map(Node::Switch),
        }
    }

    pub(crate) fn tuple(&self, tuple: Tuple) -> Option<Tuple> {
        Some(Tuple { from: self.rnic(tuple.from)?, to: self.rnic(tuple.to)?, ..tuple })
    }

    pub(crate) fn flow(&self, flow: FlowKey) -> Option<FlowKey> {
        Some(FlowKey { from: self.rnic(flow.from)?, to: self.rnic(flow.to)?, ..flow })
    }
}

fn by_name<T>(before: &[T], after: &[T], name: impl Fn(&T) -> &String) -> Vec<Option<u32>> {
    let places: HashMap<&String, u32> = after.iter().map(&name).zip(0..).collect();
    before.iter().map(|one| places.get(name(one)).copied()).collect()
}
