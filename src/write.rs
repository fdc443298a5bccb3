use rusqlite::{Connection, Params};

use crate::boundary::{Boundary, Observer};
use crate::error::{Error, Result};

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

    /// Commits, crossing the boundary just before it and the one just after.
    pub(crate) fn commit_across(self, observer: &mut impl Observer, boundaries: [Boundary; 2]) -> Result<()> {
        let [before, after] = boundaries;
        observer.crossed(before);
        self.commit()?;
        observer.crossed(after);
        Ok(())
    }

    pub(crate) fn roll_back(self) -> Result<()> {
        run(self.connection, "ROLLBACK", [])?;
        Ok(())
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

/// Runs one statement of those kept prepared; the number of rows it changed.
pub(crate) fn run(connection: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    Ok(connection.prepare_cached(sql)?.execute(params)?)
}
