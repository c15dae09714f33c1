//! The guest's kernel and file system: built from Debian packages when what they are made of has changed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::say::say;
use crate::shell::{Cmd, root};

/// What the image is made of, beside the packages.
const INPUTS: &[&str] = &["mkguest.sh", "init", "peer.c", "probe.c", "raw.c"];

/// The directory with `vmlinuz`, `initramfs.zst` and `versions`.
pub(super) fn ready(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let stamp = dir.join("key");
    let offered = Cmd::new("apt-cache").args(["depends", "linux-image-amd64"]).captured();
    let key = key(&offered.map(|(_, text)| text).unwrap_or_default())?;
    if fs::read_to_string(&stamp).is_ok_and(|known| known == key) {
        return Ok(dir.to_path_buf());
    }
    say!("interop: making the guest; the first time packages are downloaded (about 80 MB)");
    let script = source().join("mkguest.sh");
    let (made, output) = Cmd::new("bash").arg(&script).arg(dir).shown().captured()?;
    if !made {
        bail!("the guest could not be made: {}", output.trim());
    }
    fs::write(&stamp, key).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(dir.to_path_buf())
}

/// The file system with one more program in it. The kernel unpacks archives that stand one behind the other.
pub(super) fn with_program(image: &Path, program: &Path, to: &Path) -> Result<()> {
    let stage = to.with_extension("stage");
    let bin = stage.join("usr/bin");
    fs::create_dir_all(&bin).with_context(|| format!("making {}", bin.display()))?;
    let name = program.file_name().context("a program has a name")?;
    fs::copy(program, bin.join(name)).with_context(|| format!("copying {}", program.display()))?;
    let script = r#"cd "$1" && find . | cpio -o -H newc --quiet >"$2" && cat "$3" >>"$2""#;
    let cmd = Cmd::new("sh").args(["-c", script, "sh"]).arg(&stage).arg(to).arg(image.join("initramfs.zst"));
    let (made, output) = cmd.captured()?;
    if !made {
        bail!("{} could not be put into the guest: {}", program.display(), output.trim());
    }
    Ok(())
}

fn source() -> PathBuf {
    root().join("interop")
}

/// Changes with every input, and with the kernel that the archive offers.
fn key(kernel: &str) -> Result<String> {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for name in INPUTS {
        let path = source().join(name);
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        hash = fnv(hash, &bytes);
    }
    Ok(format!("{:016x}", fnv(hash, kernel.as_bytes())))
}

/// FNV-1a, 64 bits: enough to notice a change.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_changes_with_its_inputs() {
        assert_eq!(fnv(0xcbf2_9ce4_8422_2325, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(key("6.1").unwrap(), key("6.1").unwrap());
        assert_ne!(key("6.1").unwrap(), key("6.12").unwrap());
    }
}
