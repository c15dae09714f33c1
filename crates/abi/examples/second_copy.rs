//! A plugin in Rust that brings its own copy of the card, for tests of programs that have the drop-in library, too.
#![allow(unsafe_code, reason = "C programs call it")]
#![allow(missing_docs, reason = "it is called by tests alone")]

use std::error::Error;
use std::time::Duration;

use ferroce_verbs::{Access, CompletionQueue, Context, MemoryRegion, QueuePair, Service, WorkKind};

const SIZE: usize = 64;

/// Two queue pairs that are connected to each other.
pub struct Pair {
    sender: QueuePair,
    receiver: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    rounds: u8,
}

impl Pair {
    fn open() -> Result<Self, Box<dyn Error>> {
        let address: std::net::IpAddr = std::env::var("FERROCE_ADDRESS")?.parse()?;
        let context = Context::builder("ferroce_lo").address(address).open()?;
        let pd = context.protection_domain()?;
        let cq = context.completion_queue(64)?;
        let end = || pd.queue_pair(Service::Rc).completion_queue(&cq).build();
        let (sender, receiver) = (end()?, end()?);
        let memory = pd.allocate(2 * SIZE, Access::LOCAL_WRITE)?;
        sender.connect(&receiver.local_address())?;
        receiver.connect(&sender.local_address())?;
        Ok(Self { sender, receiver, cq, memory, rounds: 0 })
    }

    fn exchange(&mut self) -> Result<(), Box<dyn Error>> {
        self.rounds = self.rounds.wrapping_add(1);
        self.receiver.receive(self.memory.slice(..SIZE)).post()?;
        self.memory.write_at(SIZE, &[self.rounds; SIZE])?;
        self.sender.send(self.memory.slice(SIZE..)).post()?;
        while self.cq.wait(Duration::from_secs(10))?.result()?.kind != WorkKind::Receive {}
        let mut came = [0; SIZE];
        self.memory.read_at(0, &mut came)?;
        if came == [self.rounds; SIZE] { Ok(()) } else { Err("something else came".into()) }
    }
}

/// Opens the card; null if that is refused.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_open() -> *mut Pair {
    match Pair::open() {
        Ok(pair) => Box::into_raw(Box::new(pair)),
        Err(error) => {
            eprintln!("plugin: {error}: {:?}", error.source().map(ToString::to_string));
            std::ptr::null_mut()
        }
    }
}

/// Sends a message to itself; 0 if it arrived.
///
/// # Safety
/// The pointer is what `plugin_open` gave, and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plugin_exchange(pair: *mut Pair) -> i32 {
    // SAFETY: the caller vouches for it, and calls from one thread.
    let pair = unsafe { &mut *pair };
    match pair.exchange() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("plugin: {error}");
            1
        }
    }
}

/// Closes the card.
///
/// # Safety
/// The pointer is what `plugin_open` gave, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plugin_close(pair: *mut Pair) {
    // SAFETY: the caller vouches for it.
    drop(unsafe { Box::from_raw(pair) });
}
