//! The harness's temporary folder: made at the start, removed at the end, on an interrupt, and, where we were killed too hard for
//! either, by whoever runs next.
//!
//! Its owner holds a lock on a file in it for as long as it lives, and the kernel lets go of a lock however its holder dies.
//! So a folder whose lock can be taken is nobody's. The lock file is locked before it gets its name: no one ever sees it
//! unlocked while its owner lives.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::process::NotMeasured;
use crate::signal::{self, OnInterrupt};

const PREFIX: &str = "durable-admission-run-";
const LOCK: &str = "lock";
const LOCK_IN_THE_MAKING: &str = "lock.new";
/// In place of `LOCK` in a folder that is to stay.
const KEPT: &str = "kept";
/// A folder without a lock is just being made, or just being removed, unless it has lain still for this long.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Less room than this is no room, in bytes: one store with its log needs about so much.
const ROOM: usize = 1 << 20;

/// A folder of our own under the system's temporary folder. Dropping it removes it with all that is in it.
pub struct Folder {
    path: PathBuf,
    /// Held, never used: the lock lives as long as this does.
    _lock: File,
    undo: Option<OnInterrupt>,
}

impl Folder {
    /// Sweeps what killed runs left behind, and makes a new folder. `TMPDIR` says where.
    pub fn create() -> Result<Folder, NotMeasured> {
        Folder::create_in(&std::env::temp_dir())
    }

    fn create_in(parent: &Path) -> Result<Folder, NotMeasured> {
        let told = |error| NotMeasured { what: sentence(parent, &error) };
        let parent = fs::canonicalize(parent).map_err(told)?;
        sweep(&parent);
        // The folder is there and registered in one step; an interrupt comes before or after.
        let mut hold = signal::hold();
        let made = make(&parent);
        let undo = made.as_ref().ok().map(|(path, _)| {
            let path = path.clone();
            hold.on_interrupt(move || remove(&path))
        });
        drop(hold);
        let (path, lock) = made.map_err(told)?;
        Ok(Folder { path, _lock: lock, undo })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a database that does not exist yet, in a subfolder of its own, so that no log or journal of another one lies
    /// beside it. A name that was given before gets a number.
    pub fn database(&self, name: &str) -> Result<PathBuf, NotMeasured> {
        let name = name.replace('/', "-");
        let mut numbered = name.clone();
        for number in 2.. {
            let subfolder = self.path.join(&numbered);
            match fs::create_dir(&subfolder) {
                Ok(()) => return Ok(subfolder.join("store.db")),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => numbered = format!("{name}-{number}"),
                Err(error) => return Err(NotMeasured { what: sentence(&self.path, &error) }),
            }
        }
        unreachable!("a folder can't hold that many")
    }

    /// Leaves the folder where it is, for good, and says where.
    pub fn keep(mut self) -> Result<PathBuf, NotMeasured> {
        // One rename: it is never without both names, and so never swept.
        fs::rename(self.path.join(LOCK), self.path.join(KEPT))
            .map_err(|error| NotMeasured { what: sentence(&self.path, &error) })?;
        self.undo = None;
        Ok(self.path.clone())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Only what is still registered is ours to remove. Taken back last: an interrupt meanwhile ends what we began.
        if self.undo.is_some() {
            remove(&self.path);
        }
    }
}

/// Removes the folders in `parent` that a killed run left behind. What can't be removed stays: no reason not to run.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let path = entry.path();
            if let Ok(Some(_held_while_removing)) = abandoned(&path) {
                remove(&path);
            }
        }
    }
}

/// Whose owner is gone.
enum Abandoned {
    /// Ours now: a second sweeper can't take it.
    Locked { _lock: File },
    /// Its owner died before it had a lock, or a sweeper after it had removed it.
    NoLock,
}

/// `None` for a folder that is somebody's. A planted link is not followed, neither to a folder nor to a lock.
fn abandoned(path: &Path) -> io::Result<Option<Abandoned>> {
    let folder = fs::symlink_metadata(path)?;
    if !folder.is_dir() || folder.uid() != geteuid().as_raw() || path.join(KEPT).symlink_metadata().is_ok() {
        return Ok(None);
    }
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    match OpenOptions::new().read(true).custom_flags(flags).open(path.join(LOCK)) {
        Ok(lock) => match lock.try_lock() {
            // Between the look for `kept` and the lock it may have been kept.
            Ok(()) if path.join(KEPT).symlink_metadata().is_ok() => Ok(None),
            Ok(()) => Ok(Some(Abandoned::Locked { _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let age = SystemTime::now().duration_since(folder.modified()?).unwrap_or_default();
            Ok((age > STALE_AFTER).then_some(Abandoned::NoLock))
        }
        Err(error) => Err(error),
    }
}

fn make(parent: &Path) -> io::Result<(PathBuf, File)> {
    let folder =
        tempfile::Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
    let in_the_making = folder.path().join(LOCK_IN_THE_MAKING);
    let mut lock = OpenOptions::new().read(true).write(true).create_new(true).open(&in_the_making)?;
    lock.lock()?;
    // A full disk is best heard of here, and not as the answer of a store.
    lock.write_all(&vec![0; ROOM])?;
    lock.set_len(0)?;
    fs::rename(&in_the_making, folder.path().join(LOCK))?;
    Ok((folder.keep(), lock))
}

/// The lock goes last: if we die before, the next one can still tell that this is nobody's.
fn remove(path: &Path) {
    // Somebody who is being stopped may still be adding files: again, if it came up not empty.
    for _ in 0..3 {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder {
                let _ = fs::remove_dir_all(entry.path());
            } else if entry.file_name() != LOCK {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_file(path.join(LOCK));
        match fs::remove_dir(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            Ok(()) | Err(_) => return,
        }
    }
}

fn sentence(path: &Path, error: &io::Error) -> String {
    let what = match error.kind() {
        ErrorKind::NotFound => "does not exist".to_owned(),
        ErrorKind::NotADirectory => "is not a folder".to_owned(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "may not be written to".to_owned(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "is full".to_owned(),
        _ => format!("can't be used ({error})"),
    };
    format!(
        "the temporary folder {} {what}; set TMPDIR to a folder with room that you may write to, and run again",
        path.display()
    )
}
