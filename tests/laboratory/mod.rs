//! What the integration tests share: the fixture's limits, stores in temporary folders, and a second
//! connection that looks without the library.
#![allow(dead_code, reason = "compiled into each test file, and each uses its own part")]

pub mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use durable_admission::{Admission, Allowance, Claim, Limits, Request, Snapshot, State, Store, Usage};
use rusqlite::Connection;
use tempfile::TempDir;

/// PROTOCOL's fixture.
pub const FIXTURE: Limits = limits((4, 256), (2, 128), 96);

/// Limits that nothing here runs into.
pub const ROOMY: Limits = limits((1_000_000, 1_000_000_000), (1_000_000, 1_000_000_000), 1_000_000);

pub const fn limits(global: (u64, u64), tenant: (u64, u64), payload_bytes: u64) -> Limits {
    Limits {
        global: Allowance { count: global.0, bytes: global.1 },
        tenant: Allowance { count: tenant.0, bytes: tenant.1 },
        payload_bytes,
    }
}

pub fn usage(count: u64, bytes: u64) -> Usage {
    Usage { count, bytes }
}

/// A temporary folder with one store in it.
pub struct Laboratory {
    folder: TempDir,
    pub limits: Limits,
}

impl Laboratory {
    pub fn new() -> Self {
        Laboratory::with(FIXTURE)
    }

    pub fn with(limits: Limits) -> Self {
        Laboratory { folder: tempfile::tempdir().unwrap(), limits }
    }

    /// In memory where there is such a folder: for many rounds where durability is not the point.
    pub fn fast(limits: Limits) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Laboratory { folder: folder.unwrap(), limits }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    pub fn wal(&self) -> PathBuf {
        self.folder.path().join("store.db-wal")
    }

    pub fn open(&self) -> Store {
        Store::open(self.path(), &self.limits).unwrap()
    }

    /// A plain connection, for looking and for tampering.
    pub fn plain(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    pub fn tamper(&self, sql: &str) {
        self.plain().execute_batch(sql).unwrap();
    }

    /// The usage that the tasks add up to, whatever the ledger says.
    pub fn recomputed_usage(&self) -> Usage {
        self.plain()
            .query_row(
                "SELECT count(*), ifnull(sum(octet_length(payload)), 0) FROM intent JOIN task USING (sequence)
                 WHERE state IN ('queued', 'inflight', 'quarantined')",
                [],
                |row| Ok(Usage { count: row.get(0)?, bytes: row.get(1)? }),
            )
            .unwrap()
    }
}

/// Every row of every table but the stored tick, as text.
pub fn logical_dump(connection: &Connection) -> String {
    let tables: Vec<String> = rows(connection, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
    let mut dump = String::new();
    for table in tables {
        dump += &format!("{table}\n");
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            for column in columns.iter().filter(|column| *column != "tick") {
                dump += &format!(" {column}={:?}", row.get_ref(column.as_str()).unwrap());
            }
            dump.push('\n');
        }
    }
    dump
}

pub fn rows<T: rusqlite::types::FromSql>(connection: &Connection, sql: &str) -> Vec<T> {
    connection.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Every file in a folder, by name, with its bytes. Never while a connection of this process is open:
/// closing a file drops the process's locks on it.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let named = |entry: fs::DirEntry| (entry.file_name().to_string_lossy().into_owned(), entry.path());
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| named(entry.unwrap()))
        .filter(|(_, path)| path.is_file())
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect()
}

pub fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

pub fn request<'a>(request_id: &'a str, tenant: &'a str, payload: &'a str) -> Request<'a> {
    Request { request_id, tenant, payload }
}

pub fn admit(store: &mut Store, request_id: &str, tenant: &str, payload: &str) -> Admission {
    store.admit(request(request_id, tenant, payload)).unwrap()
}

/// Admits what has to be accepted.
pub fn accept(store: &mut Store, request_id: &str, tenant: &str, payload: &str) {
    assert_eq!(admit(store, request_id, tenant, payload), Admission::Accepted, "{request_id}");
}

/// Claims what has to be there.
pub fn claim(store: &mut Store, tick: i64) -> Claim {
    store.claim(tick).unwrap().expect("a task to claim")
}

pub fn state(store: &Store, request_id: &str) -> State {
    store.status(request_id).unwrap().expect("an accepted request").state
}

/// One store with a task in each of the five states, named after them; at tick 1.
pub fn one_of_each(laboratory: &Laboratory) -> Store {
    let mut store = laboratory.open();
    for id in ["done", "quarantined", "inflight", "cancelled", "queued"] {
        accept(&mut store, id, "tenant", "payload");
    }
    let done = claim(&mut store, 0);
    assert_eq!(store.resolve(&done.token, 0).unwrap().name(), "done");
    let quarantined = claim(&mut store, 0);
    assert_eq!(store.quarantine(&quarantined.token, 0).unwrap().name(), "quarantined");
    let inflight = claim(&mut store, 1);
    assert_eq!(inflight.token.request_id, "inflight");
    assert_eq!(store.cancel_unstarted("cancelled").unwrap().name(), "cancelled");
    store
}

/// What a snapshot says of each task, short: `id:state:generation`.
pub fn brief(snapshot: &Snapshot) -> Vec<String> {
    snapshot.tasks.iter().map(|task| format!("{}:{}:{}", task.request_id, task.state, task.generation)).collect()
}
