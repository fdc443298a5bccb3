//! What SQLite is asked, heard from the store's own connection while the verbs run: the plan of each statement, and
//! where its transaction begins.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, StatementStatus};

use crate::{Admission, Allowance, Limits, QueueOptions, Request, Result, Store, Token};

const LIMITS: Limits = Limits {
    global: Allowance { count: 3, bytes: 300 },
    tenant: Allowance { count: 2, bytes: 200 },
    payload_bytes: 100,
};

/// Ended tasks that no statement of a verb may look at.
const HISTORY: i64 = 400;

/// Hears each statement that a connection runs.
pub(crate) struct Ear(Arc<Mutex<Vec<String>>>);

impl Ear {
    pub(crate) fn on(connection: &mut Connection) -> Ear {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Ear(Arc::clone(&heard));
        let listen = move |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(statement, _) = event {
                heard.lock().unwrap().push(statement.sql().trim().to_owned());
            }
        };
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(listen)).unwrap();
        ear
    }

    /// Statements heard so far.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn off(self, connection: &mut Connection) -> Vec<String> {
        connection.trace_v2(TraceEventCodes::empty(), None::<fn(TraceEvent<'_>)>).unwrap();
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// One call and the statements it ran.
struct Call {
    verb: &'static str,
    statements: Vec<String>,
}

struct Listener {
    store: Store,
    calls: Vec<Call>,
}

impl Listener {
    fn hear<T>(&mut self, verb: &'static str, play: impl FnOnce(&mut Store) -> Result<T>) -> T {
        let ear = Ear::on(&mut self.store.connection);
        let answer = play(&mut self.store).unwrap();
        let statements = ear.off(&mut self.store.connection);
        self.calls.push(Call { verb, statements });
        answer
    }

    fn admit(&mut self, request_id: &str, tenant: &str, payload: &str, expected: &str) {
        let answer = self.hear("admit", |store| store.admit(Request { request_id, tenant, payload }));
        assert_eq!(answer.name(), expected, "{request_id}");
    }

    fn claim(&mut self, tick: i64) -> Option<Token> {
        self.hear("claim", |store| store.claim(tick)).map(|claim| claim.token)
    }

    fn resolve(&mut self, token: &Token, tick: i64, expected: &str) {
        assert_eq!(self.hear("resolve", |store| store.resolve(token, tick)).name(), expected);
    }

    fn quarantine(&mut self, token: &Token, tick: i64, expected: &str) {
        assert_eq!(self.hear("quarantine", |store| store.quarantine(token, tick)).name(), expected);
    }

    fn redrive(&mut self, token: &Token, expected: &str) {
        assert_eq!(self.hear("redrive", |store| store.redrive(token)).name(), expected);
    }

    fn cancel(&mut self, request_id: &str, expected: &str) {
        assert_eq!(self.hear("cancel_unstarted", |store| store.cancel_unstarted(request_id)).name(), expected);
    }
}

/// A store with a history, then every verb to every answer that it can give.
fn every_verb(folder: &std::path::Path) -> Listener {
    let path = folder.join("store.db");
    Store::open(&path, &LIMITS).unwrap().close().unwrap();
    // Nothing is prepared here that the making of the schema would make stale.
    let store = Store::open(&path, &LIMITS).unwrap();
    // Nothing here is about durability.
    store.connection.pragma_update(None, "synchronous", "OFF").unwrap();
    let mut listener = Listener { store, calls: Vec::new() };
    for tick in 0..HISTORY {
        let (id, tenant) = (format!("ended-{tick}"), format!("past-{}", tick % 40));
        let request = Request { request_id: &id, tenant: &tenant, payload: "x" };
        assert_eq!(listener.store.admit(request).unwrap(), Admission::Accepted);
        match tick % 2 {
            0 => {
                let claim = listener.store.claim(tick).unwrap().unwrap();
                assert_eq!(listener.store.resolve(&claim.token, tick).unwrap().name(), "done");
            }
            _ => assert_eq!(listener.store.cancel_unstarted(&id).unwrap().name(), "cancelled"),
        }
    }

    assert_eq!(listener.claim(HISTORY), None);
    listener.admit("one", "a", "abc", "accepted");
    listener.admit("two", "a", "abc", "accepted");
    listener.admit("one", "a", "abc", "replay");
    listener.admit("one", "b", "abc", "conflict");
    listener.admit("long", "a", &"x".repeat(101), "oversize");
    listener.admit("more", "a", "", "tenant_full");
    listener.admit("three", "b", "abc", "accepted");
    listener.admit("more", "c", "", "global_full");
    let first = listener.claim(HISTORY).unwrap();
    // Run out, and claimed again.
    let second = listener.claim(HISTORY + 5).unwrap();
    assert_eq!((&second.request_id, second.generation), (&first.request_id, 2));
    listener.quarantine(&first, HISTORY + 5, "stale");
    listener.quarantine(&second, HISTORY + 6, "quarantined");
    listener.redrive(&first, "stale");
    listener.redrive(&second, "requeued");
    let third = listener.claim(HISTORY + 6).unwrap();
    listener.resolve(&second, HISTORY + 6, "stale");
    listener.resolve(&third, HISTORY + 7, "done");
    listener.cancel("two", "cancelled");
    listener.cancel("two", "not_cancelled");
    listener.cancel("unknown", "not_cancelled");
    assert!(listener.hear("status", |store| store.status("three")).is_some());
    assert!(listener.hear("status", |store| store.status("unknown")).is_none());
    assert_eq!(listener.hear("usage", |store| store.usage()).count, 1);
    listener
}

/// `SEARCH task USING INDEX …`, `SCAN task`, `USE TEMP B-TREE FOR ORDER BY`, …
fn plan(connection: &Connection, statement: &str) -> Vec<String> {
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    // No parameter is bound: a plan must not hang on its values.
    let mut rows = explain.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}

/// Each step has to go to its rows by a key. `SEARCH` without one takes the last entry of a b-tree, for `max()`.
fn is_bounded(step: &str) -> bool {
    let heads_steps_of_its_own = step.starts_with("SCALAR SUBQUERY ");
    step.starts_with("SEARCH ") || step.ends_with("-ROW VALUES CLAUSE") || heads_steps_of_its_own
}

#[test]
fn every_statement_of_a_verb_searches_and_none_scans_or_sorts() {
    let folder = tempfile::tempdir().unwrap();
    let Listener { store, calls } = every_verb(folder.path());
    let mut searched = BTreeSet::new();
    // Without the statistics that a store never has, and with them.
    for statistics in ["", "ANALYZE"] {
        store.connection.execute_batch(statistics).unwrap();
        for Call { verb, statements } in &calls {
            for statement in statements {
                for step in plan(&store.connection, statement) {
                    assert!(is_bounded(&step), "{verb} {statistics}: {step}, in {statement}");
                    searched.extend(step.split(' ').nth(1).map(str::to_owned));
                }
            }
        }
    }
    for table in ["store", "intent", "task", "usage"] {
        assert!(searched.contains(table), "{searched:?}: was anything heard of {table}?");
    }
    let scans = plan(&store.connection, "SELECT count(*) FROM task WHERE state = 'done'");
    assert!(!scans.iter().all(|step| is_bounded(step)), "{scans:?} would pass as bounded");
}

/// SQLite builds one, pages and all, for a list behind IN, and for an UPDATE of what it searches by.
#[test]
fn no_statement_of_a_verb_builds_a_table_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let Listener { store, calls } = every_verb(folder.path());
    for Call { verb, statements } in &calls {
        for sql in statements {
            let built = tables_built_by(&store.connection, sql);
            let only_where_leases_ran_out = sql.starts_with("UPDATE task SET due = 0 ");
            assert_eq!(built.is_empty(), !only_where_leases_ran_out, "{verb}: {built:?} in {sql}");
        }
    }
}

fn tables_built_by(connection: &Connection, statement: &str) -> Vec<String> {
    let mut explain = connection.prepare(&format!("EXPLAIN {statement}")).unwrap();
    let mut rows = explain.raw_query();
    let mut built = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let opcode: String = row.get(1).unwrap();
        built.extend(["OpenEphemeral", "OpenAutoindex", "SorterOpen"].contains(&opcode.as_str()).then_some(opcode));
    }
    built
}

/// With values bound to it, SQLite may find that a plan hangs on them, and prepare the statement anew at every call.
#[test]
fn every_statement_of_a_verb_is_prepared_once() {
    let folder = tempfile::tempdir().unwrap();
    let Listener { store, calls } = every_verb(folder.path());
    for Call { verb, statements } in &calls {
        for sql in statements {
            let statement = store.connection.prepare_cached(sql).unwrap();
            assert!(statement.get_status(StatementStatus::Run) > 0, "{verb} did not keep {sql}");
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{verb}: {sql}");
        }
    }
}

/// A deferred transaction that turns into a writing one fails at once, whatever the busy timeout.
#[test]
fn every_verb_is_one_transaction_that_begins_immediate() {
    let folder = tempfile::tempdir().unwrap();
    let Listener { store, calls } = every_verb(folder.path());
    for Call { verb, statements } in &calls {
        match *verb {
            "status" | "usage" => {
                assert!(statements.iter().all(|sql| only_reads(&store.connection, sql)), "{verb}: {statements:#?}");
            }
            _ => assert_is_immediate(verb, statements),
        }
    }
}

#[test]
fn a_snapshot_is_one_read_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let mut listener = every_verb(folder.path());
    listener.calls.clear();
    let _ = listener.hear("snapshot", |store| store.snapshot());
    let statements = &listener.calls[0].statements;
    assert!(statements.len() > 4, "{statements:#?}");
    assert_eq!(statements.iter().filter(|sql| sql.starts_with("BEGIN")).count(), 1, "{statements:#?}");
    assert_eq!(statements[0], "BEGIN DEFERRED");
    assert!(statements.iter().all(|sql| only_reads(&listener.store.connection, sql)), "{statements:#?}");
    assert!(listener.store.connection.is_autocommit());
}

/// Groups of what several threads ask for are no exception; only each request is in a savepoint of its own.
#[test]
fn every_group_is_one_transaction_that_begins_immediate_and_searches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut store = Store::open(&path, &LIMITS).unwrap();
    let ear = Ear::on(&mut store.connection);
    let shared = store.shared(QueueOptions::default()).unwrap();
    std::thread::scope(|threads| {
        for request_id in ["one", "two", "three", "four", "five", "six"] {
            let shared = &shared;
            threads.spawn(move || {
                let _ = shared.admit(Request { request_id, tenant: request_id, payload: "abc" }).unwrap();
                if let Some(claim) = shared.claim(0).unwrap() {
                    assert_eq!(shared.resolve(&claim.token, 0).unwrap().name(), "done");
                }
            });
        }
    });
    shared.close().unwrap();
    let heard = std::mem::take(&mut *ear.0.lock().unwrap());
    let groups: Vec<_> = heard.split_inclusive(|sql| ["COMMIT", "ROLLBACK"].contains(&sql.as_str())).collect();
    assert!(!groups.is_empty());
    let plain = Connection::open(&path).unwrap();
    for group in groups {
        let outside: Vec<String> = group
            .iter()
            .filter(|sql| !["SAVEPOINT", "RELEASE", "ROLLBACK TO"].iter().any(|word| sql.starts_with(word)))
            .cloned()
            .collect();
        assert_is_immediate("a group", &outside);
        // What is not released is kept in memory up to COMMIT, for each request of the group.
        let count = |word: &str| group.iter().filter(|sql| sql.starts_with(word)).count();
        assert_eq!(count("SAVEPOINT"), count("RELEASE"), "{group:#?}");
        for step in outside.iter().flat_map(|sql| plan(&plain, sql)) {
            assert!(is_bounded(&step), "{step}, in {outside:#?}");
        }
    }
}

pub(crate) fn assert_is_immediate(what: &str, statements: &[String]) {
    // The look at the WAL's length has ended before the transaction begins.
    let looks = statements.iter().take_while(|sql| sql.starts_with("PRAGMA wal_checkpoint")).count();
    let statements = &statements[looks..];
    let [begin, between @ .., end] = statements else { panic!("{what} ran {statements:?}") };
    assert_eq!(begin, "BEGIN IMMEDIATE", "{what}: {statements:#?}");
    assert!(matches!(end.as_str(), "COMMIT" | "ROLLBACK"), "{what}: {statements:#?}");
    let ends = ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "END"];
    assert!(!between.iter().any(|sql| ends.iter().any(|word| sql.starts_with(word))), "{what}: {statements:#?}");
}

fn only_reads(connection: &Connection, statement: &str) -> bool {
    connection.prepare(statement).unwrap().readonly()
}
