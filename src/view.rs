use std::collections::BTreeMap;
use std::fmt;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior};

use crate::error::{Error, Result};
use crate::request::check_identity;
use crate::store::Store;

/// What outstanding tasks hold (PROTOCOL, *Terms*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Outstanding tasks.
    pub count: u64,
    /// Their payloads, in UTF-8 bytes.
    pub bytes: u64,
}

/// Where a task stands. The first three are outstanding, the last two ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Waiting to be claimed.
    Queued,
    /// Claimed; its lease may have run out.
    Inflight,
    /// Set aside.
    Quarantined,
    /// Ended with its effect.
    Done,
    /// Ended without ever having been claimed.
    Cancelled,
}

impl State {
    /// The state's name in PROTOCOL.
    pub const fn name(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Inflight => "inflight",
            State::Quarantined => "quarantined",
            State::Done => "done",
            State::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromSql for State {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        [State::Queued, State::Inflight, State::Quarantined, State::Done, State::Cancelled]
            .into_iter()
            .find(|state| state.name() == name)
            .ok_or(FromSqlError::InvalidType)
    }
}

/// One accepted request's task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its place in the order of admission, from 1.
    pub sequence: i64,
    /// As admitted.
    pub request_id: String,
    /// As admitted.
    pub tenant: String,
    /// Charged to the budgets while it is outstanding.
    pub bytes: u64,
    /// Where it stands.
    pub state: State,
    /// Raised by each claim and each redrive; 0 = never claimed.
    pub generation: i64,
    /// While inflight: the tick at which the lease counts as run out.
    pub lease: Option<i64>,
}

impl Task {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Task {
            sequence: row.get("sequence")?,
            request_id: row.get("request_id")?,
            tenant: row.get("tenant")?,
            bytes: row.get("bytes")?,
            state: row.get("state")?,
            generation: row.get("generation")?,
            lease: row.get("lease")?,
        })
    }
}

/// All that is there, at one instant. Grows with history, which is never deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Over all tenants.
    pub usage: Usage,
    /// Of each tenant that holds something.
    pub tenants: BTreeMap<String, Usage>,
    /// The stored tick.
    pub tick: i64,
    /// In order of admission, ended ones included.
    pub tasks: Vec<Task>,
    /// Durable records of what was asked.
    pub intents: u64,
    /// Durable records of completion.
    pub effects: u64,
}

const TASKS: &str = "SELECT task.sequence, request_id, tenant, task.bytes, state, generation, lease
     FROM intent JOIN task ON task.sequence = intent.sequence";

impl<O> Store<O> {
    /// The task of one request, or `None` if it was never accepted (PROTOCOL, *status*).
    ///
    /// # Errors
    /// An id out of range, a failing store.
    pub fn status(&self, request_id: &str) -> Result<Option<Task>> {
        check_identity("request id", request_id)?;
        let sql = format!("{TASKS} WHERE request_id = ?1");
        Ok(self.connection.prepare_cached(&sql)?.query_row([request_id], Task::from_row).optional()?)
    }

    /// What outstanding tasks hold, over all tenants: one row read, whatever the store's size.
    ///
    /// # Errors
    /// A failing store.
    pub fn usage(&self) -> Result<Usage> {
        self.connection
            .prepare_cached("SELECT count, bytes FROM usage WHERE tenant = ?1")?
            .query_row([GLOBAL], |row| Ok(Usage { count: row.get(0)?, bytes: row.get(1)? }))
            .optional()?
            .ok_or_else(no_global_row)
    }

    /// All that is there, in one read transaction (PROTOCOL, *snapshot*).
    ///
    /// # Errors
    /// A failing store.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let read = Transaction::new_unchecked(&self.connection, TransactionBehavior::Deferred)?;
        let count = |sql: &str| read.prepare_cached(sql)?.query_row([], |row| row.get::<_, u64>(0));
        let mut tenants = BTreeMap::new();
        let mut statement =
            read.prepare_cached("SELECT tenant, count, bytes FROM usage WHERE count > 0 OR tenant = ''")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            tenants.insert(row.get::<_, String>(0)?, Usage { count: row.get(1)?, bytes: row.get(2)? });
        }
        Ok(Snapshot {
            usage: tenants.remove(GLOBAL).ok_or_else(no_global_row)?,
            tenants,
            tick: read.prepare_cached("SELECT tick FROM store WHERE id = 1")?.query_row([], |row| row.get(0))?,
            tasks: read
                .prepare_cached(&format!("{TASKS} ORDER BY task.sequence"))?
                .query_map([], Task::from_row)?
                .collect::<rusqlite::Result<_>>()?,
            intents: count("SELECT count(*) FROM intent")?,
            effects: count("SELECT count(*) FROM effect")?,
        })
    }
}

/// The ledger's row of all tenants together: no request can have this tenant.
pub(crate) const GLOBAL: &str = "";

pub(crate) fn no_global_row() -> Error {
    Error::Corrupt("the usage ledger has no row for all tenants together".to_owned())
}
