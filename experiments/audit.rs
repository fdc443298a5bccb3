//! The audit of one database: a fresh connection, plain SQL, no code of the protocol.
//!
//! Each invariant is a sentence and the query that selects what offends against it. Each query is a read
//! transaction of its own, so that auditing a live store never holds its WAL for long.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use rusqlite::config::DbConfig;
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
            OR coalesce(stored.bytes, 0) <> coalesce(recomputed.bytes, 0)
            UNION ALL SELECT 'all tenants: no row' WHERE NOT EXISTS (SELECT 1 FROM stored WHERE tenant = '')
                AND NOT EXISTS (SELECT 1 FROM held)",
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
    // Read as unchanging, a file has no WAL, whatever its header says.
    let by_header = is_out_of_reach(path) && header_says_wal(path);
    let told = INVARIANTS.iter().map(|Invariant { sentence, offenders }| match by_header {
        true => broken(&connection, sentence, &offenders.replace(IN_ANOTHER_MODE, "")),
        false => broken(&connection, sentence, offenders),
    });
    let told = told.filter_map(|broken| match broken {
        Ok(sentence) => sentence.map(Ok),
        Err(error) => Some(Err(unreadable(path, &error))),
    });
    told.collect()
}

const IN_ANOTHER_MODE: &str = " OR journal_mode <> 'wal'";

/// Both the read and the write version of a file in WAL mode are 2.
fn header_says_wal(path: &Path) -> bool {
    let mut header = [0; 20];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok() && header[18..] == [2, 2]
}

/// `Err` if the machine failed, which is no finding.
fn broken(connection: &Connection, sentence: &str, offenders: &str) -> rusqlite::Result<Option<String>> {
    match select(connection, offenders) {
        Ok(Offenders { count: 0, .. }) => Ok(None),
        Ok(found) => Ok(Some(format!("{sentence}: broken by {}", name_some(&found)))),
        Err(error) if is_of_the_machine(&error) => Err(error),
        // A query that can't even run, on a damaged schema for instance, is no "holds".
        Err(error) => Ok(Some(format!("{sentence}: cannot be told ({error})"))),
    }
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
/// memory, but only if it may write. A log that waits to be recovered stays where it is; a journal would be rolled back, so
/// beside one the connection is read-only, which leaves the schema's CHECKs out of SQLite's integrity check.
fn open(path: &Path) -> Result<Connection, String> {
    let waits = |suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        fs::metadata(name).is_ok_and(|log| log.len() > 0)
    };
    let told = |error| unreadable(path, &error);
    if is_out_of_reach(path) {
        if waits("-wal") && path.exists() {
            return Err(format!(
                "{}: its log waits to be recovered, for which file and folder have to be writable; copy both to a folder of your \
                 own while no process has the store open, and audit the copy",
                path.display()
            ));
        }
        // Nobody writes there: SQLite needs neither locks nor shared memory.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        return Connection::open_with_flags(immutable_uri(path), flags).map_err(told);
    }
    let access = match waits("-journal") {
        true => OpenFlags::SQLITE_OPEN_READ_ONLY,
        false => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    // SQLite takes a bare name that begins with "file:" for a URI, whatever the flags.
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(Path::new(".").join(path), flags).map_err(told)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, waits("-wal")).map_err(told)?;
    connection.pragma_update(None, "query_only", true).map_err(told)?;
    Ok(connection)
}

/// Whether we may write neither it nor its folder, or only one of them.
fn is_out_of_reach(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    [folder, path].into_iter().any(|path| matches!(access(path, AccessFlags::W_OK), Err(Errno::EACCES | Errno::EROFS)))
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for &byte in absolute.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(byte.into()),
            other => uri += &format!("%{other:02X}"),
        }
    }
    uri + "?immutable=1"
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> String {
    if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) {
        return format!("{} is damaged ({error}); restore it from a backup", path.display());
    }
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use durable_admission::{Request, Store};
    use nix::fcntl::{FcntlArg, fcntl};
    use tempfile::TempDir;

    use super::*;
    use crate::fixture::LIMITS;

    const FILE_IN_TESTS: &str = "FILE_IN_TESTS";

    fn admit(store: &mut Store, request_id: &str) {
        let answer = store.admit(Request { request_id, tenant: "a", payload: "abc" }).unwrap();
        assert_eq!(answer.name(), "accepted");
    }

    /// A closed store with a task in each state but one: `done`, `quarantined`, `inflight`, `cancelled`; at tick 7.
    fn store() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut store = Store::open(&path, &LIMITS).unwrap();
        for (id, tick) in [("done", 6), ("quarantined", 6), ("inflight", 7)] {
            admit(&mut store, id);
            let token = store.claim(tick).unwrap().unwrap().token;
            match id {
                "done" => assert_eq!(store.resolve(&token, tick).unwrap().name(), "done"),
                "quarantined" => assert_eq!(store.quarantine(&token, tick).unwrap().name(), "quarantined"),
                _ => {}
            }
        }
        // The tenant's cap of two is reached.
        let request = Request { request_id: "cancelled", tenant: "b", payload: "xyz" };
        assert_eq!(store.admit(request).unwrap().name(), "accepted");
        assert_eq!(store.cancel_unstarted("cancelled").unwrap().name(), "cancelled");
        store.close().unwrap();
        (folder, path)
    }

    /// By hand, past every constraint.
    fn tamper(path: &Path, sql: &str) {
        let connection = Connection::open(path).unwrap();
        let past = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA writable_schema = ON;";
        connection.execute_batch(&format!("{past} {sql}")).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Every row is seen red: no invariant is a query that finds nothing whatever is there.
    #[test]
    fn each_invariant_finds_its_offender() {
        let offences = [
            ("SQLite finds the file sound", "UPDATE task SET generation = -1"),
            ("no row refers to a missing one", "DELETE FROM intent WHERE sequence = 1"),
            ("the file is a store of schema version 1", "PRAGMA user_version = 2"),
            ("the file is a store of schema version 1", "PRAGMA application_id = 1"),
            ("the file is a store of schema version 1", "PRAGMA journal_mode = DELETE"),
            ("the schema holds the five tables", "DROP INDEX claimable"),
            ("the schema holds the five tables", "CREATE TABLE more (x INT) STRICT"),
            ("the schema holds the five tables", "CREATE TRIGGER t AFTER INSERT ON task BEGIN SELECT 1; END"),
            ("the limits stand there exactly once", "DELETE FROM store"),
            ("the limits stand there exactly once", "INSERT INTO store SELECT 2, 4, 256, 2, 128, 96, 7"),
            ("each intent has exactly one task", "DELETE FROM task WHERE sequence = 1"),
            ("each task has its intent", "DELETE FROM intent WHERE sequence = 2"),
            ("each effect has its task", "INSERT INTO effect VALUES (9, 'synthetic-completed')"),
            (
                "no request id stands there twice",
                "UPDATE sqlite_schema SET sql = replace(sql, ' UNIQUE', '') WHERE name = 'intent';
                 DELETE FROM sqlite_schema WHERE name = 'sqlite_autoindex_intent_1'; PRAGMA writable_schema = RESET;
                 UPDATE intent SET request_id = 'done' WHERE sequence = 2",
            ),
            ("ids and tenants are 1 to 128 bytes", "UPDATE intent SET request_id = '' WHERE sequence = 1"),
            (
                "ids and tenants are 1 to 128 bytes",
                "UPDATE intent SET tenant = replace(hex(zeroblob(33)), '0', 'é') WHERE sequence = 1",
            ),
            ("sequences run from 1 without a gap", "UPDATE intent SET sequence = 9 WHERE sequence = 4"),
            ("bytes are the payload's length", "UPDATE intent SET bytes = 2 WHERE sequence = 1"),
            ("bytes are the payload's length", "UPDATE task SET bytes = 2 WHERE sequence = 1"),
            ("bytes are the payload's length", "UPDATE intent SET payload = 'é' WHERE sequence = 1"),
            ("no payload is over the one-payload limit", "UPDATE store SET payload_bytes = 2"),
            ("outstanding tasks are within the global limits", "UPDATE store SET global_count = 1"),
            ("outstanding tasks are within the global limits", "UPDATE store SET global_bytes = 5"),
            ("outstanding tasks are within each tenant's limits", "UPDATE store SET tenant_count = 1"),
            ("outstanding tasks are within each tenant's limits", "UPDATE store SET tenant_bytes = 5"),
            ("states are the five", "UPDATE task SET state = 'lost' WHERE sequence = 2"),
            ("done if and only if there is exactly one effect", "DELETE FROM effect"),
            ("done if and only if there is exactly one effect", "INSERT INTO effect VALUES (2, 'synthetic-completed')"),
            ("every effect is the synthetic one", "UPDATE effect SET effect = 'real'"),
            ("cancelled only if never claimed", "UPDATE task SET generation = 1 WHERE state = 'cancelled'"),
            ("inflight if and only if it has a lease", "UPDATE task SET lease = NULL WHERE state = 'inflight'"),
            ("inflight if and only if it has a lease", "UPDATE task SET lease = 5 WHERE state = 'done'"),
            ("a lease ends at most 5 ticks after", "UPDATE task SET lease = 13 WHERE state = 'inflight'"),
            ("a lease ends at most 5 ticks after", "UPDATE task SET lease = 4 WHERE state = 'inflight'"),
            ("what was claimed has a generation", "UPDATE task SET generation = 0 WHERE state = 'quarantined'"),
            ("ticks, leases and generations are", "UPDATE store SET tick = 1000000001"),
            ("ticks, leases and generations are", "UPDATE task SET generation = 1000000001 WHERE sequence = 1"),
            ("claimable is what is queued, or inflight", "UPDATE task SET due = NULL WHERE state = 'inflight'"),
            ("claimable is what is queued, or inflight", "UPDATE task SET due = 0 WHERE state = 'inflight'"),
            ("claimable is what is queued, or inflight", "UPDATE task SET due = 0 WHERE state = 'done'"),
            ("the usage ledger equals the sum", "UPDATE usage SET count = 1 WHERE tenant = 'a'"),
        ];
        for (sentence, offence) in offences {
            let (_folder, path) = store();
            assert_eq!(audit(&path).unwrap(), Vec::<String>::new());
            tamper(&path, offence);
            let found = audit(&path).unwrap();
            assert!(found.iter().any(|found| found.starts_with(sentence)), "{offence}: {found:#?}");
        }
        for Invariant { sentence, .. } in INVARIANTS {
            assert!(offences.iter().any(|(of, _)| sentence.starts_with(of)), "nothing offends against {sentence:?}");
        }
    }

    #[test]
    fn a_usage_figure_changed_by_hand_is_found_and_nothing_is_written() {
        for (change, named) in [
            ("UPDATE usage SET count = count - 1 WHERE tenant = ''", "all tenants: stored [1, 6], recomputed [2, 6]"),
            ("UPDATE usage SET bytes = bytes + 1 WHERE tenant = 'a'", "tenant a: stored [2, 7], recomputed [2, 6]"),
            ("UPDATE usage SET bytes = 3 WHERE tenant = 'b'", "tenant b: stored [0, 3], recomputed [0, 0]"),
            ("DELETE FROM usage WHERE tenant = 'a'", "tenant a: stored [0, 0], recomputed [2, 6]"),
            ("DELETE FROM usage WHERE tenant = ''", "all tenants: stored [0, 0], recomputed [2, 6]"),
            ("INSERT INTO usage VALUES ('c', 1, 1)", "tenant c: stored [1, 1], recomputed [0, 0]"),
        ] {
            let (_folder, path) = store();
            tamper(&path, change);
            let before = fs::read(&path).unwrap();
            let found = audit(&path).unwrap();
            let wanted = format!("the usage ledger equals the sum over outstanding tasks: broken by {named:?}");
            assert_eq!(found, [wanted], "{change}");
            assert_eq!(fs::read(&path).unwrap(), before, "{change}");
        }
    }

    #[test]
    fn no_invariant_holds_its_snapshot_once_it_is_told() {
        let (_folder, path) = store();
        let mut store = Store::open(&path, &LIMITS).unwrap();
        let audited = open(&path).unwrap();
        let checkpointer = Connection::open(&path).unwrap();
        for invariant in INVARIANTS {
            assert_eq!(broken(&audited, invariant.sentence, invariant.offenders).unwrap(), None);
            assert!(store.claim(8).unwrap().is_none());
            // One reader with an open snapshot, and the WAL could not be cut to nothing.
            let busy: i64 = checkpointer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
            assert_eq!(busy, 0, "after {:?}", invariant.sentence);
        }
    }

    /// What a child does in the test below: a process is not told of its own locks.
    #[test]
    fn says_whether_the_file_is_locked() {
        let Some(path) = std::env::var_os(FILE_IN_TESTS) else { return };
        let file = fs::File::options().write(true).open(path).unwrap();
        let mut lock = nix::libc::flock {
            l_type: nix::libc::F_WRLCK as i16,
            l_whence: nix::libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_GETLK(&mut lock)).unwrap();
        println!("{}", if i32::from(lock.l_type) == nix::libc::F_UNLCK { "it is free" } else { "it is locked" });
    }

    fn ask_stranger(file: &Path) -> &'static str {
        let arguments = ["--exact", "audit::tests::says_whether_the_file_is_locked", "--nocapture"];
        let said = Command::new(std::env::current_exe().unwrap()).args(arguments).env(FILE_IN_TESTS, file).output();
        let said = String::from_utf8_lossy(&said.unwrap().stdout).into_owned();
        let answers = ["it is free", "it is locked"].into_iter().filter(|answer| said.contains(answer));
        let [answer] = answers.collect::<Vec<_>>()[..] else { panic!("{said}") };
        answer
    }

    /// Opening a database's file by another way than SQLite's, and closing it, drops all POSIX locks that this process holds on it.
    #[test]
    fn an_audit_lets_go_of_no_lock_of_its_own_process() {
        let (_folder, path) = store();
        let files = ["store.db", "store.db-shm"].map(|name| path.with_file_name(name));
        let mut store = Store::open(&path, &LIMITS).unwrap();
        assert!(store.claim(8).unwrap().is_none());
        assert_eq!(audit(&path).unwrap(), Vec::<String>::new());
        assert_eq!(files.each_ref().map(|file| ask_stranger(file)), ["it is locked"; 2]);
        // The control.
        for file in &files {
            drop(fs::read(file).unwrap());
        }
        assert_eq!(files.each_ref().map(|file| ask_stranger(file)), ["it is free"; 2]);
    }

    /// Both can't be read by any query; only one of them says something of what was stored.
    #[test]
    fn what_the_machine_refuses_is_an_error_and_what_is_damaged_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        durable_admission::Store::open(&path, &crate::fixture::LIMITS).unwrap().close().unwrap();
        assert_eq!(audit(&path).unwrap(), [""; 0]);

        // The shared memory of the WAL is never opened through a link.
        let shared_memory = folder.path().join("store.db-shm");
        std::os::unix::fs::symlink("elsewhere", &shared_memory).unwrap();
        let said = audit(&path).unwrap_err();
        assert!(said.contains("store.db cannot be audited (") && said.contains("readable"), "{said}");
        fs::remove_file(&shared_memory).unwrap();

        Connection::open(&path).unwrap().execute_batch("DROP TABLE effect").unwrap();
        let broken = audit(&path).unwrap();
        assert!(
            broken.iter().any(|sentence| sentence.ends_with("cannot be told (no such table: effect)")),
            "{broken:?}"
        );
    }
}
