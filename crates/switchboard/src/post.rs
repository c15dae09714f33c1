//! Letters between processes: each has a socket with a name that it drew, and tells the name in the shared file.
//!
//! When a process ends, its name is free for any user, and what it told stands in the shared file until another
//! takes its slot. So a letter is sent over a connection, which stays with the socket that it was made to,
//! and only if the process that told the name lived *after* the connection was made: then it had the
//! name all the time. It says that it lives with a record lock, which the kernel ends before the name is free: what keeps
//! the lock has a descriptor of the socket, too.
//!
//! Any user can write to a name that it sees, and a socket keeps few letters. So letters carry a secret that stands in
//! the shared file, and the kernel drops those that do not before they take room. Whether the
//! sender is of this user is looked at all the same.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Mutex;
use std::time::Duration;

use ferroce_sys::fork::{Record, Tracked};
use ferroce_sys::sync::lock;
use ferroce_sys::{clock, descriptor, unix};
use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

use super::SLOTS;
use super::bpf::step;
use super::forward::{HEAD, SECRET};
use super::names;
use super::table::Table;

/// Connections that are kept at a time.
const WAYS: usize = 4;

/// How long a letter waits for room. A socket keeps ten of them as a rule, and a thread that does nothing else takes them out.
const PATIENCE: Duration = Duration::from_millis(20);

/// Letters to a process that have to go without waiting, after one that waited in vain, before another waits.
const AFTER_VAIN: u32 = 256;

/// Processes of which it is known that a letter waited in vain: as many as there can be. Those that are gone do not add up.
const MOST_HURRIED: usize = SLOTS;

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
    /// Letters that do not wait, by the process that they are for: it did not take one out in time.
    hurried: BTreeMap<[u64; 2], u32>,
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
        Ok(Self { token, letters, ways: Mutex::new(Ways { all, next: 0, hurried: BTreeMap::new() }) })
    }

    /// What tells this process from others in the shared file.
    pub(super) const fn token(&self) -> [u64; 2] {
        self.token
    }

    pub(super) fn raw(&self) -> RawFd {
        self.letters.raw()
    }

    /// Lets only letters with this secret in, and a few of the others, so that they are seen and counted. Where the
    /// system refuses it, letters are told apart when they are read.
    pub(super) fn guard(&self, secret: u64) {
        drop(unix::admit(self.as_fd(), &mut filter(secret)));
    }

    /// Sends a letter to the process that told this token. Never waits.
    pub(super) fn send(
        &self,
        table: &Table,
        to: [u64; 2],
        mut head: [u8; HEAD],
        packets: &[u8],
    ) -> io::Result<()> {
        self.send_after(Duration::ZERO, table, to, &mut head, packets)
    }

    /// The same, but waits for room a little: of datagrams to a group, which come in bursts, nothing else would be left than
    /// what a socket keeps. A process that takes nothing out costs this once in many letters.
    pub(super) fn send_patiently(
        &self,
        table: &Table,
        to: [u64; 2],
        mut head: [u8; HEAD],
        packets: &[u8],
    ) -> io::Result<()> {
        self.send_after(PATIENCE, table, to, &mut head, packets)
    }

    fn send_after(
        &self,
        patience: Duration,
        table: &Table,
        to: [u64; 2],
        head: &mut [u8; HEAD],
        packets: &[u8],
    ) -> io::Result<()> {
        head[SECRET..].copy_from_slice(&table.secret().to_ne_bytes());
        let mut ways = lock(&self.ways);
        let may_wait = !ways.hurries(to) && !patience.is_zero();
        let mut until = None;
        loop {
            let place = ways.place(table, to)?;
            let (of, way) = &mut ways.all[place];
            let sent = unix::send_pieces(way.as_fd(), [head, packets]);
            let is_full = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            if !is_full {
                if sent.is_err() {
                    // As a rule the process is gone.
                    *of = None;
                }
                if sent.is_err() || until.is_some() {
                    ways.hurried.remove(&to);
                }
                return sent;
            }
            if !may_wait {
                return sent;
            }
            let now = clock::now();
            let left = until.get_or_insert(now + patience).since(now);
            if left.is_zero() {
                ways.hurry(to);
                return sent;
            }
            let mut room = [libc::pollfd { fd: way.raw(), events: libc::POLLOUT, revents: 0 }];
            // Others send meanwhile. They may take the room, or the way for another process: so all is looked at again.
            drop(ways);
            descriptor::poll(&mut room, Some(left));
            ways = lock(&self.ways);
        }
    }
}

impl Post {
    /// What letters to the process that told this token are written to, if there is such a way at the moment.
    pub(super) fn way_to(&self, token: [u64; 2]) -> Option<RawFd> {
        let ways = lock(&self.ways);
        ways.all.iter().find(|(of, _)| *of == Some(token)).map(|(_, way)| way.raw())
    }
}

impl Ways {
    /// Whether a letter to this process must not wait. It is counted.
    fn hurries(&mut self, to: [u64; 2]) -> bool {
        let Some(left) = self.hurried.get_mut(&to) else { return false };
        *left -= 1;
        if *left == 0 {
            self.hurried.remove(&to);
        }
        true
    }

    /// A letter to this process waited in vain.
    fn hurry(&mut self, to: [u64; 2]) {
        if self.hurried.len() >= MOST_HURRIED {
            self.hurried.pop_first();
        }
        self.hurried.insert(to, AFTER_VAIN);
    }

    /// The one that is connected to the process that told this token.
    fn place(&mut self, table: &Table, to: [u64; 2]) -> io::Result<usize> {
        let found = self.all.iter().position(|(of, _)| *of == Some(to));
        found.map_or_else(|| self.connect(table, to), Ok)
    }

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

/// Takes all of a letter with this secret, and of one in 4096 others a byte.
fn filter(secret: u64) -> [sock_filter; 10] {
    let [a, b, c, d, e, f, g, h] = secret.to_ne_bytes();
    let load = |at| step([BPF_LD, BPF_W, BPF_ABS], 0, 0, at);
    let is = |word, otherwise| step([BPF_JMP, BPF_JEQ, BPF_K], 0, otherwise, word);
    let take = |bytes| step([BPF_RET, BPF_K], 0, 0, bytes);
    [
        // What is too short for this is dropped.
        load(SECRET_WORDS[0]),
        is(u32::from_be_bytes([a, b, c, d]), 3),
        load(SECRET_WORDS[1]),
        is(u32::from_be_bytes([e, f, g, h]), 1),
        take(u32::MAX),
        load((libc::SKF_AD_OFF + libc::SKF_AD_RANDOM).cast_unsigned()),
        step([BPF_ALU, BPF_AND, BPF_K], 0, 0, 0xfff),
        is(0, 1),
        take(1),
        take(0),
    ]
}

/// Where the halves of the secret stand, as wide as it stands in a filter.
#[expect(clippy::cast_possible_truncation, reason = "a head is short")]
const SECRET_WORDS: [u32; 2] = [SECRET as u32, SECRET as u32 + 4];

impl AsFd for Post {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.letters.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_sys::unix::Room;

    const SECRET_OF_TEST: u64 = 0x0123_4567_89ab_cdef;

    fn letter(secret: u64) -> Vec<u8> {
        let mut letter = vec![7; HEAD + 100];
        letter[SECRET..HEAD].copy_from_slice(&secret.to_ne_bytes());
        letter
    }

    /// A few letters fill a socket, and any user may send them.
    #[test]
    fn letters_without_the_secret_take_no_room() {
        let record = Record::acquire().expect("a descriptor");
        let token = [u64::from(std::process::id()), 0x7465_7374];
        let post = Post::open(record, token).expect("a name");
        post.guard(SECRET_OF_TEST);
        let stranger = unix::socket(libc::SOCK_DGRAM).expect("a socket");
        unix::connect(stranger.as_fd(), &names::of_letters(token)).expect("a socket is there");
        let others =
            [letter(SECRET_OF_TEST ^ 1), letter(SECRET_OF_TEST ^ 1 << 63), vec![0; HEAD], vec![1; 3]];
        for count in 0..2000 {
            let sent = unix::send(stranger.as_fd(), &others[count % others.len()], &[]);
            assert!(sent.is_ok(), "{count}: {sent:?}");
        }
        let ours = letter(SECRET_OF_TEST);
        unix::send(stranger.as_fd(), &ours, &[]).expect("there is room");
        let mut bytes = vec![0; 1000];
        let mut receive = || {
            let message = unix::receive(post.as_fd(), &mut bytes, Room::Sender).expect("a letter");
            (message.len, bytes[..message.len] == ours)
        };
        // One of very many others may come before it, and is a byte of it.
        while let (len, false) = receive() {
            assert_eq!(len, 1);
        }
        drop(post);
        record.release(&ferroce_sys::fork::hold());
    }

    /// Any process can take a name; only one that has the shared file can lock the byte that belongs to it.
    #[test]
    fn no_letter_goes_to_a_name_whose_byte_no_process_has_locked() {
        let record = Record::acquire().expect("a descriptor");
        let [own, theirs] = [1, 2].map(|half| [u64::from(std::process::id()), 0x706f_7374 + half]);
        let post = Post::open(record, own).expect("a name");
        let table = Table::create("post").expect("a file");
        let squatter = unix::socket(libc::SOCK_DGRAM).expect("a socket");
        unix::bind(squatter.as_fd(), &names::of_letters(theirs)).expect("a name");
        for _ in 0..2 * WAYS {
            let error = post.send(&table, theirs, [0; HEAD], b"packets").expect_err("it is no member");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        let nothing = unix::receive(squatter.as_fd(), &mut [0; 8], Room::None);
        assert_eq!(nothing.map(|message| message.len).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(post);
        record.release(&ferroce_sys::fork::hold());
    }

    /// It was: a letter waited with the ways locked, so that none went to any process; and one process that took nothing out
    /// left no letter the time to wait.
    #[test]
    fn a_letter_that_waits_for_one_process_stops_none_to_another() {
        let record = Record::acquire().expect("a descriptor");
        let tokens = [1, 2, 3].map(|half| [u64::from(std::process::id()), 0x7761_6974 + half]);
        let [own, slow, quick] = tokens.map(|token| Post::open(record, token).expect("a name"));
        let mut table = Table::create("waits").expect("a file");
        table.keep_locks(None).expect("a keeper");
        for token in tokens {
            assert!(table.lock_letters(token).expect("a lock"));
        }
        let fill = || while own.send(&table, slow.token(), [0; HEAD], b"packets").is_ok() {};
        let take =
            |post: &Post| unix::receive(post.as_fd(), &mut [0; 1000], Room::None).map(|found| found.len);
        fill();
        std::thread::scope(|scope| {
            let send = || {
                own.send_after(Duration::from_secs(600), &table, slow.token(), &mut [0; HEAD], b"waited for")
            };
            let waits = scope.spawn(send);
            for _ in 0..1000 {
                // In one of these rounds the other thread waits.
                std::thread::yield_now();
                own.send(&table, quick.token(), [0; HEAD], b"packets").expect("it goes at once");
                take(&quick).expect("a letter");
            }
            take(&slow).expect("a letter");
            waits.join().expect("no panic").expect("there is room");
        });
        fill();
        let in_vain = own.send_patiently(&table, slow.token(), [0; HEAD], b"packets");
        assert_eq!(in_vain.expect_err("it is full").kind(), io::ErrorKind::WouldBlock);
        let mut ways = lock(&own.ways);
        assert!(ways.hurries(slow.token()) && !ways.hurries(quick.token()));
        drop(ways);
        drop((own, slow, quick));
        record.release(&ferroce_sys::fork::hold());
    }
}
