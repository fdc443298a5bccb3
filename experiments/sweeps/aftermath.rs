//! What is left after a run that ended badly: looked at by plain SQL, then asked again.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use durable_admission::OpenOptions;
use rusqlite::Connection;

use super::bench::whole_state;
use super::stage::{Asked, Held, Reply, told};
use crate::audit::audit;
use crate::disk::log::Role;
use crate::disk::recorder::beside;
use crate::process::NotMeasured;

/// What stock SQLite makes of the files, and the audit of it, on a copy: the library is to find them as they were left, and
/// recover them by itself. Nobody may have them open. The inner error is a sentence: they are no store's that any
/// sequence of verbs could have left.
///
/// # Errors
/// Files that can't be copied.
pub fn look_and_audit(path: &Path) -> Result<Result<Held, String>, NotMeasured> {
    on_a_copy(path, |copy| {
        let held = held_by(copy)?;
        if held.is_some() {
            audited(copy)?;
        }
        Ok(held)
    })
}

/// As [`look_and_audit`], for where the audit comes later.
///
/// # Errors
/// As [`look_and_audit`].
pub fn look(path: &Path) -> Result<Result<Held, String>, NotMeasured> {
    on_a_copy(path, held_by)
}

fn on_a_copy(
    path: &Path,
    look: impl FnOnce(&Path) -> Result<Held, String>,
) -> Result<Result<Held, String>, NotMeasured> {
    let copy = path.with_file_name("copy.db");
    for role in Role::ALL {
        match fs::copy(beside(path, role), beside(&copy, role)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let path = beside(path, role);
                let what =
                    format!("{} can't be copied beside itself ({error}); make room and run again", path.display());
                return Err(NotMeasured { what });
            }
        }
    }
    let found = look(&copy);
    // Closing took its log away.
    for role in Role::ALL {
        let _ = fs::remove_file(beside(&copy, role));
    }
    Ok(found)
}

fn held_by(path: &Path) -> Result<Held, String> {
    let unreadable = |error: rusqlite::Error| format!("SQLite can't read it ({error})");
    let connection = Connection::open(path).map_err(unreadable)?;
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(unreadable)?;
    if objects == 0 {
        return Ok(None);
    }
    whole_state(&connection).map_err(unreadable)?.map(Some)
}

fn audited(path: &Path) -> Result<(), String> {
    let broken = audit(path).map_err(|error| format!("it can't be audited ({error})"))?;
    if broken.is_empty() { Ok(()) } else { Err(format!("the audit says: {}", broken.join("; "))) }
}

/// Opens the store that was found to hold `found`, asks again, and audits. The error is a sentence: a reply, or a state after
/// it, other than the model's.
///
/// # Errors
/// As [`look_and_audit`].
pub fn ask_again(path: &Path, asked: &Asked, found: &Held) -> Result<Result<Held, String>, NotMeasured> {
    // A verb is asked of a store: one is created where there is none.
    let expected = Asked::Open.step(found).and_then(|(opened, _)| asked.step(&opened));
    let (after, reply) = match expected {
        Ok(expected) => expected,
        Err(sentence) => return Ok(Err(sentence)),
    };
    if let Err(sentence) = replies(path, asked, &reply) {
        return Ok(Err(sentence));
    }
    Ok(look_and_audit(path)?.and_then(|held| match held == after {
        true => Ok(held),
        false => Err(format!("asked again it came to {}, not to {}", told(&held), told(&after))),
    }))
}

fn replies(path: &Path, asked: &Asked, expected: &Reply) -> Result<(), String> {
    let mut store = None;
    let reply = asked
        .put(path, OpenOptions::default(), &mut store)
        .map_err(|error| format!("asked again it failed ({error})"))?;
    if let Some(store) = store {
        store.close().map_err(|error| format!("asked again it can't be closed ({error})"))?;
    }
    match reply == *expected {
        true => Ok(()),
        false => Err(format!("asked again it said {}, not {}", reply.name(), expected.name())),
    }
}

/// Memory is what such a folder is made of.
pub fn remove_folder_of(path: &Path) {
    if let Some(folder) = path.parent() {
        let _ = fs::remove_dir_all(folder);
    }
}
