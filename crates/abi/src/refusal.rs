//! Why a call fails: an error number for the program, and words for whoever reads the log.

use std::fmt::Display;

use ferroce_device::memory::MemoryError;
use ferroce_device::{AddressError, CreateError, OpenError, QpError, fabric::udp};
use ferroce_transport::PostError;
use libc::{EADDRINUSE, EBUSY, EINVAL, ENODEV, ENOMEM, EOPNOTSUPP, EPERM, c_int};

use crate::log;

/// A refusal. Its words are only made if somebody reads them.
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
    // SAFETY: as above; the place is valid while the thread lives, and nobody else writes it.
    unsafe { place.write(code) };
}

impl From<CreateError> for Refused {
    fn from(error: CreateError) -> Self {
        let code = match &error {
            CreateError::TooMany { .. } => ENOMEM,
            CreateError::NoSuchService { .. } => EOPNOTSUPP,
            CreateError::Memory(memory) => code_of_memory(memory),
            CreateError::Descriptor(_) => libc::EMFILE,
            CreateError::GroupRefused { .. } => libc::ENOBUFS,
            CreateError::OtherDomain { .. } => EPERM,
            _ => EINVAL,
        };
        Self::new(code, error)
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

impl From<AddressError> for Refused {
    fn from(error: AddressError) -> Self {
        Self::invalid(error)
    }
}

impl From<QpError> for Refused {
    fn from(error: QpError) -> Self {
        Self::invalid(error)
    }
}

impl From<PostError> for Refused {
    fn from(error: PostError) -> Self {
        let code = if matches!(error, PostError::QueueFull { .. }) { ENOMEM } else { EINVAL };
        Self::new(code, error)
    }
}

impl From<OpenError> for Refused {
    fn from(error: OpenError) -> Self {
        let code = match &error {
            OpenError::Discovery(_) => ENODEV,
            OpenError::Socket(udp::OpenError::PortTaken { .. }) => EADDRINUSE,
            OpenError::System { error, .. } => error.raw_os_error().unwrap_or(EINVAL),
            _ => EINVAL,
        };
        Self::new(code, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_no_memory_and_the_rest_is_invalid() {
        assert_eq!(Refused::from(PostError::QueueFull { what: "send", depth: 1 }).code, ENOMEM);
        assert_eq!(Refused::from(PostError::SharedQueue).code, EINVAL);
        assert_eq!(Refused::from(CreateError::Memory(MemoryError::InUse { windows: 1 })).code, EBUSY);
    }

    #[test]
    fn errno_is_set_for_null_only() {
        set_errno(0);
        assert!(pointer::<u8>("test", Err(Refused::busy("in use"))).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(EBUSY));
        assert_eq!(number("test", Ok(())), 0);
        assert_eq!(minus_one("test", Err(Refused::invalid("x"))), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(EINVAL));
    }
}
