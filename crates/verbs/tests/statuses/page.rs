//! The page about statuses says something of each, and names tests that exist.

use std::collections::BTreeMap;
use std::fs;
use std::path;

use ferroce_verbs::*;

use crate::common::{SOON, open};
use crate::test_of;

/// The names of `ibv_wc_status` in C.
const fn c_name(status: Status) -> &'static str {
    match status {
        Status::Success => "IBV_WC_SUCCESS",
        Status::LocalLength => "IBV_WC_LOC_LEN_ERR",
        Status::LocalQpOperation => "IBV_WC_LOC_QP_OP_ERR",
        Status::LocalProtection => "IBV_WC_LOC_PROT_ERR",
        Status::Flushed => "IBV_WC_WR_FLUSH_ERR",
        Status::WindowBind => "IBV_WC_MW_BIND_ERR",
        Status::BadResponse => "IBV_WC_BAD_RESP_ERR",
        Status::LocalAccess => "IBV_WC_LOC_ACCESS_ERR",
        Status::RemoteInvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
        Status::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
        Status::RemoteOperation => "IBV_WC_REM_OP_ERR",
        Status::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
        Status::RnrRetryExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
    }
}

/// What the page says of one status: its first table has the names, its section the rest.
#[derive(Debug, Default)]
struct Entry {
    /// Number, name in C and test, as the table has them.
    row: Vec<String>,
    /// The items of its section, by their first word.
    items: BTreeMap<String, String>,
}

fn read(text: &str) -> BTreeMap<String, Entry> {
    let mut page: BTreeMap<String, Entry> = BTreeMap::new();
    let mut section = None;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            section = Some(title.trim_matches('`').to_owned());
        } else if line.starts_with("## ") {
            section = None;
        } else if let Some(row) = line.strip_prefix("| `").filter(|_| section.is_none()) {
            let cells: Vec<String> =
                row.trim_end_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
            // Other tables of the page have other columns.
            if let [name, number, c_name, .., test] = cells.as_slice()
                && c_name.starts_with("IBV_WC_")
            {
                let row = vec![number.clone(), c_name.clone(), test.clone()];
                let before = page.entry(name.clone()).or_default();
                assert!(before.row.is_empty(), "{name} has two rows");
                before.row = row;
            }
        } else if let (Some(section), Some(item)) = (&section, line.strip_prefix("- **")) {
            let (word, said) = item.split_once(".** ").unwrap_or_else(|| panic!("{section}: {line}"));
            page.entry(section.clone()).or_default().items.insert(word.to_owned(), said.to_owned());
        }
    }
    page
}

/// What is wrong with a page, each in a line.
fn complaints(text: &str) -> Vec<String> {
    let page = read(text);
    let mut found = Vec::new();
    for status in Status::ALL {
        let name = format!("{status:?}");
        let Some(entry) = page.get(&name) else {
            found.push(format!("{name} is not on the page"));
            continue;
        };
        let wanted = [status.code().to_string(), c_name(status).to_owned(), test_of(status).to_owned()];
        if entry.row != wanted {
            found.push(format!("the row of {name} is {:?}, and should be {wanted:?}", entry.row));
        }
        for word in ["Means", "Ended by", "Causes", "Remedies"] {
            if entry.items.get(word).is_none_or(|said| said.len() < 20) {
                found.push(format!("the section of {name} has no \"{word}\""));
            }
        }
    }
    let known: Vec<String> = Status::ALL.iter().map(|status| format!("{status:?}")).collect();
    for name in page.keys().filter(|name| !known.contains(name)) {
        found.push(format!("{name} is on the page, and is no status"));
    }
    found
}

/// The names in the right column of the last table. That they exist is checked by using each of them once.
const NAMES: [&str; 20] = [
    "State::Err",
    "Status::RemoteAccess",
    "Status::Flushed",
    "Status::RnrRetryExceeded",
    "Service::Rc",
    "PathMtu::B1024",
    "Access::REMOTE_WRITE",
    "Completion::id",
    "Completion::kind",
    "QueuePair::qpn",
    "QueuePair::send",
    "QueuePair::receive",
    "QueuePair::flush",
    "ProtectionDomain::register",
    "ProtectionDomain::allocate",
    "Context::completion_queue",
    "CompletionQueue::poll",
    "CompletionQueue::arm",
    "Notify::Any",
    "Context::events",
];

/// Uses every name of the table: a right column that does not exist does not compile here.
#[test]
fn the_names_that_the_page_gives_exist() {
    let context = open([127, 0, 124, 201]);
    let pd: ProtectionDomain = context.protection_domain().unwrap();
    let cq: CompletionQueue = Context::completion_queue(&context, 4).unwrap();
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap();
    let region = ProtectionDomain::allocate(&pd, 64, Access::REMOTE_WRITE | Access::LOCAL_WRITE).unwrap();
    let registered = ProtectionDomain::register(&pd, vec![0; 8], Access::empty()).unwrap();
    assert_eq!(QueuePair::qpn(&qp), qp.local_address().qpn);
    QueuePair::receive(&qp, &region).id(7).post().unwrap();
    let options = ConnectOptions { path_mtu: Some(PathMtu::B1024), ..ConnectOptions::default() };
    qp.connect_with(&qp.local_address(), &options).unwrap();
    CompletionQueue::arm(&cq, Notify::Any);
    QueuePair::flush(&qp).unwrap();
    assert_eq!(qp.state(), State::Err);
    QueuePair::send(&qp, &registered).id(8).post().unwrap();
    let mut ends = [Completion::EMPTY; 4];
    let (mut seen, limit) = (0, time::now() + SOON);
    while seen < 2 {
        seen += CompletionQueue::poll(&cq, &mut ends[seen..]);
        assert!(time::now() < limit, "{seen} of 2 completions came");
    }
    let Completion { id, kind, status, .. } = ends[0];
    assert_eq!((id, kind, status), (7, WorkKind::Receive, Status::Flushed));
    assert_eq!(Context::events(&context).poll(), None);
    assert_ne!(Status::RemoteAccess, Status::RnrRetryExceeded);

    let page = the_page();
    let (_, table) = page.split_once("## Names that are guessed wrongly").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let right: Vec<&str> = rows.map(|row| row.rsplit('|').nth(1).unwrap().trim().trim_matches('`')).collect();
    assert_eq!(right, NAMES);
}

pub(crate) fn the_page() -> String {
    let path = path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/statuses.md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_status_has_a_row_a_section_and_a_test_that_exists() {
    let found = complaints(&the_page());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The check itself finds what it should.
#[test]
fn a_page_without_a_status_or_with_a_wrong_test_is_found() {
    let page = the_page();
    let without = |text: &str| {
        let lines = page.lines().filter(|line| !line.contains(text));
        complaints(&lines.collect::<Vec<_>>().join("\n"))
    };
    assert_eq!(without("| `BadResponse`").len(), 1);
    assert_eq!(without("`Flushed`").iter().filter(|line| line.contains("Flushed")).count(), 1);
    let renamed = complaints(&page.replace(test_of(Status::LocalLength), "a_test_of_old"));
    assert!(renamed.len() == 1 && renamed[0].contains("a_test_of_old"), "{renamed:?}");
    let invented = complaints(&page.replace("### `WindowBind`", "### `WindowBond`"));
    assert!(invented.iter().any(|line| line.contains("WindowBond is on the page")), "{invented:?}");
}
