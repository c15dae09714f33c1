//! What is behind a status: the codes that `ibv_wc.vendor_err` has here.

use crate::host::Denied;
use crate::status::Status;

/// Writes the codes once, with their numbers and words.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $number:literal, $text:literal;)*) => {
        /// Why work failed, finer than its status says; in C `vendor_err`.
        ///
        /// The upper four bits of its number are those of the status, so that each belongs to one. The numbers stay as
        /// they are; there may be more of them in time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum VendorCode {
            $($(#[$doc])* $name = (Status::$status as u8) << 4 | $number,)*
        }

        impl VendorCode {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The status that it is behind.
            #[must_use]
            pub const fn status(self) -> Status {
                match self {
                    $(Self::$name => Status::$status,)*
                }
            }

            /// What it means, in a few words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    /// The message was longer than the receive that it met.
    ReceiveTooShort = LocalLength, 1, "the message is longer than its receive";
    /// A packet inside of the message was not as long as the path MTU wants it.
    PacketLength = LocalLength, 2, "a packet of the message has a length that the path MTU does not allow";
    /// What was to be invalidated is no bound window of this queue pair.
    InvalidateRefused = LocalQpOperation, 1, "the key to invalidate is no bound window of this queue pair";
    /// The peer broke the protocol inside of the message that had taken this receive.
    MessageBrokenOff = LocalQpOperation, 2, "the peer broke off the message that had taken this receive";
    /// No memory has this local key.
    LocalKeyUnknown = LocalProtection, 1, "no memory has this local key";
    /// The range is not inside the memory of this local key.
    LocalRange = LocalProtection, 2, "the range is not inside the memory of this local key";
    /// The memory of this local key may not be written.
    LocalRights = LocalProtection, 3, "the memory of this local key may not be written";
    /// The memory of this local key belongs to another protection domain.
    LocalDomain = LocalProtection, 4, "the memory of this local key belongs to another protection domain";
    /// The work was under way, or waited, when the queue pair went into error.
    FlushedUnderWay = Flushed, 1, "it was posted when the queue pair went into error";
    /// The queue pair was in error when the work was posted.
    PostedInError = Flushed, 2, "the queue pair was in error when it was posted";
    /// No memory has the key of the region to bind to, or there is no such window.
    BindKeyUnknown = WindowBind, 1, "no region or window has this key";
    /// The range to bind is not inside the region.
    BindRange = WindowBind, 2, "the range is not inside the region";
    /// The region does not allow windows, or not with this access; or the window is bound on another queue pair.
    BindRights = WindowBind, 3, "the region does not allow this window, or the window is bound on another queue pair";
    /// Region or window belong to another protection domain.
    BindDomain = WindowBind, 4, "the region or window belongs to another protection domain";
    /// A packet of the answer has another length or place than was asked for.
    AnswerLength = BadResponse, 1, "a packet of the answer has another length or place than was asked for";
    /// The answer is of another kind than the request.
    AnswerKind = BadResponse, 2, "the answer is of another kind than the request";
    /// The message of a peer named a key that opens nothing here.
    AccessKeyUnknown = LocalAccess, 1, "the peer named a key that opens nothing";
    /// The message of a peer went beyond the memory of its key.
    AccessRange = LocalAccess, 2, "the peer went beyond the memory of its key";
    /// The message of a peer wanted what its key does not give.
    AccessRights = LocalAccess, 3, "the peer wanted what its key does not give";
    /// The message of a peer named memory of another protection domain or queue pair.
    AccessDomain = LocalAccess, 4, "the peer named memory of another protection domain or queue pair";
    /// The peer answered that the request is invalid.
    NakInvalidRequest = RemoteInvalidRequest, 1, "the peer answered: invalid request";
    /// The peer answered that its memory is not open for this. It does not say why.
    NakRemoteAccess = RemoteAccess, 1, "the peer answered: remote access error";
    /// The peer answered that it failed itself.
    NakRemoteOperation = RemoteOperation, 1, "the peer answered: remote operational error";
    /// The peer has never answered since the queue pair was connected.
    NeverAnswered = RetryExceeded, 1, "the peer has never answered on this connection";
    /// The peer has answered before, and does not any more, or not to this.
    AnswersStopped = RetryExceeded, 2, "the peer answered before, and does not answer this";
    /// The peer answered each time that it had no receive.
    NoReceiveThere = RnrRetryExceeded, 1, "the peer answered each time that it had no receive posted";
}

impl VendorCode {
    /// Its number in `vendor_err`; never 0, which means that there is none.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The code with this number.
    #[must_use]
    #[inline]
    pub fn from_code(code: u8) -> Option<Self> {
        if code == 0 {
            return None;
        }
        Self::ALL.iter().copied().find(|known| known.code() == code)
    }

    /// Why a local key did not give memory.
    pub(crate) const fn local(denied: Denied) -> Self {
        match denied {
            Denied::UnknownKey => Self::LocalKeyUnknown,
            Denied::OutOfRange | Denied::Misaligned => Self::LocalRange,
            Denied::NotPermitted => Self::LocalRights,
            Denied::WrongDomain => Self::LocalDomain,
        }
    }

    /// Why a window was not bound.
    pub(crate) const fn bind(denied: Denied) -> Self {
        match denied {
            Denied::UnknownKey => Self::BindKeyUnknown,
            Denied::OutOfRange | Denied::Misaligned => Self::BindRange,
            Denied::NotPermitted => Self::BindRights,
            Denied::WrongDomain => Self::BindDomain,
        }
    }

    /// Why a peer did not get our memory.
    pub(crate) const fn access(denied: Denied) -> Self {
        match denied {
            Denied::UnknownKey => Self::AccessKeyUnknown,
            Denied::OutOfRange | Denied::Misaligned => Self::AccessRange,
            Denied::NotPermitted => Self::AccessRights,
            Denied::WrongDomain => Self::AccessDomain,
        }
    }
}

impl core::fmt::Display for VendorCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_number_and_words_of_its_own_and_comes_back() {
        for (at, code) in VendorCode::ALL.iter().enumerate() {
            assert_eq!(code.code() >> 4, code.status().code());
            assert_eq!(VendorCode::from_code(code.code()), Some(*code));
            let others = &VendorCode::ALL[..at];
            assert!(others.iter().all(|other| other.code() != code.code() && other.text() != code.text()));
        }
        let known = (0..=u8::MAX).filter_map(VendorCode::from_code).count();
        assert_eq!(known, VendorCode::ALL.len());
    }

    /// Programs may keep them: a number that changes is another code.
    #[test]
    fn the_numbers_stay() {
        let numbers: Vec<u8> = VendorCode::ALL.iter().map(|code| code.code()).collect();
        let wanted = [
            0x11, 0x12, 0x21, 0x22, 0x41, 0x42, 0x43, 0x44, 0x51, 0x52, 0x61, 0x62, 0x63, 0x64, 0x71, 0x72,
            0x81, 0x82, 0x83, 0x84, 0x91, 0xa1, 0xb1, 0xc1, 0xc2, 0xd1,
        ];
        assert_eq!(numbers, wanted);
    }

    #[test]
    fn every_status_but_success_has_a_code() {
        for status in Status::ALL {
            let has = VendorCode::ALL.iter().any(|code| code.status() == status);
            assert_eq!(has, status != Status::Success, "{status:?}");
        }
    }
}
