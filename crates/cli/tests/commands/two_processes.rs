//! `ferroce perf --server` and `--connect`: two processes.

use crate::run::{Out, Running, command, ferroce, finish, server};

fn measure(port: &str, args: &[&str]) -> Out {
    let common = ["--connect", "127.0.0.1", "--port", port];
    let args: Vec<&str> = ["perf"].iter().chain(args).chain(&common).copied().collect();
    ferroce(&args)
}

#[test]
fn every_verb_goes_between_two_processes() {
    let (mut server, port) = server(&["--forever"]);
    for verb in ["write", "read", "send", "atomic"] {
        for kind in ["--bw", "--lat", "--rate"] {
            let json = measure(&port, &[verb, kind, "-n", "200", "--verify", "--json"]).success().json();
            for row in json["rows"].as_array().unwrap() {
                assert_eq!((&row["messages"], &row["path"]), (&200.into(), &"wire".into()), "{row}");
            }
        }
    }
    server.child.kill().unwrap();
}

#[test]
fn a_server_ends_after_one_client_and_says_so() {
    let (server, port) = server(&[]);
    let text = measure(&port, &["send", "--lat", "-n", "100"]).success().stdout;
    assert!(text.starts_with("SEND latency: half a round trip, in us\npath wire: "), "{text}");
    let said = server.finish().success().stdout;
    assert!(said.starts_with("127.0.0.1:"), "{said}");
    assert!(said.contains(": send lat of 8 B, target poll\n") && said.ends_with(": 1 measured\n"), "{said}");
}

#[test]
fn a_server_says_that_it_serves_once_or_until_ctrl_c() {
    let once = "serves once and ends (--forever goes on); now run: ";
    for (options, words) in [(&[][..], once), (&["--forever"], "serves until Ctrl-C; now run: ")] {
        let args: Vec<&str> = ["perf", "--server", "--port", "0"].iter().chain(options).copied().collect();
        let mut server = Running::start(command(&args));
        let line = server.line();
        assert!(line.starts_with("listening at 127.0.0.1:") && line.contains(words), "{line}");
        let port = line.trim_end().rsplit(' ').next().unwrap().to_owned();
        let at = format!("127.0.0.1:{port}");
        let read = || ferroce(&["perf", "read", "-n", "20", "--connect", &at]);
        if options.is_empty() {
            read().success();
            assert!(server.finish().success().stdout.ends_with(": 1 measured\n"));
            let gone = read();
            assert!(gone.failure().contains("which serves once"), "{}", gone.stderr);
        } else {
            for _ in 0..3 {
                read().success();
                let said = [server.line(), server.line()];
                assert!(said[0].contains(": read bw of ") && said[1].ends_with(": 1 measured\n"), "{said:?}");
            }
            server.child.kill().unwrap();
            assert_eq!(server.finish().code, None, "it ends by the signal only");
        }
    }
}

#[test]
fn a_port_after_the_host_is_the_same_as_the_option() {
    let (server, port) = server(&["--bind", "::1"]);
    let at = format!("[::1]:{port}");
    let args = ["perf", "write", "-n", "20", "--connect", &at, "--port", &port, "--json"];
    assert_eq!(ferroce(&args).success().json()["rows"][0]["messages"], 20);
    server.finish().success();
}

#[test]
fn fifty_pairs_at_once_finish() {
    let servers: Vec<_> = (0..50).map(|_| server(&[])).collect();
    let clients: Vec<_> = servers
        .iter()
        .map(|(_, port)| {
            let args =
                ["perf", "write", "-n", "50", "--size", "4K", "--connect", "127.0.0.1", "--port", port];
            command(&args).spawn().unwrap()
        })
        .collect();
    for client in clients {
        finish(client).success();
    }
    for (server, _) in servers {
        server.finish().success();
    }
}

#[test]
fn a_server_that_dies_is_missed() {
    let (mut server, port) = server(&[]);
    let args =
        ["perf", "write", "--duration", "600", "--connect", "127.0.0.1", "--port", &port, "--size", "64"];
    let client = command(&args).spawn().unwrap();
    assert!(server.line().ends_with(": write bw of 64 B, target sleep\n"));
    server.child.kill().unwrap();
    let out = finish(client);
    assert!(out.failure().contains("the other end hung up"), "{}", out.stderr);
}
