//! A card that does nothing, written in C: what the API puts on top of the machine's own library, and beside it the same by a C
//! program.
#![allow(unsafe_code, reason = "it calls functions of C that are none of verbs, and says where they are")]

use std::env;
use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::path::Path;
use std::process::Command;

use ferroce_verbs::{Access, Completion, CompletionQueue, Context, MemoryRegion, QueuePair, Service};

use super::{LIST, Outcome, POLLS, WARM_UP, measured};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Bytes of a message.
const LEN: usize = 8;

/// One end of the card.
struct Card {
    qp: QueuePair,
    done: CompletionQueue,
    region: MemoryRegion,
}

impl Card {
    fn new() -> Outcome<Self> {
        let context = Context::open("card0")?;
        let pd = context.protection_domain()?;
        let done = context.completion_queue(256)?;
        let qp = pd.queue_pair(Service::Rc).completion_queue(&done).signal_all(false).build()?;
        let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Self { qp, done, region })
    }

    fn take(&self) -> Outcome<()> {
        let mut found = [Completion::EMPTY];
        if self.done.poll(&mut found) == 0 {
            return Err("nothing completes".into());
        }
        found[0].result()?;
        Ok(())
    }
}

/// Makes the card that of this process. It must be the first thing that the program does.
pub(super) fn prepare() -> Outcome<()> {
    let library = library()?;
    for name in ["FERROCE_LIBIBVERBS", "FERROCE_LIBRDMACM"] {
        // SAFETY: this program has no other thread yet.
        unsafe { env::set_var(name, &library) };
    }
    // SAFETY: as above. A queue pair has an address.
    unsafe { env::set_var("CARD_GIDS", "1") };
    Ok(())
}

/// The library in which the card is.
fn library() -> Outcome<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../system/tests/c/card");
    let library = folder.join(format!("card-instructions-{}.so", std::process::id()));
    let status = Command::new("cc")
        .args(["-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source.with_extension("c"))
        .arg(format!("-Wl,--version-script={}", source.with_extension("map").display()))
        .status()?;
    if !status.success() {
        return Err("the card cannot be compiled".into());
    }
    Ok(library.to_str().ok_or("a path that is no text")?.to_owned())
}

/// Does a round as often as it is to be counted, and some times before.
fn repeated(rounds: u32, mut round: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    (0..WARM_UP).try_for_each(|_| round())?;
    (0..rounds).try_for_each(|_| measured(&mut round))
}

pub(super) fn write(rounds: u32) -> Outcome<()> {
    let card = Card::new()?;
    let remote = card.region.remote().slice(2048..);
    repeated(rounds, || {
        card.qp.write(card.region.slice(..LEN), remote).id(1).signaled().post()?;
        card.take()
    })
}

pub(super) fn write_inline(rounds: u32) -> Outcome<()> {
    let card = Card::new()?;
    let remote = card.region.remote().slice(2048..);
    repeated(rounds, || {
        card.qp.write_inline(b"inline b", remote).id(1).signaled().post()?;
        card.take()
    })
}

pub(super) fn write_list(rounds: u32) -> Outcome<()> {
    let card = Card::new()?;
    let remote = card.region.remote().slice(2048..);
    repeated(rounds, || {
        let mut batch = card.qp.batch();
        batch.reserve(LIST as usize);
        for number in 1..=LIST {
            let work = card.qp.write(card.region.slice(..LEN), remote).id(number.into());
            batch.add(if number == LIST { work.signaled() } else { work });
        }
        batch.post()?;
        card.take()
    })
}

pub(super) fn poll(rounds: u32) -> Outcome<()> {
    let card = Card::new()?;
    repeated(rounds, || {
        let mut found = [Completion::EMPTY];
        for _ in 0..POLLS {
            if card.done.poll(&mut found) > 0 {
                return Err("something is there that nothing has asked for".into());
            }
        }
        Ok(())
    })
}

pub(super) fn c_write(rounds: u32) -> Outcome<()> {
    c(rounds, 1, 1)
}

pub(super) fn c_write_list(rounds: u32) -> Outcome<()> {
    c(rounds, LIST, 1)
}

pub(super) fn c_poll(rounds: u32) -> Outcome<()> {
    c(rounds, 0, POLLS)
}

/// The same by the C program that is in the library.
fn c(rounds: u32, count: u32, times: u32) -> Outcome<()> {
    let _card = Card::new()?;
    let name = CString::new(env::var("FERROCE_LIBIBVERBS")?)?;
    // SAFETY: the library is loaded already, and nothing closes it.
    let handle = unsafe { dlopen(name.as_ptr(), 1) };
    // SAFETY: it is loaded, and the name ends with a zero byte.
    let at = unsafe { dlsym(handle, c"card_round".as_ptr()) };
    if at.is_null() {
        return Err("the card has no such function".into());
    }
    // SAFETY: the function has this type.
    let run = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_long) -> c_int>(at) };
    repeated(rounds, || {
        let good = (0..times).all(|_| run(count.into()) == 1);
        if good { Ok(()) } else { Err("the C program failed".into()) }
    })
}
