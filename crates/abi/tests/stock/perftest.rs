//! The perftest tools.

use crate::library::{are_here, is_long};
use crate::pairs::Pair;

const PROGRAMS: &[&str] = &[
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_atomic_bw",
    "ib_atomic_lat",
];

/// Runs a tool through memory that both its ends share, and over the network, and sees that it printed a line of figures for every
/// size.
fn measures(program: &str, args: &[&str], address: &str, sizes: &[&str]) {
    for path in ["prefer", "forbid"] {
        measures_over(path, program, args, address, sizes);
    }
}

/// The same by one path.
fn measures_over(path: &str, program: &str, args: &[&str], address: &str, sizes: &[&str]) {
    if !are_here(PROGRAMS) {
        return;
    }
    // Nothing is lost here, but on a busy machine a process may be kept waiting for longer than the usual
    // half second.
    let args = [&["-F", "-u", "17", "-x", "0", "-d", "ferroce_lo"], args].concat();
    let (client, _) = Pair { program, args: &args, address, variables: &[("FERROCE_PATH", path)] }.run();
    for size in sizes {
        let line = client.lines().find(|line| line.split_whitespace().next() == Some(size));
        let figures =
            line.map(|line| line.split_whitespace().skip(2).all(|word| word.parse::<f64>().is_ok()));
        assert_eq!(figures, Some(true), "no figures for {size} bytes: {client}");
    }
}

#[test]
fn send_over_all_services() {
    let address = "127.0.88.20";
    measures("ib_send_bw", &["-n", "100", "-s", "65536"], address, &["65536"]);
    measures("ib_send_bw", &["-n", "100", "-s", "4096", "-c", "UC"], address, &["4096"]);
    measures("ib_send_bw", &["-n", "100", "-s", "1024", "-c", "UD"], address, &["1024"]);
    measures("ib_send_lat", &["-n", "100", "-s", "64", "-I", "64"], address, &["64"]);
    measures("ib_send_lat", &["-n", "100", "-s", "8", "-e"], address, &["8"]);
}

/// Any other path is refused.
#[test]
fn the_tools_share_memory_where_they_must() {
    let address = "127.0.88.21";
    for (program, size) in [("ib_write_bw", "65536"), ("ib_read_bw", "65536"), ("ib_send_lat", "8")] {
        measures_over("shared", program, &["-n", "100", "-s", size], address, &[size]);
    }
    measures_over("shared", "ib_atomic_lat", &["-n", "100", "-A", "FETCH_AND_ADD"], address, &["8"]);
    measures_over("shared", "ib_send_bw", &["-n", "100", "-s", "4096", "-c", "UC"], address, &["4096"]);
}

#[test]
fn write_in_many_ways() {
    let address = "127.0.88.22";
    measures("ib_write_bw", &["-n", "50", "-a"], address, &["2", "4096", "1048576", "8388608"]);
    measures("ib_write_bw", &["-n", "100", "-s", "8192", "-b", "-q", "8"], address, &["8192"]);
    measures("ib_write_lat", &["-n", "100", "-s", "8"], address, &["8"]);
}

#[test]
fn read_and_atomics() {
    let address = "127.0.88.24";
    measures("ib_read_bw", &["-n", "100", "-s", "65536"], address, &["65536"]);
    measures("ib_read_lat", &["-n", "100", "-s", "8"], address, &["8"]);
    measures("ib_atomic_bw", &["-n", "100", "-A", "CMP_AND_SWAP"], address, &["8"]);
    measures("ib_atomic_lat", &["-n", "100", "-A", "FETCH_AND_ADD"], address, &["8"]);
}

/// Eight pairs, or fifty in the long form.
#[test]
fn many_pairs_at_once_share_an_address() {
    let count = if is_long() { 50 } else { 8 };
    let one = || measures("ib_write_bw", &["-n", "200", "-s", "65536"], "127.0.88.26", &["65536"]);
    let pairs: Vec<_> = (0..count).map(|_| std::thread::spawn(one)).collect();
    for pair in pairs {
        pair.join().unwrap();
    }
}

/// A third of the pairs dies in the middle; the others do not notice. The long form has more of them.
#[test]
fn pairs_that_are_killed_leave_the_others_as_they_are() {
    if !are_here(PROGRAMS) {
        return;
    }
    let count = if is_long() { 24 } else { 2 };
    const PAIR: Pair<'_> = Pair {
        program: "ib_write_bw",
        args: &["-F", "-x", "0", "-d", "ferroce_lo", "-s", "65536", "-D", "3"],
        address: "127.0.88.27",
        variables: &[],
    };
    let living: Vec<_> = (0..count).map(|_| std::thread::spawn(|| PAIR.run())).collect();
    let dying: Vec<_> = (0..count / 2).map(|_| std::thread::spawn(|| PAIR.run_and_kill())).collect();
    for pair in dying {
        pair.join().unwrap();
    }
    for pair in living {
        let (client, _) = pair.join().unwrap();
        assert!(client.contains("65536"), "{client}");
    }
}

/// Reliable connections keep their promise on a bad link. The long form has all tools.
#[test]
fn the_tools_of_reliable_connections_finish_on_a_bad_link() {
    if !are_here(PROGRAMS) {
        return;
    }
    let tools = if is_long() { PROGRAMS } else { &["ib_write_bw", "ib_read_bw"][..] };
    for program in tools {
        let args: &[&str] = match *program {
            "ib_atomic_bw" | "ib_atomic_lat" => &["-F", "-x", "0", "-n", "200"],
            _ => &["-F", "-x", "0", "-n", "200", "-s", "20000"],
        };
        let variables = &[("FERROCE_FAULTS", "loss=0.02,dup=0.01,reorder=0.02,seed=1")];
        Pair { program, args, address: "127.0.88.29", variables }.run();
    }
}

/// Every tool in every way that it has. Only in the long form: it takes minutes.
#[test]
fn the_whole_matrix() {
    let all: &[(&str, &str)] = &[
        ("ib_send_bw", "-a"),
        ("ib_write_bw", "-a"),
        ("ib_read_bw", "-a"),
        ("ib_send_lat", "-a"),
        ("ib_write_lat", "-a"),
        ("ib_read_lat", "-a"),
        ("ib_send_bw", "-b -q 8 -s 8192"),
        ("ib_write_bw", "-b -q 8 -s 8192"),
        ("ib_read_bw", "-b -q 8 -s 8192"),
        ("ib_read_bw", "-e -s 4096"),
        ("ib_send_bw", "-c UC -s 65536 -b"),
        ("ib_send_bw", "-c UD -s 1024 -b"),
        ("ib_send_lat", "-c UC -s 1024"),
        ("ib_send_lat", "-c UD -s 1024"),
        ("ib_write_bw", "-c UC -s 65536"),
        ("ib_write_lat", "-c UC -s 64"),
        ("ib_atomic_bw", "-A CMP_AND_SWAP -b -q 4"),
        ("ib_atomic_bw", "-A FETCH_AND_ADD -b -q 4"),
        ("ib_atomic_lat", "-A CMP_AND_SWAP"),
        ("ib_write_bw", "-s 64 -I 64 -l 10"),
        ("ib_send_bw", "-s 4096 -r 64 --use-srq -q 4"),
    ];
    // The short form has one of them, so that the list stays true.
    let chosen = if is_long() { all } else { &all[19..20] };
    for (program, ways) in chosen {
        let args: Vec<&str> = ["-n", "100"].into_iter().chain(ways.split_whitespace()).collect();
        for address in ["127.0.88.28", "::1"] {
            measures(program, &args, address, &[]);
        }
    }
}
