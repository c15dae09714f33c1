//! rsockets: streams and datagrams with the calls of sockets, streams over connections of rdma_cm.
//!
//! A program writes into a buffer of ours, from which the device writes into a buffer of the peer's; the words that
//! go with the writes, and the credits that come back, are those of rsockets everywhere ([`proto`]). A
//! [`Socket`](socket::Socket) is found by its descriptor in the [`table`]. What happens to connections is heard by one
//! thread of the process ([`service`]), which also accepts; all else is done by the threads that call, under the lock
//! of the socket, and a thread that waits polls descriptors ([`wait`]). Datagrams go over queue pairs of their own
//! ([`datagram`]).

mod buffer;
mod close;
mod connect;
mod datagram;
mod iomap;
mod options;
mod poll;
mod proto;
mod service;
mod socket;
mod stream;
mod table;
mod transfer;
mod wait;
