//! What cards there are, what they are like, and why one cannot be opened.

use std::env;
use std::process::Command;

use ferroce_system::{ForkCare, Library, OpenCardError};
use ferroce_testkit::judge;
use ferroce_wire::{Gid, PKey};

use crate::child::{over_dropin, own_address, run};

over_dropin! {
    fn our_own_library_is_known_as_such(library: Library) {
        assert!(library.is_ours());
        assert_eq!(library.fork_care(), Some(ForkCare::NotNeeded));
        assert_eq!(Library::load().unwrap(), library);
        library.load_connections().unwrap();
    }

    fn the_device_is_listed_and_says_what_it_is_like(library: Library) {
        let cards = library.cards().unwrap();
        assert_eq!(cards.iter().map(ferroce_system::Card::name).collect::<Vec<_>>(), ["ferroce_lo"]);
        let context = cards[0].open().unwrap();
        // The list may go before what was opened from it.
        let guid = cards[0].guid();
        drop(cards);
        let attributes = context.query().unwrap();
        assert_eq!((attributes.ports, attributes.node_guid), (1, guid));
        assert!(attributes.atomics && attributes.max_queue_depth >= 1024 && attributes.max_sge > 0);
        assert_eq!((attributes.timestamp_mask, attributes.core_clock_khz), (u64::MAX, 1_000_000));
        let port = context.port(1).unwrap();
        assert!(port.active && port.ethernet && port.active_mtu.is_some(), "{port:?}");
        let gid = context.gid(1, 0).unwrap();
        assert_eq!(gid, Gid::from(std::net::IpAddr::V4(own_address())));
        let table = context.gids().unwrap().unwrap();
        assert!(table.iter().any(|entry| entry.gid == gid && entry.index == 0 && entry.is_roce_v2), "{table:?}");
        assert_eq!(context.pkey(1, 0).unwrap(), PKey::DEFAULT);
        assert!(context.vectors() > 0);
    }

    fn what_is_not_there_is_an_error_with_its_number(library: Library) {
        let context = library.cards().unwrap()[0].open().unwrap();
        let error = context.port(9).unwrap_err();
        assert_eq!((error.call, error.code), ("ibv_query_port", libc::EINVAL));
        assert_eq!(error.to_string(), "ibv_query_port failed: Invalid argument (os error 22)");
        assert_eq!(context.gid(1, 1 << 20).unwrap_err().call, "ibv_query_gid");
        assert_eq!(context.pkey(1, 9999).unwrap_err().call, "ibv_query_pkey");
    }
}

#[test]
fn a_card_that_cannot_be_opened_says_why() {
    let name = concat!(module_path!(), "::a_card_that_cannot_be_opened_says_why");
    run(name, &[("FERROCE_ENGINES", "no number")], |library| {
        let error = library.cards().unwrap()[0].open().unwrap_err();
        let OpenCardError::Refused { name, error } = error else { panic!("{error}") };
        assert_eq!((name.as_str(), error.call, error.code), ("ferroce_lo", "ibv_open_device", libc::EINVAL));
    });
}

#[test]
fn programs_that_use_it_are_linked_to_nothing_of_rdma() {
    if !judge::is_here("ldd") {
        return;
    }
    let output = Command::new("ldd").arg(env::current_exe().unwrap()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("libc.so"), "{said}");
    assert!(!said.contains("ibverbs") && !said.contains("rdmacm"), "{said}");
}
