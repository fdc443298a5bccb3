use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rusqlite::Connection;

use crate::boundary::{Boundary, Observer};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::store::Store;
use crate::write::{Answer, Ending, Write, run};

/// An answer, an error, or the panic that the request's own boundary crossing ended in.
pub(crate) type Outcome<A> = thread::Result<Result<A>>;

/// One caller's request; it owns what it asks, since any caller's thread may be the one that carries it out.
/// Dropped without [`Asked::deliver`], it leaves its caller with a closed channel and no answer.
pub(crate) trait Asked<O>: Send {
    /// In a savepoint of its own, if it has company; what came of it is kept back. `Err`: the whole transaction
    /// is at its end.
    fn carry_out(
        &mut self,
        connection: &Connection,
        limits: &Limits,
        observer: &mut O,
        company: Company,
    ) -> Result<Ending>;

    /// What was kept back is void, and this is heard instead.
    fn fail(&mut self, why: &Error);

    /// Tells its caller what came of it.
    fn deliver(self: Box<Self>);
}

pub(crate) fn asked<O, A: Answer + Send + 'static>(
    verb: impl FnOnce(&Connection, &Limits, &mut O) -> Result<A> + Send + 'static,
) -> (Box<dyn Asked<O>>, Receiver<Outcome<A>>) {
    let (caller, answer) = sync_channel(1);
    (Box::new(Request { verb: Some(verb), outcome: None, caller }), answer)
}

struct Request<V, A> {
    verb: Option<V>,
    outcome: Option<Outcome<A>>,
    caller: SyncSender<Outcome<A>>,
}

impl<O, A, V> Asked<O> for Request<V, A>
where
    A: Answer + Send,
    V: FnOnce(&Connection, &Limits, &mut O) -> Result<A> + Send,
{
    fn carry_out(
        &mut self,
        connection: &Connection,
        limits: &Limits,
        observer: &mut O,
        company: Company,
    ) -> Result<Ending> {
        let Some(verb) = self.verb.take() else { return Ok(Ending::RollBack) };
        company.begin(connection)?;
        // A panic of the observer is one request's; it goes on in its caller's thread, and the others go on here.
        let outcome = catch_unwind(AssertUnwindSafe(|| verb(connection, limits, observer)));
        let ending = match &outcome {
            Ok(Ok(answer)) => answer.ending(),
            Ok(Err(error)) if connection.is_autocommit() => return Err(error.again()),
            Ok(Err(_)) | Err(_) => {
                company.undo(connection)?;
                Ending::RollBack
            }
        };
        company.end(connection)?;
        self.outcome = Some(outcome);
        Ok(ending)
    }

    fn fail(&mut self, why: &Error) {
        if !matches!(self.outcome, Some(Err(_))) {
            self.outcome = Some(Ok(Err(why.again())));
        }
    }

    fn deliver(self: Box<Self>) {
        if let Some(outcome) = self.outcome {
            // The caller waits for it, and the channel has room for one.
            let _ = self.caller.send(outcome);
        }
    }
}

/// Whether others share a request's transaction. One alone is undone with it, and spared a savepoint, which
/// copies each page before its first change.
#[derive(Clone, Copy)]
pub(crate) enum Company {
    Alone,
    Shared,
}

impl Company {
    fn begin(self, connection: &Connection) -> Result<()> {
        self.run(connection, "SAVEPOINT request")
    }

    fn undo(self, connection: &Connection) -> Result<()> {
        self.run(connection, "ROLLBACK TO request")
    }

    fn end(self, connection: &Connection) -> Result<()> {
        self.run(connection, "RELEASE request")
    }

    fn run(self, connection: &Connection, sql: &str) -> Result<()> {
        match self {
            Company::Alone => Ok(()),
            Company::Shared => run(connection, sql, []).map(drop),
        }
    }
}

/// Carries out all of them in one transaction; on return it is durable. The boundaries behind its COMMIT are
/// left to cross. `Err` is the answer to each of them.
pub(crate) fn commit<O: Observer>(store: &mut Store<O>, requests: &mut [Box<dyn Asked<O>>]) -> Result<Vec<Boundary>> {
    store.wal.keep_bounded(&store.connection, store.busy_timeout);
    let write = Write::begin(&store.connection, store.busy_timeout)?;
    let company = if requests.len() == 1 { Company::Alone } else { Company::Shared };
    let mut endings = Vec::with_capacity(requests.len());
    for request in requests {
        endings.push(request.carry_out(&store.connection, &store.limits, &mut store.observer, company)?);
    }
    if endings.iter().all(|ending| *ending == Ending::RollBack) {
        write.roll_back()?;
        return Ok(Vec::new());
    }
    let across = |pair: fn(&[Boundary; 2]) -> Boundary| {
        let crossed = |boundary: &Boundary| {
            endings.iter().any(|ending| matches!(ending, Ending::CommitAcross(both) if pair(both) == *boundary))
        };
        Boundary::ALL.into_iter().filter(crossed).collect::<Vec<_>>()
    };
    for boundary in across(|[before, _]| *before) {
        store.observer.crossed(boundary);
    }
    write.commit()?;
    Ok(across(|[_, after]| *after))
}
