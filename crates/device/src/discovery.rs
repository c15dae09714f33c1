//! Which interfaces of this machine can be devices.
