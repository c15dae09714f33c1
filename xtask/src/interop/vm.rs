//! The guest: QEMU with the image, on the tap device of the run's network.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::world::{GUEST, MTU, TAP, World};

/// A guest that runs. The [`World`] it was booted in ends it.
pub(super) struct Guest {
    pub(super) pid: u32,
    pub(super) kernel: String,
    pub(super) accelerator: &'static str,
    qemu: Child,
}

/// What a guest is made of, beside its kernel.
pub(super) struct Shape {
    pub(super) initramfs: PathBuf,
    pub(super) processors: u32,
    /// The network card lets go of a packet when it has left, as is usual, and not when it is queued.
    pub(super) napi_tx: bool,
}

/// How long a guest may take to boot: ten times what it takes with software emulation on a slow machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Lines of the console that are shown when it does not boot.
const TAIL: usize = 15;

impl Guest {
    /// Starts it and waits until it says that it is ready.
    pub(super) fn boot(image: &Path, shape: &Shape, world: &World) -> Result<Self> {
        // The guest's virtio-serial port is QEMU's standard input: a socket whose other end is ours. It ends
        // with QEMU, so no thread waits for a guest that died.
        let (ours, theirs) = UnixStream::pair().context("making a pair of sockets")?;
        let console = world.run_dir().join("console");
        let complaints = fs::File::create(world.run_dir().join("qemu.log")).context("making qemu.log")?;
        let accelerator = if kvm_works() { "KVM" } else { "software emulation" };
        let qemu = Command::new("ip")
            .args(["netns", "exec", world.namespace(), "qemu-system-x86_64"])
            .args(machine(image, shape, &console, accelerator == "KVM"))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(complaints)
            .process_group(0)
            .spawn()
            .context("`ip netns exec` could not be started")?;
        let mut guest = Self { pid: qemu.id(), kernel: String::new(), accelerator, qemu };
        ours.set_read_timeout(Some(PATIENCE)).context("setting a time limit")?;
        let mut line = String::new();
        let why = match BufReader::new(ours).read_line(&mut line) {
            Ok(0) => "QEMU ended".to_owned(),
            Ok(_) => String::new(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                format!("it was not ready after {} s", PATIENCE.as_secs())
            }
            Err(error) => error.to_string(),
        };
        match line.trim().strip_prefix("ready ") {
            Some(kernel) => guest.kernel = kernel.to_owned(),
            None => bail!("the guest did not boot: {why}{line}{}", last_words(world.run_dir())),
        }
        Ok(guest)
    }

    /// What there is to say about a guest after a failure: whether it still runs, and its last words.
    pub(super) fn obituary(&mut self, world: &World) -> String {
        let state = match self.qemu.try_wait() {
            Ok(None) => "still runs",
            Ok(Some(_)) | Err(_) => "has ended",
        };
        format!("the guest {state}; its console:{}", last_words(world.run_dir()))
    }
}

/// Software emulation is enough; where the processor helps, it is faster.
fn kvm_works() -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let helps = processor.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
    helps && fs::File::options().read(true).write(true).open("/dev/kvm").is_ok()
}

/// QEMU's options.
fn machine(image: &Path, shape: &Shape, console: &Path, kvm: bool) -> Vec<String> {
    let Shape { initramfs, processors, napi_tx } = shape;
    // Emulated, the instruction for carry-less products takes longer than the tables that stand in for it, for the
    // kernel's CRC and for ours.
    let (accelerator, processor) = if kvm { ("kvm", "max") } else { ("tcg", "max,-pclmulqdq") };
    let fixed = format!(
        "-nodefaults -no-user-config -no-reboot -display none -M q35 -cpu {processor} -smp {processors} -m 768 -accel {accelerator} \
         -chardev socket,id=ready,fd=0 -device virtio-serial-pci -device virtserialport,chardev=ready,name=ready \
         -device virtio-rng-pci -netdev tap,id=wire,ifname={TAP},script=no,downscript=no \
         -device virtio-net-pci,netdev=wire,mac=52:54:00:77:00:02,host_mtu=9000,romfile="
    );
    let mut words: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("-kernel", image.join("vmlinuz").display().to_string());
    add("-initrd", initramfs.display().to_string());
    add("-serial", format!("file:{}", console.display()));
    // A kernel that counts timer ticks while its host has no time for it would think that the timer is broken.
    let line = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on tsc=reliable no_timer_check \
         g.ip={GUEST}/24 g.ip6=fd77::2/64 g.mtu={MTU} g.napi_tx={}",
        u8::from(*napi_tx)
    );
    add("-append", line);
    words
}

/// What QEMU complained about, and the end of the console.
fn last_words(run_dir: &Path) -> String {
    let mut text = String::new();
    for name in ["qemu.log", "console"] {
        let whole = fs::read(run_dir.join(name)).unwrap_or_default();
        for line in telling(&String::from_utf8_lossy(&whole)) {
            text.push_str("\n  ");
            text.push_str(line);
        }
    }
    text
}

/// The last lines, and before them why a kernel gave up: what it says after that is longer.
fn telling(console: &str) -> Vec<&str> {
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(TAIL));
    let why = before.iter().filter(|line| line.contains("Kernel panic") || line.contains("guest: "));
    why.chain(last).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_small_and_on_our_tap() {
        let shape = Shape { initramfs: "/i/initramfs.zst".into(), processors: 1, napi_tx: false };
        let words = machine(Path::new("/i"), &shape, Path::new("/c"), false).join(" ");
        assert!(words.contains("-smp 1 ") && words.contains("-accel tcg "), "{words}");
        assert!(words.contains(&format!("ifname={TAP},")) && words.contains("-kernel /i/vmlinuz"), "{words}");
    }
    #[test]
    fn a_kernel_that_gave_up_says_why() {
        let trace: String = (0..40).map(|n| format!("[ 5.3]  step{n}\r\n")).collect();
        let console =
            format!("booting\nguest: no network card\n[ 5.2] Kernel panic - not syncing: no init\n{trace}");
        let lines = telling(&console);
        assert_eq!(lines[..2], ["guest: no network card", "[ 5.2] Kernel panic - not syncing: no init"]);
        assert_eq!((lines.len(), lines[lines.len() - 1]), (2 + TAIL, "[ 5.3]  step39"));
        assert_eq!(telling("one\ntwo\n"), ["one", "two"]);
    }
}
