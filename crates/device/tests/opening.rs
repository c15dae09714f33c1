//! Devices that open and close while others do.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use ferroce_device::{Config, Nic, NicOpenError, PathPolicy};

fn config(last: u8) -> Config {
    let address = IpAddr::V4(Ipv4Addr::new(127, 0, 47, last));
    Config { address: Some(address), ..Config::new("lo") }
}

/// Closing forgot all devices that were closing, also those whose sockets were still open, so that
/// opening one of them found its port taken.
#[test]
fn closing_a_device_does_not_forget_others_that_close() {
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                for _ in 0..100 {
                    drop(Nic::open(config(1 + number % 2)).unwrap());
                }
            });
        }
    });
}

/// Refusing other settings let go of what may have been the last handle while it held the list
/// of open devices, which closing needs.
#[test]
fn refusing_other_settings_may_close_the_device() {
    let other = Config { path: PathPolicy::Forbid, ..config(3) };
    thread::scope(|scope| {
        for settings in [config(3), other.clone(), config(3), other] {
            scope.spawn(move || {
                for _ in 0..100 {
                    match Nic::open(settings.clone()) {
                        Ok(_) | Err(NicOpenError::OtherSettings { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}
