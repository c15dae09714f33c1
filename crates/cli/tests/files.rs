//! The kernel's files of RDMA devices under `ferroce run`, as programs look for them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::env;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use ferroce_testkit::judge;

/// The folder of the libraries: from `cargo xtask test`, or linked here.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        env::var_os("FERROCE_ABI").map_or_else(
            || {
                let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
                let mut command = Command::new(env!("CARGO"));
                command.args(["xtask", "link-abi"]).current_dir(root).stdout(Stdio::null());
                assert!(command.status().unwrap().success());
                Path::new(env!("CARGO_BIN_EXE_ferroce")).with_file_name("abi")
            },
            PathBuf::from,
        )
    })
}

/// `ferroce run` of a program that is ended when it hangs, and that puts what it writes into a folder of the tests.
fn run(address: &str, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", env!("CARGO_BIN_EXE_ferroce"), "run"]).args(args);
    command.env("FERROCE_LIBRARIES", libraries()).env("FERROCE_ADDRESS", address);
    command.env("TMPDIR", env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    for name in ["LD_LIBRARY_PATH", "LD_PRELOAD", "FERROCE_NETDEV", "FERROCE_FAULTS", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    said(&output)
}

/// A folder with a file, a link to it and a folder in it.
fn outside(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).canonicalize().unwrap().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("file"), "outside\n").unwrap();
    symlink("file", folder.join("link")).unwrap();
    folder
}

fn compiled(name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/files.c");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new("gcc");
    command.args(["-Wall", "-Werror", "-D_GNU_SOURCE"]).args(flags).arg("-o").arg(&binary).arg(source);
    let output = command.arg("-ldl").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    binary
}

#[test]
fn every_function_finds_our_files_and_leaves_others_as_they_are() {
    if !judge::is_here("gcc") {
        return;
    }
    let folder = outside("files-outside");
    // Compilers put other functions in the place of some where they check.
    for (name, flags) in [("files-plain", &[][..]), ("files-checked", &["-O2", "-D_FORTIFY_SOURCE=2"])] {
        let program = compiled(name, flags);
        let [program, folder] = [&program, &folder].map(|path| path.to_str().unwrap());
        assert_eq!(succeeds(run("127.0.89.40", &["--", program, folder, "1"])), "0 surprises\n");
        assert_eq!(
            succeeds(run("127.0.89.40", &["--no-files", "--", program, folder, "0"])),
            "0 surprises\n"
        );
    }
}

#[test]
fn a_user_without_any_right_finds_them_too() {
    if !judge::is_here("gcc") || !judge::has_file("/usr/bin/setpriv") {
        return;
    }
    let is_root = fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .any(|line| line.split_whitespace().take(2).eq(["Uid:", "0"]));
    if !is_root {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let open = env::temp_dir().join(format!("ferroce-files-test-{}", std::process::id()));
    fs::create_dir_all(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    let program = compiled("files-nobody", &[]);
    let binary = Path::new(env!("CARGO_BIN_EXE_ferroce"));
    for (from, to) in [(binary, "ferroce"), (&program, "program")] {
        fs::copy(from, open.join(to)).unwrap();
    }
    for library in ["libferroce.so.0", "libibverbs.so.1", "librdmacm.so.1", "libferroce_files.so"] {
        fs::copy(libraries().join(library), open.join(library)).unwrap();
    }
    let outside = open.join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(outside.join("file"), "outside\n").unwrap();
    symlink("file", outside.join("link")).unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(open.join("ferroce")).args(["run", "--"]).arg(open.join("program")).arg(&outside).arg("1");
    command.env("FERROCE_LIBRARIES", &open).env("TMPDIR", &open).env_remove("XDG_RUNTIME_DIR");
    let output = command.output().unwrap();
    fs::remove_dir_all(&open).unwrap();
    assert_eq!(said(&output), "0 surprises\n");
}

#[test]
fn python_and_ls_see_them() {
    if !judge::is_here("python3") {
        return;
    }
    let script = "import os, stat; top = '/sys/class/infiniband/ferroce_lo'\n\
                  assert os.listdir('/sys/class/infiniband') == ['ferroce_lo']\n\
                  assert os.path.exists(top + '/device/net/lo') and not os.path.exists(top + '/none')\n\
                  assert stat.S_ISCHR(os.stat('/dev/infiniband/uverbs0').st_mode)\n\
                  assert [e.name for e in os.scandir('/sys/class/net/lo/device/infiniband')] == ['ferroce_lo']\n\
                  assert open(top + '/ports/1/gid_attrs/types/0').read() == 'RoCE v2\\n'\n\
                  assert open(top + '/ports/1/gid_attrs/ndevs/0').read() == 'lo\\n'\n\
                  assert os.path.realpath(top + '/device') == top + '/device'\n\
                  assert sum(len(files) for _, _, files in os.walk(top)) > 20\n\
                  print('seen')";
    assert_eq!(succeeds(run("127.0.89.41", &["--", "python3", "-c", script])), "seen\n");
    let folders = ["/sys/class/infiniband", "/dev/infiniband", "/sys/class/infiniband_verbs"];
    let said = succeeds(run("127.0.89.41", &[&["--", "ls", "-lR"], &folders[..]].concat()));
    assert!(!said.contains("No such file"), "{said}");
    let node = said.lines().find(|line| line.ends_with("uverbs0") && !line.starts_with('/'));
    assert!(node.is_some_and(|line| line.starts_with("crw-rw-rw-")), "{said}");
}

/// It was: the run ended with an error, though most programs do without the files.
#[test]
fn where_they_cannot_be_written_the_program_runs_without_them() {
    let mut command = run("127.0.89.43", &["--", "sh", "-c", "echo runs; test -z \"$FERROCE_FILES\""]);
    command.env("TMPDIR", "/proc/no-such-folder").env_remove("FERROCE_FILES");
    let said = succeeds(command);
    let lines: Vec<_> = said.lines().collect();
    assert!(
        matches!(lines[..], ["runs", why] if why.starts_with("ferroce: the program sees no files")),
        "{said}"
    );
}

/// It was: behind a link, `realpath` said where our folder is.
#[test]
fn a_folder_behind_a_link_is_not_seen_either() {
    if !judge::is_here("gcc") {
        return;
    }
    let folder = outside("files-behind-link");
    let link = folder.with_extension("link");
    let _ = fs::remove_file(&link);
    symlink(&folder, &link).unwrap();
    let program = compiled("files-behind", &[]);
    let [program, folder] =
        [&program, &outside("files-outside-link")].map(|path| path.to_str().unwrap().to_owned());
    let mut command = run("127.0.89.44", &["--", &program, &folder, "1"]);
    command.env("TMPDIR", &link);
    assert_eq!(succeeds(command), "0 surprises\n");
}

/// A program that looks for none of them makes the same system calls as without the library.
#[test]
fn other_programs_are_left_alone() {
    if !judge::has_file("/usr/bin/strace") {
        return;
    }
    let said = succeeds(run("127.0.89.42", &["--", "strace", "-f", "cat", "/dev/null"]));
    assert!(said.contains("libferroce_files.so"), "{said}");
    let calls = ["ferroce-files-", "socket(", "clone(", "clone3(", "infiniband"];
    let lines = said.lines().filter(|line| !line.contains("execve"));
    let surprising: Vec<_> = lines.filter(|line| calls.iter().any(|call| line.contains(call))).collect();
    assert!(surprising.is_empty(), "{surprising:?}");
}

#[test]
fn ucx_finds_connections_and_datagrams_on_the_device() {
    if !judge::has_file("/usr/bin/ucx_info") {
        return;
    }
    let said = succeeds(run("127.0.89.43", &["--", "ucx_info", "-d"]));
    for transport in ["rc_verbs", "ud_verbs"] {
        let mut lines = said.lines().skip_while(|line| !line.ends_with(&format!("Transport: {transport}")));
        let device = lines.nth(1).unwrap_or_default();
        assert!(device.ends_with("Device: ferroce_lo:1"), "{transport}: {said}");
    }
}

#[test]
fn ucx_needs_no_setting_but_its_selectors() {
    if !judge::has_file("/usr/bin/ucx_perftest") {
        return;
    }
    let tests = [("rc_v", "tag_lat", "8"), ("rc_v", "tag_bw", "65536"), ("rc_v", "ucp_fadd", "8")];
    let datagrams = [("ud_v", "tag_lat", "8"), ("ud_v", "tag_bw", "65536")];
    for (transport, test, size) in tests.into_iter().chain(datagrams) {
        let port = free_port().to_string();
        let args = ["--", "ucx_perftest", "-t", test, "-s", size, "-n", "100", "-w", "10", "-p", &port];
        let started = |to: &[&str]| {
            let mut command = run("127.0.89.44", &[&args[..], to].concat());
            command.env("UCX_TLS", transport).env("UCX_NET_DEVICES", "ferroce_lo:1");
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let server = started(&[]);
        // It is started again until the server listens.
        let tried = (0..TRIES).map(|_| started(&["127.0.0.1"]).wait_with_output().unwrap());
        let is_over = |client: &Output| client.status.success() || !said(client).contains("refused");
        let client = tried.into_iter().find(is_over).expect("the server never listened");
        let server = server.wait_with_output().unwrap();
        let both = format!("{transport} {test}: {}\n{}", said(&client), said(&server));
        assert!(client.status.success() && server.status.success(), "{both}");
        assert!(said(&client).contains("Final:"), "{both}");
    }
}

#[test]
fn libfabric_finds_the_device() {
    if !judge::has_file("/usr/bin/fi_info") {
        return;
    }
    let said = succeeds(run("127.0.89.45", &["--", "fi_info", "-p", "verbs"]));
    assert!(said.contains("domain: ferroce_lo"), "{said}");
}

#[test]
fn the_tool_of_iproute2_shows_nothing_and_the_reason_is_said() {
    let rdma =
        ["/usr/bin/rdma", "/usr/sbin/rdma", "/sbin/rdma"].into_iter().find(|path| Path::new(path).exists());
    let Some(rdma) = rdma else {
        println!("SKIPPED: there is no rdma of iproute2");
        return;
    };
    let output = run("127.0.89.46", &["--", rdma, "link"]).output().unwrap();
    let said = said(&output);
    assert!(said.contains("asks the kernel by netlink") && said.contains("ferroce stat"), "{said}");
}

/// How often a client is started until its server listens.
const TRIES: usize = 200;

/// A TCP port that no program has.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Where Debian has the tests of rdma-core.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";

/// They look for the interface of a device among these files, and use its first address.
#[test]
fn the_tests_of_rdma_core_for_rdma_cm_pass() {
    if !judge::has_file("/usr/bin/python3") || !judge::has_file(&format!("{SUITE}/run_tests.py")) {
        return;
    }
    let suite = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rdmacm-suite");
    let copied = format!("rm -rf {0} && cp -r {SUITE} {0} && gunzip -f {0}/*.gz", suite.display());
    assert!(Command::new("sh").args(["-c", &copied]).status().unwrap().success());
    let mut command =
        run("127.0.0.1", &["--", "/usr/bin/python3", "run_tests.py", "--dev", "ferroce_lo", "-v", "-k"]);
    command.arg("test_rdmacm.CMTestCase").current_dir(&suite);
    let said = succeeds(command);
    let passed = said.lines().filter(|line| line.ends_with("... ok")).count();
    assert_eq!(passed, 10, "{said}");
}
