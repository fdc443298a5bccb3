//! The audit of one database: a fresh connection, plain SQL, no code of the protocol.
//!
//! Each invariant is a sentence and the query that selects what offends against it. Each query is a read
//! transaction of its own, so that auditing a live store never holds its WAL for long.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// A sentence that must hold, and the SQL that selects who breaks it: one text column.
pub struct Invariant {
    pub sentence: &'static str,
    pub offenders: &'static str,
}

/// How many offenders a sentence names; the rest are counted.
const NAMED: usize = 5;

pub const INVARIANTS: &[Invariant] = &[
    Invariant {
        sentence: "SQLite finds the file sound",
        offenders: "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    },
    Invariant {
        sentence: "no row refers to a missing one",
        offenders: "SELECT \"table\" || ' row ' || rowid || ' refers to ' || parent FROM pragma_foreign_key_check",
    },
    Invariant {
        sentence: "the file is a store of schema version 1, in WAL mode",
        offenders: "SELECT 'application id ' || application_id || ', version ' || user_version || ', ' || journal_mode
            FROM pragma_application_id, pragma_user_version, pragma_journal_mode
            WHERE application_id <> 1148535140 OR user_version <> 1 OR journal_mode <> 'wal'",
    },
    Invariant {
        sentence: "the schema holds the five tables, all STRICT, their indexes and nothing else",
        offenders: "WITH wanted (name) AS (VALUES ('table store'), ('table intent'), ('table task'), ('table effect'),
                ('table usage'), ('index claimable'), ('index sqlite_autoindex_intent_1')),
            found (name) AS (SELECT type || ' ' || name FROM sqlite_schema)
            SELECT 'missing: ' || name FROM wanted WHERE name NOT IN (SELECT name FROM found)
            UNION ALL SELECT 'unknown: ' || name FROM found WHERE name NOT IN (SELECT name FROM wanted)
            UNION ALL SELECT 'not strict: ' || name FROM pragma_table_list
            WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' AND NOT strict",
    },
    Invariant {
        sentence: "the limits stand there exactly once",
        offenders: "SELECT count(*) || ' rows' FROM store HAVING count(*) <> 1",
    },
    Invariant {
        sentence: "each intent has exactly one task",
        offenders: "SELECT request_id FROM intent
            WHERE (SELECT count(*) FROM task WHERE task.sequence = intent.sequence) <> 1",
    },
    Invariant {
        sentence: "each task has its intent",
        offenders: "SELECT 'task ' || sequence FROM task WHERE sequence NOT IN (SELECT sequence FROM intent)",
    },
    Invariant {
        sentence: "each effect has its task",
        offenders: "SELECT 'effect ' || sequence FROM effect WHERE sequence NOT IN (SELECT sequence FROM task)",
    },
    Invariant {
        sentence: "no request id stands there twice",
        offenders: "SELECT request_id FROM intent NOT INDEXED GROUP BY request_id HAVING count(*) > 1",
    },
    Invariant {
        sentence: "ids and tenants are 1 to 128 bytes",
        offenders: "SELECT request_id FROM intent WHERE length(CAST(request_id AS BLOB)) NOT BETWEEN 1 AND 128
            OR length(CAST(tenant AS BLOB)) NOT BETWEEN 1 AND 128",
    },
    Invariant {
        sentence: "sequences run from 1 without a gap",
        offenders: "SELECT count(*) || ' intents, sequences ' || min(sequence) || ' to ' || max(sequence) FROM intent
            HAVING count(*) > 0 AND (min(sequence) <> 1 OR max(sequence) <> count(*))",
    },
    Invariant {
        sentence: "bytes are the payload's length, on the intent and on the task",
        offenders: "SELECT request_id FROM intent LEFT JOIN task USING (sequence)
            WHERE intent.bytes <> length(CAST(payload AS BLOB)) OR task.bytes IS NOT length(CAST(payload AS BLOB))",
    },
    Invariant {
        sentence: "no payload is over the one-payload limit",
        offenders: "SELECT request_id FROM intent, store WHERE length(CAST(payload AS BLOB)) > payload_bytes",
    },
    Invariant {
        sentence: "outstanding tasks are within the global limits",
        offenders:
            "SELECT 'held ' || count(*) || ' tasks / ' || coalesce(sum(length(CAST(payload AS BLOB))), 0) || ' bytes'
            FROM intent JOIN task USING (sequence) WHERE state IN ('queued', 'inflight', 'quarantined')
            HAVING count(*) > (SELECT global_count FROM store)
            OR coalesce(sum(length(CAST(payload AS BLOB))), 0) > (SELECT global_bytes FROM store)",
    },
    Invariant {
        sentence: "outstanding tasks are within each tenant's limits",
        offenders:
            "SELECT tenant || ' holds ' || count(*) || ' tasks / ' || sum(length(CAST(payload AS BLOB))) || ' bytes'
            FROM intent JOIN task USING (sequence) WHERE state IN ('queued', 'inflight', 'quarantined')
            GROUP BY tenant HAVING count(*) > (SELECT tenant_count FROM store)
            OR sum(length(CAST(payload AS BLOB))) > (SELECT tenant_bytes FROM store)",
    },
    Invariant {
        sentence: "the usage ledger equals the sum over outstanding tasks",
        offenders: "WITH held AS (SELECT tenant, task.bytes FROM intent JOIN task USING (sequence)
                WHERE state IN ('queued', 'inflight', 'quarantined')),
            recomputed (tenant, count, bytes) AS (
                SELECT '', count(*), coalesce(sum(bytes), 0) FROM held
                UNION ALL SELECT tenant, count(*), sum(bytes) FROM held GROUP BY tenant),
            stored (tenant, count, bytes) AS (SELECT tenant, count, bytes FROM usage)
            SELECT iif(tenant = '', 'all tenants', 'tenant ' || tenant)
                || ': stored [' || coalesce(stored.count, 0) || ', ' || coalesce(stored.bytes, 0)
                || '], recomputed [' || coalesce(recomputed.count, 0) || ', ' || coalesce(recomputed.bytes, 0) || ']'
            FROM stored FULL JOIN recomputed USING (tenant)
            WHERE coalesce(stored.count, 0) <> coalesce(recomputed.count, 0)
            OR coalesce(stored.bytes, 0) <> coalesce(recomputed.bytes, 0)",
    },
    Invariant {
        sentence: "states are the five",
        offenders: "SELECT 'task ' || sequence || ' is ' || state FROM task
            WHERE state NOT IN ('queued', 'inflight', 'quarantined', 'done', 'cancelled')",
    },
    Invariant {
        sentence: "done if and only if there is exactly one effect",
        offenders: "SELECT request_id FROM intent JOIN task USING (sequence)
            WHERE (state = 'done') <> ((SELECT count(*) FROM effect WHERE effect.sequence = task.sequence) = 1)",
    },
    Invariant {
        sentence: "every effect is the synthetic one",
        offenders: "SELECT 'effect ' || sequence FROM effect WHERE effect <> 'synthetic-completed'",
    },
    Invariant {
        sentence: "cancelled only if never claimed, and without effect",
        offenders: "SELECT request_id FROM intent JOIN task USING (sequence) WHERE state = 'cancelled'
            AND (generation <> 0 OR EXISTS (SELECT 1 FROM effect WHERE effect.sequence = task.sequence))",
    },
    Invariant {
        sentence: "inflight if and only if it has a lease",
        offenders: "SELECT request_id FROM intent JOIN task USING (sequence)
            WHERE (state = 'inflight') <> (lease IS NOT NULL)",
    },
    Invariant {
        sentence: "a lease ends at most 5 ticks after the stored tick, and no earlier than tick 5",
        offenders: "SELECT request_id FROM intent JOIN task USING (sequence), store WHERE lease NOT BETWEEN 5 AND tick + 5",
    },
    Invariant {
        sentence: "what was claimed has a generation of at least 1",
        offenders: "SELECT request_id FROM intent JOIN task USING (sequence)
            WHERE state IN ('inflight', 'quarantined', 'done') AND generation < 1",
    },
    Invariant {
        sentence: "ticks, leases and generations are between 0 and 1,000,000,000",
        offenders: "SELECT 'tick ' || tick FROM store WHERE tick NOT BETWEEN 0 AND 1000000000
            UNION ALL SELECT request_id FROM intent JOIN task USING (sequence)
            WHERE generation NOT BETWEEN 0 AND 1000000000 OR lease NOT BETWEEN 0 AND 1000000000",
    },
    Invariant {
        sentence: "claimable is what is queued, or inflight from its lease on",
        offenders: "SELECT request_id FROM intent JOIN task USING (sequence), store WHERE CASE state
                WHEN 'queued' THEN due IS NOT 0
                WHEN 'inflight' THEN NOT (due IS lease OR (due IS 0 AND lease <= tick))
                ELSE due IS NOT NULL END",
    },
];

/// What was found broken, one sentence each; empty means that all holds.
///
/// # Errors
/// A sentence if the file cannot be read: that says something of the machine, and nothing of what was stored.
pub fn audit(path: &Path) -> Result<Vec<String>, String> {
    let connection = open(path)?;
    let mut broken = Vec::new();
    for Invariant { sentence, offenders } in INVARIANTS {
        match select(&connection, offenders) {
            Ok(Offenders { count: 0, .. }) => {}
            Ok(found) => broken.push(format!("{sentence}: broken by {}", name_some(&found))),
            Err(error) if is_of_the_machine(&error) => return Err(unreadable(path, &error)),
            // A query that can't even run, on a damaged schema for instance, is no "holds".
            Err(error) => broken.push(format!("{sentence}: cannot be told ({error})")),
        }
    }
    Ok(broken)
}

/// That the file is one of our stores, whatever state it is in.
///
/// # Errors
/// A sentence that says why it is none.
pub fn is_store(path: &Path) -> Result<(), String> {
    let id = open(path)?.query_row("SELECT application_id FROM pragma_application_id", [], |row| row.get(0));
    match id.map_err(|error| unreadable(path, &error))? {
        APPLICATION_ID => Ok(()),
        other => Err(format!(
            "{}: this is no store (application id {other}, not {APPLICATION_ID}); give the path of one",
            path.display()
        )),
    }
}

fn is_of_the_machine(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseBusy
        )
    )
}

const APPLICATION_ID: i64 = 1_148_535_140;

/// Nothing is written, and nothing new is left beside the file: the last connection to a store removes its log and its shared
/// memory, but only if it may write. Where a log or journal waits to be recovered it stays, so that connection may not.
fn open(path: &Path) -> Result<Connection, String> {
    let waits = |suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        fs::metadata(name).is_ok_and(|log| log.len() > 0)
    };
    let access = match waits("-wal") || waits("-journal") {
        true => OpenFlags::SQLITE_OPEN_READ_ONLY,
        false => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let told = |error| unreadable(path, &error);
    // SQLite takes a bare name that begins with "file:" for a URI, whatever the flags.
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(Path::new(".").join(path), flags).map_err(told)?;
    connection.pragma_update(None, "query_only", true).map_err(told)?;
    Ok(connection)
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> String {
    format!("{} cannot be audited ({error}); give the path of a store that is there and readable", path.display())
}

struct Offenders {
    count: u64,
    /// The first few.
    named: Vec<String>,
}

fn select(connection: &Connection, offenders: &str) -> rusqlite::Result<Offenders> {
    let mut statement = connection.prepare(offenders)?;
    let mut rows = statement.query([])?;
    let mut found = Offenders { count: 0, named: Vec::new() };
    while let Some(row) = rows.next()? {
        found.count += 1;
        if found.named.len() < NAMED {
            found.named.push(row.get(0)?);
        }
    }
    Ok(found)
}

fn name_some(offenders: &Offenders) -> String {
    let named: Vec<String> = offenders.named.iter().map(|offender| format!("{offender:?}")).collect();
    match offenders.count - offenders.named.len() as u64 {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
