//! How fast the kernel's soft-RoCE, we, and plain sockets are, all of them in one guest and one run.
//!
//! The kernel's device has port 4791 of the guest's network, so our processes have a network of their own. Every figure is
//! of two processes in the guest, and nothing passes its network card.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use crate::Result;
use crate::far::Far;

/// The network of our processes in the guest.
const NAMESPACE: &str = "ferroce";

/// Where the tools meet.
const PORT: u16 = 18515;

/// How long one measurement may take; the slowest takes a few seconds.
const LIMIT: u32 = 90;

/// Bytes of a packet around its payload, and of the payload of a full one.
const HEADERS: usize = 16;
const FULL: usize = 4096;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    WriteBandwidth,
    WriteLatency,
    SendBandwidth,
}

impl Shape {
    const ALL: [Self; 3] = [Self::WriteBandwidth, Self::WriteLatency, Self::SendBandwidth];

    const fn name(self) -> &'static str {
        match self {
            Self::WriteBandwidth => "write_bw",
            Self::WriteLatency => "write_lat",
            Self::SendBandwidth => "send_bw",
        }
    }

    const fn shows(self) -> &'static str {
        match self {
            Self::WriteBandwidth => "`ib_write_bw -s 65536`, MB/s",
            Self::WriteLatency => "`ib_write_lat -s 8`, us",
            Self::SendBandwidth => "`ib_send_bw -s 64`, thousand messages/s",
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::WriteBandwidth => 65_536,
            Self::WriteLatency => 8,
            Self::SendBandwidth => 64,
        }
    }

    /// Messages of one measurement.
    const fn messages(self) -> u32 {
        match self {
            Self::WriteBandwidth => 1000,
            Self::WriteLatency => 4000,
            Self::SendBandwidth => 20_000,
        }
    }

    /// From what a program says, to the figure that is shown.
    fn figure(self, said: &str) -> Result<f64> {
        let (word, unit) = match self {
            Self::WriteBandwidth => ("bytes=", 1e6),
            Self::WriteLatency => ("us=", 1.0),
            Self::SendBandwidth => ("messages=", 1e3),
        };
        let value = said.split_whitespace().find_map(|part| part.strip_prefix(word));
        let value = value.ok_or_else(|| format!("no {word:?} in {said:?}"))?;
        Ok(value.parse::<f64>()? / unit)
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    Kernel,
    Ours,
    /// Datagrams as long as our packets, in runs that the kernel cuts; for latency one to and fro.
    Raw,
    /// The same with a call for each.
    Singly,
    Iperf,
}

impl Program {
    const ALL: [Self; 5] = [Self::Kernel, Self::Ours, Self::Raw, Self::Singly, Self::Iperf];

    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "rxe",
            Self::Ours => "Ferroce",
            Self::Raw => "raw UDP",
            Self::Singly => "raw UDP, a call for each",
            Self::Iperf => "iperf3",
        }
    }
}

/// All samples, in the order of the repeats.
pub(crate) struct Speed {
    samples: BTreeMap<(Shape, Program), Vec<f64>>,
    /// What our processes counted in the last repeat.
    notes: BTreeMap<Shape, String>,
    machine: String,
}

impl Speed {
    /// Measures everything so many times, one after the other.
    pub(crate) fn measure(guest: IpAddr, repeats: u32) -> Result<Self> {
        let mut far = Far::connect(guest)?;
        far.be_patient(Duration::from_secs(2 * u64::from(LIMIT)))?;
        far.run("sysctl -q -w net.core.rmem_max=4194304 net.core.wmem_max=4194304")?;
        far.run("ip link set eth0 mtu 9000")?;
        far.run(&format!("[ -e /run/netns/{NAMESPACE} ] || ip netns add {NAMESPACE}"))?;
        far.run(&format!("ip -n {NAMESPACE} link set lo up"))?;
        let machine = far.run("echo $(nproc) processors, Linux $(uname -r)")?.trim().to_owned();
        let mut speed = Self { samples: BTreeMap::new(), notes: BTreeMap::new(), machine };
        for repeat in 1..=repeats {
            for shape in Shape::ALL {
                for program in Program::ALL {
                    let Some(command) = command(shape, program) else { continue };
                    let said = far.run(&command)?;
                    let value = figure(shape, program, &said)
                        .map_err(|error| format!("{} of {}: {error}", shape.name(), program.name()))?;
                    eprintln!("{repeat}/{repeats} {:10} {:26} {value:10.2}", shape.name(), program.name());
                    speed.samples.entry((shape, program)).or_default().push(value);
                    if program == Program::Ours {
                        speed.notes.insert(shape, said.trim().to_owned());
                    }
                }
            }
        }
        Ok(speed)
    }

    /// A row for each shape.
    pub(crate) fn markdown(&self) -> Result<String> {
        let mut text = String::from("| measured |");
        for program in Program::ALL {
            write!(text, " {} |", program.name())?;
        }
        text.push_str(" Ferroce / rxe | Ferroce / raw UDP |\n|---|");
        text.push_str(&"---|".repeat(Program::ALL.len() + 2));
        text.push('\n');
        for shape in Shape::ALL {
            write!(text, "| {} |", shape.shows())?;
            for program in Program::ALL {
                write!(text, " {} |", spread(self.of(shape, program)))?;
            }
            for beside in [Program::Kernel, Program::Raw] {
                write!(text, " {} |", spread(&self.ratios(shape, beside)))?;
            }
            text.push('\n');
        }
        let repeats = self.of(Shape::WriteLatency, Program::Ours).len();
        write!(
            text,
            "\nMedian (least to most) of {repeats} repeats, everything in turn; ratios are of the same repeat. "
        )?;
        writeln!(text, "The guest: {}.", self.machine)?;
        Ok(text)
    }

    /// What our processes counted.
    pub(crate) fn notes(&self) -> String {
        self.notes.iter().map(|(shape, note)| format!("{}: {note}\n", shape.name())).collect()
    }

    fn of(&self, shape: Shape, program: Program) -> &[f64] {
        self.samples.get(&(shape, program)).map_or(&[], Vec::as_slice)
    }

    fn ratios(&self, shape: Shape, beside: Program) -> Vec<f64> {
        let pairs = self.of(shape, Program::Ours).iter().zip(self.of(shape, beside));
        pairs.map(|(ours, theirs)| ours / theirs).collect()
    }
}

/// What to run in the guest, if there is something of the kind.
fn command(shape: Shape, program: Program) -> Option<String> {
    let (name, size, messages) = (shape.name(), shape.size(), shape.messages());
    let ours = |line: String| Some(format!("ip netns exec {NAMESPACE} timeout {LIMIT} {line}"));
    match (program, shape) {
        (Program::Kernel, _) => {
            let tool = format!("timeout {LIMIT} ib_{name} -d rxe0 -x 1 -m 4096 -s {size} -n {messages} -F");
            Some(with_server(&tool, &format!("{tool} 127.0.0.1"), PORT))
        }
        (Program::Ours, _) => ours(format!("ferroce-speed {name} -n {messages}")),
        (Program::Raw, Shape::WriteBandwidth) => ours(format!("raw stream {} 15 1000", FULL + HEADERS)),
        (Program::Raw, Shape::WriteLatency) => ours(format!("raw trip {} {messages}", size + HEADERS + 16)),
        (Program::Raw, Shape::SendBandwidth) => ours(format!("raw stream {} 16 1000", size + HEADERS)),
        (Program::Singly, Shape::WriteBandwidth) => ours(format!("raw stream {} 1 1000", FULL + HEADERS)),
        (Program::Singly, Shape::SendBandwidth) => ours(format!("raw stream {} 1 1000", size + HEADERS)),
        (Program::Iperf, Shape::WriteBandwidth) => Some(iperf("-l 65536")),
        (Program::Iperf, Shape::SendBandwidth) => Some(iperf(&format!("-u -b 0 -l {size}"))),
        (Program::Singly | Program::Iperf, Shape::WriteLatency) => None,
    }
}

fn iperf(how: &str) -> String {
    let client = format!("timeout {LIMIT} iperf3 -c 127.0.0.1 -f k -t 2 -i 0 {how}");
    with_server(&format!("timeout {LIMIT} iperf3 -s -1"), &client, 5201)
}

/// Starts a server, waits until it listens, and runs the client, whose words and success count.
fn with_server(server: &str, client: &str, port: u16) -> String {
    format!(
        "{server} >/dev/null 2>&1 & \
         for i in $(seq 500); do ss -ltn | grep -q ':{port} ' && break; usleep 20000; done; \
         {client}; ended=$?; wait; exit $ended"
    )
}

/// Reads what a program said.
fn figure(shape: Shape, program: Program, said: &str) -> Result<f64> {
    match program {
        Program::Ours | Program::Raw | Program::Singly => shape.figure(said),
        Program::Kernel => perftest(shape, said),
        Program::Iperf => iperf_figure(shape, said),
    }
}

/// The line that begins with the size. Bandwidth: size, messages, peak and mean in MiB/s, million messages/s. Latency:
/// size, messages, least, most, typical (the median) and more.
fn perftest(shape: Shape, said: &str) -> Result<f64> {
    let size = shape.size().to_string();
    let line = said.lines().find(|line| line.split_whitespace().next() == Some(&size));
    let line = line.ok_or_else(|| format!("no line of results in {said:?}"))?;
    let column = |at: usize| -> Result<f64> {
        let word = line.split_whitespace().nth(at).ok_or_else(|| format!("too few numbers in {line:?}"))?;
        Ok(word.parse()?)
    };
    match shape {
        Shape::WriteBandwidth => Ok(column(3)? * 1.048_576),
        Shape::WriteLatency => column(4),
        Shape::SendBandwidth => Ok(column(4)? * 1e3),
    }
}

/// The receiver's line: `[  5]   0.00-2.00   sec   298 MBytes  1248123 Kbits/sec ...  receiver`.
fn iperf_figure(shape: Shape, said: &str) -> Result<f64> {
    let line = said.lines().find(|line| line.trim_end().ends_with("receiver"));
    let words: Vec<&str> =
        line.ok_or_else(|| format!("no receiver in {said:?}"))?.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Kbits/sec").and_then(|at| at.checked_sub(1));
    let kilobits: f64 = words[at.ok_or_else(|| format!("no Kbits/sec in {words:?}"))?].parse()?;
    let bytes = kilobits * 1e3 / 8.0;
    match shape {
        Shape::SendBandwidth => Ok(bytes / shape.size() as f64 / 1e3),
        Shape::WriteBandwidth | Shape::WriteLatency => Ok(bytes / 1e6),
    }
}

/// Median, least and most.
fn spread(values: &[f64]) -> String {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    match (values.get(values.len() / 2), values.first(), values.last()) {
        (Some(median), Some(least), Some(most)) => {
            format!("{} ({} to {})", short(*median), short(*least), short(*most))
        }
        _ => String::new(),
    }
}

/// Three digits that mean something.
fn short(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(seen: f64, expected: f64) {
        assert!((seen - expected).abs() < 1e-6 * expected, "{seen}, expected {expected}");
    }

    #[test]
    fn the_tools_are_understood() {
        let text = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                    65536      1000             30.08              25.00              0.000400\n";
        near(perftest(Shape::WriteBandwidth, text).unwrap(), 26.2144);
        let text = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                    8       1000          14.51          4000.46      15.57              20.10\n";
        near(perftest(Shape::WriteLatency, text).unwrap(), 15.57);
        let text = "64         20000             1.58               1.04               0.017039\n";
        near(perftest(Shape::SendBandwidth, text).unwrap(), 17.039);
        assert!(perftest(Shape::SendBandwidth, "Couldn't connect\n").is_err());
        let text = "[  5]   0.00-2.00   sec   298 MBytes  800000 Kbits/sec    0   sender\n\
                    [  5]   0.00-2.01   sec   298 MBytes  796000 Kbits/sec        receiver\n";
        near(iperf_figure(Shape::WriteBandwidth, text).unwrap(), 99.5);
        near(Shape::SendBandwidth.figure("messages=2500 bytes=160000 packets=3").unwrap(), 2.5);
        assert!(Shape::WriteLatency.figure("messages=2500").is_err());
    }

    #[test]
    fn ratios_are_of_the_same_repeat() {
        let samples = BTreeMap::from([
            ((Shape::WriteLatency, Program::Ours), vec![10.0, 30.0, 20.0]),
            ((Shape::WriteLatency, Program::Kernel), vec![20.0, 30.0, 80.0]),
        ]);
        let speed = Speed { samples, notes: BTreeMap::new(), machine: "a guest".into() };
        let text = speed.markdown().unwrap();
        assert!(text.contains("| 30.0 (20.0 to 80.0) | 20.0 (10.0 to 30.0) |"), "{text}");
        assert!(text.contains("| 0.50 (0.25 to 1.00) |"), "{text}");
    }
}
