//! What one side counts of a conversation: the other side must count the same.

use anyhow::Context as _;
use serde_json::{Value, json};

/// Of one client, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Messages from the client to the server, and their bytes.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages that answered one.
    pub(crate) answers: u64,
    /// Writes into the client's memory.
    pub(crate) writes: u64,
    /// Reads of the client's memory.
    pub(crate) reads: u64,
    /// Bytes of answers, writes and reads.
    pub(crate) back: u64,
}

impl Counts {
    const NAMES: [&str; 6] = ["messages", "bytes", "answers", "writes", "reads", "back"];

    const fn values(&self) -> [u64; 6] {
        [self.messages, self.bytes, self.answers, self.writes, self.reads, self.back]
    }

    pub(crate) fn to_json(self) -> Value {
        Self::NAMES
            .into_iter()
            .zip(self.values())
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect()
    }

    pub(crate) fn from_json(json: &Value) -> anyhow::Result<Self> {
        let number = |name: &str| json[name].as_u64().with_context(|| format!("no {name} in {json}"));
        Ok(Self {
            messages: number("messages")?,
            bytes: number("bytes")?,
            answers: number("answers")?,
            writes: number("writes")?,
            reads: number("reads")?,
            back: number("back")?,
        })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.answers += other.answers;
        self.writes += other.writes;
        self.reads += other.reads;
        self.back += other.back;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_back_as_they_were_told() {
        let counts = Counts { messages: 1, bytes: 2, answers: 3, writes: 4, reads: 5, back: 6 };
        assert_eq!(Counts::from_json(&counts.to_json()).unwrap(), counts);
        let mut twice = counts;
        twice.add(&counts);
        assert_eq!(twice, Counts { messages: 2, bytes: 4, answers: 6, writes: 8, reads: 10, back: 12 });
        assert!(Counts::from_json(&json!({"messages": 1})).is_err());
    }
}
