//! What threads meet at: the bell, the lock behind it, and rings of completions.
