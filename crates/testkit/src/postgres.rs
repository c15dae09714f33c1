//! A PostgreSQL server of a test's own, which can be killed and started again.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// The port that it listens on, at an address of the test's own.
const PORT: u16 = 5432;

/// What it says when it can be used.
const READY: &str = "database system is ready to accept connections";

/// How often it is started again while what is left of a killed one is still there.
const TRIES: u32 = 500;

/// A server with an empty database, which goes with all its files when this is dropped.
#[derive(Debug)]
pub struct Postgres {
    home: PathBuf,
    programs: PathBuf,
    address: IpAddr,
    owner: Option<(u32, u32)>,
    server: Option<Child>,
}

impl Postgres {
    /// Makes a database and starts a server at this address; none, with a notice, if PostgreSQL is not installed.
    ///
    /// # Errors
    /// It cannot be started.
    ///
    /// # Panics
    /// As [`is_here`](crate::judge::is_here), if it is not installed.
    pub fn start(address: IpAddr) -> io::Result<Option<Self>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(programs) = programs() else {
            let _ = crate::judge::has_file("/usr/lib/postgresql/15/bin/postgres");
            return Ok(None);
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = env::temp_dir().join(format!("ferroce-postgres-{}-{number}", process::id()));
        fs::create_dir(&home)?;
        // It refuses to run as root.
        let owner =
            rustix::process::geteuid().is_root().then(|| user("postgres").unwrap_or((65_534, 65_534)));
        let mut postgres = Self { home, programs, address, owner, server: None };
        if let Some((user, group)) = owner {
            chown(&postgres.home, Some(user), Some(group))?;
        }
        let mut make = postgres.command("initdb");
        make.args(["--no-sync", "--auth=trust", "--username=ferroce", "--encoding=UTF8", "--locale=C"]);
        let made = make.arg("-D").arg(postgres.data()).stdout(Stdio::null()).status()?;
        if !made.success() {
            return Err(io::Error::other(format!("initdb: {made}")));
        }
        postgres.start_again()?;
        Ok(Some(postgres))
    }

    /// Where it is, for programs.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://ferroce@{}:{PORT}/postgres", self.address)
    }

    /// Runs statements in the database.
    ///
    /// # Errors
    /// `psql` cannot be run, or does not like them.
    pub fn run(&self, statements: &str) -> io::Result<()> {
        let mut psql = self.command("psql");
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            "--dbname",
            &self.url(),
            "--command",
            statements,
        ]);
        let done = psql.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        if done.success() { Ok(()) } else { Err(io::Error::other(format!("psql: {done}"))) }
    }

    /// Kills the server, which has no time to say goodbye.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may have ended before.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Starts a server that was killed, and waits until it can be used.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_again(&mut self) -> io::Result<()> {
        let mut said = String::new();
        for _ in 0..TRIES {
            said.clear();
            let mut serve = self.command("postgres");
            serve.arg("-D").arg(self.data());
            for setting in [
                format!("listen_addresses={}", self.address),
                format!("port={PORT}"),
                "unix_socket_directories=".into(),
            ] {
                serve.args(["-c", &setting]);
            }
            let mut server = serve.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
            let Some(errors) = server.stderr.take() else { unreachable!("the pipe was asked for") };
            let mut errors = BufReader::new(errors);
            while errors.read_line(&mut said)? > 0 {
                if said.contains(READY) {
                    self.server = Some(server);
                    // It says more, which is not read: but there is to be a reader.
                    thread::spawn(move || errors.lines().map_while(Result::ok).for_each(drop));
                    return Ok(());
                }
            }
            server.wait()?;
        }
        Err(io::Error::other(format!("PostgreSQL does not start: {said}")))
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(&self.home).env("LC_ALL", "C");
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        // Processes of a killed server write no more, but may make a file still.
        for _ in 0..10 {
            if fs::remove_dir_all(&self.home).is_ok() {
                return;
            }
        }
    }
}

/// The directory of the newest server that is installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let all = versions.filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let programs = version.path().join("bin");
        programs.join("postgres").exists().then_some((number, programs))
    });
    all.max().map(|(_, programs)| programs)
}

/// The numbers of a user and of its group.
fn user(name: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string(Path::new("/etc/passwd")).ok()?;
    users.lines().find_map(|line| {
        let mut parts = line.split(':');
        let is_it = parts.next()? == name;
        let (user, group) = (parts.nth(1)?.parse().ok()?, parts.next()?.parse().ok()?);
        is_it.then_some((user, group))
    })
}
