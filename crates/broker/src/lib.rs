//! A mesh of servers: every member talks to every other over reliable connections.
#![forbid(unsafe_code)]
