//! The harness's temporary folder: made at the start, removed at the end, on an interrupt, and, where we were killed too hard for
//! either, by whoever runs next.
//!
//! Its owner holds a lock on a file in it for as long as it lives, and the kernel lets go of a lock however its holder dies.
//! So a folder whose lock can be taken is nobody's. The lock file is locked before it gets its name: no one ever sees it
//! unlocked while its owner lives. Before that, and after the lock is gone, a sweep may take the folder at any instant: who is
//! making one then makes another.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::process::NotMeasured;
use crate::signal::{self, OnInterrupt};

const PREFIX: &str = "durable-admission-run-";
// No database's subfolder is called so.
const LOCK: &str = ".lock";
const LOCK_IN_THE_MAKING: &str = ".lock.new";
/// In place of `LOCK` in a folder that is to stay.
const KEPT: &str = ".kept";
/// A folder without a lock but with something in it is none that we make; it may go when it has lain still for this long.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// SQLite opens no path of more than 512 bytes; what we put below the temporary folder needs some of them.
const LONGEST_BYTES: usize = 380;
/// Less room than this is no room, in bytes: one store with its log needs about so much.
const ROOM: usize = 1 << 20;

/// A folder of our own under the system's temporary folder. Dropping it removes it with all that is in it.
pub struct Folder {
    path: PathBuf,
    /// Held, never used: the lock lives as long as this does.
    _lock: File,
    spare: Spare,
    undo: Option<OnInterrupt>,
}

impl Folder {
    /// Sweeps what killed runs left behind, and makes a new folder. `TMPDIR` says where.
    pub fn create() -> Result<Folder, NotMeasured> {
        Folder::create_in(&std::env::temp_dir())
    }

    /// As [`Folder::create`], in memory where the system keeps a folder there and `TMPDIR` does not say otherwise.
    pub fn create_in_memory() -> Result<Folder, NotMeasured> {
        let memory = Path::new("/dev/shm");
        match std::env::var_os("TMPDIR").is_none() && memory.is_dir() {
            true => Folder::create_in(memory).or_else(|_| Folder::create()),
            false => Folder::create(),
        }
    }

    fn create_in(parent: &Path) -> Result<Folder, NotMeasured> {
        let told = |error| NotMeasured { what: sentence(parent, &error) };
        let parent = fs::canonicalize(parent).map_err(told)?;
        if parent.as_os_str().len() > LONGEST_BYTES {
            return Err(told(ErrorKind::InvalidFilename.into()));
        }
        sweep(&parent);
        // The folder is there and registered in one step; an interrupt comes before or after.
        let mut hold = signal::hold();
        let made = make(&parent);
        let undo = made.as_ref().ok().map(|(path, _, spare)| {
            let (path, spare) = (path.clone(), spare.clone());
            hold.on_interrupt(move || {
                spare.give_back();
                remove(&path);
            })
        });
        drop(hold);
        let (path, lock, spare) = made.map_err(told)?;
        Ok(Folder { path, _lock: lock, spare, undo })
    }

    #[cfg(test)]
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
            self.spare.give_back();
            remove(&self.path);
        }
    }
}

/// Removes the folders in `parent` that a killed run left behind. What can't be removed stays: no reason not to run.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let path = entry.path();
            match abandoned(&path) {
                Ok(Some(Abandoned::Locked { _lock })) => remove(&path),
                Ok(Some(Abandoned::NoLock)) => remove(&path),
                // Fails if it is not empty, or no more.
                Ok(Some(Abandoned::Empty)) => drop(fs::remove_dir(&path)),
                Ok(None) | Err(_) => {}
            }
        }
    }
}

/// Whose owner is gone.
enum Abandoned {
    /// Ours now: a second sweeper can't take it.
    Locked { _lock: File },
    /// It lay still for long.
    NoLock,
    /// As far as that shows: its owner died before it had a lock or after it had removed it, or is about to lock it.
    Empty,
}

/// `None` for a folder that is somebody's. A planted link is not followed, neither to a folder nor to a lock.
fn abandoned(path: &Path) -> io::Result<Option<Abandoned>> {
    let folder = fs::symlink_metadata(path)?;
    if !folder.is_dir() || folder.uid() != geteuid().as_raw() || path.join(KEPT).symlink_metadata().is_ok() {
        return Ok(None);
    }
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let open = |name| OpenOptions::new().read(true).custom_flags(flags).open(path.join(name));
    let lock = open(LOCK).or_else(|error| match error.kind() {
        ErrorKind::NotFound => open(LOCK_IN_THE_MAKING),
        _ => Err(error),
    });
    match lock {
        Ok(lock) => match lock.try_lock() {
            // Between the look for `kept` and the lock it may have been kept.
            Ok(()) if path.join(KEPT).symlink_metadata().is_ok() => Ok(None),
            Ok(()) => Ok(Some(Abandoned::Locked { _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let age = SystemTime::now().duration_since(folder.modified()?).unwrap_or_default();
            Ok(Some(if age > STALE_AFTER { Abandoned::NoLock } else { Abandoned::Empty }))
        }
        Err(error) => Err(error),
    }
}

/// Open files kept for the removal: where a run needs as many as it may have, none would be left to list folders with.
#[derive(Clone)]
struct Spare(Arc<Mutex<Vec<File>>>);

impl Spare {
    /// One for the folder and one for a subfolder.
    fn new() -> io::Result<Spare> {
        let files = (0..2).map(|_| File::open("/dev/null")).collect::<io::Result<_>>()?;
        Ok(Spare(Arc::new(Mutex::new(files))))
    }

    fn give_back(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn make(parent: &Path) -> io::Result<(PathBuf, File, Spare)> {
    let spare = Spare::new()?;
    let mut swept = 0;
    loop {
        let folder =
            tempfile::Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
        match lock_in(folder.path()) {
            Ok(lock) => return Ok((folder.keep(), lock, spare)),
            // A sweep took it before it was locked.
            Err(error) if error.kind() == ErrorKind::NotFound && swept < 100 => swept += 1,
            Err(error) => {
                spare.give_back();
                return Err(error);
            }
        }
    }
}

fn lock_in(folder: &Path) -> io::Result<File> {
    let in_the_making = folder.join(LOCK_IN_THE_MAKING);
    let mut lock = OpenOptions::new().read(true).write(true).create_new(true).open(&in_the_making)?;
    lock.lock()?;
    fs::rename(&in_the_making, folder.join(LOCK))?;
    // A full disk is best heard of here, and not as the answer of a store.
    lock.write_all(&vec![0; ROOM])?;
    lock.set_len(0)?;
    Ok(lock)
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
        ErrorKind::InvalidFilename => "has too long a path".to_owned(),
        _ => format!("can't be used ({error})"),
    };
    format!(
        "the temporary folder {} {what}; set TMPDIR to a folder with room that you may write to, and run again",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use nix::errno::Errno;

    use super::*;
    use crate::process::{Child, Exit, Start};

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn make_old(folder: &Path, age: Duration) {
        File::open(folder).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    /// This test binary as a process of its own that makes a folder in `place` and does as told.
    fn other_run(place: &Path, then: &str) -> Child {
        let program = std::env::current_exe().unwrap();
        let arguments = [
            format!("FOLDER_IN_TESTS={}", place.display()),
            format!("THEN_IN_TESTS={then}"),
            program.display().to_string(),
            "--exact".to_owned(),
            "folder::tests::as_another_run".to_owned(),
            "--nocapture".to_owned(),
            "--test-threads=2".to_owned(),
        ];
        let mut child = Child::spawn(&Start::program("another run", "/usr/bin/env", arguments)).unwrap();
        while child.expect_line(soon()).unwrap() != "made" {}
        child
    }

    #[test]
    fn as_another_run() {
        let Ok(place) = std::env::var("FOLDER_IN_TESTS") else { return };
        signal::handle_interrupts().unwrap();
        let folder = Folder::create_in(Path::new(&place)).unwrap();
        let database = folder.database("identity").unwrap();
        fs::write(database, "rows").unwrap();
        let mut child = Child::spawn(&Start::program("sleeper", "/bin/sh", ["-c", "exec cat"])).unwrap();
        println!("made");
        match std::env::var("THEN_IN_TESTS").unwrap().as_str() {
            // Ends with "could not measure" if it ever hears of its child's end.
            "wait for a child" => assert!(child.expect_line(soon()).is_ok()),
            "wait for its parent" => while crate::process::hear_parent().is_some() {},
            other => panic!("nothing known as {other}"),
        }
    }

    #[test]
    fn a_folder_is_made_and_goes_with_all_that_is_in_it() {
        let place = place();
        let folder = Folder::create_in(place.path()).unwrap();
        assert!(folder.path().starts_with(place.path().canonicalize().unwrap()));
        assert_eq!(folder.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(names(folder.path()), [LOCK]);
        assert_eq!(folder.path().join(LOCK).metadata().unwrap().len(), 0);
        fs::write(folder.database("a").unwrap(), "rows").unwrap();
        symlink("/etc", folder.path().join("link")).unwrap();
        drop(folder);
        assert!(names(place.path()).is_empty());
        assert!(Path::new("/etc").exists());
    }

    #[test]
    fn every_database_has_an_empty_subfolder_of_its_own() {
        let place = place();
        let folder = Folder::create_in(place.path()).unwrap();
        let paths = ["race", "race", "中文 a/b", "race"].map(|name| folder.database(name).unwrap());
        let wanted = ["race", "race-2", "中文 a-b", "race-3"].map(|name| folder.path().join(name).join("store.db"));
        assert_eq!(paths, wanted);
        assert!(paths.iter().all(|path| names(path.parent().unwrap()).is_empty()));
    }

    #[test]
    fn a_kept_folder_stays_where_it_is_and_is_never_swept() {
        let place = place();
        let folder = Folder::create_in(place.path()).unwrap();
        let database = folder.database("a").unwrap();
        fs::write(&database, "rows").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(folder.keep().unwrap(), path);
        make_old(&path, STALE_AFTER * 2);
        sweep(place.path());
        assert_eq!(fs::read_to_string(database).unwrap(), "rows");
    }

    #[test]
    fn the_folder_of_a_killed_run_is_swept_at_the_next_start_and_that_of_a_live_one_is_not() {
        let place = place();
        let live = other_run(place.path(), "wait for its parent");
        let mut dead = other_run(place.path(), "wait for its parent");
        assert_eq!(names(place.path()).len(), 2);
        dead.kill().unwrap();
        assert_eq!(dead.finish(soon()).unwrap().exit, Exit::Signal(9));
        assert_eq!(names(place.path()).len(), 2, "a killed run can't tidy up");
        // The kernel may let go of a killed process's lock a moment after it was reaped; a later start sweeps it then.
        let deadline = soon();
        while names(place.path()).len() > 1 && Instant::now() < deadline {
            drop(Folder::create_in(place.path()).unwrap());
        }
        assert_eq!(names(place.path()).len(), 1, "the live one's");
        assert_eq!(live.finish(soon()).unwrap().exit, Exit::Code(0));
        assert!(names(place.path()).is_empty());
    }

    #[test]
    fn an_interrupted_run_leaves_no_folder_and_no_child_and_dies_of_the_signal() {
        for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
            for then in ["wait for its parent", "wait for a child"] {
                let place = place();
                let run = other_run(place.path(), then);
                let pid = run.pid();
                let kill = Start::program("kill", "/bin/sh", ["-c", &format!("kill -{signal} {pid}")]);
                let sleeper = children_of(pid);
                assert_eq!(sleeper.len(), 1);
                Child::spawn(&kill).unwrap().finish_well(soon()).unwrap();
                let ended = run.wait(soon()).unwrap();
                assert_eq!(ended.exit, Exit::Signal(number), "{}", ended.stderr);
                assert_eq!(ended.stderr, "");
                assert!(names(place.path()).is_empty());
                assert!(!Path::new("/proc").join(&sleeper[0]).exists());
            }
        }
    }

    #[test]
    fn a_folder_whose_maker_or_remover_was_killed_is_swept_and_one_being_made_is_not() {
        let place = place();
        let [_empty, killed, making, odd, old] = ["empty", "killed", "making", "odd", "old"].map(|name| {
            let path = place.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&path).unwrap();
            path
        });
        fs::write(killed.join(LOCK_IN_THE_MAKING), "").unwrap();
        let lock = File::create(making.join(LOCK_IN_THE_MAKING)).unwrap();
        lock.lock().unwrap();
        fs::write(odd.join("rows"), "").unwrap();
        fs::write(old.join("rows"), "").unwrap();
        make_old(&odd, STALE_AFTER / 2);
        make_old(&old, STALE_AFTER * 2);
        sweep(place.path());
        assert_eq!(names(place.path()), ["making", "odd"].map(|name| format!("{PREFIX}{name}")));
    }

    #[test]
    fn what_only_looks_like_ours_is_left_alone() {
        let place = place();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(LOCK), "").unwrap();
        make_old(elsewhere.path(), STALE_AFTER * 2);
        symlink(elsewhere.path(), place.path().join(format!("{PREFIX}link"))).unwrap();
        fs::write(place.path().join(format!("{PREFIX}file")), "").unwrap();
        let other = place.path().join("durable-admission-notes");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(LOCK), "").unwrap();
        make_old(&other, STALE_AFTER * 2);
        let before = names(place.path());
        sweep(place.path());
        assert_eq!(names(place.path()), before);
        assert_eq!(names(elsewhere.path()), [LOCK]);
    }

    #[test]
    fn a_link_in_place_of_a_lock_is_not_followed() {
        let place = place();
        let elsewhere = place.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        let folder = place.path().join(format!("{PREFIX}planted"));
        fs::create_dir(&folder).unwrap();
        symlink(&elsewhere, folder.join(LOCK)).unwrap();
        sweep(place.path());
        assert_eq!(names(&folder), [LOCK]);
    }

    #[test]
    fn a_folder_of_somebody_else_is_left_alone() {
        let place = place();
        let folder = place.path().join(format!("{PREFIX}theirs"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(LOCK), "").unwrap();
        // Only root can give a folder away; nobody else can make this case.
        if std::os::unix::fs::chown(&folder, Some(65534), None).is_ok() {
            sweep(place.path());
            assert!(folder.join(LOCK).exists());
        }
    }

    #[test]
    fn runs_that_start_at_once_do_not_sweep_each_other() {
        let place = place();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let folder = Folder::create_in(place.path()).unwrap();
                        assert!(folder.path().join(LOCK).exists());
                        assert!(!fs::exists(folder.database("a").unwrap()).unwrap());
                    }
                });
            }
        });
        assert!(names(place.path()).is_empty());
    }

    /// Sweeping without pause, so that some come between the making of a folder and its lock.
    #[test]
    fn a_folder_that_is_swept_before_it_was_locked_is_made_again() {
        let place = place();
        let done = AtomicBool::new(false);
        let mut made = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        sweep(place.path())
                    }
                });
            }
            for _ in 0..200 {
                let Ok((path, lock, _)) = make(place.path()) else { break };
                let found = names(&path);
                remove(&path);
                drop(lock);
                made.push(found);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(made, vec![[LOCK]; 200]);
    }

    #[test]
    fn a_place_that_can_not_be_used_is_a_sentence() {
        let place = place();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let told = [
            (place.path().join("none"), "does not exist"),
            (file.clone(), "is not a folder"),
            (file.join("below"), "is not a folder"),
            (PathBuf::new(), "does not exist"),
        ];
        for (path, wanted) in told {
            let said = Folder::create_in(&path).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains(wanted) && said.contains("set TMPDIR to"), "{}: {said}", path.display());
        }
        for (error, wanted) in [
            (Errno::ENOSPC, "is full"),
            (Errno::EDQUOT, "is full"),
            (Errno::EACCES, "may not be written to"),
            (Errno::EROFS, "may not be written to"),
            (Errno::EIO, "can't be used (Input/output error (os error 5))"),
        ] {
            let said = sentence(place.path(), &error.into());
            assert!(said.contains(wanted) && said.contains("set TMPDIR to"), "{said}");
        }
    }

    fn children_of(pid: u32) -> Vec<String> {
        let mut children = Vec::new();
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let text = fs::read_to_string(task.unwrap().path().join("children")).unwrap();
            children.extend(text.split_whitespace().map(str::to_owned));
        }
        children
    }
}
