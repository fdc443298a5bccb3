//! The schema's constraints are tripwires: the verbs never run into one. So each is broken here on purpose, by plain SQL, and
//! SQLite has to refuse. Each attempt breaks that one constraint and no other, and is there once more without the fault, to
//! show that the fault is all that is refused.

use std::path::Path;

use durable_admission::{Allowance, Limits, Store};
use rusqlite::{Connection, ErrorCode};

const LIMITS: Limits = Limits {
    global: Allowance { count: 4, bytes: 256 },
    tenant: Allowance { count: 2, bytes: 128 },
    payload_bytes: 96,
};

/// Rows that break nothing: intents without a task, and one with a task of each kind.
const SOUND: &str = "
    INSERT INTO intent (sequence, request_id, tenant, bytes, payload) VALUES
        (1, 'one', 'a', 3, 'abc'), (2, 'two', 'a', 3, 'abc'), (3, 'three', 'a', 3, 'abc'), (4, 'four', 'a', 3, 'abc');
    INSERT INTO task (sequence, bytes, state, generation, lease, due) VALUES
        (1, 3, 'queued', 1, NULL, 0), (2, 3, 'inflight', 1, 6, 6), (3, 3, 'done', 1, NULL, NULL);
    INSERT INTO effect (sequence, effect) VALUES (3, 'synthetic-completed');
    INSERT INTO usage (tenant, count, bytes) VALUES ('a', 2, 6);
";

/// What must be refused, and the same without the fault.
struct Attempt {
    breaks: &'static str,
    refused: &'static str,
    allowed: &'static str,
}

macro_rules! attempts {
    ($($breaks:literal: $refused:literal, $allowed:literal;)+) => {
        &[$(Attempt { breaks: $breaks, refused: $refused, allowed: $allowed },)+]
    };
}

const STORE: &[Attempt] = attempts! {
    "there is one row": "INSERT INTO store VALUES (2, 4, 256, 2, 128, 96, 0)", "UPDATE store SET id = 1";
    "its id is a key": "INSERT INTO store VALUES (1, 4, 256, 2, 128, 96, 0)", "UPDATE store SET id = 1";
    "no limit is negative": "UPDATE store SET global_count = -1", "UPDATE store SET global_count = 0";
    "no limit is negative": "UPDATE store SET global_bytes = -1", "UPDATE store SET global_bytes = 0";
    "no limit is negative": "UPDATE store SET tenant_count = -1", "UPDATE store SET tenant_count = 0";
    "no limit is negative": "UPDATE store SET tenant_bytes = -1", "UPDATE store SET tenant_bytes = 0";
    "no limit is negative": "UPDATE store SET payload_bytes = -1", "UPDATE store SET payload_bytes = 0";
    "every limit is there": "UPDATE store SET global_count = NULL", "UPDATE store SET global_count = 0";
    "every limit is there": "UPDATE store SET global_bytes = NULL", "UPDATE store SET global_bytes = 0";
    "every limit is there": "UPDATE store SET tenant_count = NULL", "UPDATE store SET tenant_count = 0";
    "every limit is there": "UPDATE store SET tenant_bytes = NULL", "UPDATE store SET tenant_bytes = 0";
    "every limit is there": "UPDATE store SET payload_bytes = NULL", "UPDATE store SET payload_bytes = 0";
    "the tick is there": "UPDATE store SET tick = NULL", "UPDATE store SET tick = 0";
    "the tick is not negative": "UPDATE store SET tick = -1", "UPDATE store SET tick = 0";
    "the tick has a ceiling": "UPDATE store SET tick = 1000000001", "UPDATE store SET tick = 1000000000";
    "the tick is whole": "UPDATE store SET tick = 1.5", "UPDATE store SET tick = 1.0";
};

const INTENT: &[Attempt] = attempts! {
    "sequences begin with 1":
        "INSERT INTO intent VALUES (0, 'five', 'a', 3, 'abc')", "INSERT INTO intent VALUES (5, 'five', 'a', 3, 'abc')";
    "a sequence is a key":
        "INSERT INTO intent VALUES (4, 'five', 'a', 3, 'abc')", "INSERT INTO intent VALUES (5, 'five', 'a', 3, 'abc')";
    "an id is bound once":
        "INSERT INTO intent VALUES (5, 'four', 'a', 3, 'abc')", "INSERT INTO intent VALUES (5, 'Four', 'a', 3, 'abc')";
    "an id is not empty": "UPDATE intent SET request_id = '' WHERE sequence = 4", "UPDATE intent SET request_id = 'x' WHERE sequence = 4";
    "an id is at most 128 bytes":
        "UPDATE intent SET request_id = printf('%.*c', 127, 'x') || 'é' WHERE sequence = 4",
        "UPDATE intent SET request_id = printf('%.*c', 126, 'x') || 'é' WHERE sequence = 4";
    "an id is there": "UPDATE intent SET request_id = NULL WHERE sequence = 4", "UPDATE intent SET request_id = 'x' WHERE sequence = 4";
    "a tenant is not empty": "UPDATE intent SET tenant = '' WHERE sequence = 4", "UPDATE intent SET tenant = 'x' WHERE sequence = 4";
    "a tenant is at most 128 bytes":
        "UPDATE intent SET tenant = printf('%.*c', 127, 'x') || 'é' WHERE sequence = 4",
        "UPDATE intent SET tenant = printf('%.*c', 126, 'x') || 'é' WHERE sequence = 4";
    "a tenant is there": "UPDATE intent SET tenant = NULL WHERE sequence = 4", "UPDATE intent SET tenant = 'x' WHERE sequence = 4";
    "bytes are the payload's":
        "UPDATE intent SET payload = 'é', bytes = 1 WHERE sequence = 4", "UPDATE intent SET payload = 'é', bytes = 2 WHERE sequence = 4";
    "bytes are there": "UPDATE intent SET bytes = NULL WHERE sequence = 4", "UPDATE intent SET bytes = 3 WHERE sequence = 4";
    "a payload is there": "UPDATE intent SET payload = NULL WHERE sequence = 4", "UPDATE intent SET payload = 'xyz' WHERE sequence = 4";
    "a payload is text": "UPDATE intent SET payload = X'616263' WHERE sequence = 4", "UPDATE intent SET payload = 'abc' WHERE sequence = 4";
    "what a task refers to stays": "DELETE FROM intent WHERE sequence = 1", "DELETE FROM intent WHERE sequence = 4";
};

const TASK: &[Attempt] = attempts! {
    "a task has its intent":
        "INSERT INTO task (sequence, bytes, state) VALUES (5, 3, 'queued')", "INSERT INTO task (sequence, bytes, state) VALUES (4, 3, 'queued')";
    "an intent has one task":
        "INSERT INTO task (sequence, bytes, state) VALUES (1, 3, 'queued')", "INSERT INTO task (sequence, bytes, state) VALUES (4, 3, 'queued')";
    "bytes are not negative": "UPDATE task SET bytes = -1 WHERE sequence = 1", "UPDATE task SET bytes = 0 WHERE sequence = 1";
    "bytes are there": "UPDATE task SET bytes = NULL WHERE sequence = 1", "UPDATE task SET bytes = 0 WHERE sequence = 1";
    "bytes are whole": "UPDATE task SET bytes = 1.5 WHERE sequence = 1", "UPDATE task SET bytes = 1.0 WHERE sequence = 1";
    "states are the five":
        "UPDATE task SET state = 'lost' WHERE sequence = 3", "UPDATE task SET state = 'quarantined' WHERE sequence = 3";
    "a state is there": "UPDATE task SET state = NULL WHERE sequence = 3", "UPDATE task SET state = 'done' WHERE sequence = 3";
    "a generation is not negative": "UPDATE task SET generation = -1 WHERE sequence = 1", "UPDATE task SET generation = 0 WHERE sequence = 1";
    "a generation has a ceiling":
        "UPDATE task SET generation = 1000000001 WHERE sequence = 1", "UPDATE task SET generation = 1000000000 WHERE sequence = 1";
    "a generation is there": "UPDATE task SET generation = NULL WHERE sequence = 1", "UPDATE task SET generation = 0 WHERE sequence = 1";
    "no lease ends before tick 5":
        "UPDATE task SET lease = 4, due = 4 WHERE sequence = 2", "UPDATE task SET lease = 5, due = 5 WHERE sequence = 2";
    "a lease has a ceiling":
        "UPDATE task SET lease = 1000000001, due = 1000000001 WHERE sequence = 2",
        "UPDATE task SET lease = 1000000000, due = 1000000000 WHERE sequence = 2";
    "only what is inflight has a lease": "UPDATE task SET lease = 6 WHERE sequence = 1", "UPDATE task SET lease = NULL WHERE sequence = 1";
    "what is inflight has a lease":
        "UPDATE task SET lease = NULL, due = 0 WHERE sequence = 2", "UPDATE task SET lease = 6, due = 0 WHERE sequence = 2";
    "what was never claimed is queued or cancelled":
        "UPDATE task SET generation = 0 WHERE sequence = 3",
        "UPDATE task SET generation = 0, state = 'cancelled' WHERE sequence = 3";
    "what was claimed is not cancelled":
        "UPDATE task SET state = 'cancelled' WHERE sequence = 3", "UPDATE task SET state = 'quarantined' WHERE sequence = 3";
    "what is queued is due now": "UPDATE task SET due = NULL WHERE sequence = 1", "UPDATE task SET due = 0 WHERE sequence = 1";
    "what is queued is due now": "UPDATE task SET due = 6 WHERE sequence = 1", "UPDATE task SET due = 0 WHERE sequence = 1";
    "what is inflight is due with its lease": "UPDATE task SET due = 5 WHERE sequence = 2", "UPDATE task SET due = 6 WHERE sequence = 2";
    "what is inflight is due": "UPDATE task SET due = NULL WHERE sequence = 2", "UPDATE task SET due = 0 WHERE sequence = 2";
    "what has ended is never due": "UPDATE task SET due = 0 WHERE sequence = 3", "UPDATE task SET due = NULL WHERE sequence = 3";
    "what an effect refers to stays":
        "DELETE FROM task WHERE sequence = 3", "DELETE FROM effect WHERE sequence = 3; DELETE FROM task WHERE sequence = 3";
};

const EFFECT: &[Attempt] = attempts! {
    "an effect has its task": "INSERT INTO effect VALUES (4, 'x')", "INSERT INTO effect VALUES (1, 'x')";
    "a task has one effect": "INSERT INTO effect VALUES (3, 'x')", "INSERT INTO effect VALUES (1, 'x')";
    "an effect is there": "UPDATE effect SET effect = NULL", "UPDATE effect SET effect = 'x'";
    "an effect is text": "UPDATE effect SET effect = X'00'", "UPDATE effect SET effect = 'x'";
};

const USAGE: &[Attempt] = attempts! {
    "a tenant has one row": "INSERT INTO usage VALUES ('a', 0, 0)", "INSERT INTO usage VALUES ('b', 0, 0)";
    "a tenant is there": "INSERT INTO usage VALUES (NULL, 0, 0)", "INSERT INTO usage VALUES ('b', 0, 0)";
    "a tenant is at most 128 bytes":
        "INSERT INTO usage VALUES (printf('%.*c', 127, 'x') || 'é', 0, 0)", "INSERT INTO usage VALUES (printf('%.*c', 126, 'x') || 'é', 0, 0)";
    "nobody holds fewer than no task": "UPDATE usage SET count = -1 WHERE tenant = 'a'", "UPDATE usage SET count = 0 WHERE tenant = 'a'";
    "nobody holds fewer than no byte": "UPDATE usage SET bytes = -1 WHERE tenant = 'a'", "UPDATE usage SET bytes = 0 WHERE tenant = 'a'";
    "a count is there": "UPDATE usage SET count = NULL WHERE tenant = 'a'", "UPDATE usage SET count = 0 WHERE tenant = 'a'";
    "bytes are there": "UPDATE usage SET bytes = NULL WHERE tenant = 'a'", "UPDATE usage SET bytes = 0 WHERE tenant = 'a'";
    "a count is whole": "UPDATE usage SET count = 1.5 WHERE tenant = 'a'", "UPDATE usage SET count = 1.0 WHERE tenant = 'a'";
};

/// Plain SQL on a store that was made by the library, holding the sound rows.
fn sound(folder: &Path) -> Connection {
    let path = folder.join("store.db");
    Store::open(&path, &LIMITS).expect("a store").close().expect("closed");
    let connection = Connection::open(&path).expect("the store");
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF").expect("settings");
    connection.execute_batch(SOUND).expect("sound rows");
    connection
}

/// In a transaction that leaves nothing behind.
fn attempt(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN")?;
    let outcome = connection.execute_batch(sql);
    connection.execute_batch("ROLLBACK")?;
    outcome
}

/// All at once, so that one that is missing hides no other.
fn demand_refusals(table: &str, attempts: &[Attempt]) {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = sound(folder.path());
    let mut wrong = Vec::new();
    for Attempt { breaks, refused, allowed } in attempts {
        match attempt(&connection, refused) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {}
            other => wrong.push(format!("{breaks}: {refused} came to {other:?}")),
        }
        if let Err(error) = attempt(&connection, allowed) {
            wrong.push(format!("{breaks}: {allowed}, which breaks nothing, came to {error}"));
        }
    }
    assert!(wrong.is_empty(), "{table}:\n{}", wrong.join("\n"));
}

#[test]
fn the_store_row_is_one_and_within_bounds() {
    demand_refusals("store", STORE);
}

#[test]
fn an_intent_says_who_asked_for_what_and_how_many_bytes_that_is() {
    demand_refusals("intent", INTENT);
}

#[test]
fn a_task_is_in_a_state_that_its_generation_lease_and_due_agree_with() {
    demand_refusals("task", TASK);
}

#[test]
fn an_effect_is_one_tasks() {
    demand_refusals("effect", EFFECT);
}

#[test]
fn the_ledger_has_one_row_for_each_and_never_goes_below_nothing() {
    demand_refusals("usage", USAGE);
}

/// With ended tasks in it, the index would grow with history.
#[test]
fn the_index_of_claimables_leaves_out_what_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = sound(folder.path());
    let partial: bool = connection
        .query_row("SELECT partial FROM pragma_index_list('task') WHERE name = 'claimable'", [], |row| row.get(0))
        .expect("the index");
    assert!(partial);
}
