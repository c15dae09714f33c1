//! The machines of RC, UC and UD between two queue pairs in memory: one program, as what they are made of is compiled into each.

mod common;
mod credits;
mod drain_and_flush;
mod holds;
mod hostile;
mod large;
mod ledger;
mod rate_limit;
mod rc_deregistration;
mod rc_errors;
mod rc_flow;
mod rc_opcodes;
mod rc_probes;
mod rc_question;
mod rc_reads;
mod rc_repeats;
mod rc_responses;
mod rc_retry;
mod rc_rnr;
mod rc_sequence;
mod rc_tail;
mod rc_windows;
mod rc_work;
mod states;
mod uc;
mod ud;
