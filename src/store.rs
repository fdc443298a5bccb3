use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::boundary::Observer;
use crate::error::Result;
use crate::limits::Limits;
use crate::open::{self, OpenOptions};
use crate::wal::Wal;

/// One connection to a store. Verbs take `&mut self`; several stores, in several threads and processes,
/// may be open on one file.
///
/// `O` hears of the crash boundaries; the default `()` hears nothing and costs nothing.
pub struct Store<O = ()> {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) busy_timeout: Duration,
    pub(crate) observer: O,
    pub(crate) wal: Wal,
}

impl Store {
    /// Opens the store at `path`, creating it if there is none (PROTOCOL, *init / open*).
    ///
    /// # Errors
    /// Limits out of range or other than the stored ones, a file that is not ours, a setting that cannot
    /// be had, and whatever the disk reports. A foreign file is left as it was, to the byte.
    pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<Store> {
        Store::open_with(path, limits, OpenOptions::default())
    }

    /// As [`Store::open`], with a busy timeout of the caller's choice.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(path: impl AsRef<Path>, limits: &Limits, options: OpenOptions) -> Result<Store> {
        let connection = open::open(path.as_ref(), limits, options)?;
        Ok(Store {
            connection,
            path: path.as_ref().to_owned(),
            limits: *limits,
            busy_timeout: options.busy_timeout,
            observer: (),
            wal: Wal::new(),
        })
    }

    /// The same store, telling `observer` of each crash boundary that its verbs cross.
    pub fn observed_by<O: Observer>(self, observer: O) -> Store<O> {
        let Store { connection, path, limits, busy_timeout, observer: (), wal } = self;
        Store { connection, path, limits, busy_timeout, observer, wal }
    }
}

impl<O> Store<O> {
    /// The limits it was created with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The path it was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the connection and says whether that went well; dropping closes, too, but can't say.
    ///
    /// # Errors
    /// What SQLite reports. Everything acknowledged is durable all the same.
    pub fn close(self) -> Result<()> {
        self.connection.close().map_err(|(_, error)| error.into())
    }
}
