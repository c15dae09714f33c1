//! Stock programs on both sides: here on our drop-in library, in the guest on the kernel's device.
//!
//! They are the ones of Debian's packages, and know nothing of us.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use std::{fs, io};

use crate::Result;
use crate::far::Far;
use crate::lab::{Family, Form, Lab};
use crate::pair::Asks;
use crate::run::BRIDGE;

/// Where the tools listen.
const PORT: u16 = 18515;

/// Seconds after which a tool hangs.
const PATIENCE: u32 = 300;

/// How often a tool is run whose clock is of no use: it finds out how fast its processor counts before it begins, and in a guest on a
/// busy machine it may see nothing but noise. All its figures are 0 then, whatever it has done.
const CLOCKS: u32 = 4;

/// How often to look whether a server listens, with a pause of the guest in between.
const LOOKS: u32 = 1500;

/// A program, and the ways in which it is run. The first one is run always, the others in the long form.
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) ways: &'static [&'static str],
    pub(crate) in_short: InShort,
}

/// Whether the short form has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InShort {
    /// With each family, and each MTU.
    Twice,
    /// With one of them.
    Once,
    Never,
}

impl Tool {
    /// Runs it on both sides. The side that asks is the client.
    pub(crate) fn run(&self, lab: &Lab, asks: Asks) -> Result<()> {
        let ways = if lab.form == Form::Long { self.ways } else { &self.ways[..1] };
        for way in ways {
            self.meet(lab, asks, way).map_err(|error| format!("{} {way}: {error}", self.program))?;
        }
        Ok(())
    }

    fn meet(&self, lab: &Lab, asks: Asks, way: &str) -> Result<()> {
        for _ in 1..CLOCKS {
            let said = self.said(lab, asks, way)?;
            if self.has_measured(way, &said) || !lacks_clock(&said) {
                return self.check(way, &said);
            }
        }
        self.check(way, &self.said(lab, asks, way)?)
    }

    /// Runs it once; what the client said.
    fn said(&self, lab: &Lab, asks: Asks, way: &str) -> Result<String> {
        let library = lab.library.as_deref().ok_or("no folder of the drop-in library was given")?;
        let index = lab.context.gid_index(lab.family.near()).ok_or("our address is gone")?;
        let here = self.line(way, &format!("ferroce_{BRIDGE}"), index);
        let there = self.line(way, "rxe0", lab.family.far_gid_index() as usize);
        let mut far = lab.far()?;
        far.be_patient(Duration::from_secs(u64::from(PATIENCE) + 10))?;
        Ok(match asks {
            Asks::We => {
                far.start(&there)?;
                lab.far()?.run(&format!(
                    "for i in $(seq {LOOKS}); do ss -ltn | grep -q ':{PORT} ' && exit 0; usleep 20000; done; exit 1"
                ))?;
                let client = started(library, &format!("{here} {}", lab.guest))?.wait_with_output()?;
                let client = good("our client", &client);
                let server = finished("the kernel's server", &mut far);
                both(client, server)?.0
            }
            Asks::Kernel => {
                let mut server = started(library, &here)?;
                if let Err(error) = until_it_listens(&mut server, lab) {
                    let server = ended(server)?;
                    return Err(format!("{error}: {}", said(&server)).into());
                }
                far.start(&format!("{there} {}", Family::V4.near()))?;
                let client = finished("the kernel's client", &mut far);
                let server = match &client {
                    Ok(_) => server.wait_with_output()?,
                    // It would wait until its time is over.
                    Err(_) => ended(server)?,
                };
                both(client, good("our server", &server))?.0
            }
        })
    }

    /// The command for one side.
    fn line(&self, way: &str, device: &str, gid_index: usize) -> String {
        let Self { program, .. } = self;
        let common = if self.is_pingpong() {
            format!("-g {gid_index}")
        } else {
            // A guest on a busy machine may stand still for longer than the usual 67 ms, eight times. Each side takes
            // the other's number of READs for its own: the kernel's is 128, ours 16.
            let reads = if self.has_reads() { " -o 16" } else { "" };
            format!("-F -u 17 -x {gid_index}{reads}")
        };
        format!("timeout {PATIENCE} {program} -p {PORT} -d {device} {common} {way}")
    }

    /// Whether it does what has answers of its own.
    fn has_reads(&self) -> bool {
        ["ib_read_", "ib_atomic_"].iter().any(|start| self.program.starts_with(start))
    }

    fn is_pingpong(&self) -> bool {
        self.program.ends_with("pingpong")
    }

    /// Whether the client has measured something.
    fn has_measured(&self, way: &str, said: &str) -> bool {
        if self.is_pingpong() {
            said.contains(&format!("{} iters in", option(way, "-n").unwrap_or("1000")))
        } else {
            said.lines().any(is_line_of_figures)
        }
    }

    fn check(&self, way: &str, said: &str) -> Result<()> {
        if self.has_measured(way, said) {
            Ok(())
        } else {
            Err(format!("the client measured nothing: {}", said.trim()).into())
        }
    }
}

/// Whether perftest says that it could not find out how fast its processor counts.
fn lacks_clock(said: &str) -> bool {
    said.contains("Correlation coefficient r^2")
}

/// The word after an option.
fn option<'a>(way: &'a str, name: &str) -> Option<&'a str> {
    let mut words = way.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

/// Of perftest's table: bytes, rounds, and figures, one of which is more than nothing.
fn is_line_of_figures(line: &str) -> bool {
    let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.len() >= 4 && numbers[2..].iter().any(|figure| *figure > 0.0))
}

pub(crate) fn started(library: &Path, line: &str) -> Result<Child> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("no program")?;
    let started = Command::new(program)
        .args(words)
        .env("LD_LIBRARY_PATH", library)
        .env("FERROCE_NETDEV", BRIDGE)
        .env("FERROCE_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Ok(started.map_err(|error| format!("`{line}` could not be started: {error}"))?)
}

/// Waits until our server listens. The pause between two looks is the guest's.
fn until_it_listens(server: &mut Child, lab: &Lab) -> Result<()> {
    let mut far = lab.far()?;
    for _ in 0..LOOKS {
        if let Some(status) = server.try_wait()? {
            return Err(format!("our server ended with {status} before a client called").into());
        }
        if is_listening()? {
            return Ok(());
        }
        far.run("usleep 20000")?;
    }
    Err("our server does not listen".into())
}

/// Whether a program in this network namespace listens at [`PORT`].
fn is_listening() -> io::Result<bool> {
    const LISTENS: &str = "0A";
    let place = format!(":{PORT:04X}");
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table)?;
        let mut sockets = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        if sockets.any(|words| words.len() > 3 && words[1].ends_with(&place) && words[3] == LISTENS) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ends a program of ours: `timeout` hands the signal on.
pub(crate) fn ended(child: Child) -> io::Result<Output> {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    child.wait_with_output()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// What it said, if its end was a good one; else that, in words.
pub(crate) fn good(program: &str, output: &Output) -> std::result::Result<String, String> {
    let text = said(output);
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{program} ended with {}: {}", output.status, text.trim()))
    }
}

pub(crate) fn finished(program: &str, far: &mut Far) -> std::result::Result<String, String> {
    match far.finish() {
        Ok((0, text)) => Ok(text),
        Ok((status, text)) => Err(format!("{program} ended with {status}: {}", text.trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// Both ends must be good; if not, what each of them said.
pub(crate) fn both(
    first: std::result::Result<String, String>,
    second: std::result::Result<String, String>,
) -> Result<(String, String)> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (first, second) => {
            let mut text = String::new();
            for side in [first, second].into_iter().filter_map(std::result::Result::err) {
                write!(text, "{side}; ")?;
            }
            Err(text.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_from_the_rest() {
        let line = " 65536      100              18.60              18.31     0.000293";
        assert!(is_line_of_figures(line));
        assert!(!is_line_of_figures(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]"));
        assert!(!is_line_of_figures(" 65536      100              0.00               0.00     0.000000"));
        assert!(!is_line_of_figures(""));
    }

    #[test]
    fn a_tool_that_could_not_read_its_clock_is_told_from_one_that_failed() {
        let tool = Tool { program: "ib_read_bw", ways: &[], in_short: InShort::Never };
        let nothing = " 65536      20               0.00               0.00   \t\t   0.000000";
        let noise = format!("Correlation coefficient r^2: 0.893393 < 0.9\n{nothing}\n");
        assert!(!tool.has_measured("", &noise) && lacks_clock(&noise));
        assert!(!lacks_clock(nothing), "this one has no excuse");
        assert!(tool.check("", nothing).is_err() && tool.check("", &noise).is_err());
    }

    #[test]
    fn rounds_are_found_in_a_way() {
        assert_eq!(option("-c -n 200 -e", "-n"), Some("200"));
        assert_eq!(option("-c -n", "-n"), None);
        assert_eq!(option("-c", "-n"), None);
    }

    #[test]
    fn each_side_gets_its_device_and_address() {
        let tool = |program| Tool { program, ways: &[], in_short: InShort::Never };
        let line = tool("ib_send_bw").line("-n 5", "rxe0", 2);
        assert_eq!(line, "timeout 300 ib_send_bw -p 18515 -d rxe0 -F -u 17 -x 2 -n 5");
        let line = tool("ib_read_lat").line("", "rxe0", 1);
        assert!(line.ends_with("-x 1 -o 16 "), "{line}");
        let line = tool("ibv_rc_pingpong").line("-c", "ferroce_br0", 0);
        assert_eq!(line, "timeout 300 ibv_rc_pingpong -p 18515 -d ferroce_br0 -g 0 -c");
    }
}
