//! Middleware: seeded faults.
