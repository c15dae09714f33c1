//! A process of another user that takes names which are not its own, and does what it is told with them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ferroce_sys::clock;
use ferroce_sys::unix::{self, Room};

use super::other::{listen, tell};

/// A user that nothing else runs as.
pub(super) const UID: u32 = 54_321;

/// Becomes another user, and takes names.
pub(super) fn play() {
    // SAFETY: takes and gives plain numbers.
    assert_eq!(unsafe { libc::setuid(UID) }, 0);
    tell("ready");
    let mut held: Vec<OwnedFd> = Vec::new();
    loop {
        let line = listen();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            // All of them; one that is in use is its owner's.
            ["take", ref names @ ..] => {
                held.extend(names.iter().filter_map(|name| unix::listen(name.as_bytes()).ok()));
                tell(&format!("holds {}", held.len()));
            }
            // One, as soon as it is free.
            ["grab", name] => {
                tell("waits");
                held.push(loop {
                    match unix::listen(name.as_bytes()) {
                        Ok(socket) => break socket,
                        Err(_) => clock::pause(std::time::Duration::from_micros(50)),
                    }
                });
                tell("has it");
            }
            // So many that look like spare ones.
            ["crowd", prefix, count] => {
                let count: u64 = count.parse().expect("a number");
                let names = (1..=count).map(|drawn| format!("{prefix}/{drawn:016x}"));
                held.extend(names.map(|name| unix::listen(name.as_bytes()).expect("it is free")));
                tell(&format!("holds {}", held.len()));
            }
            // One where nothing more can connect, so that it cannot be asked whose it is.
            ["clog", name] => {
                let socket = unix::socket(libc::SOCK_SEQPACKET).expect("a socket");
                unix::bind(socket.as_fd(), name.as_bytes()).expect("it is free");
                // SAFETY: takes and gives plain numbers.
                assert_eq!(unsafe { libc::listen(socket.as_raw_fd(), 0) }, 0);
                held.push(socket);
                loop {
                    let waiting = unix::socket(libc::SOCK_SEQPACKET).expect("a socket");
                    if unix::connect(waiting.as_fd(), name.as_bytes()).is_err() {
                        break;
                    }
                    held.push(waiting);
                }
                tell("clogged");
            }
            // One where letters come.
            ["box", name] => {
                let socket = unix::socket(libc::SOCK_DGRAM).expect("a socket");
                unix::bind(socket.as_fd(), name.as_bytes()).expect("it is free");
                held.push(socket);
                tell("has it");
            }
            ["letters?"] => {
                let mut bytes = vec![0; 70_000];
                let letter = |socket: &&OwnedFd| {
                    unix::receive(socket.as_fd(), &mut bytes, Room::None).is_ok_and(|letter| letter.len > 0)
                };
                tell(&held.iter().filter(letter).count().to_string());
            }
            // Talks to others.
            ["write", name] => {
                let socket = unix::socket(libc::SOCK_DGRAM).expect("a socket");
                unix::connect(socket.as_fd(), name.as_bytes()).expect("a socket is there");
                // Most are dropped by the kernel, and a few are let in to be counted.
                for _ in 0..200_000 {
                    drop(unix::send(socket.as_fd(), &[7; 200], &[]));
                }
                tell("written");
            }
            ["connect", name] => {
                let socket = unix::socket(libc::SOCK_SEQPACKET).expect("a socket");
                unix::connect(socket.as_fd(), name.as_bytes()).expect("a socket listens");
                held.push(socket);
                tell("connected");
            }
            ["end"] => return,
            _ => unreachable!("{line}"),
        }
    }
}
