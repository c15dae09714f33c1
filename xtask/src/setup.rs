//! The programs the tests need and cargo cannot bring: installed where that is ours to do, else asked for.

use std::env;
use std::fs;

use anyhow::{Result, bail};

use crate::say::say;
use crate::shell::{Cmd, on_path};

/// A Debian package some test needs.
struct Package {
    name: &'static str,
    /// If this program is on the path, or this file is there, the package counts as there.
    binary: &'static str,
    why: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "tshark", binary: "tshark", why: "judges our frames" },
    Package { name: "g++", binary: CXX, why: "compiles libFuzzer for the fuzz targets" },
    Package { name: "iproute2", binary: "ip", why: "joins network namespaces, also that of the guest" },
    Package { name: "nftables", binary: "nft", why: "counts and drops packets in routers of tests" },
    Package { name: "qemu-system-x86", binary: "qemu-system-x86_64", why: GUEST },
    Package { name: "gcc", binary: "gcc", why: "links the drop-in library" },
    Package {
        name: "libibverbs-dev",
        binary: "/usr/include/infiniband/verbs.h",
        why: "knows the layouts of C structures",
    },
    Package {
        name: "librdmacm-dev",
        binary: "/usr/include/rdma/rdma_cma.h",
        why: "knows the layouts of C structures",
    },
    Package { name: "binutils", binary: "readelf", why: "names the symbols of libraries" },
    Package { name: "ibverbs-utils", binary: "ibv_rc_pingpong", why: STOCK },
    Package { name: "rdmacm-utils", binary: "rping", why: STOCK },
    Package { name: "perftest", binary: "ib_write_bw", why: STOCK },
    Package { name: "python3-pyverbs", binary: "/usr/share/doc/rdma-core/tests/run_tests.py", why: STOCK },
    Package {
        name: "python3-venv",
        binary: "/usr/share/doc/python3-venv/copyright",
        why: "keeps packages of Python apart, which judge the controller, exports and traces",
    },
    Package { name: "strace", binary: "strace", why: "sees what a library does when it is loaded" },
    Package { name: "ucx-utils", binary: "ucx_perftest", why: STOCK },
    Package { name: "openmpi-bin", binary: "mpirun", why: STOCK },
    Package {
        name: "libopenmpi-dev",
        binary: "mpicc",
        why: "compiles ranks that run on the drop-in library",
    },
    Package { name: "libfabric-bin", binary: "fi_pingpong", why: STOCK },
    Package { name: "iperf3", binary: "iperf3", why: "sends its streams over RDMA" },
    Package { name: "curl", binary: "curl", why: "fetches files over RDMA" },
    Package {
        name: "valgrind",
        binary: "valgrind",
        why: "counts the instructions of refusals for `cargo xtask bench`",
    },
    Package {
        name: "prometheus",
        binary: "promtool",
        why: "scrapes `ferroce stat` and a mesh, and judges what it gets",
    },
    Package {
        name: "postgresql",
        binary: "pg_ctlcluster",
        why: "keeps what several controllers of a mesh share",
    },
    Package {
        name: "chromium",
        binary: "chromium",
        why: "clicks through the pages of a mesh and of a time-line",
    },
    Package { name: "kmod", binary: "depmod", why: GUEST },
    Package { name: "cpio", binary: "cpio", why: GUEST },
    Package { name: "zstd", binary: "zstd", why: GUEST },
];

/// The packages that would start a service when they are installed, and must not.
const SERVICES: &[&str] = &["postgresql", "prometheus"];

/// Programs that know nothing of us.
const STOCK: &str = "runs on the drop-in library";

/// Why many of them are needed.
const GUEST: &str = "for the guest whose kernel we interoperate with";

/// What the guest needs beside that.
const FOR_GUEST_TOO: &[&str] = &["iproute2", "gcc", "libibverbs-dev", "binutils"];

/// What cargo's build scripts call a C++ compiler.
const CXX: &str = "c++";

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
            say!(
                "NOTICE: {}\nUntil then what needs it is skipped, each time with a notice.",
                request(&missing)
            );
            Ok(format!("without {}: what needs it is skipped", names(&missing)))
        }
    }
}

/// The variable that tells the tests whether skipping is failing: `1` or `0`.
///
/// The tests read it in `crates/testkit/src/judge.rs`. Without it, as under plain `cargo test`, they
/// decide by the same rule, written there in the same words.
pub(crate) const REQUIRE_ALL: &str = "FERROCE_REQUIRE_ALL";

/// The value for [`REQUIRE_ALL`] on this machine.
pub(crate) fn require_all() -> &'static str {
    if skipping_is_failing() { "1" } else { "0" }
}

/// Whether a missing program must fail what needs it.
pub(crate) fn skipping_is_failing() -> bool {
    must_not_skip(is_ci(), is_root(), is_debian_like(&os_release()))
}

/// What is missing for the guest of the interoperability tests, if anything is.
pub(crate) fn missing_for_guest() -> Option<String> {
    let needed =
        PACKAGES.iter().filter(|package| package.why == GUEST || FOR_GUEST_TOO.contains(&package.name));
    let missing: Vec<&Package> = needed.filter(|package| !on_path(package.binary)).collect();
    if !is_debian_like(&os_release()) || !on_path("apt-get") {
        return Some(
            "the guest is made from Debian packages: run it on Debian or one of its children".into(),
        );
    }
    (!missing.is_empty()).then(|| request(&missing))
}

/// Whether C++ can be compiled here.
pub(crate) fn has_cxx() -> bool {
    on_path(CXX)
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
        Self {
            debian: is_debian_like(&os_release()),
            root: is_root(),
            sudo: matches!(Cmd::new("sudo").args(["-n", "true"]).captured(), Ok((true, _))),
            ci: is_ci(),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Plan {
    Install { sudo: bool },
    Fail,
    Skip,
}

/// A machine we may install on gets the packages; where skipping is failing we fail at once; a
/// developer's own machine is asked.
const fn decide(host: &Host) -> Plan {
    match *host {
        Host { debian: true, root: true, .. } => Plan::Install { sudo: false },
        Host { debian: true, sudo: true, .. } => Plan::Install { sudo: true },
        Host { debian, root, ci, .. } if must_not_skip(ci, root, debian) => Plan::Fail,
        _ => Plan::Skip,
    }
}

/// In CI notices are not read; as root on Debian, `cargo xtask setup` could have installed it.
const fn must_not_skip(ci: bool, root: bool, debian: bool) -> bool {
    ci || (root && debian)
}

fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty())
}

pub(crate) fn is_root() -> bool {
    matches!(Cmd::new("id").arg("-u").captured(), Ok((true, id)) if id.trim() == "0")
}

fn os_release() -> String {
    fs::read_to_string("/etc/os-release").unwrap_or_default()
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
    say!("setup: installing {}", names(missing));
    let mut output = String::new();
    for package in missing.iter().filter(|package| SERVICES.contains(&package.name)) {
        // Tests start the program themselves, at addresses of their own; the service would listen, too. Where there is no such manager of services, none is started.
        let cmd = if sudo { Cmd::new("sudo").args(["-n", "systemctl"]) } else { Cmd::new("systemctl") };
        let _ = cmd.args(["mask", package.name]).captured();
    }
    for _ in 0..2 {
        // A failed update alone is no failure: one stale list need not concern our packages.
        let (_, update) = apt(sudo, &["update"], &[]).shown().captured()?;
        let (done, install) =
            apt(sudo, &["install", "-y", "--no-install-recommends"], missing).shown().captured()?;
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
         elsewhere install what has that name",
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
    use crate::shell::root;

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

    /// The tests cannot call xtask, so the rule stands twice; it must not drift apart.
    #[test]
    fn the_tests_skip_by_the_same_rule() {
        let judge = fs::read_to_string(root().join("crates/testkit/src/judge.rs")).unwrap();
        let body = |text: &str, name: &str| {
            let start = text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("no {name}"));
            text[start..].split("\n}\n").next().unwrap_or_default().to_owned()
        };
        for name in ["must_not_skip", "is_ci", "is_debian_like", "os_release"] {
            assert_eq!(body(&judge, name), body(include_str!("setup.rs"), name));
        }
        assert!(judge.contains(&format!("\"{REQUIRE_ALL}\"")));
    }

    #[test]
    fn the_request_names_package_purpose_and_command() {
        let text = request(&[&PACKAGES[0], &PACKAGES[1]]);
        assert!(text.contains("tshark (judges our frames), g++ (compiles libFuzzer"), "{text}");
        assert!(text.contains("apt-get install --no-install-recommends tshark g++;"), "{text}");
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
