//! RoCEv2 over UDP sockets.
