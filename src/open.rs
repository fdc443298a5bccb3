use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Error, Result};
use crate::limits::{Allowance, Limits};
use crate::schema::{APPLICATION_ID, CREATE, SCHEMA_VERSION};
use crate::wal;
use crate::write::Write;

/// Prepared statements kept per connection: all that the verbs use, with room to spare.
const STATEMENTS_KEPT: usize = 48;

/// SQLite counts the busy timeout in milliseconds, in 32 bits.
const BUSY_TIMEOUT_CEILING_MS: u64 = i32::MAX as u64;

/// How a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// How long a verb waits for another connection's write lock before it is [`Error::Busy`]: whole
    /// milliseconds, up to 2^31 - 1 of them.
    pub busy_timeout: Duration,
}

impl Default for OpenOptions {
    /// Five seconds.
    fn default() -> Self {
        OpenOptions { busy_timeout: Duration::from_secs(5) }
    }
}

impl OpenOptions {
    fn check(&self) -> Result<()> {
        let ceiling = Duration::from_millis(BUSY_TIMEOUT_CEILING_MS);
        if self.busy_timeout.as_millis() <= ceiling.as_millis() {
            return Ok(());
        }
        Err(Error::Input {
            field: "busy timeout",
            problem: format!("{:?} is over {ceiling:?}; give at most that", self.busy_timeout),
        })
    }
}

pub(crate) fn open(path: &Path, limits: &Limits, options: OpenOptions) -> Result<Connection> {
    limits.check()?;
    options.check()?;
    refuse_other_than_file(path)?;
    refuse_foreign_untouched(path, options.busy_timeout)?;

    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite takes a bare name that begins with "file:" for a URI, whatever the flags.
    let connection = Connection::open_with_flags(Path::new(".").join(path), flags)?;
    connection.busy_timeout(options.busy_timeout)?;
    // Until it is known to be ours, closing must not move its WAL into the file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let found = look(path, &connection)?;
    configure(path, &connection, options)?;
    match found {
        Found::Store => {}
        Found::Blank => {
            initialise(&connection, limits, options.busy_timeout)?;
            // Somebody else may have been faster, and not one of us.
            look(path, &connection)?;
        }
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    check_limits(path, &connection, limits)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // Plans must not hang on the values bound: SQLite would prepare such a statement anew whenever it is run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

enum Found {
    Store,
    /// No file, an empty one, or an initialisation that was never committed.
    Blank,
}

fn not_ours(path: &Path, reason: impl Into<String>) -> Error {
    Error::NotOurs { path: path.to_owned(), reason: reason.into() }
}

fn refuse_other_than_file(path: &Path) -> Result<()> {
    let problem = match path.as_os_str().as_bytes() {
        b"" => "is empty; give the path of a file",
        b":memory:" => "would be memory and no file; give the path of a file",
        name if name.contains(&0) => "contains a NUL byte; give another",
        _ => return refuse_metadata(path),
    };
    Err(Error::Input { field: "path", problem: problem.to_owned() })
}

fn refuse_metadata(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(not_ours(path, "this is a folder")),
        Ok(metadata) if !metadata.is_file() => Err(not_ours(path, "this is no regular file")),
        // SQLite takes a file of one byte for an empty one.
        Ok(metadata) if metadata.len() == 1 => Err(not_ours(path, NO_DATABASE)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(not_ours(path, "a file is used as a folder")),
        // What else is wrong with the path SQLite says when it opens it.
        Err(_) => Ok(()),
    }
}

/// Looks at the file through connections that change neither it nor its companions and leave nothing
/// beside it. What they cannot settle is left to [`look`].
fn refuse_foreign_untouched(path: &Path, patience: Duration) -> Result<()> {
    let Ok(file) = fs::canonicalize(path) else { return Ok(()) };
    let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    if length(&file) == 0 {
        return Ok(());
    }
    if length(&beside(&file, "-wal")) > 0 {
        // With shared memory there, nothing new appears when SQLite reads the WAL.
        return if beside(&file, "-shm").exists() { Ok(()) } else { refuse_foreign_wal(path, &file) };
    }
    let deadline = Instant::now() + patience;
    loop {
        match pages_before_journal(&beside(&file, "-journal")) {
            // An initialisation that died while making the first page; rolling it back empties the file.
            Some(0) => return Ok(()),
            Some(_) => {}
            None => return refuse_resting(path, &file),
        }
        refuse_resting(path, &file)?;
        // A live one is somebody putting the file into WAL mode, and soon gone. To roll back a dead one
        // would change the file, and no store of ours leaves such a journal.
        if Instant::now() >= deadline {
            return Err(not_ours(path, "this database has a rollback journal, which a store never has"));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Takes no lock and reads no journal.
fn refuse_resting(path: &Path, file: &Path) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(immutable_uri(file), flags)?;
    // A page that is just being written may be seen half old, half new; a second look settles it.
    match read_marks(&connection).and_then(|marks| match marks.judge() {
        Ok(_) => Ok(marks),
        Err(_) => read_marks(&connection),
    }) {
        Ok(marks) => marks.judge().map(drop).map_err(|reason| not_ours(path, reason)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => Err(not_ours(path, NO_DATABASE)),
        // A journal or WAL may have appeared since; what is really wrong shows under lock.
        Err(_) => Ok(()),
    }
}

/// Reads the WAL with its index in this process's own memory, which SQLite does when nobody else can be
/// there.
fn refuse_foreign_wal(path: &Path, file: &Path) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    match look(path, &connection) {
        Ok(_) => Ok(()),
        Err(error @ Error::NotOurs { .. }) => Err(error),
        // Somebody is there after all, and the shared memory with them; the rest shows at the real opening.
        Err(_) => Ok(()),
    }
}

const NO_DATABASE: &str = "this is not an SQLite database";

/// What tells a store from a blank file and from another program's database.
struct Marks {
    application_id: i64,
    user_version: i64,
    encoding: String,
    objects: i64,
}

impl Marks {
    /// `Err` says why it is neither.
    fn judge(&self) -> std::result::Result<Found, String> {
        let Marks { application_id, user_version, encoding, objects } = self;
        match (*application_id, *user_version) {
            (APPLICATION_ID, SCHEMA_VERSION) => Ok(Found::Store),
            (APPLICATION_ID, other) => Err(format!("this store has schema version {other}, not {SCHEMA_VERSION}")),
            (0, 0) if *objects == 0 && encoding == "UTF-8" => Ok(Found::Blank),
            _ => Err(format!(
                "this is another program's database (application id {application_id}, not {APPLICATION_ID})"
            )),
        }
    }
}

fn read_marks(connection: &Connection) -> rusqlite::Result<Marks> {
    connection.query_row(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
             (SELECT encoding FROM pragma_encoding), (SELECT count(*) FROM sqlite_schema)",
        [],
        |row| {
            Ok(Marks {
                application_id: row.get(0)?,
                user_version: row.get(1)?,
                encoding: row.get(2)?,
                objects: row.get(3)?,
            })
        },
    )
}

/// The size in pages to which a hot journal would roll the database back.
fn pages_before_journal(journal: &Path) -> Option<u32> {
    const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let mut header = [0; 20];
    File::open(journal).ok()?.read_exact(&mut header).ok()?;
    let (magic, rest) = header.split_at(MAGIC.len());
    (magic == MAGIC).then(|| u32::from_be_bytes([rest[8], rest[9], rest[10], rest[11]]))
}

/// SQLite names a database's companions by what its name resolves to.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn immutable_uri(file: &Path) -> String {
    let mut uri = "file://".to_owned();
    for &byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(byte.into()),
            other => write!(uri, "%{other:02X}").unwrap_or_default(),
        }
    }
    uri + "?immutable=1"
}

/// The same question under SQLite's own lock, through the WAL.
fn look(path: &Path, connection: &Connection) -> Result<Found> {
    match read_marks(connection) {
        Ok(marks) => marks.judge().map_err(|reason| not_ours(path, reason)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => Err(not_ours(path, NO_DATABASE)),
        Err(error) => Err(error.into()),
    }
}

/// What every connection must have. Each is set, then read back.
fn configure(path: &Path, connection: &Connection, options: OpenOptions) -> Result<()> {
    switch_to_wal(path, connection, options.busy_timeout)?;
    // macOS reaches the platter only by fullfsync; elsewhere the two change nothing.
    for (pragma, value, wanted) in [
        ("synchronous", "FULL", "2"),
        ("foreign_keys", "ON", "1"),
        ("fullfsync", "ON", "1"),
        ("checkpoint_fullfsync", "ON", "1"),
        ("trusted_schema", "OFF", "0"),
        ("wal_autocheckpoint", wal::AUTOCHECKPOINT_PAGES, wal::AUTOCHECKPOINT_PAGES),
        ("journal_size_limit", wal::KEPT_BYTES, wal::KEPT_BYTES),
    ] {
        connection.pragma_update(None, pragma, value)?;
        let found: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0))?;
        if found.to_string() != wanted {
            return Err(Error::Setting { path: path.to_owned(), pragma, wanted: value, found: found.to_string() });
        }
    }
    let found: u128 =
        connection.pragma_query_value(None, "busy_timeout", |row| row.get::<_, i64>(0))?.unsigned_abs().into();
    if found != options.busy_timeout.as_millis() {
        let (pragma, wanted) = ("busy_timeout", "what was asked for");
        return Err(Error::Setting { path: path.to_owned(), pragma, wanted, found: found.to_string() });
    }
    Ok(())
}

/// Switching wants the whole file and, unlike every other lock, does not wait for it by itself: several
/// processes that create one store at the same instant take turns here.
fn switch_to_wal(path: &Path, connection: &Connection, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        match journal_mode_wal(connection) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(found) => {
                return Err(Error::Setting { path: path.to_owned(), pragma: "journal_mode", wanted: "wal", found });
            }
            Err(error) => match Error::from(error) {
                Error::Busy(_) if Instant::now() + pause < deadline => thread::sleep(pause),
                error => return Err(error),
            },
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The answer comes first, and only then what the switch wrote is committed: the statement has to be run to its end, or
/// a failing commit is never heard of, and the file stays without WAL.
fn journal_mode_wal(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = statement.query([])?;
    let mode = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?.get(0)?;
    while rows.next()?.is_some() {}
    Ok(mode)
}

/// One transaction: after a crash there is all of it or a blank file, and the next open starts again.
fn initialise(connection: &Connection, limits: &Limits, patience: Duration) -> Result<()> {
    let write = Write::begin(connection, patience)?;
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if objects > 0 {
        return write.roll_back();
    }
    connection.execute_batch(CREATE)?;
    connection.execute(
        "INSERT INTO store (id, global_count, global_bytes, tenant_count, tenant_bytes, payload_bytes)
         VALUES (1, ?1, ?2, ?3, ?4, ?5)",
        [limits.global.count, limits.global.bytes, limits.tenant.count, limits.tenant.bytes, limits.payload_bytes],
    )?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    write.commit()
}

fn check_limits(path: &Path, connection: &Connection, given: &Limits) -> Result<()> {
    let stored = connection
        .query_row(
            "SELECT global_count, global_bytes, tenant_count, tenant_bytes, payload_bytes FROM store WHERE id = 1",
            [],
            |row| {
                Ok(Limits {
                    global: Allowance { count: row.get(0)?, bytes: row.get(1)? },
                    tenant: Allowance { count: row.get(2)?, bytes: row.get(3)? },
                    payload_bytes: row.get(4)?,
                })
            },
        )
        .map_err(|error| match Error::from(error) {
            Error::Sqlite(error) => Error::Corrupt(error.to_string()),
            other => other,
        })?;
    if stored != *given {
        return Err(Error::LimitsDiffer { path: path.to_owned(), stored: Box::new(stored), given: Box::new(*given) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::{Ear, assert_is_immediate};

    const LIMITS: Limits = Limits {
        global: Allowance { count: 4, bytes: 256 },
        tenant: Allowance { count: 2, bytes: 128 },
        payload_bytes: 96,
    };

    #[test]
    fn a_store_is_made_in_one_transaction_that_begins_immediate() {
        let mut connection = Connection::open_in_memory().unwrap();
        for made in ["anew", "by somebody faster"] {
            let ear = Ear::on(&mut connection);
            initialise(&connection, &LIMITS, Duration::ZERO).unwrap();
            let statements = ear.off(&mut connection);
            assert_is_immediate(made, &statements);
        }
    }

    #[test]
    fn every_connection_has_the_settings_that_durability_rests_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        for busy_timeout in [Duration::ZERO, Duration::from_millis(4321)] {
            let connection = open(&path, &LIMITS, OpenOptions { busy_timeout }).unwrap();
            let settings = "SELECT journal_mode || synchronous || foreign_keys || trusted_schema || '/' || timeout
                FROM pragma_journal_mode, pragma_synchronous, pragma_foreign_keys, pragma_trusted_schema, pragma_busy_timeout";
            let found: String = connection.query_row(settings, [], |row| row.get(0)).unwrap();
            assert_eq!(found, format!("wal210/{}", busy_timeout.as_millis()));
        }
    }

    #[test]
    fn a_connection_that_can_not_have_a_setting_is_refused() {
        // What is in memory has no WAL.
        let memory = Connection::open_in_memory().unwrap();
        let refused = configure(Path::new("here"), &memory, OpenOptions::default()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "here: journal_mode is memory, not wal; use a local file system that supports it"
        );
    }
}
