use std::time::Duration;

use rusqlite::Connection;

/// SQLite's own automatic checkpoint, after the commit that takes the WAL past this many pages. It is
/// passive: it waits for nobody, and its errors are not the commit's.
pub(crate) const AUTOCHECKPOINT_PAGES: &str = "1000";

/// What stays of the WAL file once it starts anew: twice what automatic checkpoints leave room for.
pub(crate) const KEPT_BYTES: &str = "8388608";

/// A WAL of more pages has not started anew for a while: 16 MiB.
const BOUND_PAGES: i64 = 4_000;

/// To the next attempt where readers come and go.
const PAGES_TO_NEXT_ATTEMPT: i64 = 1_000;

/// Commits between two looks at the WAL's length; a look is one read of shared memory.
const COMMITS_PER_LOOK: u32 = 64;

/// How long the attempt to empty the WAL waits for readers, all writers waiting behind it.
const PATIENCE: Duration = Duration::from_millis(50);

/// Keeps the WAL from growing without bound.
///
/// The WAL starts anew when a writer finds all of it checkpointed and no reader in it. Automatic checkpoints
/// see to the first; readers that overlap without a gap deny the second for ever. So a WAL over its bound is
/// emptied by a checkpoint that holds back writers until the readers of old pages are gone, if that takes no
/// longer than the patience. Where readers come and go, the next attempt is due soon. As long as one reader
/// stays, nothing can bound the WAL: then it is due when the WAL has doubled, so that attempts cost less and
/// less of the growth. What a reader made it grow to is cut back to the kept size by the first commit after it
/// starts anew.
///
/// All this happens before a transaction begins, and a failure is silent: it is no answer to any request.
pub(crate) struct Wal {
    commits_until_look: u32,
    /// Pages at which the next attempt is due.
    attempt_at: i64,
}

impl Wal {
    pub(crate) fn new() -> Self {
        Wal { commits_until_look: COMMITS_PER_LOOK, attempt_at: BOUND_PAGES }
    }

    /// To be called outside of a transaction, before each that writes.
    pub(crate) fn keep_bounded(&mut self, connection: &Connection, busy_timeout: Duration) {
        self.commits_until_look -= 1;
        if self.commits_until_look > 0 {
            return;
        }
        self.commits_until_look = COMMITS_PER_LOOK;
        let Ok(Length { pages, .. }) = checkpoint(connection, "PRAGMA wal_checkpoint(NOOP)") else { return };
        if pages <= BOUND_PAGES {
            self.attempt_at = BOUND_PAGES;
        } else if pages >= self.attempt_at {
            self.attempt_at = pages.saturating_mul(2);
            if connection.busy_timeout(PATIENCE.min(busy_timeout)).is_ok()
                && let Ok(left) = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
                && left.in_database > left.pages / 2
            {
                self.attempt_at = pages.saturating_add(PAGES_TO_NEXT_ATTEMPT);
            }
            // Fails only on a timeout that opening has refused.
            let _ = connection.busy_timeout(busy_timeout);
        }
    }
}

/// Of the WAL, in pages.
struct Length {
    pages: i64,
    /// Those that are in the database, too: as many as no reader keeps out of it.
    in_database: i64,
}

fn checkpoint(connection: &Connection, pragma: &str) -> rusqlite::Result<Length> {
    connection.prepare_cached(pragma)?.query_row([], |row| Ok(Length { pages: row.get(1)?, in_database: row.get(2)? }))
}
