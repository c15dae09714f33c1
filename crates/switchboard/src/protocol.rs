//! What members and their leader say to each other, and to processes that ask: short messages of one size,
//! and a few longer answers.

/// The version of all this, and of the shared file.
pub(super) const VERSION: u16 = 9;

/// The same, as wide as it stands in forwarded messages.
pub(super) const VERSION_WORD: u32 = VERSION as u32;

/// Bytes of a message.
pub(super) const LEN: usize = 16;

/// What every message begins with.
const MAGIC: [u8; 4] = *b"FRSW";

/// What a newcomer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// All sockets and the shared file.
    Join,
    /// Nothing: to notice when the leader is gone.
    Watch,
    /// To know which process owns which slot.
    Survey,
    /// To know what the queue pairs of a process do; asked of the process itself.
    Stats,
    /// To have a process write down what its devices do; asked of the process itself. More follows in this message.
    Record,
    /// To hand over descriptors, from the owner of a slot to the owner of another. More follows in this message.
    Lane,
}

/// What the leader answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The sockets and the file come with this message.
    Sockets,
    /// Stay connected.
    Watching,
    /// Rows follow in this message.
    Rows,
    /// What is known of a process follows in this message.
    Process,
    /// Queue pairs follow in this message.
    QueuePairs,
    /// Completion queues follow in this message.
    CompletionQueues,
    /// Shared receive queues follow in this message.
    SharedQueues,
    /// Where a process writes down what it does follows in this message.
    Recording,
    /// The descriptors were taken, and those of the other process come with this message.
    Lane,
    /// They were not taken; why follows in this message.
    NoLane,
    /// That was all.
    End,
    /// The leader's version is another one.
    OtherVersion(u16),
    /// The leader has as many connections as it takes.
    Full,
}

/// Why a greeting is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// Not a message of this protocol.
    Garbage,
    /// A message of another version.
    OtherVersion,
}

impl Greeting {
    pub(super) fn emit(self) -> [u8; LEN] {
        let kind = match self {
            Self::Join => 1,
            Self::Watch => 2,
            Self::Survey => 3,
            Self::Stats => 4,
            Self::Record => 5,
            Self::Lane => 6,
        };
        message(VERSION, kind)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let (version, kind) = fields(bytes).ok_or(Violation::Garbage)?;
        if bytes.len() != LEN {
            return Err(Violation::Garbage);
        }
        if version != VERSION {
            return Err(Violation::OtherVersion);
        }
        match kind {
            1 => Ok(Self::Join),
            2 => Ok(Self::Watch),
            3 => Ok(Self::Survey),
            4 => Ok(Self::Stats),
            5 => Ok(Self::Record),
            6 => Ok(Self::Lane),
            _ => Err(Violation::Garbage),
        }
    }
}

impl Answer {
    pub(super) fn emit(self) -> [u8; LEN] {
        match self {
            Self::Sockets => message(VERSION, 0x81),
            Self::Watching => message(VERSION, 0x82),
            Self::Rows => message(VERSION, 0x83),
            Self::Process => message(VERSION, 0x84),
            Self::QueuePairs => message(VERSION, 0x85),
            Self::End => message(VERSION, 0x86),
            Self::CompletionQueues => message(VERSION, 0x87),
            Self::SharedQueues => message(VERSION, 0x88),
            Self::Recording => message(VERSION, 0x89),
            Self::Lane => message(VERSION, 0x8a),
            Self::NoLane => message(VERSION, 0x8b),
            Self::OtherVersion(version) => message(version, 0x91),
            Self::Full => message(VERSION, 0x92),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, kind) = fields(bytes)?;
        match kind {
            0x91 => Some(Self::OtherVersion(version)),
            _ if version != VERSION => Some(Self::OtherVersion(version)),
            0x81 => Some(Self::Sockets),
            0x82 => Some(Self::Watching),
            0x83 => Some(Self::Rows),
            0x84 => Some(Self::Process),
            0x85 => Some(Self::QueuePairs),
            0x86 => Some(Self::End),
            0x87 => Some(Self::CompletionQueues),
            0x88 => Some(Self::SharedQueues),
            0x89 => Some(Self::Recording),
            0x8a => Some(Self::Lane),
            0x8b => Some(Self::NoLane),
            0x92 => Some(Self::Full),
            _ => None,
        }
    }
}

fn message(version: u16, kind: u16) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&version.to_ne_bytes());
    bytes[6..8].copy_from_slice(&kind.to_ne_bytes());
    bytes
}

fn fields(bytes: &[u8]) -> Option<(u16, u16)> {
    let head: &[u8; LEN] = bytes.first_chunk()?;
    let number = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    (head[..4] == MAGIC).then(|| (number(4), number(6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written() {
        let asked = [Greeting::Stats, Greeting::Record, Greeting::Lane];
        for greeting in [Greeting::Join, Greeting::Watch, Greeting::Survey].into_iter().chain(asked) {
            assert_eq!(Greeting::parse(&greeting.emit()), Ok(greeting));
            assert_eq!(Answer::parse(&greeting.emit()), None);
        }
        let queues = [Answer::QueuePairs, Answer::CompletionQueues, Answer::SharedQueues];
        let handed = [Answer::Lane, Answer::NoLane];
        let rest = [Answer::Process, Answer::Recording, Answer::End].into_iter().chain(queues).chain(handed);
        let most = [Answer::Sockets, Answer::Watching, Answer::Rows, Answer::Full, Answer::OtherVersion(9)];
        for answer in most.into_iter().chain(rest) {
            assert_eq!(Answer::parse(&answer.emit()), Some(answer));
        }
    }

    #[test]
    fn anything_else_is_a_violation() {
        let join = Greeting::Join.emit();
        for len in 0..LEN {
            assert_eq!(Greeting::parse(&join[..len]), Err(Violation::Garbage));
        }
        let mut longer = join.to_vec();
        longer.push(0);
        assert_eq!(Greeting::parse(&longer), Err(Violation::Garbage));
        for at in 0..8 {
            let mut other = join;
            other[at] ^= 0x40;
            assert!(Greeting::parse(&other).is_err(), "byte {at}");
        }
        assert_eq!(Greeting::parse(&message(VERSION + 1, 1)), Err(Violation::OtherVersion));
    }
}
