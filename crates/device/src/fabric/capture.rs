//! Middleware: every packet into a capture file.
