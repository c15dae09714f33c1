//! Stock programs that connect by `rdma_cm`: here on our drop-in library, in the guest on the kernel's device.

use std::net::IpAddr;
use std::process::{Child, Output};
use std::time::Duration;

use crate::Result;
use crate::connections::far_address;
use crate::lab::{Form, Lab};
use crate::pair::Asks;
use crate::stock::{InShort, both, ended, finished, good, said, started};

/// Seconds after which a program hangs.
const PATIENCE: u32 = 120;

/// How often a client calls a server that does not listen yet, with a pause of the guest in between.
const CALLS: u32 = 200;

/// How often each is run in the long form.
const TIMES: u32 = 3;

/// Where the guest keeps the number of a process that goes on until it is ended.
const PID_FILE: &str = "/tmp/server.pid";

/// What programs say when no server listens.
const ABSENT: &[&str] = &["REJECTED, error 8", "REJECTED, error: 8", "refused", "UNREACHABLE, error: 1"];

/// A program of `rdmacm-utils`. `@S` stands for the address of the server, `@O` for the program's own, `@G` for that
/// of a group.
pub(crate) struct Meeting {
    pub(crate) server: &'static str,
    pub(crate) client: &'static str,
    pub(crate) manner: Manner,
    pub(crate) over: Over,
    pub(crate) in_short: InShort,
}

/// How the server goes about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It ends with its clients.
    Ends,
    /// It goes on, and is ended.
    GoesOn,
    /// It takes what is sent to a group, and ends once it has enough. A client cannot know whether it is there.
    Listens,
}

/// What it can run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Both,
    /// Only IPv4: `rdma_xserver` listens on no other address, and the kernel's device joins no other groups (`mckey`).
    V4,
}

/// Both ends of a meeting, as command lines.
struct Lines {
    server: String,
    client: String,
}

impl Meeting {
    /// Runs it on both sides. The side that asks is the client.
    pub(crate) fn run(&self, lab: &Lab, asks: Asks) -> Result<()> {
        for _ in 0..if lab.form == Form::Long { TIMES } else { 1 } {
            let met = match asks {
                Asks::We => self.guest_serves(lab),
                Asks::Kernel => self.we_serve(lab),
            };
            met.map_err(|error| format!("{}: {error}", self.server))?;
        }
        Ok(())
    }

    fn lines(&self, serves: IpAddr, calls: IpAddr) -> Lines {
        let filled = |line: &str, own: IpAddr| {
            let group = if serves.is_ipv4() { "239.7.7.7" } else { "ff1e::7:7" };
            let line =
                line.replace("@S", &serves.to_string()).replace("@O", &own.to_string()).replace("@G", group);
            format!("timeout {PATIENCE} {line}")
        };
        Lines { server: filled(self.server, serves), client: filled(self.client, calls) }
    }

    fn guest_serves(&self, lab: &Lab) -> Result<()> {
        let library = lab.library.as_deref().ok_or("no folder of the drop-in library was given")?;
        let Lines { server, client } = self.lines(far_address(lab.family), lab.family.near());
        let mut far = lab.far()?;
        far.be_patient(Duration::from_secs(u64::from(PATIENCE) + 10))?;
        far.start(&format!("rm -f {PID_FILE}; sh -c '{server} 2>&1 & echo $! > {PID_FILE}; wait $!'"))?;
        let mut pauses = lab.far()?;
        let mut client = || Ok(good("our client", &started(library, &client)?.wait_with_output()?));
        let called = match self.manner {
            Manner::Listens => call_until(&mut client, || {
                Ok(pauses
                    .run(&format!("usleep 100000; kill -0 $(cat {PID_FILE}) 2>&1 || echo gone"))?
                    .contains("gone"))
            }),
            Manner::Ends | Manner::GoesOn => call(&mut client, || pauses.run("usleep 100000").map(drop)),
        }?;
        // A server that no client has met would wait until its time is over.
        if called.is_err() || self.manner == Manner::GoesOn {
            lab.far()?.run(&format!("kill $(cat {PID_FILE}); true"))?;
        }
        let served = finished("the kernel's server", &mut far);
        self.judge(called, served)
    }

    fn we_serve(&self, lab: &Lab) -> Result<()> {
        let library = lab.library.as_deref().ok_or("no folder of the drop-in library was given")?;
        let Lines { server, client } = self.lines(lab.family.near(), far_address(lab.family));
        let mut server = started(library, &server)?;
        let (mut far, mut pauses) = (lab.far()?, lab.far()?);
        far.be_patient(Duration::from_secs(u64::from(PATIENCE) + 10))?;
        let mut client = || {
            far.start(&format!("{client} 2>&1"))?;
            Ok(finished("the kernel's client", &mut far))
        };
        let called = match self.manner {
            Manner::Listens => {
                call_until(&mut client, || is_gone(&mut server, || pauses.run("usleep 100000").map(drop)))
            }
            Manner::Ends | Manner::GoesOn => call(&mut client, || pauses.run("usleep 100000").map(drop)),
        };
        let is_over = matches!(called, Ok(Ok(_))) && self.manner != Manner::GoesOn;
        let served: Output = if is_over { server.wait_with_output()? } else { ended(server)? };
        let called = called.map_err(|error| format!("{error}; our server: {}", said(&served)))?;
        self.judge(called, good("our server", &served))
    }

    /// Both must have ended well, but for a server that was ended.
    fn judge(&self, client: Told, server: Told) -> Result<()> {
        if self.manner == Manner::GoesOn {
            return Ok(client.map(drop)?);
        }
        both(client, server).map(drop)
    }
}

/// What a program said, or how it failed.
type Told = std::result::Result<String, String>;

/// Calls a server again and again that does not listen yet.
fn call(client: &mut dyn FnMut() -> Result<Told>, mut pause: impl FnMut() -> Result<()>) -> Result<Told> {
    let mut told = client()?;
    for _ in 1..CALLS {
        // cmtime ends well even if all its connections were refused.
        let (Ok(text) | Err(text)) = &told;
        if !ABSENT.iter().any(|words| text.contains(words)) {
            break;
        }
        pause()?;
        told = client()?;
    }
    Ok(told)
}

/// Calls again and again, until the server has enough.
fn call_until(
    client: &mut dyn FnMut() -> Result<Told>,
    mut is_enough: impl FnMut() -> Result<bool>,
) -> Result<Told> {
    for _ in 0..CALLS {
        let told = client()?;
        if told.is_err() || is_enough()? {
            return Ok(told);
        }
    }
    Ok(Err("the server got nothing".into()))
}

fn is_gone(server: &mut Child, pause: impl FnOnce() -> Result<()>) -> Result<bool> {
    pause()?;
    Ok(server.try_wait()?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_gets_the_addresses_that_it_needs() {
        let meeting = Meeting {
            server: "mckey -m @G -b @O",
            client: "mckey -s -b @O -x @S",
            manner: Manner::Listens,
            over: Over::V4,
            in_short: InShort::Never,
        };
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let Lines { server, client } = meeting.lines(a, b);
        assert_eq!(server, "timeout 120 mckey -m 239.7.7.7 -b 10.0.0.1");
        assert_eq!(client, "timeout 120 mckey -s -b 10.0.0.2 -x 10.0.0.1");
    }

    #[test]
    fn a_client_calls_again_only_while_no_server_listens() {
        let mut answers = vec![Ok("done".to_owned()), Err("rdma_connect: Connection refused".to_owned())];
        let mut pauses = 0;
        let told = call(&mut || Ok(answers.pop().unwrap()), || {
            pauses += 1;
            Ok(())
        });
        assert_eq!((told.unwrap().unwrap().as_str(), pauses), ("done", 1));
        let mut answers = vec![Ok("done".to_owned()), Ok("REJECTED, error: 8".to_owned())];
        let told = call(&mut || Ok(answers.pop().unwrap()), || Ok(()));
        assert_eq!(told.unwrap().unwrap(), "done", "a program that ends well may have met no server");
        let told = call(&mut || Ok(Err("something else".to_owned())), || Err("no pause".into()));
        assert_eq!(told.unwrap().unwrap_err(), "something else");
    }
}
