//! How a connection is set up.

use std::time::Duration;

use ferroce_device::now;
use ferroce_transport::cm::Patience;
use ferroce_wire::mad::Timeout;

use crate::connect::ConnectOptions;

/// How a connection is set up. The default suits most programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmOptions {
    /// Bytes for the program on the other side: at most 56 with a request for a port (92 for another
    /// service), 196 with an acceptance.
    pub private_data: Vec<u8>,
    /// The limit of the whole attempt; at most an hour.
    pub timeout: Duration,
    /// How long to wait for the answer to one message before it is sent again. The peer is told the next
    /// power of two times 4.096 us.
    pub response_timeout: Duration,
    /// How often one message is sent again, up to 15.
    pub retries: u8,
    /// How the queue pair works. `max_rd_atomic` and `max_dest_rd_atomic` are the most: each side takes what
    /// the other can do. `rnr_retry` is asked of the peer, as the protocol wants it; ours is what the peer
    /// asks for. The side that is asked takes `retry_count`, path MTU and traffic class from the request.
    pub qp: ConnectOptions,
}

impl CmOptions {
    const LONGEST: Duration = Duration::from_secs(3600);

    /// With these bytes for the program on the other side.
    #[must_use]
    pub fn private_data(mut self, bytes: &[u8]) -> Self {
        self.private_data = bytes.to_vec();
        self
    }

    /// With this limit of the whole attempt.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// With a queue pair that works like this.
    #[must_use]
    pub const fn qp(mut self, options: ConnectOptions) -> Self {
        self.qp = options;
        self
    }

    /// When there is an outcome for sure, however loaded the machine is.
    pub(crate) fn limit(&self) -> Duration {
        self.timeout.min(Self::LONGEST) + Duration::from_secs(60)
    }

    pub(crate) fn patience(&self) -> Patience {
        // Late packets are gone when the sender has given them up.
        let silence = match self.qp.timeout {
            0 => Duration::from_secs(1),
            code => Timeout::new(code).duration(),
        };
        Patience {
            response: self.response_timeout.clamp(Duration::from_millis(1), Self::LONGEST),
            retries: self.retries.min(15),
            deadline: now() + self.timeout.min(Self::LONGEST),
            time_wait: silence.clamp(Duration::from_millis(100), Duration::from_secs(10)),
            tell_end: false,
            watched: false,
        }
    }
}

impl Default for CmOptions {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            timeout: Duration::from_secs(10),
            response_timeout: Duration::from_millis(500),
            retries: 15,
            qp: ConnectOptions::default(),
        }
    }
}
