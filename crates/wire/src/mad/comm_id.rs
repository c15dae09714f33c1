//! The name that one side gives to a connection.

use core::fmt;

use crate::describe::{Value, Visitor};

/// Communication ID: the number by which one side knows a connection while it is
/// being set up and taken down (IBA 12.6.5). Each side chooses its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CommId(pub u32);

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

impl fmt::Debug for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommId({self})")
    }
}

/// Tells the two IDs that most messages begin with.
pub(super) fn describe_pair(local: CommId, remote: CommId, visitor: &mut dyn Visitor) -> fmt::Result {
    visitor.field("local_comm_id", "Local Communication ID", Value::hex(local.0, 32))?;
    visitor.field("remote_comm_id", "Remote Communication ID", Value::hex(remote.0, 32))
}
