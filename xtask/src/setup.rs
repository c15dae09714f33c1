//! The programs the tests need and cargo cannot bring: installed where that is ours to do, else asked for.

use std::env;
use std::fs;

use anyhow::{Result, bail};

use crate::shell::{Cmd, on_path};

/// A Debian package some test needs.
struct Package {
    name: &'static str,
    /// If this program is on the path, the package counts as there.
    binary: &'static str,
    why: &'static str,
}

const PACKAGES: &[Package] = &[Package { name: "tshark", binary: "tshark", why: "judges our frames" }];

/// Makes sure the packages are there. Returns a note for the report, or why the tests cannot run.
pub(crate) fn run() -> Result<String> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|package| !on_path(package.binary)).collect();
    if missing.is_empty() {
        return Ok("everything is here".into());
    }
    match decide(&Host::look()) {
        Plan::Install { sudo } => {
            install(&missing, sudo)?;
            Ok(format!("installed {}", names(&missing)))
        }
        Plan::Fail => bail!("{}", request(&missing)),
        Plan::Skip => {
            println!(
                "NOTICE: {}\nUntil then the tests that need it skip, each with a notice.",
                request(&missing)
            );
            Ok(format!("without {}: the tests that need it skip", names(&missing)))
        }
    }
}

/// What we need to know about the machine to decide.
struct Host {
    debian: bool,
    root: bool,
    sudo: bool,
    ci: bool,
}

impl Host {
    fn look() -> Self {
        let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let says_yes = |cmd: Cmd| matches!(cmd.captured(), Ok((true, _)));
        Self {
            debian: is_debian_like(&os_release),
            root: matches!(Cmd::new("id").arg("-u").captured(), Ok((true, id)) if id.trim() == "0"),
            sudo: says_yes(Cmd::new("sudo").args(["-n", "true"])),
            ci: env::var_os("CI").is_some_and(|value| !value.is_empty()),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Plan {
    Install { sudo: bool },
    Fail,
    Skip,
}

/// A machine we may install on gets the packages; CI without them would lie, so it fails; a
/// developer's own machine is asked.
const fn decide(host: &Host) -> Plan {
    match host {
        Host { debian: true, root: true, .. } => Plan::Install { sudo: false },
        Host { debian: true, sudo: true, .. } => Plan::Install { sudo: true },
        Host { ci: true, .. } => Plan::Fail,
        _ => Plan::Skip,
    }
}

/// Reads `ID` and `ID_LIKE` of an os-release file.
fn is_debian_like(os_release: &str) -> bool {
    let ids = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")));
    ids.flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
        .any(|id| id == "debian" || id == "ubuntu")
}

/// Installs with apt, twice if need be: mirrors and package locks have bad moments.
fn install(missing: &[&Package], sudo: bool) -> Result<()> {
    println!("setup: installing {}", names(missing));
    let mut output = String::new();
    for _ in 0..2 {
        // A failed update alone is no failure: one stale list need not concern our packages.
        let (_, update) = apt(sudo, &["update"], &[]).captured()?;
        let (done, install) = apt(sudo, &["install", "-y", "--no-install-recommends"], missing).captured()?;
        if done && missing.iter().all(|package| on_path(package.binary)) {
            return Ok(());
        }
        output = update + &install;
    }
    bail!("apt-get failed twice; its last words:\n{output}\n{}", request(missing));
}

fn apt(sudo: bool, verb: &[&str], packages: &[&Package]) -> Cmd {
    let cmd = if sudo { Cmd::new("sudo").args(["-n", "env"]) } else { Cmd::new("env") };
    // Another apt may be at work, as on a machine that has just started.
    let cmd = cmd.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=60"]);
    cmd.args(verb).args(packages.iter().map(|package| package.name))
}

fn request(missing: &[&Package]) -> String {
    let needs: Vec<String> = missing.iter().map(|p| format!("{} ({})", p.name, p.why)).collect();
    format!(
        "missing: {}. On Debian or Ubuntu run as root: apt-get install --no-install-recommends {}; \
         elsewhere install the program of that name",
        needs.join(", "),
        names(missing)
    )
}

fn names(packages: &[&Package]) -> String {
    packages.iter().map(|package| package.name).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAPTOP: Host = Host { debian: false, root: false, sudo: false, ci: false };

    #[test]
    fn debian_and_its_children_are_recognised() {
        assert!(is_debian_like("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(is_debian_like("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian_like("ID=fedora\nVARIANT_ID=debian\n"));
        assert!(!is_debian_like(""));
    }

    #[test]
    fn we_install_only_where_we_may() {
        assert_eq!(decide(&Host { debian: true, root: true, ..LAPTOP }), Plan::Install { sudo: false });
        assert_eq!(decide(&Host { debian: true, sudo: true, ..LAPTOP }), Plan::Install { sudo: true });
        assert_eq!(decide(&Host { debian: true, ..LAPTOP }), Plan::Skip);
        assert_eq!(decide(&Host { root: true, ..LAPTOP }), Plan::Skip);
    }

    #[test]
    fn ci_never_passes_without_its_judges() {
        assert_eq!(decide(&Host { ci: true, ..LAPTOP }), Plan::Fail);
        assert_eq!(decide(&Host { ci: true, debian: true, ..LAPTOP }), Plan::Fail);
        assert_eq!(
            decide(&Host { ci: true, debian: true, root: true, ..LAPTOP }),
            Plan::Install { sudo: false }
        );
    }

    #[test]
    fn the_request_names_package_purpose_and_command() {
        let text = request(&[&PACKAGES[0]]);
        assert!(text.contains("tshark (judges our frames)"));
        assert!(text.contains("apt-get install --no-install-recommends tshark"));
    }

    #[test]
    fn apt_goes_through_sudo_when_told() {
        let cmd = apt(true, &["update"], &[]).to_string();
        assert_eq!(
            cmd,
            "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=60 update"
        );
    }
}
