//! A database at its page limit answers as a full disk does: with SQLite's own error, at whichever statement needs the
//! next page.

use std::collections::BTreeSet;

use crate::statements::Ear;
use crate::{Admission, Allowance, Error, Limits, Request, Store};

const LIMITS: Limits = Limits {
    global: Allowance { count: 10_000, bytes: 10_000_000 },
    tenant: Allowance { count: 10_000, bytes: 10_000_000 },
    payload_bytes: 100,
};

fn pragma(store: &Store, pragma: &str) -> i64 {
    store.connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0)).unwrap()
}

/// Tasks, intents, held tasks, held bytes.
fn there(store: &Store) -> (usize, u64, u64, u64) {
    let found = store.snapshot().unwrap();
    (found.tasks.len(), found.intents, found.usage.count, found.usage.bytes)
}

/// The limit follows the file page by page, so that every statement of an admission meets it somewhere.
#[test]
fn a_database_at_its_page_limit_is_a_full_disk_and_never_a_full_budget() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(folder.path().join("store.db"), &LIMITS).unwrap();
    // Nothing here is about durability.
    store.connection.pragma_update(None, "synchronous", "OFF").unwrap();
    let mut refused_at = BTreeSet::new();
    for number in 0..1000 {
        let (id, tenant) = (format!("request-{number}"), format!("tenant-{number}"));
        let request = Request { request_id: &id, tenant: &tenant, payload: "abc" };
        let mut pages = pragma(&store, "page_count");
        loop {
            pragma(&store, &format!("max_page_count = {pages}"));
            let ear = Ear::on(&mut store.connection);
            let answer = store.admit(request);
            let statements = ear.off(&mut store.connection);
            match answer {
                Ok(answer) => break assert_eq!(answer, Admission::Accepted),
                Err(error) => assert!(matches!(error, Error::DiskFull(_)), "{error:?}"),
            }
            assert_eq!(there(&store), (number, number as u64, number as u64, 3 * number as u64));
            refused_at.extend(statements.into_iter().rfind(|sql| sql.starts_with("INSERT")));
            // With room for one more page it may work, for the same id.
            pages += 1;
        }
    }
    let tables: Vec<_> = refused_at.iter().filter_map(|sql| sql.split(' ').nth(2)).collect();
    assert_eq!(tables, ["intent", "task", "usage"]);
}
