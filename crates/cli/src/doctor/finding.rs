//! What a check says: how bad it is, what it concerns, what was seen, and what to do.

/// How bad a finding is, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Nothing wrong; worth knowing.
    Note,
    /// It could not be read. Nothing is guessed.
    Unknown,
    /// Works, but not for all or not well.
    Warning,
    /// Something does not work.
    Fault,
}

impl Level {
    pub(super) const ALL: [Self; 5] = [Self::Ok, Self::Note, Self::Unknown, Self::Warning, Self::Fault];

    /// As it stands in the JSON.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }

    /// As people read it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "not known",
            other => other.key(),
        }
    }
}

/// One thing that a check has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The device, port or interface that it is about, if it is about one.
    pub(super) about: Option<String>,
    /// The sentence.
    pub(super) what: String,
    /// The facts that it follows from, each with the place where it was read.
    pub(super) seen: Vec<String>,
    /// What to do, in words.
    pub(super) remedy: Option<String>,
    /// What to do, as commands for a shell.
    pub(super) commands: Vec<String>,
}

impl Finding {
    pub(super) fn new(level: Level, what: impl Into<String>) -> Self {
        Self { level, about: None, what: what.into(), seen: Vec::new(), remedy: None, commands: Vec::new() }
    }

    pub(super) fn ok(what: impl Into<String>) -> Self {
        Self::new(Level::Ok, what)
    }

    pub(super) fn note(what: impl Into<String>) -> Self {
        Self::new(Level::Note, what)
    }

    pub(super) fn unknown(what: impl Into<String>) -> Self {
        Self::new(Level::Unknown, what)
    }

    pub(super) fn warning(what: impl Into<String>) -> Self {
        Self::new(Level::Warning, what)
    }

    pub(super) fn fault(what: impl Into<String>) -> Self {
        Self::new(Level::Fault, what)
    }

    pub(super) fn about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    pub(super) fn seen(mut self, fact: impl Into<String>) -> Self {
        self.seen.push(fact.into());
        self
    }

    pub(super) fn remedy(mut self, words: impl Into<String>) -> Self {
        self.remedy = Some(words.into());
        self
    }

    pub(super) fn command(mut self, line: impl Into<String>) -> Self {
        self.commands.push(line.into());
        self
    }
}
