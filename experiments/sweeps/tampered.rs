//! The audit held against stores that were tampered with: for every invariant at least one way to break it by plain SQL, and
//! the audit has to name that invariant. An audit that finds nothing wrong with anything would pass everywhere else.

use std::fs;
use std::path::Path;

use durable_admission::{Admission, Cancellation, Error, Quarantine, Request, Resolution, Store};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use serde::Serialize;

use super::Found;
use super::ground::Ground;
use crate::audit::{INVARIANTS, audit};
use crate::fixture;
use crate::process::NotMeasured;

/// What is done to a sound store, and the invariant that the audit has to name.
struct Tampering {
    breaks: &'static str,
    sql: &'static str,
}

macro_rules! tamperings {
    ($($breaks:literal: [$($sql:literal),+ $(,)?];)+) => {
        &[$($(Tampering { breaks: $breaks, sql: $sql },)+)+]
    };
}

const TAMPERINGS: &[Tampering] = tamperings! {
    "SQLite finds the file sound": [
        "UPDATE sqlite_schema SET sql = replace(sql, 'due IS NOT NULL', 'due IS NULL') WHERE name = 'claimable'",
    ];
    "no row refers to a missing one": [
        "DELETE FROM task WHERE state = 'done'",
        "DELETE FROM intent WHERE request_id = 'queued'",
    ];
    "the file is a store of schema version 1, in WAL mode": [
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 7",
        "PRAGMA journal_mode = DELETE",
    ];
    "the schema holds the five tables, all STRICT, their indexes and nothing else": [
        "DROP INDEX claimable",
        "DROP TABLE effect",
        "CREATE TABLE more (x ANY) STRICT",
        "CREATE TRIGGER more AFTER INSERT ON effect BEGIN DELETE FROM effect; END",
        "CREATE VIEW more AS SELECT 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'effect'",
    ];
    "the limits stand there exactly once": [
        "DELETE FROM store",
        "INSERT INTO store SELECT 2, global_count, global_bytes, tenant_count, tenant_bytes, payload_bytes, tick FROM store",
    ];
    "each intent has exactly one task": ["DELETE FROM task WHERE state = 'queued'"];
    "each task has its intent": ["DELETE FROM intent WHERE request_id = 'queued'"];
    "each effect has its task": ["INSERT INTO effect VALUES (99, 'synthetic-completed')"];
    "no request id stands there twice": [
        "UPDATE sqlite_schema SET sql = replace(sql, 'UNIQUE', '') WHERE name = 'intent';
         DELETE FROM sqlite_schema WHERE name = 'sqlite_autoindex_intent_1';
         PRAGMA writable_schema = RESET;
         UPDATE intent SET request_id = 'done' WHERE request_id = 'queued'",
    ];
    "ids and tenants are 1 to 128 bytes": [
        "UPDATE intent SET request_id = '' WHERE request_id = 'queued'",
        "UPDATE intent SET request_id = printf('%.*c', 127, 'x') || 'é' WHERE request_id = 'queued'",
        "UPDATE intent SET tenant = '' WHERE request_id = 'queued'",
        "UPDATE intent SET tenant = printf('%.*c', 127, 'x') || 'é' WHERE request_id = 'queued'",
    ];
    "sequences run from 1 without a gap": [
        "UPDATE task SET sequence = 9 WHERE sequence = (SELECT max(sequence) FROM intent);
         UPDATE intent SET sequence = 9 WHERE sequence = (SELECT max(sequence) FROM intent)",
        "DELETE FROM effect; DELETE FROM task WHERE sequence = 1; DELETE FROM intent WHERE sequence = 1",
    ];
    "bytes are the payload's length, on the intent and on the task": [
        "UPDATE intent SET bytes = bytes + 1 WHERE request_id = 'queued'",
        "UPDATE task SET bytes = bytes + 1 WHERE state = 'queued'",
        "UPDATE intent SET payload = 'é', bytes = 1 WHERE request_id = 'queued'",
    ];
    "no payload is over the one-payload limit": ["UPDATE store SET payload_bytes = 2"];
    "outstanding tasks are within the global limits": [
        "UPDATE store SET global_count = 2",
        "UPDATE store SET global_bytes = 8",
    ];
    "outstanding tasks are within each tenant's limits": [
        "UPDATE store SET tenant_count = 1",
        "UPDATE store SET tenant_bytes = 5",
    ];
    // CASES, P11.
    "the usage ledger equals the sum over outstanding tasks": [
        "UPDATE usage SET count = count + 1 WHERE tenant = ''",
        "UPDATE usage SET bytes = bytes - 1 WHERE tenant = ''",
        "UPDATE usage SET count = count - 1 WHERE tenant = 'b'",
        "UPDATE usage SET bytes = 0 WHERE tenant = 'b'",
        "DELETE FROM usage WHERE tenant = ''",
        "DELETE FROM usage WHERE tenant = 'b'",
        "INSERT INTO usage VALUES ('nobody', 1, 1)",
    ];
    "states are the five": ["UPDATE task SET state = 'lost' WHERE state = 'quarantined'"];
    "done if and only if there is exactly one effect": [
        "DELETE FROM effect",
        "INSERT INTO effect SELECT sequence, 'synthetic-completed' FROM task WHERE state = 'inflight'",
    ];
    "every effect is the synthetic one": ["UPDATE effect SET effect = 'real'"];
    "cancelled only if never claimed, and without effect": [
        "UPDATE task SET generation = 1 WHERE state = 'cancelled'",
        "INSERT INTO effect SELECT sequence, 'synthetic-completed' FROM task WHERE state = 'cancelled'",
    ];
    "inflight if and only if it has a lease": [
        "UPDATE task SET lease = NULL, due = NULL WHERE state = 'inflight'",
        "UPDATE task SET lease = 6 WHERE state = 'queued'",
    ];
    "a lease ends at most 5 ticks after the stored tick, and no earlier than tick 5": [
        "UPDATE task SET lease = (SELECT tick + 6 FROM store), due = (SELECT tick + 6 FROM store) WHERE state = 'inflight'",
        "UPDATE task SET lease = 4, due = 4 WHERE state = 'inflight'",
    ];
    "what was claimed has a generation of at least 1": [
        "UPDATE task SET generation = 0 WHERE state = 'inflight'",
        "UPDATE task SET generation = 0 WHERE state = 'quarantined'",
        "UPDATE task SET generation = 0 WHERE state = 'done'",
    ];
    "ticks, leases and generations are between 0 and 1,000,000,000": [
        "UPDATE store SET tick = -1",
        "UPDATE store SET tick = 1000000001",
        "UPDATE task SET generation = -1 WHERE state = 'queued'",
        "UPDATE task SET generation = 1000000001 WHERE state = 'inflight'",
        "UPDATE task SET lease = 1000000001 WHERE state = 'inflight'",
        "UPDATE task SET lease = -1 WHERE state = 'inflight'",
    ];
    "claimable is what is queued, or inflight from its lease on": [
        "UPDATE task SET due = NULL WHERE state = 'queued'",
        "UPDATE task SET due = NULL WHERE state = 'inflight'",
        "UPDATE task SET due = 0 WHERE state = 'inflight'",
        "UPDATE task SET due = 0 WHERE state = 'done'",
    ];
};

#[derive(Serialize)]
struct Figures {
    invariants: usize,
    tamperings: usize,
    /// The audit named the invariant that was broken.
    named: usize,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let sound = ground.folder.database("sound")?;
    make(&sound).map_err(|error| NotMeasured { what: format!("no sound store to tamper with ({error})") })?;
    let mut broken: Vec<String> =
        look(&sound)?.into_iter().map(|found| format!("of a store that nobody tampered with: {found}")).collect();
    broken.extend(
        INVARIANTS
            .iter()
            .filter(|invariant| TAMPERINGS.iter().all(|tampering| tampering.breaks != invariant.sentence))
            .map(|invariant| format!("{:?} has no tampering that breaks it; write one", invariant.sentence)),
    );
    let mut named = 0;
    for (number, Tampering { breaks, sql }) in TAMPERINGS.iter().enumerate() {
        ground.count(number, TAMPERINGS.len());
        let store = ground.folder.database(&format!("tampered-{number}"))?;
        tamper(&sound, &store, sql)?;
        let found = look(&store)?;
        match found.iter().any(|found| found.starts_with(&format!("{breaks}: broken by "))) {
            true => named += 1,
            false => {
                broken.push(format!("after {sql:?} the audit does not say of {breaks:?} that it is broken: {found:?}"))
            }
        }
    }
    Found::new(&Figures { invariants: INVARIANTS.len(), tamperings: TAMPERINGS.len(), named }, broken)
}

fn look(store: &Path) -> Result<Vec<String>, NotMeasured> {
    audit(store).map_err(|what| NotMeasured { what })
}

/// A task in each state, its id telling which. All that was written is in the one file.
fn make(path: &Path) -> Result<(), Error> {
    let mut store = Store::open(path, &fixture::LIMITS)?;
    let admit = |store: &mut Store, request_id, tenant| {
        store.admit(Request { request_id, tenant, payload: "abc" }).map(|answer| answer == Admission::Accepted)
    };
    let mut as_planned = true;
    for (id, tenant) in [("done", "a"), ("cancelled", "a")] {
        as_planned &= admit(&mut store, id, tenant)?;
    }
    as_planned &= store.cancel_unstarted("cancelled")? == Cancellation::Cancelled;
    as_planned &= match store.claim(1)? {
        Some(claim) => store.resolve(&claim.token, 2)? == Resolution::Done,
        None => false,
    };
    for (id, tenant) in [("quarantined", "a"), ("inflight", "b"), ("queued", "b")] {
        as_planned &= admit(&mut store, id, tenant)?;
    }
    as_planned &= match store.claim(2)? {
        Some(claim) => store.quarantine(&claim.token, 2)? == Quarantine::Quarantined,
        None => false,
    };
    as_planned &= store.claim(2)?.is_some();
    store.close()?;
    match as_planned {
        true => Ok(()),
        false => Err(Error::Corrupt("the verbs did not lead to a task in each state".to_owned())),
    }
}

/// A copy of the sound store, which nobody has open, with all guards off.
fn tamper(sound: &Path, store: &Path, sql: &str) -> Result<(), NotMeasured> {
    fs::copy(sound, store).map_err(|error| NotMeasured {
        what: format!("{} can't be copied beside itself ({error}); make room and run again", sound.display()),
    })?;
    let unguarded = || {
        let connection = Connection::open(store)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        connection.execute_batch(
            "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;
             PRAGMA writable_schema = ON;",
        )?;
        connection.execute_batch(sql)?;
        connection.close().map_err(|(_, error)| error)
    };
    unguarded().map_err(|error: rusqlite::Error| NotMeasured { what: format!("{sql:?} can't be played ({error})") })
}
