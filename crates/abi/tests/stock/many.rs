//! Every program that `docs/drop-in.md` names for connections by rdma_cm and for rsockets, with the lines that stand
//! there: once, or many times in the long form.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::library::{are_here, is_long};
use crate::meeting::Manner::{Ends, GoesOn, Listens, TakesDatagrams};
use crate::meeting::Over::{Both, V4, V6};
use crate::meeting::{Manner, Meeting, Over, WIRE};

/// How often each is run in the long form.
const TIMES: usize = 100;

/// How often perftest's tools are run, both ends of which keep a processor each busy.
const FEWER: usize = 10;

/// How often those are run that take a minute.
const FEW: usize = 3;

/// After how many of them there is a line that says how far it is.
const STEP: usize = 25;

/// Chooses lines of the table: those of the server begin so.
const ONLY: &str = "FERROCE_ONLY";

const fn meets(server: &'static str, client: &'static str, over: Over) -> Meeting {
    Meeting { server, client, manner: Ends, over, proof: ["", ""], times: [1, TIMES] }
}

impl Meeting {
    const fn saying(self, client: &'static str, server: &'static str) -> Self {
        Self { proof: [client, server], ..self }
    }

    const fn fewer(self) -> Self {
        Self { times: [1, FEWER], ..self }
    }

    /// Too long for each change.
    const fn few(self) -> Self {
        Self { times: [0, FEW], ..self }
    }

    const fn serving(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    fn pace(&self) -> Pace {
        if program(self.server) == "mckey" {
            Pace::Sleeps
        } else if self.times == [0, FEW] {
            Pace::Works
        } else {
            Pace::Quick
        }
    }
}

/// How a meeting goes, which says what may run beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// It takes a moment.
    Quick,
    /// It sleeps for some seconds.
    Sleeps,
    /// It keeps two processors busy for a minute.
    Works,
}

const MEETINGS: &[Meeting] = &[
    meets("rping -s -a A -C 20 -V -v", "rping -c -a A -C 20 -V -v", Both)
        .saying("rdma-ping-19", "rdma-ping-19"),
    meets("rping -s -P -a A -V", "rping -c -a A -C 20 -V", Both).serving(GoesOn(3)),
    meets("ucmatose -b A -c 5 -C 10", "ucmatose -s A -c 5 -C 10", Both),
    meets("ucmatose -b A -m", "ucmatose -s A -m", Both),
    meets("udaddy -b A -c 3 -C 10", "udaddy -s A -c 3 -C 10", Both),
    meets("mckey -m 239.89.13.1 -b A", "mckey -m 239.89.13.1 -b A -s", V4)
        .serving(Listens)
        .saying("", "data transfers complete"),
    meets("mckey -m ff0e::89:13 -b A", "mckey -m ff0e::89:13 -b A -s", V6)
        .serving(Listens)
        .saying("", "data transfers complete"),
    meets("rdma_server -s A -p 7471", "rdma_client -s A -p 7471", Both).saying("end 0", "end 0"),
    meets("rdma_server -p 7471", "rdma_client -s A -p 7471", V4).saying("end 0", "end 0"),
    // It asks for a queue pair without inline bytes and sends sixteen: they fit where the gather list would be.
    meets("rdma_xserver -p 7471", "rdma_xclient -s A -p 7471", V4).saying("end 0", "end 0"),
    meets("cmtime -b A", "cmtime -s A -c 1000", Both).serving(GoesOn(1)),
    meets("ib_write_bw -R -n 100", "ib_write_bw -R -n 100 A", V4).fewer(),
    meets("ib_write_lat -R -n 100", "ib_write_lat -R -n 100 A", V4).fewer(),
    meets("ib_send_bw -R -n 100", "ib_send_bw -R -n 100 A", V4).fewer(),
    meets("ib_send_lat -R -n 100", "ib_send_lat -R -n 100 A", V4).fewer(),
    meets("ib_read_bw -R -n 100", "ib_read_bw -R -n 100 A", V4).fewer(),
    meets("ib_read_lat -R -n 100", "ib_read_lat -R -n 100 A", V4).fewer(),
    meets("ib_atomic_bw -R -n 100", "ib_atomic_bw -R -n 100 A", V4).fewer(),
    meets("ib_atomic_lat -R -n 100", "ib_atomic_lat -R -n 100 A", V4).fewer(),
    meets("ib_send_bw -R -n 100 -c UD", "ib_send_bw -R -n 100 -c UD A", V4).fewer(),
    meets("rstream -b A -S 64 -C 50 -I 20 -T v", "rstream -s A -S 64 -C 50 -I 20 -T v", Both)
        .saying("custom", "custom"),
    meets("rstream -b A -S 65536 -C 20 -I 5 -T v", "rstream -s A -S 65536 -C 20 -I 5 -T v", Both)
        .saying("custom", "custom"),
    meets("rstream -b A -S 1000000 -C 3 -I 3 -T v -T a", "rstream -s A -S 1000000 -C 3 -I 3 -T v -T a", Both)
        .saying("custom", "custom"),
    meets("rstream -b A -S 8192 -C 100 -I 5 -T v -T b", "rstream -s A -S 8192 -C 100 -I 5 -T v -T b", Both)
        .saying("custom", "custom"),
    meets("rstream -b A -S 8192 -C 100 -I 5 -T v -T n", "rstream -s A -S 8192 -C 100 -I 5 -T v -T n", Both)
        .saying("custom", "custom"),
    meets("rstream -b A -S all -T v", "rstream -s A -S all -T v", Both).saying("1m", "1m").few(),
    meets("riostream -b A -S 64 -C 50 -I 10 -T v", "riostream -s A -S 64 -C 50 -I 10 -T v", Both)
        .saying("custom", "custom"),
    meets("riostream -b A -S 65536 -C 10 -I 5 -T v", "riostream -s A -S 65536 -C 10 -I 5 -T v", Both)
        .saying("custom", "custom"),
    // It takes the first colon for the end of the address.
    meets("rcopy", "rcopy FILE A:COPY", V4).serving(GoesOn(2)),
    meets("udpong -b A -S 64 -C 200 -T e", "udpong -s A -S 64 -C 200 -T e", Both)
        .serving(TakesDatagrams)
        .saying("custom", ""),
    meets("udpong -b A -S 1500 -C 100 -T e -T b", "udpong -s A -S 1500 -C 100 -T e -T b", Both)
        .serving(TakesDatagrams)
        .saying("custom", ""),
    meets("udpong -b A -S 1000 -C 100 -T e -T a", "udpong -s A -S 1000 -C 100 -T e -T a", Both)
        .serving(TakesDatagrams)
        .saying("custom", ""),
    meets("udpong -b A -S 2000 -C 1000", "udpong -s A -S 2000 -C 1000", Both)
        .serving(TakesDatagrams)
        .saying("custom", ""),
];

/// One line of the table at the end.
struct Score {
    what: String,
    times: usize,
    failures: usize,
}

/// Both families at once: two programs that listen on one address would want one port. The client of mckey sleeps for
/// some seconds, and its server for none; it listens on no port, so it runs beside the others. What makes millions of trips comes
/// when all others are done, one family after the other: both its ends look for answers without a pause, and while they share a
/// processor with others each trip takes some time slices of the scheduler.
#[test]
fn every_program_many_times() {
    let here: BTreeSet<&str> =
        MEETINGS.iter().flat_map(|meeting| [meeting.server, meeting.client]).map(program).collect();
    if !are_here(&here.into_iter().chain(["stdbuf"]).collect::<Vec<_>>()) {
        return;
    }
    let addresses: [IpAddr; 2] = ["127.0.89.10".parse().unwrap(), "::1".parse().unwrap()];
    let only = env::var(ONLY).unwrap_or_default();
    let chosen = |address: IpAddr, pace: Pace| -> Vec<_> {
        let all = MEETINGS.iter().filter(|meeting| meeting.over.has(address) && meeting.pace() == pace);
        all.filter(|meeting| meeting.server.starts_with(&only)).collect()
    };
    let mut scores: Vec<Score> = std::thread::scope(|scope| {
        let mut lanes = Vec::new();
        for address in addresses {
            for pace in [Pace::Quick, Pace::Sleeps] {
                let chosen = chosen(address, pace);
                lanes.push(scope.spawn(move || scores_of(&chosen, address)));
            }
        }
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    for address in addresses {
        scores.extend(scores_of(&chosen(address, Pace::Works), address));
    }
    // Some listen on a port of the kernel, which is one for both addresses of a family.
    for pace in [Pace::Quick, Pace::Sleeps] {
        scores.extend(scores_of(&chosen(WIRE, pace), WIRE));
    }
    let failures: usize = scores.iter().map(|score| score.failures).sum();
    println!("{:>8} {:>8}", "times", "failed");
    for score in &scores {
        println!("{:>8} {:>8}  {}", score.times, score.failures, score.what);
    }
    assert_eq!(failures, 0, "what both ends said stands above");
}

fn scores_of(chosen: &[&Meeting], address: IpAddr) -> Vec<Score> {
    let mut scores = Vec::new();
    for (number, meeting) in chosen.iter().enumerate() {
        let what = format!("{} + {} on {address}", meeting.server, meeting.client);
        let times = meeting.times[usize::from(is_long() && address != WIRE)];
        let mut failures = 0;
        for time in 1..=times {
            if let Err(told) = meeting.run(address) {
                failures += 1;
                println!("FAILED the {time}. time: {told}\n");
            }
            if is_long() && (time % STEP == 0 || time == times) {
                let count = chosen.len();
                println!("[{} of {count}] {what}: {time} of {times}, {failures} failed", number + 1);
            }
        }
        scores.push(Score { what, times, failures });
    }
    scores
}

fn program(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

#[test]
fn the_documentation_names_what_is_run_and_nothing_else() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drop-in.md")).unwrap();
    let mut written = Vec::new();
    let mut is_table = false;
    for line in page.lines() {
        is_table = line == "| server | client | over |" || is_table && line.starts_with('|');
        if is_table && line.starts_with("| `") {
            written.push(line.to_owned());
        }
    }
    let run: Vec<String> = MEETINGS.iter().map(Meeting::row).collect();
    assert_eq!(written, run, "docs/drop-in.md has other lines than {}", file!());
}
