//! `ferroce mesh-perf`: tables, JSON and the picture.

use std::env;
use std::fs;
use std::process;

use crate::run::{Running, command, ferroce, finish};

#[test]
fn every_pair_is_measured_both_ways() {
    for at_once in [false, true] {
        let mut args = vec!["mesh-perf", "--members", "3", "--duration", "0.02", "--size", "32K", "--json"];
        args.extend(at_once.then_some("--at-once"));
        let json = ferroce(&args).success().json();
        assert_eq!((&json["interrupted"], &json["size"]), (&false.into(), &32768.into()));
        assert_eq!(json["members"].as_array().unwrap().len(), 3);
        let pairs = json["pairs"].as_array().unwrap();
        let seen: Vec<_> = pairs.iter().map(|pair| (pair["from"].as_u64(), pair["to"].as_u64())).collect();
        let all = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        assert_eq!(seen, all.map(|(from, to)| (Some(from), Some(to))));
        for pair in pairs {
            assert!(pair["bytes_per_second"].as_f64().unwrap() > 0.0, "{pair}");
            let repeats = pair["bytes_per_second_of_repeats"].as_array().unwrap();
            let rate = |name: &str| pair[name].as_f64().unwrap();
            let (least, most) = (rate("bytes_per_second_least"), rate("bytes_per_second_most"));
            assert!(
                least > 0.0 && least <= rate("bytes_per_second") && rate("bytes_per_second") <= most,
                "{pair}"
            );
            assert_eq!(
                (repeats.len(), pair["latency_ns"]["p50_of_repeats"].as_array().unwrap().len()),
                (5, 5)
            );
            assert!(
                pair["bandwidth_noise"].is_boolean() && pair["latency_ns"]["noise"].is_boolean(),
                "{pair}"
            );
            let latency =
                ["min", "p50", "p90", "p99", "max"].map(|name| pair["latency_ns"][name].as_u64().unwrap());
            assert!(latency[0] > 0 && latency.is_sorted(), "{pair}");
            assert!(pair["latency_ns"]["count"].as_u64().unwrap() > 0, "{pair}");
        }
    }
}

#[test]
fn the_tables_have_a_row_and_a_column_for_everybody() {
    let text = ferroce(&["mesh-perf", "--members", "4", "--duration", "0.01"]).success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("4 members at 127."), "{text}");
    let titles = [
        "bandwidth in GB/s: WRITEs of 64 KiB, 16 under way, one pair at a time",
        "bandwidth in GB/s: least repeat",
        "latency in us: half a round trip of 64 B messages, median",
        "latency in us: least",
        "latency in us: p90",
    ];
    let mut tables = Vec::new();
    for title in titles {
        let at = lines.iter().position(|line| *line == title).unwrap_or_else(|| panic!("no {title}: {text}"));
        let columns: Vec<&str> = lines[at + 1].split_whitespace().collect();
        assert_eq!(columns, ["from\\to", "0", "1", "2", "3"]);
        let mut table = Vec::new();
        for member in 0..4 {
            let cells: Vec<&str> = lines[at + 2 + member].split_whitespace().collect();
            assert_eq!((cells.len(), cells[0], cells[1 + member]), (5, &*member.to_string(), "-"), "{text}");
            let figures = cells[1..].iter().filter_map(|cell| cell.trim_end_matches('~').parse::<f64>().ok());
            table.extend(figures.filter(|value| *value > 0.0));
        }
        assert_eq!(table.len(), 12, "{text}");
        tables.push(table);
    }
    // Cell by cell: the least repeat is no more than the figure; least, median and p90 are in order.
    for (less, more) in [(1, 0), (3, 2), (2, 4)] {
        assert!(tables[less].iter().zip(&tables[more]).all(|(less, more)| less <= more), "{text}");
    }
    // Marks and their meaning come together.
    let marks = lines.iter().filter(|line| line.trim_start().starts_with(['0', '1', '2', '3']));
    let marks: usize = marks.map(|line| line.matches('~').count()).sum();
    let told =
        lines.iter().filter_map(|line| line.strip_prefix("~ ")?.split(' ').next()?.parse::<usize>().ok());
    assert_eq!(told.sum::<usize>(), marks, "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn the_picture_shows_every_pair() {
    let path = env::temp_dir().join(format!("ferroce-mesh-{}.svg", process::id()));
    let file = path.to_str().unwrap();
    ferroce(&["mesh-perf", "--members", "2", "--duration", "0.01", "--plot", file]).success();
    let picture = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert_eq!(picture.matches("class=\"cell\"").count(), 8);
    assert_eq!(picture.matches("not measured").count(), 4, "no member is measured with itself");
    assert!(picture.contains("bandwidth in GB/s") && picture.contains("latency in us"));
    let out = ferroce(&["mesh-perf", "--plot", "/no/such/place.svg"]);
    assert!(out.failure().contains("cannot write /no/such/place.svg"), "{}", out.stderr);
}

#[test]
fn under_loss_it_is_slower_and_goes_on() {
    let args = ["mesh-perf", "--members", "2", "--duration", "0.05", "--json"];
    let lossy = finish(command(&args).env("FERROCE_FAULTS", "loss=0.01,seed=5").spawn().unwrap());
    let pairs = lossy.success().json()["pairs"].as_array().unwrap().len();
    assert_eq!(pairs, 2);
}

#[test]
fn ctrl_c_keeps_what_was_found_of_the_mesh() {
    let mut running = Running::start(command(&["mesh-perf", "--members", "3", "--duration", "60"]));
    let heading = running.line();
    assert!(heading.starts_with("3 members at "), "{heading}");
    let pid = running.child.id().to_string();
    assert!(process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let out = running.finish();
    assert!(out.failure().contains("interrupted; the figures are of what was done"), "{}", out.stderr);
    assert!(
        out.stdout.contains("bandwidth in GB/s") && out.stdout.contains("latency in us"),
        "{}",
        out.stdout
    );
}
