//! The connection below: who set it up can say why it ended, and can end it.

/// How a connection came about, and how it ends.
pub(crate) trait Line: Send + Sync {
    /// Whether one of the ends has ended it.
    fn is_ended(&self) -> bool;

    /// Ends it: both queue pairs go into error.
    fn end(&self);
}
