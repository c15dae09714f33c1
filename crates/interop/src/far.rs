//! The far side: the program `interop/peer.c` in the guest, told by lines of text what to do.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use ferroce_verbs::{Gid, PathMtu, Psn, QpAddress, Qpn, RemoteRegion, Rkey, Service};

use crate::Result;

/// Where the far side listens.
const PORT: u16 = 18600;

/// How long an answer may take: longer than any wait that is asked for.
const PATIENCE: Duration = Duration::from_secs(120);

/// One conversation with the far side, which serves it in a process of its own with one queue pair.
pub(crate) struct Far {
    stream: BufReader<TcpStream>,
}

/// A completion over there, in the numbers of `ibv_wc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FarCompletion {
    pub(crate) id: u64,
    pub(crate) status: u64,
    pub(crate) opcode: u64,
    pub(crate) byte_len: u64,
    pub(crate) flags: u64,
    /// Immediate data, or a key that was invalidated.
    pub(crate) extra: u64,
    pub(crate) source_qp: u64,
}

/// Flags of a completion: a header of forty bytes, immediate data.
pub(crate) const GRH: u64 = 1;
pub(crate) const WITH_IMM: u64 = 2;
/// An invalidated key: as `libibverbs` has it, and as rdma_rxe of Linux 6.1 writes it into a program's
/// completion, which is the flag that the kernel uses inside.
pub(crate) const WITH_INV: u64 = 8 | 4;

/// How a queue pair over there is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarSpec {
    pub(crate) service: Service,
    pub(crate) gid_index: u32,
    /// Bytes of its memory.
    pub(crate) len: usize,
    /// The kernel takes 7 for "for ever".
    pub(crate) retry_count: u8,
    /// 4.096 us * 2^timeout.
    pub(crate) timeout: u8,
}

impl Far {
    /// Begins a conversation.
    pub(crate) fn connect(guest: IpAddr) -> Result<Self> {
        let stream = TcpStream::connect((guest, PORT))
            .map_err(|error| format!("the far side does not answer at {guest} port {PORT}: {error}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Waits longer for answers.
    pub(crate) fn be_patient(&mut self, limit: Duration) -> Result<()> {
        Ok(self.stream.get_ref().set_read_timeout(Some(limit))?)
    }

    /// Runs a command in the guest and gives its output; anything but success is an error.
    pub(crate) fn run(&mut self, command: &str) -> Result<String> {
        self.start(command)?;
        let (status, output) = self.finish()?;
        match status {
            0 => Ok(output),
            _ => Err(format!("`{command}` in the guest ended with {status}: {}", output.trim()).into()),
        }
    }

    /// Begins a command in the guest.
    pub(crate) fn start(&mut self, command: &str) -> Result<()> {
        self.say(&format!("run {command}"))
    }

    /// The next line that the command says which was begun.
    pub(crate) fn line(&mut self) -> Result<String> {
        let line = self.hear()?;
        match line.strip_prefix("| ") {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("{line:?} from the far side instead of a line of a command").into()),
        }
    }

    /// Waits for the command that was begun: its status, and what it printed.
    pub(crate) fn finish(&mut self) -> Result<(i32, String)> {
        let mut output = String::new();
        let status = self.follow(|line| output.extend([line, "\n"]))?;
        Ok((status, output))
    }

    /// The same, with each line when it comes.
    pub(crate) fn follow(&mut self, mut said: impl FnMut(&str)) -> Result<i32> {
        loop {
            let line = self.hear()?;
            if let Some(text) = line.strip_prefix('|') {
                said(text.strip_prefix(' ').unwrap_or(text));
            } else if let Some(status) = line.strip_prefix("exit ") {
                return Ok(status.parse()?);
            } else {
                return Err(format!("{line:?} from the far side instead of a command's output").into());
            }
        }
    }

    /// A counter that the guest's kernel shows in a file. No shell is started for it.
    pub(crate) fn counter(&mut self, file: &str) -> Result<u64> {
        number(&self.ask(&format!("counter {file}"), "counter", 1)?[0])
    }

    /// Makes the queue pair of this conversation and its memory.
    pub(crate) fn create(&mut self, spec: &FarSpec) -> Result<(QpAddress, RemoteRegion)> {
        let FarSpec { service, gid_index, len, retry_count, timeout } = spec;
        let service = service.name().to_lowercase();
        let words = self.ask(&format!("qp {service} {gid_index} {len} {retry_count} {timeout}"), "qp", 5)?;
        let gid = gid_from_hex(&words[2])?;
        let (qpn, psn) = (Qpn::new(small(&words[0])?), Psn::new(small(&words[1])?));
        let remote =
            RemoteRegion { address: number(&words[4])?, length: *len as u64, rkey: Rkey(small(&words[3])?) };
        Ok((QpAddress { qpn, psn, mtu: PathMtu::B4096, gid }, remote))
    }

    /// Connects it to one of ours.
    pub(crate) fn join(&mut self, to: &QpAddress, mtu: PathMtu) -> Result<()> {
        let gid = gid_to_hex(to.gid);
        self.order(&format!("connect {} {} {gid} {}", to.qpn, to.psn, mtu.bytes()))
    }

    /// Fills a part of its memory with the [pattern](crate::pattern) of a seed.
    pub(crate) fn fill(&mut self, offset: usize, len: usize, seed: u64) -> Result<()> {
        self.order(&format!("fill {offset} {len} {seed}"))
    }

    /// The checksum of a part of its memory.
    pub(crate) fn sum(&mut self, offset: usize, len: usize) -> Result<u32> {
        small(&self.ask(&format!("sum {offset} {len}"), "sum", 1)?[0])
    }

    /// Eight bytes of its memory.
    pub(crate) fn word(&mut self, offset: usize) -> Result<u64> {
        number(&self.ask(&format!("word {offset}"), "word", 1)?[0])
    }

    /// Sets eight bytes of its memory.
    pub(crate) fn set_word(&mut self, offset: usize, value: u64) -> Result<()> {
        self.ask(&format!("word {offset} {value:#x}"), "word", 1).map(drop)
    }

    /// Posts a receive.
    pub(crate) fn receive(&mut self, id: u64, offset: usize, len: usize) -> Result<()> {
        self.order(&format!("recv {id} {offset} {len}"))
    }

    /// Posts work; `rest` is what the operation takes (see `interop/peer.c`).
    pub(crate) fn post(
        &mut self,
        id: u64,
        operation: &str,
        (offset, len): (usize, usize),
        rest: &[u64],
    ) -> Result<()> {
        let mut line = format!("post {id} {operation} {offset} {len}");
        for word in rest {
            write!(line, " {word:#x}")?;
        }
        self.order(&line)
    }

    /// The next completion, whatever it says.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<FarCompletion>> {
        self.say(&format!("wait {}", limit.as_millis()))?;
        let line = self.hear()?;
        let Some(words) = line.strip_prefix("wc ") else {
            return if line == "none" { Ok(None) } else { Err(line.into()) };
        };
        let numbers: Vec<u64> = words.split(' ').map(number).collect::<Result<_>>()?;
        let [id, status, opcode, byte_len, flags, extra, source_qp] = numbers[..] else {
            return Err(format!("{line:?} from the far side is not a completion").into());
        };
        Ok(Some(FarCompletion { id, status, opcode, byte_len, flags, extra, source_qp }))
    }

    /// Binds a type 2 memory window to a part of its memory: the key.
    pub(crate) fn window(&mut self, offset: usize, len: usize) -> Result<Rkey> {
        Ok(Rkey(small(&self.ask(&format!("window {offset} {len}"), "window", 1)?[0])?))
    }

    fn order(&mut self, line: &str) -> Result<()> {
        self.ask(line, "ok", 0).map(drop)
    }

    /// Says a line and gives the words after the one that the answer must begin with.
    fn ask(&mut self, line: &str, expected: &str, count: usize) -> Result<Vec<String>> {
        self.say(line)?;
        let answer = self.hear()?;
        let mut words = answer.split(' ').map(str::to_owned);
        let first = words.next();
        let words: Vec<String> = words.collect();
        if first.as_deref() != Some(expected) || words.len() != count {
            return Err(format!("the far side answered {answer:?} to {line:?}").into());
        }
        Ok(words)
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?)
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("the far side hung up".into()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let limit = self.stream.get_ref().read_timeout()?.unwrap_or_default();
                Err(format!("the far side said nothing for {} s", limit.as_secs()).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Thirty-two digits, as the kernel's tools write a GID.
pub(crate) fn gid_to_hex(gid: Gid) -> String {
    gid.0.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads what [`gid_to_hex`] writes.
pub(crate) fn gid_from_hex(text: &str) -> Result<Gid> {
    let wrong = || format!("{text:?} is no GID of 32 digits");
    let value = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
    if text.len() == 32 { Ok(Gid(value.to_be_bytes())) } else { Err(wrong().into()) }
}

fn number(text: &str) -> Result<u64> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Ok(value.map_err(|_| format!("{text:?} is no number"))?)
}

fn small(text: &str) -> Result<u32> {
    Ok(u32::try_from(number(text)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_forms() {
        assert_eq!(number("0x1f").unwrap(), 31);
        assert_eq!(number("31").unwrap(), 31);
        assert!(number("thirty").is_err());
        assert!(small("0x100000000").is_err());
    }

    #[test]
    fn a_gid_survives() {
        let text = "00000000000000000000ffff0a4d0002";
        let gid = gid_from_hex(text).unwrap();
        assert_eq!(gid.ip().to_string(), "10.77.0.2");
        assert_eq!(gid_to_hex(gid), text);
        assert!(gid_from_hex("ffff").is_err());
    }
}
