//! Why a call fails: an error number for the program, and words for the log.

use std::error::Error;
use std::fmt::Display;
use std::io;

use ferroce_device::fabric::capture::CaptureError;
use ferroce_device::fabric::udp;
use ferroce_device::memory::MemoryError;
use ferroce_device::switchboard::SwitchError;
use ferroce_device::{Chain, NicCreateError, NicOpenError, NicQpError, RouteError};
use ferroce_transport::PostError;
use libc::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EBUSY, EINVAL, EMFILE, ENODEV, ENOMEM, EOPNOTSUPP, EPERM, EPROTO,
    ETIMEDOUT, c_int,
};

use crate::log;

/// A refusal. Its words are only made if the log is on.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: c_int,
    why: Option<String>,
}

/// What most functions here come to.
pub(crate) type Answer<T> = Result<T, Refused>;

impl Refused {
    pub(crate) fn new(code: c_int, why: impl Display) -> Self {
        Self { code, why: log::is_on().then(|| why.to_string()) }
    }

    /// No refusal, but an answer that the program expects: the log has nothing to say of it.
    pub(crate) const fn quiet(code: c_int) -> Self {
        Self { code, why: None }
    }

    /// What the device says, with all that caused it.
    pub(crate) fn because(code: c_int, error: &(dyn Error + 'static)) -> Self {
        Self::new(code, Chain::of(error))
    }

    /// An argument that cannot be.
    pub(crate) fn invalid(why: impl Display) -> Self {
        Self::new(EINVAL, why)
    }

    /// Something that the device does not have.
    pub(crate) fn unsupported(what: impl Display) -> Self {
        Self::new(EOPNOTSUPP, format_args!("{what}: not supported"))
    }

    /// Something that is still needed.
    pub(crate) fn busy(why: impl Display) -> Self {
        Self::new(EBUSY, why)
    }

    /// Tells the log, and gives the number.
    pub(crate) fn tell(self, function: &str) -> c_int {
        if let Some(why) = &self.why {
            log::warn(function, why);
        }
        self.code
    }
}

/// For functions that return an error number, or 0.
pub(crate) fn number(function: &str, answer: Answer<()>) -> c_int {
    match answer {
        Ok(()) => 0,
        Err(refused) => refused.tell(function),
    }
}

/// For functions that return a pointer, or null and `errno`.
pub(crate) fn pointer<T>(function: &str, answer: Answer<*mut T>) -> *mut T {
    answer.unwrap_or_else(|refused| {
        set_errno(refused.tell(function));
        std::ptr::null_mut()
    })
}

/// For functions that return 0, or -1 and `errno`.
pub(crate) fn minus_one(function: &str, answer: Answer<()>) -> c_int {
    match answer {
        Ok(()) => 0,
        Err(refused) => {
            set_errno(refused.tell(function));
            -1
        }
    }
}

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: the C library gives every thread a place of its own for its error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; the place is valid while the thread lives, and no other thread writes it.
    unsafe { place.write(code) };
}

/// What another function of ours has refused, and told the log of.
pub(crate) fn last_errno(why: impl Display) -> Refused {
    Refused::new(io::Error::last_os_error().raw_os_error().unwrap_or(EINVAL), why)
}

impl From<NicCreateError> for Refused {
    fn from(error: NicCreateError) -> Self {
        let code = match &error {
            NicCreateError::TooMany { .. } => ENOMEM,
            NicCreateError::NoSuchService { .. } => EOPNOTSUPP,
            NicCreateError::Memory(memory) => code_of_memory(memory),
            NicCreateError::Descriptor(_) => EMFILE,
            NicCreateError::GroupRefused { .. } => libc::ENOBUFS,
            NicCreateError::OtherDomain { .. } => EPERM,
            _ => EINVAL,
        };
        Self::because(code, &error)
    }
}

const fn code_of_memory(error: &MemoryError) -> c_int {
    match error {
        MemoryError::NoMemory { .. }
        | MemoryError::TooManyRegions { .. }
        | MemoryError::TooManyWindows { .. } => ENOMEM,
        MemoryError::InUse { .. } => EBUSY,
        _ => EINVAL,
    }
}

impl From<RouteError> for Refused {
    fn from(error: RouteError) -> Self {
        Self::because(EINVAL, &error)
    }
}

impl From<NicQpError> for Refused {
    fn from(error: NicQpError) -> Self {
        Self::because(EINVAL, &error)
    }
}

impl From<PostError> for Refused {
    fn from(error: PostError) -> Self {
        let code = if matches!(error, PostError::QueueFull { .. }) { ENOMEM } else { EINVAL };
        Self::because(code, &error)
    }
}

impl From<NicOpenError> for Refused {
    fn from(error: NicOpenError) -> Self {
        let code = match &error {
            NicOpenError::Discovery(_) => ENODEV,
            NicOpenError::Socket(error) => code_of_socket(error),
            NicOpenError::Switchboard(error) => code_of_switchboard(error),
            NicOpenError::ForeignAddress { .. } => EADDRNOTAVAIL,
            NicOpenError::OtherSettings { .. } => EBUSY,
            NicOpenError::Capture(CaptureError::Create { source, .. }) => code_of_system(source),
            NicOpenError::Capture(CaptureError::OtherUser { .. } | CaptureError::OtherNames { .. }) => EACCES,
            NicOpenError::System { error, .. } => code_of_system(error),
            // Settings, a capture file that is none, and what a later device may say.
            _ => EINVAL,
        };
        Self::because(code, &error)
    }
}

fn code_of_system(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(EINVAL)
}

const fn code_of_socket(error: &udp::SocketError) -> c_int {
    match error {
        udp::SocketError::PortTaken { .. } => EADDRINUSE,
        _ => EINVAL,
    }
}

/// As for the kernel's devices: a program that may not open one learns so from the permissions of its file.
fn code_of_switchboard(error: &SwitchError) -> c_int {
    match error {
        SwitchError::OtherUser { .. } | SwitchError::UserUnknown { .. } => EACCES,
        SwitchError::Foreign { .. } | SwitchError::Overlap { .. } => EADDRINUSE,
        SwitchError::Full { .. }
        | SwitchError::LeaderFull { .. }
        | SwitchError::ServiceClaimed { .. }
        | SwitchError::TooManyServices { .. }
        | SwitchError::AnotherCopy
        | SwitchError::TooManyListeners { .. } => EBUSY,
        SwitchError::TooFewDescriptors { .. } => EMFILE,
        SwitchError::Leaderless { .. }
        | SwitchError::LeaderSilent { .. }
        | SwitchError::ProcessSilent { .. } => ETIMEDOUT,
        SwitchError::OtherVersion { .. }
        | SwitchError::ProcessVersion { .. }
        | SwitchError::ForeignFile { .. } => EPROTO,
        SwitchError::NotSteered { .. } => ENODEV,
        SwitchError::Forked => EPERM,
        SwitchError::Socket(error) => code_of_socket(error),
        SwitchError::System { error, .. } => code_of_system(error),
        _ => EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_no_memory_and_the_rest_is_invalid() {
        assert_eq!(Refused::from(PostError::QueueFull { what: "send", depth: 1 }).code, ENOMEM);
        assert_eq!(Refused::from(PostError::SharedQueue).code, EINVAL);
        assert_eq!(Refused::from(NicCreateError::Memory(MemoryError::InUse { windows: 1 })).code, EBUSY);
    }

    #[test]
    fn errno_is_set_for_null_only() {
        set_errno(0);
        assert!(pointer::<u8>("test", Err(Refused::busy("in use"))).is_null());
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(EBUSY));
        assert_eq!(number("test", Ok(())), 0);
        assert_eq!(minus_one("test", Err(Refused::invalid("x"))), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(EINVAL));
    }
}
