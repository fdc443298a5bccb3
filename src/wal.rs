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
        if self.attempt_is_due(pages) {
            let patient = connection.busy_timeout(PATIENCE.min(busy_timeout));
            let left = patient.and_then(|()| checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)"));
            self.attempt_at = next_attempt(pages, left.ok());
            // Fails only on a timeout that opening has refused.
            let _ = connection.busy_timeout(busy_timeout);
        }
    }

    fn attempt_is_due(&mut self, pages: i64) -> bool {
        if pages <= BOUND_PAGES {
            self.attempt_at = BOUND_PAGES;
            return false;
        }
        pages >= self.attempt_at
    }
}

/// Pages at which to try again after an attempt on so many, from what it `left`, if it could be made.
fn next_attempt(pages: i64, left: Option<Length>) -> i64 {
    match left {
        Some(left) if left.in_database > left.pages / 2 => pages.saturating_add(PAGES_TO_NEXT_ATTEMPT),
        Some(_) | None => pages.saturating_mul(2),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::Ear;

    #[test]
    fn the_next_attempt_is_due_soon_where_readers_come_and_go_and_at_twice_the_length_where_one_stays() {
        for (left, next) in [
            (None, 18_000),
            (Some(Length { pages: 9_001, in_database: 0 }), 18_000),
            (Some(Length { pages: 9_001, in_database: 4_500 }), 18_000),
            (Some(Length { pages: 9_001, in_database: 4_501 }), 10_000),
            (Some(Length { pages: 9_001, in_database: 9_001 }), 10_000),
            (Some(Length { pages: 0, in_database: 0 }), 18_000),
        ] {
            assert_eq!(next_attempt(9_000, left), next);
        }
    }

    #[test]
    fn an_attempt_is_due_past_the_bound_and_then_where_it_was_put_until_the_wal_is_short_again() {
        let mut wal = Wal::new();
        assert_eq!([4_000, 4_001, 9_000].map(|pages| wal.attempt_is_due(pages)), [false, true, true]);
        wal.attempt_at = 6_000;
        assert_eq!([5_999, 6_000, 6_001].map(|pages| wal.attempt_is_due(pages)), [false, true, true]);
        assert!(!wal.attempt_is_due(100));
        assert!(wal.attempt_is_due(4_001));
    }

    #[test]
    fn the_length_is_looked_at_once_in_sixty_four_commits() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(folder.path().join("wal.db")).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x)").unwrap();
        let ear = Ear::on(&mut connection);
        let mut wal = Wal::new();
        let looks: Vec<usize> = (0..3 * COMMITS_PER_LOOK as usize)
            .filter(|_| {
                let before = ear.count();
                wal.keep_bounded(&connection, Duration::ZERO);
                ear.count() > before
            })
            .collect();
        assert_eq!(looks, [63, 127, 191]);
    }
}
