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

/// An answer of a writing verb.
pub(crate) trait Answer {
    fn ending(&self) -> Ending;
}

/// One `BEGIN IMMEDIATE … COMMIT`. Rolls back when dropped before its end.
pub(crate) struct Write<'c> {
    connection: &'c Connection,
}

impl<'c> Write<'c> {
    pub(crate) fn begin(connection: &'c Connection) -> Result<Self> {
        run(connection, "BEGIN IMMEDIATE", [])?;
        Ok(Write { connection })
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
