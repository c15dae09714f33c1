//! Registered memory: a place that others write, not a slice.
