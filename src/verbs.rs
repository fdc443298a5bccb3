use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::answer::{Admission, Budget, Cancellation, Claim, Full, Quarantine, Redrive, Resolution, Scope};
use crate::boundary::{Boundary, Observer};
use crate::error::{Error, Result};
use crate::limits::{Allowance, GENERATION_CEILING, LEASE_TICKS, Limits};
use crate::request::{Request, Token, check_claim_tick, check_identity, check_report};
use crate::store::Store;
use crate::view::{GLOBAL, Usage, no_global_row};
use crate::write::{Answer, Ending, Write, change_one, run};

/// The local effect of a resolved task: a row in this database, which stands for nothing outside it.
const EFFECT: &str = "synthetic-completed";

impl<O: Observer> Store<O> {
    /// Asks for room (PROTOCOL, *admit*): identity before capacity, capacity before writing.
    ///
    /// # Errors
    /// Ids that are empty or too long, a busy or failing store. After [`Error::OutcomeUnknown`] the same
    /// request again is `accepted` or `replay`, and either way held once.
    pub fn admit(&mut self, request: Request<'_>) -> Result<Admission> {
        request.check()?;
        self.write(|connection, limits, observer| admit(connection, limits, observer, request))
    }

    /// Takes the oldest task that is queued or whose lease has run out (PROTOCOL, *claim*). `None`: there is
    /// none. The room stays held.
    ///
    /// # Errors
    /// A tick out of range (the lease, tick + 5, has to fit as well) or moved back, a generation at its
    /// ceiling, a busy or failing store. After [`Error::OutcomeUnknown`] the lease, if there is one, runs out.
    pub fn claim(&mut self, tick: i64) -> Result<Option<Claim>> {
        check_claim_tick(tick)?;
        self.write(|connection, _, _| claim(connection, tick))
    }

    /// Reports a claim as done (PROTOCOL, *resolve*): effect and end in one commit, and the room is free.
    ///
    /// # Errors
    /// A token or tick out of range, a tick moved back, a busy or failing store. After
    /// [`Error::OutcomeUnknown`] ask again with the same token; if that is `stale`, [`Store::status`] tells.
    pub fn resolve(&mut self, token: &Token, tick: i64) -> Result<Resolution> {
        check_report(token, tick)?;
        self.write(|connection, _, observer| resolve(connection, observer, token, tick))
    }

    /// Sets a claimed task aside (PROTOCOL, *quarantine*). The room stays held.
    ///
    /// # Errors
    /// As [`Store::resolve`].
    pub fn quarantine(&mut self, token: &Token, tick: i64) -> Result<Quarantine> {
        check_report(token, tick)?;
        self.write(|connection, _, _| quarantine(connection, token, tick))
    }

    /// Puts a quarantined task back in its place (PROTOCOL, *redrive*). No new admission, no change of usage.
    ///
    /// # Errors
    /// A token out of range, a generation at its ceiling, a busy or failing store.
    pub fn redrive(&mut self, token: &Token) -> Result<Redrive> {
        token.check()?;
        self.write(|connection, _, _| redrive(connection, token))
    }

    /// Ends a task that nobody ever claimed (PROTOCOL, *cancel_unstarted*), and its room is free.
    ///
    /// # Errors
    /// An id out of range, a busy or failing store. After [`Error::OutcomeUnknown`] ask again; if that is
    /// `not_cancelled`, [`Store::status`] tells.
    pub fn cancel_unstarted(&mut self, request_id: &str) -> Result<Cancellation> {
        check_identity("request id", request_id)?;
        self.write(|connection, _, _| cancel_unstarted(connection, request_id))
    }

    /// One verb in a transaction of its own.
    fn write<A: Answer>(&mut self, verb: impl FnOnce(&Connection, &Limits, &mut O) -> Result<A>) -> Result<A> {
        self.wal.keep_bounded(&self.connection, self.busy_timeout);
        let write = Write::begin(&self.connection, self.busy_timeout)?;
        let answer = verb(&self.connection, &self.limits, &mut self.observer)?;
        write.end(&mut self.observer, answer.ending())?;
        Ok(answer)
    }
}

impl Answer for Admission {
    fn ending(&self) -> Ending {
        match self {
            Admission::Accepted => Ending::CommitAcross([Boundary::AdmitBeforeCommit, Boundary::AdmitAfterCommit]),
            Admission::Replay | Admission::Conflict | Admission::Oversize { .. } | Admission::Full(_) => {
                Ending::RollBack
            }
        }
    }
}

impl Answer for Option<Claim> {
    fn ending(&self) -> Ending {
        Ending::Commit
    }
}

impl Answer for Resolution {
    fn ending(&self) -> Ending {
        match self {
            Resolution::Done => Ending::CommitAcross([Boundary::ResolveBeforeCommit, Boundary::ResolveAfterCommit]),
            Resolution::Stale => Ending::Commit,
        }
    }
}

impl Answer for Quarantine {
    fn ending(&self) -> Ending {
        Ending::Commit
    }
}

impl Answer for Redrive {
    fn ending(&self) -> Ending {
        Ending::Commit
    }
}

impl Answer for Cancellation {
    fn ending(&self) -> Ending {
        match self {
            Cancellation::Cancelled => {
                Ending::CommitAcross([Boundary::CancelBeforeCommit, Boundary::CancelAfterCommit])
            }
            Cancellation::NotCancelled => Ending::RollBack,
        }
    }
}

pub(crate) fn admit(
    connection: &Connection,
    limits: &Limits,
    observer: &mut impl Observer,
    request: Request<'_>,
) -> Result<Admission> {
    let Request { request_id, tenant, payload } = request;
    let payload_bytes = payload.len() as u64;
    let oversize = payload_bytes > limits.payload_bytes;
    // No accepted payload is oversize; and one of more than 10^9 bytes could not even be handed to SQLite.
    let comparable = (!oversize).then_some(payload);
    let same: Option<bool> = connection
        .prepare_cached("SELECT tenant IS ?2 AND payload IS ?3 FROM intent WHERE request_id = ?1")?
        .query_row(params![request_id, tenant, comparable], |row| row.get(0))
        .optional()?;
    match same {
        Some(true) => return Ok(Admission::Replay),
        Some(false) => return Ok(Admission::Conflict),
        None => {}
    }
    if oversize {
        return Ok(Admission::Oversize { payload_bytes, limit: limits.payload_bytes });
    }
    let Standing { global, own, last_sequence } = standing(connection, tenant)?;
    if let Some(full) = full(Scope::Global, global, limits.global, payload_bytes) {
        return Ok(Admission::Full(full));
    }
    if let Some(full) = full(Scope::Tenant, own, limits.tenant, payload_bytes) {
        return Ok(Admission::Full(full));
    }

    let sequence = raise("sequence", request_id, last_sequence, i64::MAX)?;
    change_one(
        connection,
        "INSERT INTO intent (sequence, request_id, tenant, bytes, payload) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![sequence, request_id, tenant, payload_bytes, payload],
    )?;
    observer.crossed(Boundary::AdmitAfterIntent);
    change_one(
        connection,
        "INSERT INTO task (sequence, bytes, state) VALUES (?1, ?2, 'queued')",
        params![sequence, payload_bytes],
    )?;
    let charged = run(
        connection,
        "INSERT INTO usage (tenant, count, bytes) VALUES ('', 1, ?2), (?1, 1, ?2)
         ON CONFLICT DO UPDATE SET count = count + 1, bytes = bytes + excluded.bytes",
        params![tenant, payload_bytes],
    )?;
    both_rows_of_ledger(charged, tenant)?;
    Ok(Admission::Accepted)
}

pub(crate) fn claim(connection: &Connection, tick: i64) -> Result<Option<Claim>> {
    store_tick(connection, tick)?;
    make_claimable_what_ran_out(connection, tick)?;
    let oldest = connection
        .prepare_cached(
            "SELECT task.sequence, generation, request_id, tenant, payload
             FROM task JOIN intent ON intent.sequence = task.sequence
             WHERE due = 0 ORDER BY task.sequence LIMIT 1",
        )?
        .query_row([], |row| {
            let token = Token { request_id: row.get(2)?, generation: row.get(1)? };
            Ok((row.get::<_, i64>(0)?, token, row.get(3)?, row.get(4)?))
        })
        .optional()?;
    let Some((sequence, mut token, tenant, payload)) = oldest else { return Ok(None) };
    token.generation = raise("generation", &token.request_id, token.generation, GENERATION_CEILING)?;
    let lease = tick + LEASE_TICKS;
    change_one(
        connection,
        "UPDATE task SET state = 'inflight', generation = ?2, lease = ?3, due = ?3 WHERE sequence = ?1",
        [sequence, token.generation, lease],
    )?;
    Ok(Some(Claim { token, tenant, payload, lease }))
}

pub(crate) fn resolve(
    connection: &Connection,
    observer: &mut impl Observer,
    token: &Token,
    tick: i64,
) -> Result<Resolution> {
    store_tick(connection, tick)?;
    let Some(held) = held_by(connection, token, tick)? else { return Ok(Resolution::Stale) };
    change_one(connection, "INSERT INTO effect (sequence, effect) VALUES (?1, ?2)", params![held.sequence, EFFECT])?;
    observer.crossed(Boundary::ResolveAfterEffect);
    change_one(
        connection,
        "UPDATE task SET state = 'done', lease = NULL, due = NULL WHERE sequence = ?1",
        [held.sequence],
    )?;
    give_back(connection, &held)?;
    Ok(Resolution::Done)
}

pub(crate) fn quarantine(connection: &Connection, token: &Token, tick: i64) -> Result<Quarantine> {
    store_tick(connection, tick)?;
    let Some(held) = held_by(connection, token, tick)? else { return Ok(Quarantine::Stale) };
    change_one(
        connection,
        "UPDATE task SET state = 'quarantined', lease = NULL, due = NULL WHERE sequence = ?1",
        [held.sequence],
    )?;
    Ok(Quarantine::Quarantined)
}

pub(crate) fn redrive(connection: &Connection, token: &Token) -> Result<Redrive> {
    let sequence: Option<i64> = connection
        .prepare_cached(
            "SELECT task.sequence FROM intent JOIN task ON task.sequence = intent.sequence
             WHERE request_id = ?1 AND generation = ?2 AND state = 'quarantined'",
        )?
        .query_row(params![token.request_id, token.generation], |row| row.get(0))
        .optional()?;
    let Some(sequence) = sequence else { return Ok(Redrive::Stale) };
    let generation = raise("generation", &token.request_id, token.generation, GENERATION_CEILING)?;
    change_one(
        connection,
        "UPDATE task SET state = 'queued', generation = ?2, due = 0 WHERE sequence = ?1",
        [sequence, generation],
    )?;
    Ok(Redrive::Requeued)
}

pub(crate) fn cancel_unstarted(connection: &Connection, request_id: &str) -> Result<Cancellation> {
    let unstarted = connection
        .prepare_cached(
            "SELECT task.sequence, tenant, task.bytes FROM intent JOIN task ON task.sequence = intent.sequence
             WHERE request_id = ?1 AND state = 'queued' AND generation = 0",
        )?
        .query_row([request_id], Held::from_row)
        .optional()?;
    let Some(unstarted) = unstarted else { return Ok(Cancellation::NotCancelled) };
    change_one(
        connection,
        "UPDATE task SET state = 'cancelled', due = NULL WHERE sequence = ?1",
        [unstarted.sequence],
    )?;
    give_back(connection, &unstarted)?;
    Ok(Cancellation::Cancelled)
}

/// All that an admission depends on but its own identity, in one look.
struct Standing {
    global: Usage,
    own: Usage,
    /// 0 where nothing was ever admitted.
    last_sequence: i64,
}

fn standing(connection: &Connection, tenant: &str) -> Result<Standing> {
    // A tenant that never held anything has no row yet.
    connection
        .prepare_cached(
            "SELECT global.count, global.bytes, ifnull(own.count, 0), ifnull(own.bytes, 0),
                 ifnull((SELECT max(sequence) FROM intent), 0)
             FROM usage AS global LEFT JOIN usage AS own ON own.tenant = ?2 WHERE global.tenant = ?1",
        )?
        .query_row([GLOBAL, tenant], |row| {
            Ok(Standing {
                global: Usage { count: row.get(0)?, bytes: row.get(1)? },
                own: Usage { count: row.get(2)?, bytes: row.get(3)? },
                last_sequence: row.get(4)?,
            })
        })
        .optional()?
        .ok_or_else(no_global_row)
}

/// A task that holds room, and whose.
struct Held {
    sequence: i64,
    tenant: String,
    bytes: i64,
}

impl Held {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Held { sequence: row.get(0)?, tenant: row.get(1)?, bytes: row.get(2)? })
    }
}

/// The guard of every report: inflight at that very generation, and the lease has not run out.
fn held_by(connection: &Connection, token: &Token, tick: i64) -> Result<Option<Held>> {
    let held = connection
        .prepare_cached(
            "SELECT task.sequence, tenant, task.bytes FROM intent JOIN task ON task.sequence = intent.sequence
             WHERE request_id = ?1 AND state = 'inflight' AND generation = ?2 AND lease > ?3",
        )?
        .query_row(params![token.request_id, token.generation, tick], Held::from_row)
        .optional()?;
    Ok(held)
}

fn store_tick(connection: &Connection, tick: i64) -> Result<()> {
    let stored: i64 =
        connection.prepare_cached("SELECT tick FROM store WHERE id = 1")?.query_row([], |row| row.get(0))?;
    if tick < stored {
        return Err(Error::TickMovedBack { given: tick, stored });
    }
    if tick > stored {
        change_one(connection, "UPDATE store SET tick = ?1 WHERE id = 1", [tick])?;
    }
    Ok(())
}

/// Looks first: most claims find nothing, and an UPDATE of what it searches by builds itself a table to begin with.
fn make_claimable_what_ran_out(connection: &Connection, tick: i64) -> Result<()> {
    if connection.prepare_cached("SELECT 1 FROM task WHERE due BETWEEN 1 AND ?1")?.exists([tick])? {
        run(connection, "UPDATE task SET due = 0 WHERE due BETWEEN 1 AND ?1", [tick])?;
    }
    Ok(())
}

fn full(scope: Scope, usage: Usage, allowance: Allowance, bytes: u64) -> Option<Full> {
    [(Budget::Count, usage.count, allowance.count, 1), (Budget::Bytes, usage.bytes, allowance.bytes, bytes)]
        .into_iter()
        .find(|(_, used, limit, needed)| used.checked_add(*needed).is_none_or(|wanted| wanted > *limit))
        .map(|(budget, used, limit, needed)| Full { scope, budget, used, limit, needed })
}

/// Gives back what was charged, globally and to the tenant.
fn give_back(connection: &Connection, held: &Held) -> Result<()> {
    let mut rows = 0;
    for tenant in [GLOBAL, &held.tenant] {
        rows += run(
            connection,
            "UPDATE usage SET count = count - 1, bytes = bytes - ?2 WHERE tenant = ?1",
            params![tenant, held.bytes],
        )?;
    }
    both_rows_of_ledger(rows, &held.tenant)
}

/// The global one and the tenant's.
fn both_rows_of_ledger(changed: usize, tenant: &str) -> Result<()> {
    match changed {
        2 => Ok(()),
        _ => Err(Error::Corrupt(format!("the usage ledger has not both rows to charge tenant {tenant:?} on"))),
    }
}

fn raise(number: &'static str, request_id: &str, value: i64, ceiling: i64) -> Result<i64> {
    match value.checked_add(1) {
        Some(raised) if raised <= ceiling => Ok(raised),
        _ => Err(Error::Ceiling { number, request_id: request_id.to_owned(), ceiling }),
    }
}
