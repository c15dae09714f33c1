//! What the two ends tell each other: a line of text each way before a measurement, and one after it.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use ferroce::{QpAddress, RemoteRegion, Rkey};

use super::task::{Measure, Target, Task, Verb, Way};

/// What every line begins with. The number goes up when a line means something else.
const MAGIC: &str = "ferroce-perf/1";
/// Bytes of the longest line that is read.
const LONGEST: u64 = 96 << 10;
/// How long the other end may take to say what it has to say.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The initiator wants this done, and this is its end.
    Run(Task, Card),
    /// The target is connected and ready.
    Ready(Card),
    /// The measurement is over, after so many messages.
    Done(u64),
    /// It did not work.
    Error(String),
}

/// What one end must know of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) region: RemoteRegion,
    pub(crate) qps: Vec<QpAddress>,
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteRegion { address, length, rkey } = self.region;
        write!(f, "region=0x{address:x}:{length}:0x{:08x}", rkey.0)?;
        self.qps.iter().try_for_each(|qp| write!(f, " qp={qp}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(task, card) => {
                let Task { verb, measure, size, qps, depth, target, verify, way } = task;
                let (verb, measure, target, way) = (verb.name(), measure.name(), target.name(), way.name());
                let verify = u8::from(*verify);
                write!(f, "{MAGIC} run verb={verb} measure={measure} size={size} qps={qps} depth={depth} ")?;
                write!(f, "target={target} verify={verify} way={way} {card}")
            }
            Self::Ready(card) => write!(f, "{MAGIC} ready {card}"),
            Self::Done(messages) => write!(f, "{MAGIC} done messages={messages}"),
            Self::Error(text) => write!(f, "{MAGIC} error {}", text.replace(['\n', '\r'], " ")),
        }
    }
}

impl Line {
    /// Reads a line, or says what is wrong with it.
    pub(crate) fn parse(line: &str) -> anyhow::Result<Self> {
        let Some(rest) = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' ')) else {
            let seen: String = line.chars().take(40).collect();
            bail!(
                "the other end says {seen:?} instead of {MAGIC:?}; is it another program, or another version?"
            );
        };
        let (kind, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match kind {
            "run" => {
                let words = Words::parse(rest)?;
                let task = words.task()?;
                task.check()?;
                let card = words.card()?;
                ensure!(
                    card.qps.len() == task.qps,
                    "the line names {} queue pairs, and says {}",
                    card.qps.len(),
                    task.qps
                );
                Ok(Self::Run(task, card))
            }
            "ready" => Ok(Self::Ready(Words::parse(rest)?.card()?)),
            "done" => Ok(Self::Done(Words::parse(rest)?.number("messages")?)),
            "error" => Ok(Self::Error(rest.to_owned())),
            _ => bail!("the other end says {kind:?}, which means nothing here"),
        }
    }
}

/// The words of a line, each KEY=VALUE.
struct Words<'a>(Vec<(&'a str, &'a str)>);

const KEYS: [&str; 11] =
    ["verb", "measure", "size", "qps", "depth", "target", "verify", "way", "region", "qp", "messages"];

impl<'a> Words<'a> {
    fn parse(text: &'a str) -> anyhow::Result<Self> {
        let mut words: Vec<(&str, &str)> = Vec::new();
        for word in text.split_whitespace() {
            let (key, value) =
                word.split_once('=').ok_or_else(|| anyhow!("{word:?} in the line is not KEY=VALUE"))?;
            ensure!(KEYS.contains(&key), "the line has {key:?}, which means nothing here");
            ensure!(
                key == "qp" || words.iter().all(|(known, _)| *known != key),
                "the line says {key:?} twice"
            );
            words.push((key, value));
        }
        Ok(Self(words))
    }

    fn get(&self, key: &str) -> anyhow::Result<&'a str> {
        let found = self.0.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| *value).ok_or_else(|| anyhow!("the line does not say {key:?}"))
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> anyhow::Result<T> {
        let text = self.get(key)?;
        text.parse().map_err(|_| anyhow!("{key}={text:?} in the line is not a number that can be"))
    }

    fn named<T>(&self, key: &str, from: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let text = self.get(key)?;
        from(text).ok_or_else(|| anyhow!("{key}={text:?} in the line means nothing here"))
    }

    fn task(&self) -> anyhow::Result<Task> {
        Ok(Task {
            verb: self.named("verb", Verb::from_name)?,
            measure: self.named("measure", Measure::from_name)?,
            size: self.number("size")?,
            qps: self.number("qps")?,
            depth: self.number("depth")?,
            target: self.named("target", Target::from_name)?,
            verify: self.named("verify", |text| match text {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            })?,
            way: self.named("way", Way::from_name)?,
        })
    }

    fn card(&self) -> anyhow::Result<Card> {
        let region = self.named("region", |text| {
            let mut parts = text.split(':');
            let address = hexadecimal(parts.next()?)?;
            let length = parts.next()?.parse().ok()?;
            let rkey = Rkey(u32::try_from(hexadecimal(parts.next()?)?).ok()?);
            parts.next().is_none().then_some(RemoteRegion { address, length, rkey })
        })?;
        let qps = self.0.iter().filter(|(key, _)| *key == "qp").map(|(_, value)| value.parse());
        let qps: Result<Vec<QpAddress>, _> = qps.collect();
        let qps = qps.context("a queue pair in the line cannot be read")?;
        ensure!(!qps.is_empty(), "the line names no queue pair");
        ensure!(qps.len() <= Task::MAX_QPS, "the line names {} queue pairs", qps.len());
        Ok(Card { region, qps })
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The way on which lines go.
#[derive(Debug)]
pub(crate) struct Talk {
    reader: BufReader<TcpStream>,
}

impl Talk {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    pub(crate) fn say(&self, line: &Line) -> anyhow::Result<()> {
        Self::tell(self.stream(), line)
    }

    /// Says a line while another thread is hearing.
    pub(crate) fn tell(mut stream: &TcpStream, line: &Line) -> anyhow::Result<()> {
        let text = format!("{line}\n");
        stream.write_all(text.as_bytes()).context("cannot talk to the other end")
    }

    /// The next line, or nothing if the other end has hung up. Without `patience` it waits for ever.
    pub(crate) fn hear(&mut self, patience: Option<Duration>) -> anyhow::Result<Option<Line>> {
        self.stream().set_read_timeout(patience)?;
        let mut text = Vec::new();
        let read = self.reader.by_ref().take(LONGEST).read_until(b'\n', &mut text);
        match read {
            Ok(0) => return Ok(None),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                bail!("the other end said nothing for {} s; is it a ferroce perf?", PATIENCE.as_secs())
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            read => read.context("cannot hear the other end")?,
        };
        ensure!(
            text.pop() == Some(b'\n'),
            "the other end broke off in the middle of a line, or said too much"
        );
        let text =
            String::from_utf8(text).map_err(|_| anyhow!("the other end said something that is no text"))?;
        Line::parse(text.trim_end_matches('\r')).map(Some)
    }

    /// The next line, which must be there.
    pub(crate) fn expect(&mut self) -> anyhow::Result<Line> {
        match self.hear(Some(PATIENCE))? {
            Some(Line::Error(text)) => bail!("the other end: {text}"),
            Some(line) => Ok(line),
            None => bail!("the other end hung up; look at what it printed"),
        }
    }

    /// Wakes the thread that is hearing.
    pub(crate) fn hang_up(stream: &TcpStream) {
        // The other end may have done so already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            verb: Verb::Send,
            measure: Measure::Rate,
            size: 64,
            qps: 2,
            depth: 128,
            target: Target::Poll,
            verify: true,
            way: Way::Wire,
        }
    }

    fn card(qps: usize) -> Card {
        let qp = "0x0112ab/0x3c51d2/1024@192.0.2.1".parse().unwrap();
        let region = RemoteRegion { address: 0x7f00_0000_1000, length: 4096, rkey: Rkey(0x0123_4567) };
        Card { region, qps: vec![qp; qps] }
    }

    #[test]
    fn what_is_said_is_heard() {
        let error = Line::Error("no such thing".into());
        for line in [Line::Run(task(), card(2)), Line::Ready(card(1)), Line::Done(7), error] {
            assert_eq!(Line::parse(&line.to_string()).unwrap(), line);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = Line::Run(task(), card(2)).to_string();
        for (from, to, complaint) in [
            ("ferroce-perf/1", "ferroce-perf/2", "another version"),
            ("ferroce-perf/1 run", "GET / HTTP/1.1", "another program"),
            (" run ", " sing ", "\"sing\""),
            ("verb=send", "verb=sing", "verb=\"sing\""),
            ("verb=send", "verb=atomic", "an atomic has 8 bytes"),
            ("verb=send ", "", "\"verb\""),
            ("size=64", "size=64 size=65", "\"size\" twice"),
            ("size=64", "size=0", "1 byte to 1 GiB"),
            ("size=64", "size=-1", "not a number"),
            ("size=64", "size=1073741824", "too much memory"),
            ("qps=2", "qps=3", "names 2 queue pairs"),
            ("depth=128", "depth=0", "a depth of"),
            ("depth=128", "depth", "KEY=VALUE"),
            ("verify=1", "verify=2", "verify=\"2\""),
            ("region=0x7f0000001000:", "region=", "region="),
            ("qp=0x0112ab", "qp=x", "QPN"),
            ("way=wire", "colour=red", "\"colour\""),
        ] {
            let error = Line::parse(&good.replacen(from, to, 1)).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(complaint) && !error.contains('\n'), "{to}: {error}");
        }
    }
}
