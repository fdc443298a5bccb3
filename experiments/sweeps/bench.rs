//! A real store clamped into a bench: asked by its public verbs, read and put back by plain SQL on a second connection.
//!
//! Putting back writes, in one transaction, all rows of all tables as they were found after public verbs had led to that
//! state; to the store, which stays open, this is another process's commit. It costs a tenth of copying and opening the file.

use std::path::Path;

use durable_admission::{self as library, Store};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params_from_iter};

use super::perform::{Said, library_limits, perform};
use super::world::{Subject, Trouble};
use crate::model::{Answer, Error, Limits, Phase, Request, State, Task, Usage, Verb};

pub struct Bench {
    store: Store,
    beside: Connection,
    tables: Vec<Table>,
    /// What was read last, and SQLite's mark of the last commit that the second connection saw.
    seen: Option<(i64, Result<State, String>)>,
}

struct Table {
    select: String,
    delete: String,
    insert: String,
}

/// All rows of all tables.
pub struct Rows(Vec<Vec<Vec<Value>>>);

impl Bench {
    /// A new store at `path`, where nothing may be yet. On a disk that really syncs a small world takes many minutes:
    /// give a folder in memory.
    ///
    /// # Errors
    /// A sentence if the store can't be opened or read.
    pub fn clamp(path: &Path, limits: &Limits) -> Result<Bench, String> {
        let store = Store::open(path, &library_limits(limits))
            .map_err(|error| format!("{}: no store to measure ({error})", path.display()))?;
        let beside = Connection::open(path).map_err(unreadable)?;
        let tables = tables(&beside).map_err(unreadable)?;
        // Rows come back table by table; what the store itself writes is checked by its own connection.
        beside.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF").map_err(unreadable)?;
        beside.set_prepared_statement_cache_capacity(64);
        Ok(Bench { store, beside, tables, seen: None })
    }

    /// By plain SQL, where no run of verbs gets.
    ///
    /// # Errors
    /// What SQLite reports, and an id that is not there.
    pub fn set_generation(&mut self, request_id: &str, generation: i64) -> Result<(), String> {
        let set =
            "UPDATE task SET generation = ?2 WHERE sequence = (SELECT sequence FROM intent WHERE request_id = ?1)";
        // What it wrote itself is no commit of another in its eyes.
        self.seen = None;
        match self.beside.execute(set, (request_id, generation)) {
            Ok(1) => Ok(()),
            Ok(rows) => Err(format!("the generation of {request_id:?} stands in {rows} rows")),
            Err(error) => Err(format!("the generation of {request_id:?} could not be set by plain SQL ({error})")),
        }
    }

    /// The store anew; the second connection stays.
    ///
    /// # Errors
    /// A sentence if it can't be opened again.
    pub fn reopen(&mut self) -> Result<(), String> {
        let path = self.store.path().to_owned();
        let again = Store::open(&path, self.store.limits());
        self.store = again.map_err(|error| format!("{}: can't be opened again ({error})", path.display()))?;
        Ok(())
    }

    fn last_commit(&self) -> rusqlite::Result<i64> {
        self.beside.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
    }

    fn rows(&self) -> rusqlite::Result<Rows> {
        let read = Transaction::new_unchecked(&self.beside, TransactionBehavior::Deferred)?;
        let rows_of = |table: &Table| {
            let mut statement = read.prepare_cached(&table.select)?;
            let columns = statement.column_count();
            statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect())?.collect()
        };
        Ok(Rows(self.tables.iter().map(rows_of).collect::<rusqlite::Result<_>>()?))
    }

    fn put_back(&self, rows: &Rows) -> rusqlite::Result<()> {
        let write = Transaction::new_unchecked(&self.beside, TransactionBehavior::Immediate)?;
        for (table, rows) in self.tables.iter().zip(&rows.0) {
            write.prepare_cached(&table.delete)?.execute([])?;
            let mut insert = write.prepare_cached(&table.insert)?;
            for row in rows {
                insert.execute(params_from_iter(row))?;
            }
        }
        write.commit()
    }
}

impl Subject for Bench {
    type Saved = Rows;

    fn save(&mut self) -> Result<Rows, String> {
        self.rows().map_err(unreadable)
    }

    fn restore(&mut self, saved: &Rows) -> Result<(), String> {
        self.seen = None;
        self.put_back(saved).map_err(|error| format!("a saved state could not be put back ({error})"))
    }

    fn perform(&mut self, verb: &Verb) -> Result<Result<Answer, Error>, Trouble> {
        match perform(&mut self.store, verb) {
            Said::Heard(heard) => Ok(heard),
            Said::Failed(library::Error::Corrupt(damage)) => Err(Trouble::Damaged(damage)),
            Said::Failed(error) => Err(Trouble::Machine(format!("{verb:?} failed: {error}"))),
        }
    }

    fn whole_state(&mut self) -> Result<Result<State, String>, String> {
        let now = self.last_commit().map_err(unreadable)?;
        match &self.seen {
            Some((then, state)) if *then == now => Ok(state.clone()),
            Some(_) | None => {
                let state = whole_state(&self.beside).map_err(unreadable)?;
                self.seen = Some((now, state.clone()));
                Ok(state)
            }
        }
    }
}

/// All that a store remembers, by plain SQL in one read transaction. The inner error is a sentence: the rows contradict
/// each other or the usage ledger.
///
/// # Errors
/// What SQLite reports, also of a column that holds what it must not.
pub fn whole_state(connection: &Connection) -> rusqlite::Result<Result<State, String>> {
    let read = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
    let tick = read.prepare_cached("SELECT tick FROM store")?.query_row([], |row| row.get(0))?;
    let mut statement = read.prepare_cached(
        "SELECT request_id, tenant, payload, state, generation, lease,
             (SELECT count(*) FROM effect WHERE effect.sequence = intent.sequence)
         FROM intent LEFT JOIN task ON task.sequence = intent.sequence ORDER BY intent.sequence",
    )?;
    let tasks: Vec<Result<Task, String>> = statement.query_map([], task)?.collect::<rusqlite::Result<_>>()?;
    let orphans: u64 = read
        .prepare_cached(
            "SELECT (SELECT count(*) FROM task WHERE sequence NOT IN (SELECT sequence FROM intent))
                 + (SELECT count(*) FROM effect WHERE sequence NOT IN (SELECT sequence FROM intent))",
        )?
        .query_row([], |row| row.get(0))?;
    let mut ledger = read.prepare_cached("SELECT tenant, count, bytes FROM usage WHERE count <> 0 OR bytes <> 0")?;
    let ledger: Vec<(String, Usage)> = ledger
        .query_map([], |row| Ok((row.get(0)?, Usage { count: row.get(1)?, bytes: row.get(2)? })))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(tasks.into_iter().collect::<Result<_, _>>().and_then(|tasks| {
        let state = State { tick, tasks };
        if orphans > 0 {
            return Err(format!("{orphans} tasks or effects without an intent"));
        }
        let mut sums = state.snapshot().tenants;
        if !sums.is_empty() {
            sums.insert(String::new(), state.usage());
        }
        let ledger = ledger.into_iter().collect();
        if sums == ledger { Ok(state) } else { Err(format!("the usage ledger says {ledger:?}, the tasks {sums:?}")) }
    }))
}

fn task(row: &Row<'_>) -> rusqlite::Result<Result<Task, String>> {
    let (id, tenant, payload): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (state, generation): (Option<String>, Option<i64>) = (row.get(3)?, row.get(4)?);
    let (lease, effects): (Option<i64>, u64) = (row.get(5)?, row.get(6)?);
    let phase = match (state.as_deref(), lease, effects) {
        (Some("queued"), None, 0) => Phase::Queued,
        (Some("inflight"), Some(lease), 0) => Phase::Inflight { lease },
        (Some("quarantined"), None, 0) => Phase::Quarantined,
        (Some("done"), None, 1) => Phase::Done,
        (Some("cancelled"), None, 0) => Phase::Cancelled,
        (state, lease, effects) => {
            return Ok(Err(format!("{id:?} has state {state:?}, lease {lease:?} and {effects} effects")));
        }
    };
    let Some(generation) = generation else { return Ok(Err(format!("{id:?} has no generation"))) };
    Ok(Ok(Task { request: Request::new(&id, &tenant, &payload), phase, generation }))
}

fn tables(connection: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut names = connection.prepare(
        "SELECT name, (SELECT count(*) FROM pragma_table_info(sqlite_schema.name)) FROM sqlite_schema
         WHERE type = 'table' ORDER BY name",
    )?;
    let table = |row: &Row<'_>| {
        let (name, columns): (String, usize) = (row.get(0)?, row.get(1)?);
        Ok(Table {
            select: format!("SELECT * FROM \"{name}\""),
            delete: format!("DELETE FROM \"{name}\""),
            insert: format!("INSERT INTO \"{name}\" VALUES ({})", vec!["?"; columns].join(", ")),
        })
    };
    names.query_map([], table)?.collect()
}

fn unreadable(error: rusqlite::Error) -> String {
    format!("the store could not be read by plain SQL ({error})")
}
