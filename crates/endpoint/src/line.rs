//! The connection below: the code that set it up can end it.

use ferroce_verbs::cm::Established;

/// How a connection came about, and how it ends.
pub(crate) trait Line: Send + Sync {
    /// Ends it: both queue pairs go into error.
    fn end(&self);
}

/// A connection of connection management, which ends it when it is dropped.
pub(crate) struct Managed(pub(crate) Established);

impl Line for Managed {
    fn end(&self) {
        self.0.disconnect();
    }
}
