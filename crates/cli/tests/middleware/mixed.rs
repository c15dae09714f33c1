//! Many different programs at once on one address, where packets are lost and some of the programs are killed.

use std::sync::mpsc;

use ferroce_testkit::judge;

use crate::fabric::pingpong;
use crate::pair::Pair;
use crate::support::{LOSS, is_long};

const ADDRESS: &str = "127.0.92.30";

const PROGRAMS: &[&str] = &["ucx_perftest", "fi_pingpong", "rping", "ib_write_bw", "ibv_rc_pingpong"];

/// A pair whose client has the same arguments as its server, and the address.
fn alike(words: &str) -> Pair {
    Pair::new(words, &format!("{words} 127.0.0.1"), ADDRESS)
}

fn ucx(transport: &str, words: &str) -> Pair {
    let variables = [("UCX_TLS", transport), ("UCX_NET_DEVICES", "ferroce_lo:1")];
    alike(&format!("ucx_perftest -p PORT {words}")).with(&variables)
}

fn rping(times: &str) -> Pair {
    Pair::new(
        &format!("rping -s -a ADDRESS -p PORT -V {times}"),
        &format!("rping -c -a ADDRESS -p PORT -V {times}"),
        ADDRESS,
    )
    .by_rdma()
}

/// Pairs that come to an end.
fn pairs(long: bool) -> Vec<Pair> {
    let n = if long { 20 } else { 1 };
    let mut pairs = vec![
        ucx("rc_v", &format!("-t tag_lat -s 8 -w 10 -n {}", 100 * n)),
        ucx("ud_v", &format!("-t tag_bw -s 65536 -w 5 -n {}", 20 * n)),
        pingpong("verbs;ofi_rxd", "rdm", ADDRESS, 2 * n),
        rping(&format!("-C {}", 20 * n)),
        alike(&format!("ib_write_bw -x 0 -s 65536 -p PORT -n {}", 100 * n)),
        alike(&format!("ibv_rc_pingpong -g 0 -p PORT -n {}", 100 * n)),
    ];
    if long {
        pairs.extend([
            ucx("rc_v", "-t ucp_fadd -s 8 -w 10 -n 2000"),
            ucx("ud_v", "-t ucp_get -s 8192 -w 10 -n 500"),
            ucx("rc_v", "-t stream_bw -s 8192 -w 10 -n 2000"),
            pingpong("verbs;ofi_rxd", "rdm", ADDRESS, 20),
            ucx("rc_v", "-t ucp_am_bw -s 8192 -w 10 -n 2000"),
            ucx("ud_v", "-t ucp_put_lat -s 8 -w 10 -n 500"),
            rping("-C 100"),
            alike("ib_read_bw -x 0 -s 65536 -p PORT -n 1000"),
            alike("ib_send_lat -x 0 -s 512 -p PORT -n 1000"),
            alike("ib_atomic_lat -x 0 -p PORT -n 1000"),
            alike("ibv_srq_pingpong -g 0 -p PORT -n 1000"),
            alike("ib_send_bw -x 0 -s 4096 -p PORT -n 2000"),
            alike("ibv_rc_pingpong -g 0 -e -p PORT -n 1000"),
            alike("ib_write_lat -x 0 -s 64 -p PORT -n 2000"),
        ]);
    }
    pairs
}

/// With packets lost, except where datagrams of libfabric are: its own repair does not always come to an end.
fn harmed(pairs: Vec<Pair>) -> Vec<Pair> {
    let with_loss =
        |pair: Pair| if pair.client.starts_with("fi_pingpong") { pair } else { pair.with(&[LOSS]) };
    pairs.into_iter().map(with_loss).collect()
}

/// Pairs that would never end.
fn victims(long: bool) -> Vec<Pair> {
    let mut victims = vec![
        ucx("rc_v", "-t tag_lat -s 8 -n 1000000000"),
        rping(""),
        alike("ibv_rc_pingpong -g 0 -p PORT -n 1000000000"),
    ];
    if long {
        victims.extend([
            ucx("ud_v", "-t tag_bw -s 8192 -n 1000000000"),
            pingpong("verbs;ofi_rxd", "rdm", ADDRESS, 100_000_000),
            alike("ib_write_bw -x 0 -p PORT --run_infinitely"),
        ]);
    }
    victims
}

/// Programs that are killed take nothing along: neither slots, nor ports, nor the part that hands packets on.
#[test]
fn pairs_of_all_kinds_end_well_while_others_are_killed() {
    if !PROGRAMS.iter().all(|program| judge::has_file(&format!("/usr/bin/{program}"))) {
        return;
    }
    let [pairs, victims] = [pairs(is_long()), victims(is_long())].map(harmed);
    let mut running = Vec::new();
    for victim in &victims {
        let mut both = victim.start_both().unwrap();
        both.wait_until_open().unwrap();
        running.push(both);
    }
    let (over, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        let run = |pair: &Pair, over: mpsc::Sender<()>| {
            let result = pair.try_run();
            let _ = over.send(());
            result.map_err(|both| format!("{}: {both}", pair.client))
        };
        let started = pairs.iter().map(|pair| (pair, over.clone()));
        let threads: Vec<_> = started.map(|(pair, over)| scope.spawn(move || run(pair, over))).collect();
        // The first victim dies at once, each other when a further pair is over: some early and some late.
        for (number, victim) in running.into_iter().enumerate() {
            if number > 0 {
                // A pair that hangs is ended by its time limit.
                ended.recv().unwrap();
            }
            drop(victim.kill());
        }
        let failures: Vec<String> = threads.into_iter().filter_map(|t| t.join().unwrap().err()).collect();
        let count = (failures.len(), pairs.len());
        assert!(failures.is_empty(), "{} of {} failed:\n{}", count.0, count.1, failures.join("\n\n"));
    });
}
