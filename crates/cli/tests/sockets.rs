//! Programs with TCP sockets, over RDMA by `ferroce run --sockets`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use ferroce_testkit::judge;

/// How often a client is started until its server listens.
const TRIES: usize = 400;

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

/// `ferroce run --sockets` of a program that is ended when it hangs.
fn run(address: &str, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "90", env!("CARGO_BIN_EXE_ferroce"), "run", "--sockets", "--"]).args(args);
    command.env("FERROCE_LIBRARIES", libraries()).env("FERROCE_ADDRESS", address);
    command.env("TMPDIR", env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    for name in ["LD_LIBRARY_PATH", "LD_PRELOAD", "FERROCE_NETDEV", "FERROCE_FAULTS", "http_proxy"] {
        command.env_remove(name);
    }
    command
}

fn end(mut child: Child) {
    // `timeout` hands the signal on.
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let _ = child.wait();
}

/// A server of one thread for each connection, which polls; it asks for no names.
const THREADS: &str = "
import http.server, socketserver, sys
class Server(http.server.ThreadingHTTPServer):
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = 'here', self.server_address[1]
Server((sys.argv[1], int(sys.argv[2])), http.server.SimpleHTTPRequestHandler).serve_forever()
";

/// A server of one thread for all connections, by epoll.
const EPOLL: &str = "
import asyncio, sys
async def serve(reader, writer):
    request = await reader.readuntil(b'\\r\\n\\r\\n')
    body = open(request.split()[1].decode()[1:], 'rb').read()
    writer.write(b'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]))
    async with server:
        await server.serve_forever()
asyncio.run(main())
";

/// The same with edges: what is ready is told once, until it is used.
const EDGES: &str = "
import select, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
listener.setblocking(False)
epoll = select.epoll()
epoll.register(listener, select.EPOLLIN | select.EPOLLET)
clients = {}
def go_on(fd):
    connection, wish, answer = clients[fd]
    try:
        while answer is None:
            wish += connection.recv(1000)
            if b'\\r\\n\\r\\n' in wish:
                body = open(wish.split()[1].decode()[1:], 'rb').read()
                answer = b'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body
        while answer:
            answer = answer[connection.send(answer):]
        connection.close()
        del clients[fd]
    except BlockingIOError:
        clients[fd] = connection, wish, answer
while True:
    for fd, events in epoll.poll():
        if fd != listener.fileno():
            go_on(fd)
            continue
        try:
            while True:
                connection = listener.accept()[0]
                connection.setblocking(False)
                clients[connection.fileno()] = connection, b'', None
                epoll.register(connection, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        except BlockingIOError:
            pass
";

/// Has a server give a file to a client, several times and several at once, and compares it.
fn serves(script: &str, address: &str, port: &str) {
    if !judge::is_here("curl") || !judge::is_here("python3") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sockets-{address}"));
    fs::create_dir_all(&folder).unwrap();
    let bytes: Vec<u8> = (0..2_000_003_u32).map(|number| number.wrapping_mul(31).to_le_bytes()[1]).collect();
    fs::write(folder.join("file"), &bytes).unwrap();
    let mut server = run(address, &["python3", "-c", script, address, port]);
    let log = fs::File::create(folder.join("log")).unwrap();
    server.current_dir(&folder).stdout(log.try_clone().unwrap()).stderr(log);
    let server = server.spawn().unwrap();
    let url = format!("http://{address}:{port}/file");
    let get = || run(address, &["curl", "-sS", "--noproxy", "*", &url]).output().unwrap();
    // 7: the server does not listen yet.
    let first = (0..TRIES).map(|_| get()).find(|output| output.status.code() != Some(7)).unwrap();
    let is_tcp = TcpStream::connect((address, port.parse().unwrap())).is_ok();
    let more: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    end(server);
    let log = fs::read_to_string(folder.join("log")).unwrap();
    for output in [first].iter().chain(&more) {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {complaint}\nserver: {log}", output.status);
        assert!(output.stdout == bytes, "{} bytes: {complaint}\nserver: {log}", output.stdout.len());
    }
    assert!(!is_tcp, "the server listens on TCP: the file did not go over RDMA");
}

#[test]
fn a_server_of_threads_gives_files_over_rdma() {
    serves(THREADS, "127.0.90.20", "8080");
}

#[test]
fn a_server_with_epoll_gives_files_over_rdma() {
    serves(EPOLL, "127.0.90.21", "8081");
}

#[test]
fn a_server_with_edges_gives_files_over_rdma() {
    serves(EDGES, "127.0.90.22", "8082");
}

#[test]
fn iperf3_sends_its_stream_over_rdma() {
    const BYTES: u64 = 30_000_000;
    if !judge::is_here("iperf3") {
        return;
    }
    let (address, port) = ("127.0.90.23", "5301");
    let mut server = run(address, &["iperf3", "-s", "-1", "-B", address, "-p", port]);
    let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let bytes = BYTES.to_string();
    let client =
        || run(address, &["iperf3", "-J", "-c", address, "-p", port, "-n", &bytes]).output().unwrap();
    let is_refused = |output: &Output| String::from_utf8_lossy(&output.stdout).contains("refused");
    let client = (0..TRIES).map(|_| client()).find(|output| !is_refused(output)).unwrap();
    let server = server.wait_with_output().unwrap();
    let said = [&client, &server].map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    assert!(client.status.success() && server.status.success(), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&said[0]).unwrap();
    // When the client says that it is done, the server counts what it has read; the rest is in the buffers of both.
    let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
    assert!(received + (2 << 20) >= BYTES, "{report}");
    // The kernel's TCP has a maximum segment size to tell of, and a count of segments sent again.
    let sender = &report["end"]["streams"][0]["sender"];
    assert_eq!(sender["max_snd_cwnd"].as_u64().unwrap_or(0), 0, "this is the kernel's TCP: {report}");
}

/// The program of `tests/c/sockets.c`.
fn program() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/sockets.c");
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sockets-{}", std::process::id()));
        let mut command = Command::new("gcc");
        command.args(["-O1", "-Wall", "-Werror", "-Wno-unused-result", "-pthread", "-o"]);
        let output = command.arg(&binary).arg(source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        binary
    })
}

/// Runs one part of it.
fn does(part: &str, address: &str) {
    if !judge::is_here("gcc") {
        return;
    }
    let mut command = run(address, &[program().to_str().unwrap(), part, address]);
    let output = command.output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let nothing_odd = said[0].ends_with(&format!("{part}: 0 surprises\n"));
    assert!(output.status.success() && nothing_odd, "{}: {}{}", output.status, said[0], said[1]);
}

#[test]
fn one_thread_of_several_is_told_of_what_is_told_once() {
    does("told", "127.0.90.24");
}

#[test]
fn an_edge_after_another_thread_has_read_is_told() {
    does("edges", "127.0.90.25");
}

#[test]
fn all_threads_that_wait_hear_of_a_socket_that_is_added() {
    does("added", "127.0.90.26");
}

#[test]
fn a_wait_is_over_in_time_while_the_set_changes() {
    does("times", "127.0.90.27");
}

#[test]
fn a_socket_that_becomes_the_kernels_keeps_its_number_all_the_time() {
    does("falls", "127.0.90.28");
}

#[test]
fn a_socket_ends_with_the_last_of_its_numbers() {
    does("copies", "127.0.90.29");
}

#[test]
fn children_that_close_all_leave_sockets_of_their_parent_alone() {
    does("children", "127.0.90.30");
}

#[test]
fn a_signal_that_came_before_a_wait_ends_it() {
    does("signals", "127.0.90.31");
}

/// A client that starts other programs by `vfork`, which close its descriptors, while it is connected.
const STARTS: &str = "
import socket, subprocess, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
here = socket.create_connection((sys.argv[1], int(sys.argv[2])))
there = listener.accept()[0]
for number in range(5):
    assert subprocess.run(['true'], close_fds=True).returncode == 0
    here.sendall(b'%d' % number)
    assert there.recv(10) == b'%d' % number
";

#[test]
fn a_program_keeps_its_sockets_when_it_starts_others() {
    if !judge::is_here("python3") {
        return;
    }
    let address = "127.0.90.32";
    let output = run(address, &["python3", "-c", STARTS, address, "8083"]).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
