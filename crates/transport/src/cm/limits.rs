//! How much a peer can make us keep.

/// The most of everything that a [`Manager`](super::Manager) keeps. A connection is about 600 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in any state but time-wait.
    pub connections: usize,
    /// Requests that are not answered, and answers that are not confirmed, of all peers together.
    pub half_open: usize,
    /// The same of one address.
    pub half_open_of_one: usize,
    /// Connections that are over and only remembered. The oldest are forgotten first.
    pub time_wait: usize,
    /// Requests that wait at one listener, whatever it asks for.
    pub backlog: usize,
    /// Questions for datagram services under way.
    pub queries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            half_open: 4096,
            half_open_of_one: 1024,
            time_wait: 4096,
            backlog: 1024,
            queries: 4096,
        }
    }
}
