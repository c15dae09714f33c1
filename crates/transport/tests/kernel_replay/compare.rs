//! Two lists of answers side by side.

use std::fmt;

use crate::conversation::Answer;

/// How an answer of ours differs from the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The kernel answered and we did not.
    Missing,
    /// We answered and the capture shows nothing.
    Additional,
    /// Another opcode.
    Opcode,
    /// Another PSN.
    Psn,
    /// Another message number.
    Msn,
    /// Another class of syndrome: ACK, RNR NAK with its timer, or a NAK code.
    Syndrome,
    /// Other bytes of a READ, or another value found by an atomic.
    Data,
    /// The kernel's answer came before the request that we answer.
    Early,
}

/// A difference, with both answers as far as they exist.
pub(crate) struct Difference<'a> {
    pub(crate) kind: Kind,
    kernel: Option<&'a Answer>,
    ours: Option<&'a Answer>,
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:", self.kind)?;
        for (side, answer) in [("kernel", self.kernel), ("ours", self.ours)] {
            match answer {
                None => write!(f, " {side} nothing;")?,
                Some(Answer { frame, opcode, psn, aeth, data }) => {
                    let (psn, frame) = (psn.get(), frame + 1);
                    write!(
                        f,
                        " {side} {opcode} psn 0x{psn:06x} {aeth:?} {} bytes, frame {frame};",
                        data.len()
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Everything in which two lists differ, laid side by side with as few differences as possible.
pub(crate) fn differences<'a>(kernel: &'a [Answer], ours: &'a [Answer]) -> Vec<Difference<'a>> {
    let costs = costs(kernel, ours);
    let (mut i, mut j) = (0, 0);
    let mut found = Vec::new();
    while i < kernel.len() || j < ours.len() {
        let here = costs[i][j];
        let (theirs, own) = (kernel.get(i), ours.get(j));
        if let (Some(a), Some(b)) = (theirs, own)
            && here == costs[i + 1][j + 1] + unlike(a, b)
        {
            let kinds = kinds(a, b).into_iter();
            found.extend(kinds.map(|kind| Difference { kind, kernel: theirs, ours: own }));
            (i, j) = (i + 1, j + 1);
        } else if own.is_some() && here == costs[i][j + 1] + ALONE {
            found.push(Difference { kind: Kind::Additional, kernel: None, ours: own });
            j += 1;
        } else {
            found.push(Difference { kind: Kind::Missing, kernel: theirs, ours: None });
            i += 1;
        }
    }
    found
}

/// What it costs to leave an answer without a partner.
const ALONE: usize = 4;

/// What it costs to make partners of two answers: with two differences still less than to leave both alone.
fn unlike(kernel: &Answer, ours: &Answer) -> usize {
    3 * kinds(kernel, ours).len()
}

/// The costs of the best way from each pair of positions to the end.
fn costs(kernel: &[Answer], ours: &[Answer]) -> Vec<Vec<usize>> {
    let (rows, columns) = (kernel.len(), ours.len());
    let mut costs = vec![vec![0; columns + 1]; rows + 1];
    for i in (0..=rows).rev() {
        for j in (0..=columns).rev() {
            costs[i][j] = match (kernel.get(i), ours.get(j)) {
                (None, None) => 0,
                (Some(_), None) => costs[i + 1][j] + ALONE,
                (None, Some(_)) => costs[i][j + 1] + ALONE,
                (Some(a), Some(b)) => (costs[i + 1][j + 1] + unlike(a, b))
                    .min(costs[i + 1][j] + ALONE)
                    .min(costs[i][j + 1] + ALONE),
            };
        }
    }
    costs
}

fn kinds(kernel: &Answer, ours: &Answer) -> Vec<Kind> {
    let syndrome = |answer: &Answer| answer.aeth.map(|aeth| aeth.syndrome);
    let msn = |answer: &Answer| answer.aeth.map(|aeth| aeth.msn);
    let differs = [
        (Kind::Opcode, kernel.opcode != ours.opcode),
        (Kind::Psn, kernel.psn != ours.psn),
        (Kind::Msn, msn(kernel) != msn(ours)),
        (Kind::Syndrome, syndrome(kernel) != syndrome(ours)),
        (Kind::Data, kernel.data != ours.data),
        (Kind::Early, kernel.frame <= ours.frame),
    ];
    differs.into_iter().filter_map(|(kind, differs)| differs.then_some(kind)).collect()
}
