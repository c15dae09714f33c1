//! The perftest tools.

use crate::library::are_here;
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

/// Runs a tool, and sees that it printed a line of figures for every size.
fn measures(program: &str, args: &[&str], address: &str, sizes: &[&str]) {
    if !are_here(PROGRAMS) {
        return;
    }
    let args = [&["-F", "-x", "0", "-d", "ferroce_lo"], args].concat();
    let (client, _) = Pair { program, args: &args, address, variables: &[] }.run();
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

#[test]
fn eight_pairs_at_once_share_an_address() {
    let pairs: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                measures("ib_write_bw", &["-n", "200", "-s", "65536"], "127.0.88.26", &["65536"]);
            })
        })
        .collect();
    for pair in pairs {
        pair.join().unwrap();
    }
}
