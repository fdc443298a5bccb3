use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{ErrorCode, ffi};

use crate::limits::Limits;

/// The result of every fallible call of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// What kept a verb from answering. Never an answer in disguise: except for [`Error::OutcomeUnknown`],
/// nothing was changed, the stored tick included. A failed opening may leave a new store behind, or what the next
/// opening makes one of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Refused before anything was read.
    #[error("{field} {problem}")]
    Input {
        /// Which input.
        field: &'static str,
        /// What is wrong with it and what to give instead.
        problem: String,
    },
    /// The tick is lower than the stored one (PROTOCOL, *Terms*).
    #[error("tick {given} is lower than the stored tick {stored}; the clock never moves back: give at least {stored}")]
    TickMovedBack {
        /// The caller's.
        given: i64,
        /// The store's.
        stored: i64,
    },
    /// A generation or sequence number cannot be raised any further.
    #[error(
        "the {number} of request {request_id:?} is at its ceiling {ceiling} and cannot be raised; it needs an operator"
    )]
    Ceiling {
        /// `generation` or `sequence`.
        number: &'static str,
        /// Whose.
        request_id: String,
        /// The highest value allowed.
        ceiling: i64,
    },
    /// The store was created with other limits (PROTOCOL, *init / open*).
    #[error("{path}: the store was created with {stored}, not with {given}; open it with the limits it has", path = path.display())]
    LimitsDiffer {
        /// The store.
        path: PathBuf,
        /// Its limits.
        stored: Box<Limits>,
        /// The caller's.
        given: Box<Limits>,
    },
    /// The file is none of ours; not one byte of it was changed.
    #[error("{path}: {reason}; give the path of a store or of a file that does not exist yet", path = path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// How that shows.
        reason: String,
    },
    /// A connection setting that durability rests on could not be had.
    #[error("{path}: {pragma} is {found}, not {wanted}; use a local file system that supports it", path = path.display())]
    Setting {
        /// The store.
        path: PathBuf,
        /// The pragma that was set and read back.
        pragma: &'static str,
        /// The value set.
        wanted: &'static str,
        /// The value read back.
        found: String,
    },
    /// The lock was held by another connection for longer than the busy timeout.
    #[error("the store stayed locked for the whole busy timeout; try again later")]
    Busy(#[source] rusqlite::Error),
    /// The disk, or the database's own page limit, is full. Not a full *budget*.
    #[error("the disk is full (no budget is meant): {0}; make room and try again")]
    DiskFull(#[source] rusqlite::Error),
    /// Reading or writing failed.
    #[error("reading or writing the store failed: {0}; look at the disk and try again")]
    Io(#[source] rusqlite::Error),
    /// The store cannot be opened, created or written.
    #[error("the store cannot be opened or written: {0}; look at its folder and the permissions")]
    Unavailable(#[source] rusqlite::Error),
    /// The store contradicts itself or the protocol.
    #[error("the store is damaged: {0}; restore it from a backup")]
    Corrupt(String),
    /// COMMIT failed. It may have happened all the same, and even come to light only when the store is opened again.
    /// Asking again with the same id, or token, settles it; reading on the same connection does not.
    #[error("COMMIT failed and may have happened all the same ({0}); ask again with the same id to learn which")]
    OutcomeUnknown(#[source] Box<Error>),
    /// A shared handle's queue stayed full for as long as the caller was willing to wait. Not a full *budget*.
    #[error("the queue of waiting requests stayed full for {waited:?} (no budget is meant); try again later")]
    QueueFull {
        /// [`QueueOptions::patience`](crate::QueueOptions::patience).
        waited: Duration,
    },
    /// The observer panicked in another caller's thread, at the group's boundary before COMMIT.
    #[error("another caller's thread panicked before the COMMIT that both shared; ask again")]
    Abandoned,
    /// Anything else that SQLite reports.
    #[error("SQLite reports: {0}")]
    Sqlite(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
                Error::Busy(error)
            }
            Some(ErrorCode::DiskFull) => Error::DiskFull(error),
            Some(ErrorCode::SystemIoFailure) => Error::Io(error),
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                Error::Unavailable(error)
            }
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch,
            ) => Error::Corrupt(error.to_string()),
            Some(_) => Error::Sqlite(error),
            // Without a code it is a value that the schema does not allow.
            None => Error::Corrupt(error.to_string()),
        }
    }
}

impl Error {
    /// The same once more: all requests of one group hear what became of it.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Input { field, problem } => Error::Input { field, problem: problem.clone() },
            Error::TickMovedBack { given, stored } => Error::TickMovedBack { given: *given, stored: *stored },
            Error::Ceiling { number, request_id, ceiling } => {
                Error::Ceiling { number, request_id: request_id.clone(), ceiling: *ceiling }
            }
            Error::LimitsDiffer { path, stored, given } => {
                Error::LimitsDiffer { path: path.clone(), stored: stored.clone(), given: given.clone() }
            }
            Error::NotOurs { path, reason } => Error::NotOurs { path: path.clone(), reason: reason.clone() },
            Error::Setting { path, pragma, wanted, found } => {
                Error::Setting { path: path.clone(), pragma, wanted, found: found.clone() }
            }
            Error::Busy(source) => Error::Busy(same(source)),
            Error::DiskFull(source) => Error::DiskFull(same(source)),
            Error::Io(source) => Error::Io(same(source)),
            Error::Unavailable(source) => Error::Unavailable(same(source)),
            Error::Corrupt(problem) => Error::Corrupt(problem.clone()),
            Error::OutcomeUnknown(source) => Error::OutcomeUnknown(Box::new(source.again())),
            Error::QueueFull { waited } => Error::QueueFull { waited: *waited },
            Error::Abandoned => Error::Abandoned,
            Error::Sqlite(source) => Error::Sqlite(same(source)),
        }
    }
}

/// SQLite's code and message; of an error that is rusqlite's own, its text.
fn same(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => rusqlite::Error::SqliteFailure(*code, message.clone()),
        other => rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some(other.to_string())),
    }
}
