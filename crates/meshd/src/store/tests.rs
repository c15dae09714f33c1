//! What is saved is there again; what is no store is left as it is.

use std::env;
use std::fs;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of its own, which goes with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ferroce-store-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> StoreConfig {
        StoreConfig::new(self.0.join("analyzer.db"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(id: u64, over_unix_ns: u64) -> v1::Finding {
    v1::Finding {
        id,
        trouble: "loss".to_owned(),
        suspects: vec!["link a -> b".to_owned(), format!("RNIC {id}'; DROP TABLE finding; --")],
        severity: "major".to_owned(),
        since_unix_ns: 1_700_000_000_000_000_000,
        over_unix_ns,
        crossings: 1000.5,
        losses: 37.25,
        expected: 0.125,
        gain: 99.0,
        ..v1::Finding::default()
    }
}

fn row(number: u64) -> AgentRow {
    let mut inbox = Inbox::settled_at(Mark { epoch: u64::MAX, number });
    (inbox.kept, inbox.replays, inbox.refused, inbox.lost) = (number, 2, 3, 4);
    AgentRow { inbox, sums: [1, 2, 3, 4, 5, 6, 7, u64::MAX], through: 1_700_000_000_000_000_001 }
}

#[test]
fn what_is_saved_is_there_again() {
    let place = Place::new();
    let (mut store, kept) = Store::open(&place.file()).unwrap();
    assert_eq!(kept, Kept::default());
    let agents = vec![("a".to_owned(), row(5)), ("b".to_owned(), row(6))];
    store.save(&News { agents, findings: vec![found(3, 0), found(4, 0)] }, 0).unwrap();
    let agents = vec![("a".to_owned(), row(9))];
    let news = News { agents, findings: vec![found(4, 1_700_000_000_000_000_009)] };
    store.save(&news, 1_700_000_000_000_000_009).unwrap();
    drop(store);
    let (mut store, kept) = Store::open(&place.file()).unwrap();
    assert_eq!(kept.agents, [("a".to_owned(), row(9)), ("b".to_owned(), row(6))]);
    let over = found(4, 1_700_000_000_000_000_009);
    assert_eq!((kept.open, kept.over, kept.next), (vec![found(3, 0)], vec![over.clone()], 5));
    // After its time it is forgotten; its number is not given again as long as a later one is known.
    let later = over.over_unix_ns + clock::nanos(place.file().forgets_after) + 1;
    store.save(&News { agents: Vec::new(), findings: vec![found(7, 0)] }, later).unwrap();
    drop(store);
    let (_, kept) = Store::open(&place.file()).unwrap();
    assert_eq!((kept.open.len(), kept.over.len(), kept.next), (2, 0, 8));
}

#[test]
fn one_analyzer_has_the_file() {
    let place = Place::new();
    let first = Store::open(&place.file()).unwrap();
    let error = Store::open(&place.file()).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    drop(first);
    Store::open(&place.file()).unwrap();
}

#[test]
fn what_is_no_store_is_left_as_it_is() {
    let place = Place::new();
    let config = place.file();
    fs::write(
        &config.path,
        b"a letter, which is longer than the header of a database is, so that it is read\n".repeat(9),
    )
    .unwrap();
    let before = fs::read(&config.path).unwrap();
    let error = Store::open(&config).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
    assert_eq!(fs::read(&config.path).unwrap(), before);

    let other = StoreConfig { path: place.0.join("other.db"), ..config.clone() };
    let connection = Connection::open(&other.path).unwrap();
    connection.execute_batch("CREATE TABLE letters (text)").unwrap();
    drop(connection);
    let error = Store::open(&other).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");

    let newer = StoreConfig { path: place.0.join("newer.db"), ..config.clone() };
    drop(Store::open(&newer).unwrap());
    let connection = Connection::open(&newer.path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let error = Store::open(&newer).unwrap_err();
    assert!(matches!(error, StoreError::Newer { version: 99, known: VERSION, .. }), "{error:?}");

    let nowhere = StoreConfig { path: place.0.join("no directory/analyzer.db"), ..config };
    let error = Store::open(&nowhere).unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    assert!(error.to_string().contains("does its directory exist"));
}

#[test]
fn a_file_that_is_cut_or_scribbled_in_is_refused_and_never_a_panic() {
    let place = Place::new();
    let config = place.file();
    let (mut store, _) = Store::open(&config).unwrap();
    let findings = (0..200).map(|id| found(id, 0)).collect();
    store.save(&News { agents: vec![("a".to_owned(), row(1))], findings }, 0).unwrap();
    drop(store);
    let whole = fs::read(&config.path).unwrap();
    for cut in [10, 99, 100, 4095, 4097, 20_000] {
        fs::write(&config.path, &whole[..cut.min(whole.len() - 1)]).unwrap();
        remove_journals(&config.path);
        // What is left may be read, but not more than was there.
        if let Ok((_, kept)) = Store::open(&config) {
            assert!(kept.open.len() <= 200);
        }
    }
    for step in 1..40 {
        let mut bytes = whole.clone();
        for at in (0..bytes.len()).skip(step * 13).step_by(997 * step) {
            bytes[at] ^= 0x5a;
        }
        fs::write(&config.path, &bytes).unwrap();
        remove_journals(&config.path);
        let _ = Store::open(&config);
    }
}

fn remove_journals(path: &Path) {
    for end in ["-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let _ = fs::remove_file(name);
    }
}

#[test]
fn a_full_store_says_so_keeps_what_it_has_and_goes_on_when_there_is_room() {
    let place = Place::new();
    let config = StoreConfig { most: 40 * PAGE, ..place.file() };
    let (mut store, _) = Store::open(&config).unwrap();
    let mut saved = 0;
    let error = loop {
        let findings = (saved..saved + 50).map(|id| found(id, 1_000)).collect();
        match store.save(&News { agents: Vec::new(), findings }, 0) {
            Ok(()) => saved += 50,
            Err(error) => break error,
        }
        assert!(saved < 10_000, "no limit");
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(saved > 0);
    // Later, old ones are forgotten, and there is room.
    let later = clock::nanos(config.forgets_after) * 2;
    let first = News { agents: Vec::new(), findings: vec![found(20_000, later)] };
    store.save(&first, later).unwrap();
    store.save(&News { agents: vec![("a".to_owned(), row(1))], findings: Vec::new() }, later).unwrap();
    drop(store);
    let (_, kept) = Store::open(&config).unwrap();
    assert_eq!((kept.over.len(), kept.agents.len(), kept.next), (1, 1, 20_001));
}
