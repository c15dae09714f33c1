//! Letters between processes: each has a socket with a name that it drew, and tells the name in the shared file.
//!
//! When a process ends, its name is free for any user, and what it told stands in the shared file until another
//! takes its slot. So a letter is sent over a connection, which stays with the socket that it was made to,
//! and only if the process that told the name lived *after* the connection was made: then it had the
//! name all the time. It says that it lives with a record lock, which the kernel ends before the name is free.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Mutex;

use super::fork::{Record, Tracked};
use super::names;
use super::table::Table;
use super::unix;
use crate::nic::lock;

/// Connections that are kept at a time.
const WAYS: usize = 4;

/// Where a process gets letters, and how it sends them.
#[derive(Debug)]
pub(super) struct Post {
    token: [u64; 2],
    /// Where letters come.
    letters: Tracked,
    ways: Mutex<Ways>,
}

/// Sockets that letters are sent from. They are opened in the beginning: a thread that sends later may be in another
/// network namespace by then.
#[derive(Debug)]
struct Ways {
    all: Vec<(Option<[u64; 2]>, Tracked)>,
    /// The one that is connected anew next.
    next: usize,
}

impl Post {
    /// Takes the name that a token makes.
    pub(super) fn open(record: &'static Record, token: [u64; 2]) -> io::Result<Self> {
        let letters = Tracked::open(record, || {
            let letters = unix::socket(libc::SOCK_DGRAM)?;
            unix::tell_senders(letters.as_fd())?;
            unix::bind(letters.as_fd(), &names::of_letters(token))?;
            Ok(letters)
        })?;
        let way = || Ok((None, Tracked::open(record, || unix::socket(libc::SOCK_DGRAM))?));
        let all = (0..WAYS).map(|_| way()).collect::<io::Result<_>>()?;
        Ok(Self { token, letters, ways: Mutex::new(Ways { all, next: 0 }) })
    }

    /// What tells this process from others in the shared file.
    pub(super) const fn token(&self) -> [u64; 2] {
        self.token
    }

    pub(super) fn raw(&self) -> RawFd {
        self.letters.raw()
    }

    /// Sends a letter to the process that told this token. Never waits.
    pub(super) fn send(&self, table: &Table, to: [u64; 2], pieces: [&[u8]; 2]) -> io::Result<()> {
        let mut ways = lock(&self.ways);
        let place = match ways.all.iter().position(|(of, _)| *of == Some(to)) {
            Some(place) => place,
            None => ways.connect(table, to)?,
        };
        let (of, way) = &mut ways.all[place];
        let sent = unix::send_pieces(way.as_fd(), pieces);
        if let Err(error) = &sent
            && error.kind() != io::ErrorKind::WouldBlock
        {
            // As a rule the process is gone.
            *of = None;
        }
        sent
    }
}

impl Ways {
    /// Connects one of them to the process that told this token; which.
    fn connect(&mut self, table: &Table, to: [u64; 2]) -> io::Result<usize> {
        let place = self.next;
        self.next = (place + 1) % self.all.len().max(1);
        let (of, way) = &mut self.all[place];
        *of = None;
        unix::connect(way.as_fd(), &names::of_letters(to))?;
        // In this order: the process had the name when the connection was made if it has it now.
        if !table.has_letters(to) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        *of = Some(to);
        Ok(place)
    }
}

impl AsFd for Post {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.letters.as_fd()
    }
}
