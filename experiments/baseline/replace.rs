//! A file is replaced as a whole: whatever interrupts, the old text or the new one is there.
//!
//! The new text goes into a temporary file beside the target, is synced, and takes the target's name; then the folder is synced.
//! The temporary file is locked while its writer lives, so what a killed run left behind is told from what another is
//! writing, and is swept by the next replacement. Mode and (where permitted) owner are kept; ACLs and extended attributes
//! are not.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access};
use tempfile::{Builder, NamedTempFile};
use thiserror::Error;

/// What a replacement came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The file holds these bytes now, and did not before.
    Written,
    /// The file held these bytes already; it was not touched, its time stamps included.
    Unchanged,
}

/// Why the file is as it was. The text names it and says what to do.
#[derive(Debug, Error)]
pub enum ReplaceError {
    #[error("{path}: the file is write-protected; if its content should change, allow that first (chmod u+w)")]
    Protected { path: PathBuf },
    #[error("{path}: this is {what}, not a file; name a file, or move it away")]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("{path}: symbolic links lead in a circle; mend them")]
    LinksInACircle { path: PathBuf },
    #[error("{path}: there is no such folder; make it, or write elsewhere")]
    NoFolder { path: PathBuf },
    #[error("{path}: the folder can't be written ({source}); make it writable, or write elsewhere")]
    Folder { path: PathBuf, source: io::Error },
    #[error("{path}: can't {step} ({source}); the file is as it was")]
    Failed { path: PathBuf, step: &'static str, source: io::Error },
    #[error(
        "{path}: the new text is in place, but the folder can't be synced ({source}), so a power cut may undo it; run again"
    )]
    NotSynced { path: PathBuf, source: io::Error },
}

/// Makes `bytes` the content of the file at `path`, creating it where there is none. A symbolic link stays one: the
/// file that it leads to is replaced.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<Replaced, ReplaceError> {
    replace_filled(path, bytes, |file| file.write_all(bytes))
}

/// Waits for a replacement under way in this process, and lets none begin while the guard lives. Whoever ends the
/// process on a signal takes this first, so that nothing is left beside the file.
pub fn settle() -> MutexGuard<'static, ()> {
    // Nothing is guarded but the time; a panic in between leaves nothing half done.
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

static UNDER_WAY: Mutex<()> = Mutex::new(());

/// `fill` writes `bytes`, or fails as a disk does.
fn replace_filled(
    path: &Path,
    bytes: &[u8],
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<Replaced, ReplaceError> {
    let _settled = settle();
    let target = target_of(path)?;
    let place = Beside::new(&target);
    place.sweep();
    let old = existing(&target)?;
    if old.is_some() && fs::read(&target).is_ok_and(|held| held == bytes) {
        return Ok(Replaced::Unchanged);
    }
    if let Some(old) = &old {
        refuse_protected(&target, old)?;
    }
    refuse_folder(place.folder)?;
    let failed = |step| {
        let path = target.clone();
        move |source| ReplaceError::Failed { path, step, source }
    };
    // Dropped on every error below, which removes it.
    let mut fresh = place.create().map_err(failed("create a temporary file beside it"))?;
    fill(fresh.as_file_mut()).map_err(failed("write the new text beside it"))?;
    if let Some(old) = &old {
        keep_owner_and_mode(fresh.as_file(), old).map_err(failed("keep its mode"))?;
    }
    fresh.as_file().sync_all().map_err(failed("sync the new text"))?;
    let persisted = fresh.persist(&target).map_err(|error| error.error);
    persisted.map_err(failed("put the new text in its place"))?;
    sync_folder(place.folder).map_err(|source| ReplaceError::NotSynced { path: target, source })?;
    Ok(Replaced::Written)
}

/// Whether a file could be there, as far as that shows without its text: for who would have to work for the text first.
pub fn refuse_early(path: &Path) -> Result<(), ReplaceError> {
    let target = target_of(path)?;
    existing(&target)?;
    refuse_folder(folder_of(&target))
}

/// The file that `path` means in the end, which need not exist yet.
pub fn target_of(path: &Path) -> Result<PathBuf, ReplaceError> {
    let mut target = path.to_path_buf();
    // As many links as Linux itself follows.
    for _ in 0..40 {
        match fs::read_link(&target) {
            // An absolute one takes the place of the whole.
            Ok(next) => target = folder_of(&target).join(next),
            // No link, or nothing there: what else is wrong shows when it is used.
            Err(_) => return Ok(target),
        }
    }
    Err(ReplaceError::LinksInACircle { path: path.to_path_buf() })
}

fn refuse_folder(folder: &Path) -> Result<(), ReplaceError> {
    let path = folder.to_path_buf();
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|errno| match errno {
        Errno::ENOENT => ReplaceError::NoFolder { path },
        _ => ReplaceError::Folder { path, source: errno.into() },
    })
}

fn existing(target: &Path) -> Result<Option<Metadata>, ReplaceError> {
    let at = || target.to_path_buf();
    match fs::symlink_metadata(target) {
        Ok(old) if old.is_dir() => Err(ReplaceError::NotAFile { path: at(), what: "a directory" }),
        Ok(old) if !old.is_file() => Err(ReplaceError::NotAFile { path: at(), what: "a pipe, socket or device" }),
        Ok(old) => Ok(Some(old)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReplaceError::Failed { path: at(), step: "look at it", source }),
    }
}

/// A rename asks only the folder; the file is asked here. Without any write bit it is protected from root as well.
fn refuse_protected(target: &Path, old: &Metadata) -> Result<(), ReplaceError> {
    let no_write_bit = old.mode() & 0o222 == 0;
    if no_write_bit || access(target, AccessFlags::W_OK).is_err() {
        return Err(ReplaceError::Protected { path: target.to_path_buf() });
    }
    Ok(())
}

/// The owner first: changing it may clear bits of the mode. Who may not give a file away keeps it as their own.
fn keep_owner_and_mode(fresh: &File, old: &Metadata) -> io::Result<()> {
    let now = fresh.metadata()?;
    if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
        let _ = fchown(fresh, Some(old.uid()), Some(old.gid()));
    }
    fresh.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    where_supported(File::open(folder)?.sync_all())
}

/// Some file systems have no way to sync a folder, and say so.
fn where_supported(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// The folder of `path`, where a bare name means the current one.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

const SUFFIX: &str = ".tmp";

/// Characters between prefix and suffix.
const RANDOM: usize = 10;

/// The temporary files of one target: `.results.json.durable-admission-XXXXXXXXXX.tmp`.
struct Beside<'t> {
    folder: &'t Path,
    prefix: OsString,
}

impl<'t> Beside<'t> {
    fn new(target: &'t Path) -> Beside<'t> {
        let mut prefix = OsString::from(".");
        prefix.push(target.file_name().unwrap_or_default());
        prefix.push(".durable-admission-");
        Beside { folder: folder_of(target), prefix }
    }

    /// A temporary file that is ours: locked, and still there once it is locked, as a sweep in another process may come
    /// between the two.
    fn create(&self) -> io::Result<NamedTempFile> {
        self.create_amid(|| {})
    }

    /// `others` do their work where a sweep may come.
    fn create_amid(&self, mut others: impl FnMut()) -> io::Result<NamedTempFile> {
        loop {
            let mut builder = Builder::new();
            builder.prefix(&self.prefix).suffix(SUFFIX).rand_bytes(RANDOM);
            // A new target gets the mode that any new file gets here.
            let fresh = builder.permissions(Permissions::from_mode(0o666)).tempfile_in(self.folder)?;
            others();
            fresh.as_file().lock()?;
            if fresh.as_file().metadata()?.nlink() > 0 {
                return Ok(fresh);
            }
        }
    }

    /// Removes what killed runs left. What can't be swept is left: it harms nobody, and the next one tries again.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            if self.is_ours(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                remove_unless_locked(&entry.path());
            }
        }
    }

    fn is_ours(&self, name: &OsStr) -> bool {
        let middle = name.as_bytes().strip_prefix(self.prefix.as_bytes());
        let random = middle.and_then(|middle| middle.strip_suffix(SUFFIX.as_bytes()));
        random.is_some_and(|random| random.len() == RANDOM && random.iter().all(u8::is_ascii_alphanumeric))
    }
}

fn remove_unless_locked(path: &Path) {
    let mut options = File::options();
    options.read(true).custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits());
    if let Ok(left) = options.open(path)
        && left.try_lock().is_ok()
    {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant, SystemTime};

    const OLD: &[u8] = b"old\n";
    const NEW: &[u8] = b"new\n";

    /// A folder with spaces and Chinese in its name, and the file in it.
    struct Folder {
        folder: tempfile::TempDir,
        file: PathBuf,
    }

    fn folder() -> Folder {
        let folder = Builder::new().prefix("基线 of a checkout ").tempdir().expect("a folder");
        let file = folder.path().join("results.json");
        fs::write(&file, OLD).expect("the old file");
        Folder { folder, file }
    }

    impl Folder {
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder.path()).expect("the folder");
            let name =
                |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
            let mut names: Vec<String> = entries.map(name).collect();
            names.sort();
            names
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn is_untouched(&self) -> bool {
            fs::read(&self.file).expect("the file") == OLD && self.names() == ["results.json"]
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    }

    #[test]
    fn the_new_text_replaces_the_old_and_keeps_mode_and_owner() {
        let it = folder();
        set_mode(&it.file, 0o640);
        let is_root = nix::unistd::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&it.file, Some(1234), Some(4321)).expect("chown as root");
        }
        let before = fs::metadata(&it.file).expect("metadata");
        assert_eq!(replace(&it.file, NEW).expect("replaced"), Replaced::Written);
        let after = fs::metadata(&it.file).expect("metadata");
        assert_eq!(fs::read(&it.file).expect("the file"), NEW);
        assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
        assert_ne!(after.ino(), before.ino(), "replaced, not rewritten in place");
        assert_eq!(it.names(), ["results.json"]);
    }

    #[test]
    fn equal_bytes_are_not_written_twenty_times_over() {
        let it = folder();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().append(true).open(&it.file).and_then(|f| f.set_modified(long_ago)).expect("a time stamp");
        let before = fs::metadata(&it.file).expect("metadata");
        // Nor is a protected file refused that would not change.
        set_mode(&it.file, 0o444);
        for _ in 0..20 {
            assert_eq!(replace(&it.file, OLD).expect("unchanged"), Replaced::Unchanged);
        }
        let after = fs::metadata(&it.file).expect("metadata");
        assert_eq!(
            (after.ino(), after.mtime(), after.mtime_nsec()),
            (before.ino(), before.mtime(), before.mtime_nsec())
        );
    }

    #[test]
    fn a_missing_file_is_created_with_the_mode_of_any_new_file() {
        let it = folder();
        let (fresh, any) = (it.path("sweeps.json"), it.path("any"));
        assert_eq!(replace(&fresh, NEW).expect("created"), Replaced::Written);
        File::create(&any).expect("any file");
        let mode = |path: &Path| fs::metadata(path).expect("metadata").mode();
        assert_eq!(mode(&fresh), mode(&any));
        assert_eq!(it.names(), ["any", "results.json", "sweeps.json"]);
    }

    #[test]
    fn a_symbolic_link_stays_one_and_its_target_is_replaced() {
        let it = folder();
        fs::create_dir(it.path("elsewhere")).expect("a folder");
        symlink("../results.json", it.path("elsewhere/inner")).expect("a link");
        symlink("elsewhere/inner", it.path("link")).expect("a link");
        assert_eq!(replace(&it.path("link"), NEW).expect("replaced"), Replaced::Written);
        assert_eq!(fs::read(&it.file).expect("the file"), NEW);
        assert_eq!(fs::read_link(it.path("link")).expect("a link"), Path::new("elsewhere/inner"));
        assert_eq!(fs::read_link(it.path("elsewhere/inner")).expect("a link"), Path::new("../results.json"));
        // One that leads nowhere yet: the file comes to be where it leads.
        symlink("elsewhere/later.json", it.path("early")).expect("a link");
        assert_eq!(replace(&it.path("early"), NEW).expect("created"), Replaced::Written);
        assert_eq!(fs::read(it.path("elsewhere/later.json")).expect("the file"), NEW);
        assert!(fs::symlink_metadata(it.path("early")).expect("a link").is_symlink());
        assert_eq!(it.names(), ["early", "elsewhere", "link", "results.json"]);
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let it = folder();
        symlink("b", it.path("a")).expect("a link");
        symlink("a", it.path("b")).expect("a link");
        assert!(matches!(replace(&it.path("a"), NEW), Err(ReplaceError::LinksInACircle { .. })));
    }

    #[test]
    fn a_write_protected_file_is_refused_whoever_runs_it() {
        let it = folder();
        set_mode(&it.file, 0o444);
        let error = replace(&it.file, NEW).expect_err("protected");
        assert!(matches!(error, ReplaceError::Protected { .. }));
        assert!(error.to_string().contains("results.json: the file is write-protected; "), "{error}");
        assert!(it.is_untouched());
        // Through a link as well.
        symlink("results.json", it.path("link")).expect("a link");
        assert!(matches!(replace(&it.path("link"), NEW), Err(ReplaceError::Protected { .. })));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let it = folder();
        let fifo = it.path("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        for (path, sentence) in [
            (it.folder.path(), "this is a directory, not a file; "),
            (&fifo, "this is a pipe, socket or device, not a file; "),
            (Path::new("/dev/null"), "this is a pipe, socket or device, not a file; "),
        ] {
            let error = refuse_early(path).expect_err("no file").to_string();
            assert!(error.contains(sentence), "{error}");
            assert!(matches!(replace(path, NEW), Err(ReplaceError::NotAFile { .. })), "{path:?}");
        }
    }

    #[test]
    fn what_can_not_be_looked_at_is_not_taken_for_absent() {
        let it = folder();
        let error = replace(&it.file.join("below"), NEW).expect_err("a file is no folder").to_string();
        assert!(error.contains("results.json/below: can't look at it ("), "{error}");
        assert!(it.is_untouched());
    }

    #[test]
    fn a_bare_name_is_one_in_the_current_folder() {
        let (bare, below) = (Path::new("results.json"), Path::new("experiments/sweeps.json"));
        assert_eq!((folder_of(bare), folder_of(below)), (Path::new("."), Path::new("experiments")));
    }

    #[test]
    fn what_can_not_be_there_is_refused_before_there_is_a_text() {
        let it = folder();
        let absent = it.folder.path().join("absent/results.json");
        let said = refuse_early(&absent).expect_err("no folder").to_string();
        assert!(said.ends_with("absent: there is no such folder; make it, or write elsewhere"), "{said}");
        assert!(matches!(refuse_early(it.folder.path()), Err(ReplaceError::NotAFile { .. })));
        assert!(refuse_early(&it.file).is_ok() && refuse_early(&it.path("new.json")).is_ok());
        assert!(it.is_untouched());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let it = folder();
        let error = replace(&it.path("absent/results.json"), NEW).expect_err("no folder");
        assert!(matches!(error, ReplaceError::NoFolder { .. }), "{error}");
        assert!(it.is_untouched());
    }

    #[test]
    fn a_folder_or_a_file_of_others_is_refused_to_an_ordinary_user() {
        // Root may write everywhere, so only others can be refused.
        if nix::unistd::geteuid().is_root() {
            return;
        }
        let it = folder();
        set_mode(it.folder.path(), 0o555);
        let error = replace(&it.file, NEW).expect_err("protected folder");
        set_mode(it.folder.path(), 0o755);
        assert!(matches!(error, ReplaceError::Folder { .. }), "{error}");
        assert!(it.is_untouched());
        assert!(matches!(replace(Path::new("/etc/passwd"), NEW), Err(ReplaceError::Protected { .. })));
    }

    #[test]
    fn a_write_that_fails_half_way_leaves_the_old_file_and_nothing_beside_it() {
        let it = folder();
        let error = replace_filled(&it.file, NEW, |file| {
            file.write_all(&NEW[..2])?;
            Err(io::Error::from(ErrorKind::StorageFull))
        });
        let error = error.expect_err("full").to_string();
        assert!(error.contains("results.json: can't write the new text beside it ("), "{error}");
        assert!(error.ends_with("; the file is as it was"), "{error}");
        assert!(it.is_untouched());
    }

    #[test]
    fn leftovers_of_killed_runs_are_swept_and_nothing_else_is() {
        let it = folder();
        let live = Beside::new(&it.file).create().expect("a file of a living writer");
        let live_name = live.path().file_name().and_then(OsStr::to_str).expect("a name").to_string();
        let left = ".results.json.durable-admission-0123456789.tmp";
        let others = [
            ".other.json.durable-admission-0123456789.tmp",
            ".results.json.durable-admission-012345678.tmp",
            ".results.json.durable-admission-01234_6789.tmp",
            ".results.json.durable-admission-0123456789.tmp~",
            "results.json.orig",
        ];
        for name in others.iter().chain([&left]) {
            fs::write(it.path(name), "half").expect("a file");
        }
        let by_link = ".results.json.durable-admission-abcdefghij.tmp";
        symlink("results.json", it.path(by_link)).expect("a link");
        // Also when there is nothing to write.
        assert_eq!(replace(&it.file, OLD).expect("unchanged"), Replaced::Unchanged);
        let mut expected: Vec<&str> = others.to_vec();
        expected.extend(["results.json", by_link, &live_name]);
        expected.sort();
        assert_eq!(it.names(), expected);
        drop(live);
    }

    #[test]
    fn what_took_the_place_of_a_leftover_is_not_swept_by_its_name() {
        let it = folder();
        let link = it.path(".results.json.durable-admission-0123456789.tmp");
        symlink("results.json", &link).expect("a link");
        // It was a file when the folder was listed.
        remove_unless_locked(&link);
        assert!(fs::symlink_metadata(&link).is_ok_and(|found| found.is_symlink()));
    }

    #[test]
    fn a_writer_whose_file_is_swept_before_it_is_locked_takes_another() {
        let it = folder();
        let place = Beside::new(&it.file);
        let mut tries = 0;
        let fresh = place.create_amid(|| {
            tries += 1;
            if tries == 1 {
                assert_eq!(it.names().len(), 2);
                place.sweep();
                assert_eq!(it.names(), ["results.json"]);
            }
        });
        let fresh = fresh.expect("a temporary file");
        assert!(fresh.path().exists() && tries == 2, "{tries} tries");
    }

    #[test]
    fn a_folder_that_can_not_be_synced_is_an_error_unless_none_ever_can_there() {
        let it = folder();
        assert!(sync_folder(it.folder.path()).is_ok());
        assert!(sync_folder(&it.path("absent")).is_err());
        assert!(where_supported(Err(Errno::EINVAL.into())).is_ok());
        let broken = where_supported(Err(Errno::EIO.into())).expect_err("a disk that fails");
        assert_eq!(broken.raw_os_error(), Some(Errno::EIO as i32));
    }

    #[test]
    fn settling_waits_for_the_replacement_under_way() {
        let it = folder();
        let (started, wait_started) = std::sync::mpsc::channel();
        let (go_on, wait_go_on) = std::sync::mpsc::channel::<()>();
        let file = it.file.clone();
        let writer = std::thread::spawn(move || {
            replace_filled(&file, NEW, |file| {
                started.send(()).expect("the test listens");
                wait_go_on.recv().expect("the test goes on");
                file.write_all(NEW)
            })
        });
        wait_started.recv().expect("the writer is at it");
        assert!(UNDER_WAY.try_lock().is_err());
        assert_eq!(it.names().len(), 2, "the temporary file is there");
        go_on.send(()).expect("the writer listens");
        let settled = settle();
        // Here a signal's handler would end the process.
        assert_eq!((fs::read(&it.file).expect("the file").as_slice(), it.names().len()), (NEW, 1));
        drop(settled);
        assert!(writer.join().expect("the writer").is_ok());
    }

    /// Large enough for a kill to come in the middle of writing.
    fn texts() -> [Vec<u8>; 2] {
        [b'a', b'b'].map(|letter| vec![letter; 1 << 20])
    }

    /// Runs `replaces_until_killed` below in a process of its own.
    fn child(script: &str, file: &Path) -> Child {
        let program = std::env::current_exe().expect("this test");
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program);
        command.args(["--exact", "baseline::replace::tests::replaces_until_killed", "--ignored", "--nocapture"]);
        command.env("REPLACE_FILE", file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("a child")
    }

    #[test]
    #[ignore = "run by the tests that kill it"]
    fn replaces_until_killed() {
        let file = PathBuf::from(std::env::var_os("REPLACE_FILE").expect("which file"));
        // It ends by itself should the test that kills it have died.
        let deadline = Instant::now() + Duration::from_secs(60);
        for text in texts().iter().cycle().take_while(|_| Instant::now() < deadline) {
            replace(&file, text).expect("replaced");
        }
    }

    #[test]
    fn a_kill_at_any_moment_leaves_the_old_file_or_the_new_one() {
        let it = folder();
        let texts = texts();
        let mut left_behind = 0;
        for round in 0..25u64 {
            replace(&it.file, &texts[0]).expect("replaced");
            assert_eq!(it.names(), ["results.json"], "what the last round left is swept");
            let before = fs::metadata(&it.file).expect("metadata").ino();
            let mut child = child("exec \"$@\"", &it.file);
            let deadline = Instant::now() + Duration::from_secs(20);
            while fs::metadata(&it.file).expect("metadata").ino() == before {
                assert!(Instant::now() < deadline, "the child replaces nothing");
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(round * 317));
            child.kill().expect("kill -9");
            child.wait().expect("reaped");
            let held = fs::read(&it.file).expect("the file");
            assert!(texts.contains(&held), "torn at {} bytes", held.len());
            left_behind += it.names().len() - 1;
        }
        assert!(left_behind > 0, "no kill came in the middle, so this showed nothing");
        replace(&it.file, OLD).expect("replaced");
        assert!(it.is_untouched());
    }

    #[test]
    fn processes_that_replace_at_once_do_not_sweep_each_other() {
        let it = folder();
        let mut children: Vec<Child> = (0..4).map(|_| child("exec \"$@\"", &it.file)).collect();
        let mut seen = std::collections::HashSet::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while seen.len() < 100 && Instant::now() < deadline {
            let held = fs::read(&it.file).expect("the file");
            assert!(held == OLD || texts().contains(&held), "torn at {} bytes", held.len());
            seen.insert(fs::metadata(&it.file).expect("metadata").modified().expect("a time stamp"));
        }
        // A child whose temporary file was taken from it would have failed and ended.
        let ended = children.iter_mut().filter_map(|child| child.try_wait().expect("asked")).count();
        for child in &mut children {
            child.kill().expect("kill -9");
            child.wait().expect("reaped");
        }
        assert_eq!((ended, seen.len()), (0, 100));
    }

    #[test]
    fn a_disk_that_fills_up_leaves_the_old_file_and_nothing_beside_it() {
        let it = folder();
        // The limit stands for the full disk: half a text fits. The blocks are 512 bytes.
        let child = child("trap '' XFSZ; ulimit -f 1024; exec \"$@\"", &it.file);
        let output = child.wait_with_output().expect("reaped");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("write the new text beside it") && said.contains("FileTooLarge"), "{said}");
        assert!(it.is_untouched());
    }
}
