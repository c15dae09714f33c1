//! Our responder in the place of the Linux kernel's: fed with the requests of every captured reliable
//! connection, it gives the kernel's answers, packet by packet.
//!
//! Compared are opcode, PSN, message number, class of syndrome, the bytes of READs and what atomics
//! found. Credits are not, since the kernel counts none. Memory begins with what the kernel's answers
//! show, so bytes are judged only where a request of the capture had written them before. Where we differ
//! is written down here and in docs/interop.md.

mod compare;
mod conversation;
mod memory;
mod replay;

use std::collections::BTreeMap;

use compare::{Kind, differences};
use conversation::{Conversation, conversations};
use ferroce_testkit::captures;
use ferroce_wire::{Rkey, Syndrome};
use replay::replay;

/// Where we differ: capture and responder, how, how often, why. Nothing else may differ.
const DIFFERENCES: &[(&str, Kind, usize, &str)] = &[
    (
        "loss to 10.77.0.2",
        Kind::Additional,
        4,
        "the kernel sent these acknowledgements too: the link loses a fifth of what this host sends, and the \
         capture was taken behind the loss",
    ),
    (
        "send_inv to 10.77.0.2",
        Kind::Syndrome,
        1,
        "the key belongs to a region, not to a window: the kernel acknowledges the SEND and fails its own \
         receive; we refuse it with a NAK, so that the sender hears of it",
    ),
];

/// Captures in which no host has the queue pair that is asked, so that nothing is answered.
const UNANSWERED: &[&str] = &["no_such_qp", "retry7_forever"];

/// Captures with a key that the kernel did not know, and the key.
const UNKNOWN_KEYS: &[(&str, Rkey)] =
    &[("bad_rkey", Rkey(0x00a5_8d3e)), ("bad_rkey_read", Rkey(0x00a5_8feb))];

#[test]
fn we_answer_as_the_kernel_does() {
    let captures = captures::linux_rxe();
    let mut seen: BTreeMap<(String, Kind), usize> = BTreeMap::new();
    let mut totals = Totals::default();
    let mut report = String::new();
    for capture in &captures {
        for conversation in &conversations(capture) {
            if conversation.answers.is_empty() {
                assert!(UNANSWERED.contains(&capture.name.as_str()), "{}: nothing answers", capture.name);
                totals.unanswered += 1;
                continue;
            }
            let unknown = UNKNOWN_KEYS.iter().filter(|(name, _)| *name == capture.name);
            let unknown: Vec<Rkey> = unknown.map(|(_, rkey)| *rkey).collect();
            let (ours, judged) = replay(conversation, &unknown);
            let name = format!("{} to {}", capture.name, conversation.responder);
            for difference in differences(&conversation.answers, &ours) {
                *seen.entry((name.clone(), difference.kind)).or_default() += 1;
                report += &format!("{name}: {difference}\n");
            }
            totals.count(conversation, judged);
        }
    }
    let known = DIFFERENCES.iter().map(|(name, kind, count, _)| (((*name).to_owned(), *kind), *count));
    assert_eq!(seen, known.collect(), "differences seen, and those that are written down:\n{report}");
    totals.check();
}

/// What was compared, so that the test cannot pass by looking at nothing.
#[derive(Debug, Default)]
struct Totals {
    conversations: usize,
    unanswered: usize,
    requests: usize,
    answers: usize,
    refusals: usize,
    judged_bytes: usize,
}

impl Totals {
    fn count(&mut self, conversation: &Conversation<'_>, judged: usize) {
        let refuses = |syndrome| matches!(syndrome, Syndrome::Nak(_) | Syndrome::RnrNak(_));
        let syndromes = conversation.answers.iter().filter_map(|answer| answer.aeth);
        self.conversations += 1;
        self.requests += conversation.requests.len();
        self.answers += conversation.answers.len();
        self.refusals += syndromes.filter(|aeth| refuses(aeth.syndrome)).count();
        self.judged_bytes += judged;
    }

    fn check(&self) {
        assert_eq!(self.unanswered, UNANSWERED.len(), "{self:?}");
        assert!(self.conversations >= 50 && self.requests >= 727, "{self:?}");
        assert!(self.answers >= 309 && self.refusals >= 15 && self.judged_bytes >= 15_116, "{self:?}");
    }
}
