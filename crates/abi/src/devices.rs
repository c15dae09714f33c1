//! The list of devices.

use std::ffi::{c_char, c_int};
use std::sync::Mutex;

use ferroce_cabi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use ferroce_device::Uncancelled;
use ferroce_device::discovery::{self, DeviceInfo, Opening};

use crate::object::{Zero, filled, lock, seen};
use crate::refusal::{Answer, Refused, pointer, set_errno};

/// A device as C sees it. It lives as long as the process: programs keep pointers to devices whose list they
/// have freed.
#[repr(C)]
pub(crate) struct Device {
    c: ibv_device,
    /// Libraries of hardware vendors look behind the structure for functions of theirs. They find none.
    behind: [usize; 32],
    pub(crate) interface: String,
    guid: u64,
}

/// All devices that were ever listed: one for each interface, found again by its name.
static KNOWN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

// SAFETY: a device never changes after it was made; the pointers in its C part are null.
unsafe impl Sync for Device {}

impl Device {
    pub(crate) fn known(info: &DeviceInfo) -> &'static Self {
        let mut known = lock(&KNOWN);
        let guid = info.node_guid();
        if let Some(device) =
            known.iter().find(|device| device.interface == info.interface && device.guid == guid)
        {
            return device;
        }
        let mut c = ibv_device::zero();
        c.node_type = IBV_NODE_CA;
        c.transport_type = IBV_TRANSPORT_IB;
        write_text(&mut c.name, &info.name);
        write_text(&mut c.dev_name, &format!("uverbs{}", known.len()));
        write_text(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{}", known.len()));
        write_text(&mut c.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
        let interface = info.interface.clone();
        let device = Box::leak(Box::new(Self { c, behind: [0; 32], interface, guid }));
        debug_assert_eq!(device.behind, [0; 32]);
        known.push(device);
        device
    }

    /// The device that a program means.
    ///
    /// # Safety
    /// `device` is null or comes from our list.
    pub(crate) unsafe fn of<'a>(device: *mut ibv_device) -> Answer<&'a Self> {
        // SAFETY: the caller vouches for it; ours begin with the C structure.
        unsafe { seen(device.cast::<Self>(), "device") }
    }

    pub(crate) fn as_c(&self) -> *mut ibv_device {
        (&raw const self.c).cast_mut()
    }
}

/// Writes a text that ends with a zero byte, cut if it is too long.
pub(crate) fn write_text(to: &mut [c_char], text: &str) {
    let room = to.len() - 1;
    for (to, from) in to.iter_mut().take(room).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
}

/// The interfaces that are devices.
pub(crate) fn chosen() -> Answer<Vec<DeviceInfo>> {
    let all = discovery::interfaces()
        .map_err(|error| Refused::because(error.raw_os_error().unwrap_or(libc::EIO), &error))?;
    let wanted = std::env::var("FERROCE_NETDEV").unwrap_or_default();
    let opening = Opening::parse(&wanted).map_err(|error| Refused::because(libc::EINVAL, &error))?;
    discovery::select(all, &opening).map_err(|error| Refused::because(libc::ENODEV, &error))
}

fn listed() -> Answer<Vec<*mut ibv_device>> {
    Ok(chosen()?.iter().map(|info| Device::known(info).as_c()).collect())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let _whole = Uncancelled::new();
    let answer = listed().map(|mut devices| {
        // SAFETY: the caller passes a number of its own to fill, or null.
        if let Ok(count) = unsafe { filled(count, "count") } {
            *count = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
        }
        devices.push(std::ptr::null_mut());
        // One word in front holds the length, so that the list can be given back.
        let mut list = Vec::with_capacity(devices.len() + 1);
        list.push(std::ptr::without_provenance_mut::<ibv_device>(devices.len()));
        list.append(&mut devices);
        Box::into_raw(list.into_boxed_slice()).cast::<*mut ibv_device>().wrapping_add(1)
    });
    if answer.is_err() {
        // SAFETY: as above.
        if let Ok(count) = unsafe { filled(count, "count") } {
            *count = 0;
        }
    }
    pointer("ibv_get_device_list", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    let whole = list.wrapping_sub(1);
    // SAFETY: the list came from `ibv_get_device_list`, which put its length in front of it.
    let len = unsafe { whole.read() }.addr() + 1;
    let whole = std::ptr::slice_from_raw_parts_mut(whole, len);
    // SAFETY: it is the slice that was made into a pointer there, and the program gives it back.
    drop(unsafe { Box::from_raw(whole) });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller passes a device of our list, or null.
    let device = unsafe { Device::of(device) };
    let name = device.map(|device| device.c.name.as_ptr().cast_mut());
    pointer("ibv_get_device_name", name).cast_const()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the caller passes a device of our list, or null.
    unsafe { Device::of(device) }.map_or(0, |device| device.guid.to_be())
}

/// The kernel numbers devices that it knows; ours it does not know.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}
