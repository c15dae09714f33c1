//! Running other programs: always from the repository's root, always shown, output streamed.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::say::{complain, say};

/// The repository's root: the folder above this crate.
pub(crate) fn root() -> PathBuf {
    // Set by `cargo run`, and right even if the checkout moved since the last build.
    let manifest =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo builds, and where xtask keeps what it makes.
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Whether a program of that name is on the search path.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A command in the making. It prints as one could type it.
#[derive(Clone)]
pub(crate) struct Cmd {
    program: String,
    args: Vec<OsString>,
    env: Vec<(String, String)>,
    /// Where it runs; none is the repository's root.
    dir: Option<PathBuf>,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<Path>) -> Self {
        let program = program.as_ref().to_string_lossy().into_owned();
        Self { program, args: Vec::new(), env: Vec::new(), dir: None }
    }

    /// `cargo` with the arguments given as one line, split at spaces.
    pub(crate) fn cargo(line: &str) -> Self {
        Self::new("cargo").args(line.split_whitespace())
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The same command, run in this folder.
    pub(crate) fn in_dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_path_buf());
        self
    }

    /// The same command, run by another program that takes it as its last arguments.
    pub(crate) fn wrapped(&self, program: &str, args: &[&str]) -> Self {
        let inner = [self.real_program()].into_iter().chain(self.args.iter().cloned());
        let args = args.iter().map(Into::into).chain(inner).collect();
        Self { program: program.into(), args, env: self.env.clone(), dir: self.dir.clone() }
    }

    /// Runs it with its output on ours; anything but success is an error.
    pub(crate) fn run(&self) -> Result<()> {
        self.show();
        let status = self.command().status().with_context(|| self.could_not_start())?;
        self.judge(status)
    }

    /// As `run`, but every line of both outputs is also handed to `see`.
    pub(crate) fn run_seeing(&self, mut see: impl FnMut(&str)) -> Result<()> {
        self.show();
        let mut command = self.command();
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| self.could_not_start())?;
        let (sender, lines) = mpsc::channel();
        if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
            forward(stdout, Stream::Out, sender.clone());
            forward(stderr, Stream::Err, sender);
        }
        for (stream, line) in lines {
            let line = line.with_context(|| format!("reading the output of `{self}`"))?;
            let line = String::from_utf8_lossy(&line);
            match stream {
                Stream::Out => say!("{line}"),
                Stream::Err => complain!("{line}"),
            }
            see(&line);
        }
        let status = child.wait().with_context(|| format!("waiting for `{self}`"))?;
        self.judge(status)
    }

    /// Runs it silently. Returns whether it succeeded, and both outputs together.
    pub(crate) fn captured(&self) -> Result<(bool, String)> {
        let (status, printed, complained) = self.finished()?;
        Ok((status.success(), printed + &complained))
    }

    /// Runs it silently. Returns what it printed; anything but success is an error that shows what it complained of.
    pub(crate) fn output(&self) -> Result<String> {
        let (status, printed, complained) = self.finished()?;
        self.judge(status).context(complained)?;
        Ok(printed)
    }

    /// Runs it with its complaints on ours. Returns what it printed; anything but success is an error.
    pub(crate) fn printed(&self) -> Result<String> {
        let mut command = self.command();
        let command = command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().with_context(|| self.could_not_start())?;
        self.judge(output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it silently. Returns how it ended, what it printed, and what it complained of.
    pub(crate) fn finished(&self) -> Result<(ExitStatus, String, String)> {
        let output = self.command().stdin(Stdio::null()).output().with_context(|| self.could_not_start())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status, text(&output.stdout), text(&output.stderr)))
    }

    /// Runs it without any output. Returns its exit code; none if a signal ended it.
    pub(crate) fn code(&self) -> Result<Option<i32>> {
        let mut command = self.command();
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.status().with_context(|| self.could_not_start())?.code())
    }

    /// `cargo run` names the very cargo that started us; a plain name could find another one.
    fn real_program(&self) -> OsString {
        let cargo = (self.program == "cargo").then(|| env::var_os("CARGO")).flatten();
        cargo.unwrap_or_else(|| self.program.clone().into())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.real_program());
        command.args(&self.args).current_dir(self.dir.clone().unwrap_or_else(root));
        if self.program == "cargo" {
            for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
                if is_of_one_package(&name) {
                    command.env_remove(name);
                }
            }
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Prints it first, where running it would not.
    pub(crate) fn shown(self) -> Self {
        self.show();
        self
    }

    fn show(&self) {
        say!("$ {self}");
    }

    fn could_not_start(&self) -> String {
        format!("`{}` could not be started; is it installed and on PATH?", self.program)
    }

    fn judge(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("`{self}` failed: {status}");
        }
        Ok(())
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        for arg in &self.args {
            write!(f, " {}", quoted(&arg.to_string_lossy()))?;
        }
        Ok(())
    }
}

/// Whether `cargo run` set this variable for the package that it runs. A build script that asks for one of them is run again,
/// and all that stands on it compiled again, whenever the next cargo is started by another package or by hand.
fn is_of_one_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|of| variable.starts_with(of))
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

/// Sends the lines of a pipe from a thread of its own, so that neither pipe waits for the other.
fn forward(pipe: impl Read + Send + 'static, stream: Stream, to: Sender<(Stream, io::Result<Vec<u8>>)>) {
    thread::spawn(move || {
        // The receiver is gone once an error was reported.
        BufReader::new(pipe).split(b'\n').try_for_each(|line| to.send((stream, line)).map_err(drop))
    });
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{word}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_prints_as_one_would_type_it() {
        let cmd = Cmd::cargo("doc --no-deps").arg("two words").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(cmd.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'two words'");
    }

    #[test]
    fn lines_are_seen_and_failure_is_an_error() {
        let mut lines = Vec::new();
        let error = Cmd::new("sh")
            .args(["-c", "echo one; echo two >&2; echo three; exit 3"])
            .run_seeing(|line| lines.push(line.to_owned()));
        // Two pipes have no common order.
        lines.sort();
        assert_eq!(lines, ["one", "three", "two"]);
        assert!(error.unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn a_cargo_that_xtask_starts_takes_nothing_for_changed() {
        let command = Cmd::cargo("build").env("CARGO_PKG_NAME_OF_OURS", "kept").command();
        let removed = |name: &str| command.get_envs().any(|(of, value)| of == name && value.is_none());
        // Cargo sets these for every test.
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
        assert!(!removed("CARGO") && !removed("PATH") && !removed("CARGO_PKG_NAME_OF_OURS"));
        assert!(!Cmd::new("sh").command().get_envs().any(|(_, value)| value.is_none()));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Cmd::new("no-such-program").captured().unwrap_err();
        assert!(error.to_string().starts_with("`no-such-program` could not be started"));
    }
}
