//! The network of a run: a namespace of its own with a bridge and a tap device, and what clears it away.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell::Cmd;

/// The bridge, and so the interface of our device. It is ours alone: the namespace is.
pub(super) const BRIDGE: &str = "br0";
/// The interfaces that are devices of the program at our end: it keeps to loopback while others have the bridge.
pub(super) const DEVICES: &str = "br0,lo";
/// The guest's end of the wire on this side.
pub(super) const TAP: &str = "tap1";
/// The guest's address.
pub(super) const GUEST: &str = "10.77.0.2";
/// With which MTU everything starts.
pub(super) const MTU: &str = "1500";

/// A namespace with a bridge, and a directory for the run. Dropping it ends every process in the namespace
/// and takes all of it away.
///
/// The clearing is done by a small shell that waits for its input to end. That happens also when this process
/// is interrupted or killed, so nothing is ever left behind.
pub(super) struct World {
    namespace: String,
    run_dir: PathBuf,
    janitor: Child,
}

/// Waits until its input ends, then clears away. `keep` sends it home.
const JANITOR: &str = r#"
while read -r word; do [ "$word" = keep ] && exit 0; done
all() { ip netns pids "$1" 2>/dev/null; }
for signal in TERM KILL; do
  pids=$(all "$1"); [ -n "$pids" ] && kill -$signal $pids 2>/dev/null
  tries=0
  while [ -n "$(all "$1")" ] && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
done
ip netns del "$1" 2>/dev/null
rm -rf "$2"
"#;

impl World {
    pub(super) fn create() -> Result<Self> {
        let name = format!("ferroce-interop-{}", process::id());
        let run_dir = env::temp_dir().join(&name);
        fs::create_dir_all(&run_dir).with_context(|| format!("making {}", run_dir.display()))?;
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "janitor", &name])
            .arg(&run_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal is for the group of the foreground: this one stays to clean up.
            .process_group(0)
            .spawn()
            .context("sh could not be started")?;
        let world = Self { namespace: name, run_dir, janitor };
        world.furnish()?;
        Ok(world)
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A directory for what belongs to the run.
    pub(super) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Leaves everything as it is when this is dropped.
    pub(super) fn keep(&mut self) {
        if let Some(stdin) = &mut self.janitor.stdin {
            // If it is gone there is nothing to send home.
            let _ = stdin.write_all(b"keep\n");
        }
    }

    fn furnish(&self) -> Result<()> {
        let name = &self.namespace;
        ip(&format!("netns add {name}"))?;
        let inside = |line: &str| ip(&format!("-n {name} {line}"));
        inside("link set lo up")?;
        inside(&format!("link add {BRIDGE} type bridge forward_delay 0 mcast_snooping 0"))?;
        inside(&format!("addr add 10.77.0.1/24 dev {BRIDGE}"))?;
        inside(&format!("-6 addr add fd77::1/64 dev {BRIDGE} nodad"))?;
        inside(&format!("tuntap add {TAP} mode tap"))?;
        inside(&format!("link set {TAP} mtu {MTU} master {BRIDGE} up"))?;
        inside(&format!("link set {BRIDGE} mtu {MTU} up"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

fn ip(line: &str) -> Result<()> {
    let (done, output) = Cmd::new("ip").args(line.split_whitespace()).captured()?;
    if !done {
        bail!("`ip {line}` failed: {}; namespaces, bridges and tap devices need root", output.trim());
    }
    Ok(())
}
