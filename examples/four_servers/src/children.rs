//! The processes of the servers: starting, killing, giving orders, and hearing what they say.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferroce::broker::{Members, Secret};
use ferroce::time::{Notice, Time, now, until};

use crate::server::{Order, Settings};

/// A line that a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) server: u32,
    /// Which of its processes: it may have been started more than once.
    pub(crate) life: u32,
    /// None when it will say nothing more.
    pub(crate) line: Option<String>,
    pub(crate) at: Time,
}

type Inbox = Arc<Notice<VecDeque<Heard>>>;

/// All servers. Dropping it ends them.
pub(crate) struct Children {
    members: Members,
    settings: Settings,
    secret: Secret,
    all: Vec<Server>,
    inbox: Inbox,
}

struct Server {
    id: u32,
    life: u32,
    process: Child,
    input: ChildStdin,
    /// It may end now.
    may_end: bool,
}

impl Children {
    /// Starts a server for each member.
    pub(crate) fn start(members: Members, settings: Settings) -> anyhow::Result<Self> {
        let inbox = Arc::new(Notice::new(VecDeque::new()));
        let mut all = Self { members, settings, secret: Secret::generate()?, all: Vec::new(), inbox };
        let ids: Vec<u32> = all.members.iter().map(|member| member.id).collect();
        for id in ids {
            let server = all.spawn(id, 0)?;
            all.all.push(server);
        }
        Ok(all)
    }

    fn spawn(&self, id: u32, life: u32) -> anyhow::Result<Server> {
        let program = std::env::current_exe().context("this program does not know where it is")?;
        let list: Vec<String> = self.members.iter().map(|member| member.address.to_string()).collect();
        let mut command = Command::new(program);
        command.args(["server", "--id", &id.to_string(), "--members", &list.join(",")]);
        command.args(self.settings.to_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot start a server")?;
        let input = process.stdin.take().context("a server has no input")?;
        let output = process.stdout.take().context("a server has no output")?;
        let inbox = Arc::clone(&self.inbox);
        thread::spawn(move || {
            let hear = |line| {
                inbox.change(|heard| heard.push_back(Heard { server: id, life, line, at: now() }));
            };
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                hear(Some(line));
            }
            hear(None);
        });
        let mut server = Server { id, life, process, input, may_end: false };
        server.tell(&self.secret.reveal())?;
        Ok(server)
    }

    /// Waits for what a server says next, until a deadline. A server that ends too soon is an error.
    pub(crate) fn hear(&mut self, deadline: Time, waiting_for: &str) -> anyhow::Result<Heard> {
        loop {
            let heard = self.inbox.wait(Some(until(deadline)), VecDeque::pop_front);
            let heard =
                heard.with_context(|| format!("the time is over; still waiting for {waiting_for}"))?;
            let server = self.server(heard.server)?;
            if heard.life != server.life {
                // What a killed process had still said.
                continue;
            }
            if heard.line.is_none() && !server.may_end {
                let status = server.process.wait()?;
                bail!("server {} ended too soon ({status}), while waiting for {waiting_for}", server.id);
            }
            return Ok(heard);
        }
    }

    pub(crate) fn order(&mut self, server: u32, order: Order) -> anyhow::Result<()> {
        self.server(server)?.tell(&order.name())
    }

    pub(crate) fn order_all(&mut self, order: Order) -> anyhow::Result<()> {
        self.all.iter_mut().try_for_each(|server| server.tell(&order.name()))
    }

    /// Kills a server, as `kill -9` does; when.
    pub(crate) fn kill(&mut self, id: u32) -> anyhow::Result<Time> {
        let server = self.server(id)?;
        server.may_end = true;
        server.process.kill()?;
        let at = now();
        server.process.wait()?;
        Ok(at)
    }

    /// Starts a server that was killed.
    pub(crate) fn start_again(&mut self, id: u32) -> anyhow::Result<()> {
        let life = self.server(id)?.life + 1;
        let again = self.spawn(id, life)?;
        *self.server(id)? = again;
        Ok(())
    }

    /// Waits until all servers have ended, each in order.
    pub(crate) fn end(mut self, limit: Duration) -> anyhow::Result<()> {
        self.all.iter_mut().for_each(|server| server.may_end = true);
        let deadline = now() + limit;
        let (mut said_bye, mut ended) = (Vec::new(), 0);
        while ended < self.all.len() {
            let heard = self.hear(deadline, "the end of all servers")?;
            match heard.line.as_deref() {
                Some("bye") => said_bye.push(heard.server),
                Some(_) => {}
                None => {
                    let status = self.server(heard.server)?.process.wait()?;
                    ensure!(status.success(), "server {} ended with {status}", heard.server);
                    ensure!(said_bye.contains(&heard.server), "server {} did not say goodbye", heard.server);
                    ended += 1;
                }
            }
        }
        Ok(())
    }

    fn server(&mut self, id: u32) -> anyhow::Result<&mut Server> {
        self.all.iter_mut().find(|server| server.id == id).with_context(|| format!("there is no server {id}"))
    }
}

impl Server {
    fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let told = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        told.with_context(|| format!("server {} does not listen", self.id))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended is not hurt by this.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
