//! How work can end, and what kinds of work there are: the numbers of `ibv_wc_status` and `ibv_wc_opcode`.

/// How work ended. The numbers are those of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Success = 0,
    /// A message was longer than the receive that it met.
    LocalLength = 1,
    /// The queue pair could not do this.
    LocalQpOperation = 2,
    /// A local key did not give access to local memory.
    LocalProtection = 4,
    /// Not done, because the queue pair is in error.
    Flushed = 5,
    /// A memory window could not be bound.
    WindowBind = 6,
    /// The responder's answer was not an answer to the request.
    BadResponse = 7,
    /// Our own memory refused what a peer asked, after part of it had arrived.
    LocalAccess = 8,
    /// The responder refused the request as invalid.
    RemoteInvalidRequest = 9,
    /// The responder refused access to its memory.
    RemoteAccess = 10,
    /// The responder failed for a reason of its own.
    RemoteOperation = 11,
    /// The peer did not answer, as often as it was tried.
    RetryExceeded = 12,
    /// The peer had no receive posted, as often as it was tried.
    RnrRetryExceeded = 13,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Success,
        Self::LocalLength,
        Self::LocalQpOperation,
        Self::LocalProtection,
        Self::Flushed,
        Self::WindowBind,
        Self::BadResponse,
        Self::LocalAccess,
        Self::RemoteInvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperation,
        Self::RetryExceeded,
        Self::RnrRetryExceeded,
    ];

    /// Its number in `ibv_wc_status`.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The status with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }

    /// What it means, in a few words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocalLength => "local length error: the message was longer than the receive that it met",
            Self::LocalQpOperation => "local QP operation error: the queue pair could not do this",
            Self::LocalProtection => "local protection error: a local key does not open this memory",
            Self::Flushed => "flushed: not done, because the queue pair is in error",
            Self::WindowBind => "memory window bind error",
            Self::BadResponse => "bad response: the peer's answer does not fit the request",
            Self::LocalAccess => "local access error: our memory refused what a peer had begun",
            Self::RemoteInvalidRequest => "remote invalid request: the peer refused it as invalid",
            Self::RemoteAccess => "remote access error: the peer's memory is not open for this",
            Self::RemoteOperation => "remote operation error: the peer failed for a reason of its own",
            Self::RetryExceeded => "retry exceeded: the peer did not answer",
            Self::RnrRetryExceeded => "RNR retry exceeded: the peer had no receive posted",
        }
    }
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.text())
    }
}

/// What kind of work a completion is for. The numbers are those of `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WorkKind {
    /// SEND of any form.
    Send = 0,
    /// RDMA WRITE, with or without immediate data.
    Write = 1,
    /// RDMA READ.
    Read = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// Memory window bind.
    BindWindow = 5,
    /// Local invalidation.
    LocalInvalidate = 6,
    /// ATOMIC WRITE.
    AtomicWrite = 9,
    /// Masked compare and swap. `ibv_wc_opcode` has no number for it: this one is our own.
    MaskedCompareSwap = 100,
    /// Masked fetch and add; its number is our own too.
    MaskedFetchAdd = 101,
    /// A SEND arrived.
    Receive = 128,
    /// An RDMA WRITE with immediate data arrived.
    ReceiveWithImm = 129,
}

impl WorkKind {
    /// Its number in `ibv_wc_opcode`.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Send,
            1 => Self::Write,
            2 => Self::Read,
            3 => Self::CompareSwap,
            4 => Self::FetchAdd,
            5 => Self::BindWindow,
            6 => Self::LocalInvalidate,
            9 => Self::AtomicWrite,
            100 => Self::MaskedCompareSwap,
            101 => Self::MaskedFetchAdd,
            128 => Self::Receive,
            129 => Self::ReceiveWithImm,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_c_interface_and_come_back() {
        let kinds: Vec<u8> = (0..=u8::MAX).filter_map(WorkKind::from_code).map(WorkKind::code).collect();
        assert_eq!(kinds, [0, 1, 2, 3, 4, 5, 6, 9, 100, 101, 128, 129]);
        let statuses: Vec<u8> = (0..=u8::MAX).filter_map(Status::from_code).map(Status::code).collect();
        assert_eq!(statuses, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        for code in 0..=u8::MAX {
            assert!(WorkKind::from_code(code).is_none_or(|kind| kind.code() == code));
            assert!(Status::from_code(code).is_none_or(|status| status.code() == code));
        }
    }

    #[test]
    fn every_status_has_words_of_its_own() {
        for (at, status) in Status::ALL.iter().enumerate() {
            let text = status.to_string();
            assert!(text.len() > 5 && Status::ALL[..at].iter().all(|other| other.text() != text), "{text}");
        }
    }
}
