//! `librdmacm.so.1` over the connection manager of the device.
//!
//! An [`Id`](id::Id) is one end of a connection, or a listener; a [`Channel`](channel::Channel) tells what happens to
//! ids. The device's thread only puts into the channel what happened ([`watch`], [`ports`]); what that means for the
//! id and its queue pair is done when the program fetches it, in the program's thread ([`event`]).
//!
//! Locks, outer to inner: the state of an id, the ports, the home of an id, the queue of a channel, what lives
//! ([`handles`]), the device's own. The thread of the device takes none that a call of the program holds while it
//! waits.

mod address;
mod addrinfo;
mod attr;
mod channel;
mod connect;
mod devices;
mod ep;
mod event;
mod handles;
mod id;
mod multicast;
mod option;
mod ports;
mod qp;
mod questions;
mod resolve;
mod route;
mod rs;
mod sync;
mod watch;
