//! Names of memory: those that come late, that never come, and that are there twice.

use std::thread;

use ferroce_verbs::{Access, Memory};

use super::*;
use crate::error::Error;

const READ: Access = Access::REMOTE_READ;

fn expose(connection: &Connection, name: &str) -> crate::Exposed {
    connection.expose(name, Memory::zeroed(8).unwrap(), READ).wait_for(SOON).unwrap()
}

#[test]
fn a_name_that_does_not_come_is_an_error_that_lists_those_that_there_are() {
    let limit = Duration::from_millis(30);
    let ours = Options::new().name_timeout(limit);
    let (a, b) = pair_with(&open(111, 101), &open(111, 102), &ours, &Options::new());
    let unknown = a.remote("tabel").wait().unwrap_err();
    let Error::NoSuchName { name, names, limit: waited } = &unknown else { panic!("{unknown:?}") };
    assert_eq!((&name[..], names.is_empty(), *waited), ("tabel", true, limit));
    assert!(unknown.to_string().contains("has exposed nothing as \"tabel\""), "{unknown}");
    let held: Vec<_> = ["table", "queue"].map(|name| expose(&b, name)).into_iter().collect();
    // Only those that have arrived are known.
    a.remote("queue").wait_for(SOON).unwrap();
    let unknown = a.remote("tabel").wait().unwrap_err();
    let Error::NoSuchName { names, .. } = &unknown else { panic!("{unknown:?}") };
    assert_eq!(names.iter().collect::<Vec<_>>(), ["queue", "table"]);
    assert!(unknown.to_string().contains("it has exposed \"queue\", \"table\""), "{unknown}");
    let known: Vec<_> = a.remotes().iter().map(|remote| remote.name().to_owned()).collect();
    assert_eq!(known, ["table", "queue"], "oldest first");
    // Awaiting has the same limit, without a timer of the runtime's.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(matches!(runtime.block_on(a.remote("tabel")), Err(Error::NoSuchName { .. })));
    drop(held);
}

#[test]
fn a_name_that_comes_late_is_found() {
    let (a, b) = pair(111);
    thread::scope(|scope| {
        let found = scope.spawn(|| a.remote("late").wait_for(SOON).map(|remote| remote.len()));
        // It may be looked for before or after: it is found in both cases.
        let _late = expose(&b, "late");
        assert_eq!(found.join().unwrap(), Ok(8));
    });
}

#[test]
fn a_name_is_there_once() {
    let (a, b) = pair(111);
    let first = expose(&b, "table");
    let twice = b.expose("table", Memory::zeroed(16).unwrap(), READ).wait_for(SOON).map(|_| ());
    assert_eq!(twice, Err(Error::NameTaken { name: "table".to_owned() }));
    // The other end may use the same name, and this one again when the first is gone.
    let _theirs = expose(&a, "table");
    drop(first);
    let _second = b.expose("table", Memory::zeroed(16).unwrap(), READ).wait_for(SOON).unwrap();
    b.send(b"go").wait_for(SOON).unwrap();
    assert_eq!(a.recv().wait_for(SOON).unwrap().unwrap(), b"go");
    assert_eq!(a.remote("table").wait_for(SOON).unwrap().len(), 16);
    assert_eq!(b.remote("table").wait_for(SOON).unwrap().len(), 8);
}
