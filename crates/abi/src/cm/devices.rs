//! The devices that ids are bound to: each is opened when it is first needed, and stays open as long as the
//! process lives.

use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ferroce_cabi::{ibv_context, ibv_pd};
use ferroce_device::cm::ConnectionManager;
use ferroce_device::discovery::DeviceInfo;
use ferroce_device::{PerProcess, Uncancelled};

use crate::context::{Context, ibv_close_device};
use crate::devices::{Device, chosen};
use crate::domain::ibv_alloc_pd;
use crate::object::{filled, lock};
use crate::refusal::{Answer, Refused, last_errno, pointer};

/// A device that ids are bound to.
pub(crate) struct CmDevice {
    interface: String,
    pub(crate) context: &'static Context,
    /// The domain of queue pairs whose program names none.
    pub(crate) pd: *mut ibv_pd,
    pub(crate) manager: Arc<ConnectionManager>,
}

// SAFETY: the domain's pointer never changes, and the object behind it may be used by every thread.
unsafe impl Send for CmDevice {}
// SAFETY: as above.
unsafe impl Sync for CmDevice {}

/// Those that are open: a child of a fork begins without.
static OPEN: PerProcess<Mutex<Vec<&'static CmDevice>>> = PerProcess::new();

/// The device of this interface.
fn opened(info: &DeviceInfo) -> Answer<&'static CmDevice> {
    let mut open = lock(OPEN.get());
    if let Some(known) = open.iter().find(|known| known.interface == info.interface) {
        return Ok(known);
    }
    let context = Context::open(Device::known(info))?;
    let device = equipped(info, context).inspect_err(|_| {
        // SAFETY: it was opened just now, and nothing else knows it.
        unsafe { ibv_close_device(context) };
    })?;
    let device: &'static CmDevice = Box::leak(Box::new(device));
    open.push(device);
    Ok(device)
}

/// What a device needs for ids. If it comes to nothing, the context is as it was.
fn equipped(info: &DeviceInfo, context: *mut ibv_context) -> Answer<CmDevice> {
    // SAFETY: it was opened just now; it is closed only if this fails, when nothing knows it.
    let known: &'static Context = unsafe { Context::of(context) }?;
    let manager = known.nic.connections();
    let manager =
        manager.map_err(|error| Refused::new(error.raw_os_error().unwrap_or(libc::ENOMEM), error))?;
    // SAFETY: as above.
    let pd = unsafe { ibv_alloc_pd(context) };
    if pd.is_null() {
        return Err(last_errno("no protection domain"));
    }
    Ok(CmDevice { interface: info.interface.clone(), context: known, pd, manager })
}

impl CmDevice {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.context.nic.has_address(address)
    }

    /// The address that packets come from which the kernel would send from `wanted`: that one if it is the
    /// device's, else the only one that the device was given.
    pub(crate) fn source(&self, wanted: IpAddr) -> Option<IpAddr> {
        if self.has(wanted) {
            return Some(wanted);
        }
        self.context.nic.config().address.filter(|only| only.is_ipv4() == wanted.is_ipv4())
    }
}

/// Whether an interface has an address, by what the kernel lists.
fn lists(info: &DeviceInfo, address: IpAddr) -> bool {
    let address = address.to_canonical();
    info.addresses.contains(&address) || info.loopback && address.is_ipv4() && address.is_loopback()
}

/// Whether an address belongs to a device, by what the kernel lists.
pub(crate) fn is_of_a_device(address: IpAddr) -> bool {
    chosen().is_ok_and(|all| all.iter().any(|info| lists(info, address)))
}

/// The device that an address of this machine belongs to. A link-local one may be of several interfaces: then a number
/// says of which.
///
/// # Errors
/// `ENODEV`: it belongs to none of the devices, or the device cannot be opened.
pub(crate) fn with_address(address: IpAddr, scope: u32) -> Answer<&'static CmDevice> {
    let all = chosen()?;
    let info = all.iter().find(|info| lists(info, address) && (scope == 0 || scope == info.index));
    let info = info.ok_or_else(|| Refused::new(libc::ENODEV, format_args!("{address}: no device has it")))?;
    opened(info)
}

/// All devices that can be opened.
pub(crate) fn all() -> Answer<Vec<&'static CmDevice>> {
    let all: Vec<_> = chosen()?.iter().filter_map(|info| opened(info).ok()).collect();
    if all.is_empty() { Err(Refused::new(libc::ENODEV, "there is no device")) } else { Ok(all) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let _whole = Uncancelled::new();
    let answer = all().map(|devices| {
        // SAFETY: the caller passes a number of its own to fill, or null.
        if let Ok(count) = unsafe { filled(count, "count") } {
            *count = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
        }
        let mut list: Vec<_> = devices.iter().map(|device| device.context.as_c()).collect();
        list.push(std::ptr::null_mut());
        // One word in front holds the length, so that the list can be given back.
        list.insert(0, std::ptr::without_provenance_mut(list.len()));
        Box::into_raw(list.into_boxed_slice()).cast::<*mut ibv_context>().wrapping_add(1)
    });
    pointer("rdma_get_devices", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    let _whole = Uncancelled::new();
    if list.is_null() {
        return;
    }
    let whole = list.wrapping_sub(1);
    // SAFETY: the list came from `rdma_get_devices`, which put its length in front of it.
    let len = unsafe { whole.read() }.addr() + 1;
    // SAFETY: it is the slice that was made into a pointer there, and the program gives it back.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(whole, len)) });
}
