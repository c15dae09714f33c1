//! Sleeping until work completes: a completion channel, and solicited events.
//!
//! The sender marks the last message of a group; the receiver sleeps through the others and is woken
//! once for each group.
//!
//! Run it with `cargo run -p ferroce --example completion_events`.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ferroce::{Access, Context, Notify, QpAddress, Service};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const GROUPS: u64 = 3;
const IN_GROUP: u64 = 5;
const WAIT: Duration = Duration::from_secs(10);

/// Sends groups of messages, and waits until each group is acknowledged.
fn send_groups(sender: &Context, hand_over: impl FnOnce(QpAddress) -> Result<QpAddress>) -> Result<()> {
    let pd = sender.protection_domain()?;
    let cq = sender.completion_queue(64)?;
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
    qp.connect(&hand_over(qp.local_address())?)?;
    for group in 0..GROUPS {
        for number in 0..IN_GROUP {
            let text = format!("{group}.{number}");
            let work = qp.send_inline(text.as_bytes());
            let last = number + 1 == IN_GROUP;
            if last { work.solicited() } else { work }.post()?;
        }
        for _ in 0..IN_GROUP {
            cq.wait(WAIT)?.result()?;
        }
    }
    Ok(())
}

/// Runs both ends in this process.
pub fn main() -> Result<()> {
    let sender = Context::builder("ferroce_lo").address([127, 0, 0, 2]).open()?;
    let context = Context::builder("ferroce_lo").address([127, 0, 0, 3]).open()?;
    let channel = context.completion_channel()?;
    let cq = channel.completion_queue(64)?;
    let pd = context.protection_domain()?;
    let inbox = pd.allocate(64, Access::LOCAL_WRITE)?;
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
    for id in 0..GROUPS * IN_GROUP {
        qp.receive(&inbox).id(id).post()?;
    }
    println!("descriptor {} can be polled beside others", channel.as_fd().as_raw_fd());

    cq.arm(Notify::Solicited);
    let ours = qp.local_address();
    let (tell, told) = mpsc::channel();
    let sending = thread::spawn(move || {
        send_groups(&sender, |address| tell.send(address).map(|()| ours).map_err(Into::into))
    });
    qp.connect(&told.recv()?)?;
    let (mut received, mut wakes) = (0, 0);
    while received < GROUPS * IN_GROUP {
        let ready = channel.wait(WAIT)?;
        wakes += 1;
        // Ask again first, then look: what comes in between is either seen or told.
        ready.arm(Notify::Solicited);
        let before = received;
        while let Some(done) = ready.poll_one() {
            done.result()?;
            received += 1;
        }
        println!("woken for {} messages", received - before);
    }
    sending.join().map_err(|_| "the sender panicked")??;
    println!("{received} messages, {wakes} wakes");
    Ok(())
}
