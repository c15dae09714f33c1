//! `ferroce devices`.

use std::path::Path;

use ferroce_testkit::stub;

use crate::run::{command, ferroce, finish};

#[test]
fn the_loopback_device_is_always_there() {
    let text = ferroce(&["devices", "-v"]).success().stdout;
    for part in ["ferroce_lo\n", "path MTU 4096", "::ffff:127.0.0.1", "queue pairs", "65000"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn it_speaks_json() {
    let json = ferroce(&["devices", "--json"]).success().json();
    let devices = json["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 1, "only loopback is open: {json}");
    assert_eq!(devices[0]["name"], "ferroce_lo");
    assert_eq!(devices[0]["loopback"], true);
    assert_eq!(devices[0]["gids"][0]["address"], "127.0.0.1");
    assert_eq!(json["limits"]["queue_pairs"], 65_000);
    for closed in json["closed"].as_array().unwrap() {
        assert_eq!(closed["loopback"], false, "{closed}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    for args in [&["devices"][..], &["demo"], &["perf", "write"]] {
        let out = finish(command(args).env("FERROCE_NETDEV", "eth99").spawn().unwrap());
        assert!(out.failure().contains("no usable interface is called \"eth99\""), "{}", out.stderr);
    }
}

#[test]
fn colours_are_for_terminals_and_for_an_option() {
    let asked = ferroce(&["--color", "always", "devices"]).success().stdout;
    assert!(asked.contains("\x1b[1mferroce_lo\x1b[0m"), "{asked}");
    let out = finish(command(&["devices", "--color", "auto"]).env("NO_COLOR", "1").spawn().unwrap());
    assert!(!out.success().stdout.contains('\x1b'));
}

#[test]
fn cards_of_the_machine_are_listed_with_what_they_are() {
    let program = Path::new(env!("CARGO_BIN_EXE_ferroce"));
    let run = |words: &[&str]| {
        let mut command = ferroce_testkit::dropin::command(program, "127.0.187.1");
        command.args(words).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        finish(command.spawn().unwrap())
    };
    let json = run(&["devices", "--json"]).success().json();
    assert_eq!(json["provider"], "system");
    let cards = json["cards"].as_array().unwrap();
    assert_eq!((cards.len(), &cards[0]["name"]), (1, &"ferroce_lo".into()), "{json}");
    assert_eq!((&cards[0]["driver"], &cards[0]["drop_in"]), (&"ferroce".into(), &true.into()));
    assert_eq!((&cards[0]["link"], &cards[0]["state"]), (&"ethernet".into(), &"active".into()));
    assert_eq!(cards[0]["gids"][0]["address"], "127.0.187.1");
    let text = run(&["devices"]).success().stdout;
    for part in [
        "provider   system: ",
        "driver     ferroce, firmware ",
        "Ethernet (RoCE)",
        "FERROCE_PROVIDER is system",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_machine_without_a_library_says_why_it_has_no_cards() {
    let nowhere = ("FERROCE_LIBIBVERBS", "/nowhere/libibverbs.so.1");
    let out = finish(command(&["devices", "-v"]).env(nowhere.0, nowhere.1).spawn().unwrap());
    assert!(out.success().stdout.contains("No cards: "));
    let json = finish(command(&["devices", "--json"]).env(nowhere.0, nowhere.1).spawn().unwrap());
    let json = json.success().json();
    let why = json["no_cards_because"].as_str().unwrap().to_owned();
    assert!(why.contains("there is no /nowhere/libibverbs.so.1"), "{why}");
}

#[test]
fn a_card_that_may_not_be_opened_and_a_library_without_a_symbol_are_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (Some(card), Some(empty)) =
        (stub::card(folder), stub::library("no-verbs.so", folder, "int nothing;\n"))
    else {
        return;
    };
    let over = |library: &Path, words: &[&str]| {
        let mut command = command(words);
        finish(command.env("FERROCE_LIBIBVERBS", library).env("CARD_OPEN", "13").spawn().unwrap())
    };
    let file = "/dev/infiniband/uverbs7";
    let devices = over(&card, &["devices", "-v"]).success().stdout;
    assert!(devices.contains("card0") && devices.contains(file), "{devices}");
    assert!(devices.contains("ferroce_lo"), "{devices}");
    let tested = over(&card, &["selftest", "--device", "card0"]);
    assert_eq!(tested.code, Some(2), "{}", tested.stderr);
    assert!(tested.stderr.contains(file), "{}", tested.stderr);
    let symbol = "no symbol ibv_get_device_list of version IBVERBS_1.1";
    let devices = over(&empty, &["devices", "-v"]).success().stdout;
    assert!(devices.contains("No cards: ") && devices.contains(symbol), "{devices}");
    assert!(devices.contains("ferroce_lo"), "{devices}");
    let words = ["selftest", "--device", "ferroce_lo", "--address", "127.0.188.8", "--only", "read_brings"];
    let tested = over(&empty, &words).success();
    assert!(tested.stdout.contains("1 of 1 cases passed"), "{}", tested.stdout);
}
