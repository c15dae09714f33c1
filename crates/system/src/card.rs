//! The cards of a machine.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_cabi::ibv_device;

use crate::context::Context;
use crate::error::{CallError, OpenCardError};
use crate::handle::Handle;
use crate::library::Library;

/// A card, as the library lists it. Clones are the same card.
#[derive(Clone)]
pub struct Card {
    list: Arc<List>,
    device: NonNull<ibv_device>,
}

// SAFETY: the library takes its devices from any thread, and the list keeps this one alive.
unsafe impl Send for Card {}
// SAFETY: as above.
unsafe impl Sync for Card {}

/// The list that cards come from. The library may free them with it.
struct List {
    library: Library,
    first: Handle<*mut ibv_device>,
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from `ibv_get_device_list`, and no card of it is held any more.
        unsafe { (self.library.verbs().ibv_free_device_list)(self.first.as_ptr()) };
    }
}

impl Library {
    /// The cards that this machine has now; none if its kernel knows nothing of RDMA.
    ///
    /// # Errors
    /// The library cannot list them.
    pub fn cards(self) -> Result<Vec<Card>, CallError> {
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a number that lives during the call.
        let first = unsafe { (self.verbs().ibv_get_device_list)(&raw mut count) };
        let first = match Handle::made("ibv_get_device_list", first) {
            Err(error) if error.code == libc::ENOSYS => return Ok(Vec::new()),
            first => first?,
        };
        let list = Arc::new(List { library: self, first });
        let count = usize::try_from(count).unwrap_or(0);
        let at = |index| {
            // SAFETY: the list has `count` entries, and more only a null behind them.
            unsafe { *list.first.as_ptr().wrapping_add(index) }
        };
        let devices = (0..count).filter_map(|index| NonNull::new(at(index)));
        Ok(devices.map(|device| Card { list: Arc::clone(&list), device }).collect())
    }
}

impl Card {
    /// Its name, such as `mlx5_0` or `rxe0`.
    #[must_use]
    pub fn name(&self) -> String {
        text(&self.seen().name)
    }

    /// The file of its driver, such as `/dev/infiniband/uverbs0`.
    #[must_use]
    pub fn file(&self) -> String {
        format!("/dev/infiniband/{}", text(&self.seen().dev_name))
    }

    /// Its number in the world.
    #[must_use]
    pub fn guid(&self) -> u64 {
        // SAFETY: the list keeps the device alive.
        u64::from_be(unsafe { (self.list.library.verbs().ibv_get_device_guid)(self.device.as_ptr()) })
    }

    /// The kernel's number of it, if library and kernel tell.
    #[must_use]
    pub fn index(&self) -> Option<u32> {
        let ask = self.list.library.verbs().ibv_get_device_index?;
        // SAFETY: as above.
        u32::try_from(unsafe { ask(self.device.as_ptr()) }).ok()
    }

    /// The library that it comes from.
    #[must_use]
    pub fn library(&self) -> Library {
        self.list.library
    }

    /// Opens it.
    ///
    /// # Errors
    /// This user may not, it is gone, or what the library says.
    pub fn open(&self) -> Result<Context, OpenCardError> {
        // SAFETY: the list keeps the device alive.
        let context = unsafe { (self.list.library.verbs().ibv_open_device)(self.device.as_ptr()) };
        let name = self.name();
        let context = Handle::made("ibv_open_device", context).map_err(|error| match error.code {
            code if !self.list.library.is_ours() && (is_denied(code) || is_closed_to_us(&self.file())) => {
                OpenCardError::NoPermission { name: name.clone(), file: self.file(), error }
            }
            libc::ENODEV | libc::ENXIO | libc::ENOENT => OpenCardError::Gone { name: name.clone(), error },
            _ => OpenCardError::Refused { name: name.clone(), error },
        })?;
        Context::new(self.list.library, context, name.clone())
            .map_err(|error| OpenCardError::Refused { name, error })
    }

    fn seen(&self) -> &ibv_device {
        // SAFETY: the list keeps the device alive, and the library fills it before it lists it.
        unsafe { self.device.as_ref() }
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Card({})", self.name())
    }
}

const fn is_denied(code: c_int) -> bool {
    matches!(code, libc::EACCES | libc::EPERM)
}

/// Whether a file is there, and this user may not read and write it. Libraries that may not open it look for it elsewhere, and then
/// say that it is not there.
fn is_closed_to_us(file: &str) -> bool {
    let Ok(path) = CString::new(file) else { return false };
    let (way, how) = (libc::R_OK | libc::W_OK, libc::AT_EACCESS);
    // SAFETY: the path is text of C that lives during the call.
    let answer = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), way, how) };
    answer != 0 && io::Error::last_os_error().raw_os_error().is_some_and(is_denied)
}

/// Text of C, which ends with a zero byte or with its place.
pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|char| char.to_ne_bytes()[0]).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}
