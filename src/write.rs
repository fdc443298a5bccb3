use std::time::{Duration, Instant};

use rusqlite::{Connection, Params};

use crate::boundary::{Boundary, Observer};
use crate::error::{Error, Result};

/// What an answer asks of the transaction in which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing was written.
    RollBack,
    /// Something may have been written: the tick at least.
    Commit,
    /// As `Commit`, crossing these two just before and just after.
    CommitAcross([Boundary; 2]),
}

/// From one look at a held lock to the next.
///
/// Left to itself, SQLite soon comes to look only ten times a second. The lock of a store with many writers is free
/// for some microseconds between two commits, and one of them may miss all of these moments for its whole timeout,
/// though the lock changes hands a thousand times.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// An answer of a writing verb.
pub(crate) trait Answer {
    fn ending(&self) -> Ending;
}

/// One `BEGIN IMMEDIATE … COMMIT`. Rolls back when dropped before its end.
pub(crate) struct Write<'c> {
    connection: &'c Connection,
}

impl<'c> Write<'c> {
    /// Waits for the write lock for as long as the busy timeout, which is the connection's own again afterwards.
    pub(crate) fn begin(connection: &'c Connection, busy_timeout: Duration) -> Result<Self> {
        let begun = Instant::now();
        let mut slept = Duration::ZERO;
        loop {
            let pause = LOOK_EVERY.min(busy_timeout - slept);
            // So SQLite sleeps once, for this long.
            connection.busy_timeout(pause)?;
            let write = run(connection, "BEGIN IMMEDIATE", []).map(|_| Write { connection });
            connection.busy_timeout(busy_timeout)?;
            slept += pause;
            match write {
                // Sleeps are counted as SQLite counts them: on a disk of the laboratory they take no time.
                Err(Error::Busy(_)) if slept.max(begun.elapsed()) < busy_timeout => {}
                ended => return ended,
            }
        }
    }

    pub(crate) fn commit(self) -> Result<()> {
        run(self.connection, "COMMIT", []).map_err(|error| Error::OutcomeUnknown(Box::new(error)))?;
        Ok(())
    }

    pub(crate) fn roll_back(self) -> Result<()> {
        run(self.connection, "ROLLBACK", [])?;
        Ok(())
    }

    /// As the one answer that was found in it asks.
    pub(crate) fn end(self, observer: &mut impl Observer, ending: Ending) -> Result<()> {
        match ending {
            Ending::RollBack => self.roll_back(),
            Ending::Commit => self.commit(),
            Ending::CommitAcross([before, after]) => {
                observer.crossed(before);
                self.commit()?;
                observer.crossed(after);
                Ok(())
            }
        }
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        // Some errors have ended the transaction already.
        if !self.connection.is_autocommit() {
            let _ = run(self.connection, "ROLLBACK", []);
        }
    }
}

/// As [`run`], where exactly one row has to change: a statement that quietly does nothing must not leave
/// the other half of its verb behind.
pub(crate) fn change_one(connection: &Connection, sql: &str, params: impl Params) -> Result<()> {
    match run(connection, sql, params)? {
        1 => Ok(()),
        rows => Err(Error::Corrupt(format!("{rows} rows were changed, not one, by {sql}"))),
    }
}

/// Runs one statement of those kept prepared; the number of rows it changed.
pub(crate) fn run(connection: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    Ok(connection.prepare_cached(sql)?.execute(params)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::Ear;

    #[test]
    fn a_held_lock_is_looked_at_again_and_again_for_the_whole_busy_timeout_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let holder = Connection::open(&path).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut waiting = Connection::open(&path).unwrap();
        for (busy_timeout, looks) in [(Duration::ZERO, 1..=1), (Duration::from_millis(300), 5..=300)] {
            let ear = Ear::on(&mut waiting);
            let begun = Instant::now();
            let heard = Write::begin(&waiting, busy_timeout).err();
            let elapsed = begun.elapsed();
            let statements = ear.off(&mut waiting);
            assert!(matches!(heard, Some(Error::Busy(_))), "{heard:?}");
            assert!(elapsed >= busy_timeout, "{elapsed:?}");
            assert!(looks.contains(&statements.len()), "{} looks", statements.len());
            let left: u64 = waiting.pragma_query_value(None, "busy_timeout", |row| row.get(0)).unwrap();
            assert_eq!(u128::from(left), busy_timeout.as_millis());
        }
        holder.execute_batch("COMMIT").unwrap();
        drop(Write::begin(&waiting, Duration::ZERO).unwrap());
    }
}
