//! Windows on their way from an agent to the analyzer: each is counted once and only once, whatever breaks.
//!
//! An agent numbers its windows within its life (its epoch), keeps them in an [`Outbox`] until the analyzer says that
//! they are settled, and after a break sends again what is not. The analyzer keeps one [`Mark`] for each agent in an
//! [`Inbox`]: what is not behind it came before, and is dropped. Both are pure.

mod inbox;
mod outbox;

pub use inbox::{Inbox, InboxConfig, Taken, WindowRefusal};
pub use outbox::Outbox;

/// A window of an agent: marks of later windows are larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The life of the agent.
    pub epoch: u64,
    /// The number in that life; the first is 1.
    pub number: u64,
}

#[cfg(test)]
mod tests;
