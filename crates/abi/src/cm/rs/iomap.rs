//! Memory that one side maps and the other side writes, beside the stream.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use ferroce_cabi::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_mr};
use ferroce_device::Uncancelled;
use libc::{iovec, off_t, size_t, ssize_t};

use super::buffer::Parts;
use super::proto::{Mapping, Place};
use super::table;
use super::transfer::{Wish, length};
use crate::object::lock;
use crate::refusal::{Answer, Refused, last_errno, minus_one, set_errno};
use crate::region::{ibv_dereg_mr, ibv_reg_mr};

/// What a socket has mapped, and what of it the peer was not told yet.
#[derive(Default)]
pub(super) struct Maps {
    mapped: Vec<Option<Mapped>>,
    changes: VecDeque<u32>,
}

struct Mapped {
    mapping: Mapping,
    start: usize,
    length: usize,
    region: *mut ibv_mr,
}

impl Maps {
    /// The next entry that the peer is to be told of.
    pub(super) fn next_change(&mut self) -> Option<(u32, Mapping)> {
        let index = self.changes.pop_front()?;
        let mapped = self.mapped.get(index as usize)?;
        Some((index, mapped.as_ref().map_or_else(Mapping::default, |mapped| mapped.mapping)))
    }

    fn add(&mut self, mapped: Mapped, most: u16) -> Answer<()> {
        let free = self.mapped.iter().position(Option::is_none).unwrap_or(self.mapped.len());
        let Some(index) = u32::try_from(free).ok().filter(|index| *index < u32::from(most)) else {
            release(&mapped);
            return Err(Refused::invalid(format_args!("the peer has room for {most} mappings")));
        };
        if free == self.mapped.len() {
            self.mapped.push(None);
        }
        self.mapped[free] = Some(mapped);
        self.changes.push_back(index);
        Ok(())
    }

    fn remove(&mut self, start: usize, length: usize) -> bool {
        let is_it = |mapped: &Mapped| (mapped.start, mapped.length) == (start, length);
        let Some(index) = self.mapped.iter().position(|mapped| mapped.as_ref().is_some_and(is_it)) else {
            return false;
        };
        if let Some(mapped) = self.mapped[index].take() {
            release(&mapped);
        }
        self.changes.push_back(u32::try_from(index).unwrap_or(u32::MAX));
        true
    }

    /// The socket is closed.
    pub(super) fn clear(&mut self) {
        for mapped in self.mapped.drain(..).flatten() {
            release(&mapped);
        }
    }
}

fn release(mapped: &Mapped) {
    // SAFETY: it was registered by `riomap`, and is given up once.
    unsafe { ibv_dereg_mr(mapped.region) };
}

fn map(socket: c_int, start: *mut c_void, length: size_t, prot: c_int, offset: off_t) -> Answer<off_t> {
    let socket = table::find(socket)?;
    if prot & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 {
        return Err(Refused::invalid("memory is mapped with PROT_WRITE or PROT_NONE"));
    }
    let told = u32::try_from(length).map_err(|_| Refused::invalid("4 GiB and more cannot be mapped"))?;
    let mut inner = lock(&socket.inner);
    inner.stream()?;
    let pd = inner.id()?.pd();
    let stream = inner.stream()?;
    let writes = if prot & libc::PROT_WRITE == 0 { 0 } else { IBV_ACCESS_REMOTE_WRITE };
    let access = c_int::try_from(IBV_ACCESS_LOCAL_WRITE | writes).unwrap_or(0);
    // SAFETY: the domain is live, and the program vouches for its memory until it is unmapped.
    let region = unsafe { ibv_reg_mr(pd, start, length, access) };
    if region.is_null() {
        return Err(last_errno("the memory cannot be registered"));
    }
    // SAFETY: it was made just now.
    let rkey = unsafe { (*region).rkey };
    let offset = if offset == -1 { start.addr() as u64 } else { offset.cast_unsigned() };
    let place = Place { address: start.addr() as u64, key: rkey, length: told };
    let mapped = Mapped { mapping: Mapping { offset, place }, start: start.addr(), length, region };
    let most = stream.most_maps();
    stream.maps.add(mapped, most)?;
    Ok(offset.cast_signed())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    start: *mut c_void,
    length: size_t,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let _whole = Uncancelled::new();
    map(socket, start, length, prot, offset).unwrap_or_else(|refused| {
        set_errno(refused.tell("riomap"));
        -1
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn riounmap(socket: c_int, start: *mut c_void, length: size_t) -> c_int {
    let _whole = Uncancelled::new();
    let answer = table::find(socket).and_then(|socket| {
        let mut inner = lock(&socket.inner);
        if inner.stream()?.maps.remove(start.addr(), length) {
            return Ok(());
        }
        Err(Refused::invalid("no such memory is mapped"))
    });
    minus_one("riounmap", answer)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    from: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let _whole = Uncancelled::new();
    let part = [iovec { iov_base: from.cast_mut(), iov_len: count }];
    // SAFETY: the caller passes so many bytes.
    let mut parts = unsafe { Parts::new(&part) };
    let answer = table::find(socket).and_then(|socket| {
        let start = offset.cast_unsigned();
        socket.write_with(Wish { flags }, &mut parts, |stream, parts, done| {
            if stream.can_write_mapped() {
                stream.write_mapped(parts, start + done as u64).map(Some)
            } else {
                Ok(None)
            }
        })
    });
    let written: ssize_t = length("riowrite", answer);
    written.cast_unsigned()
}
