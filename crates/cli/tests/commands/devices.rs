//! `ferroce devices`.

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
