//! A checkout of its own for one test: a folder with spaces and Chinese in its name that holds results.json, and
//! an empty temporary folder; and what a run of the built binary in it came to.
#![allow(dead_code, reason = "no test file needs all of it")]

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub const BINARY: &str = env!("CARGO_BIN_EXE_durable-admission");
pub const FROZEN: &str = include_str!("../../results.json");
/// No sound run comes near it, on a busy machine neither.
const PATIENCE: Duration = Duration::from_secs(90);

pub struct Place {
    outer: tempfile::TempDir,
    _around_temporary: tempfile::TempDir,
    pub folder: PathBuf,
    pub results: PathBuf,
    /// What TMPDIR says.
    pub temporary: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let mut builder = tempfile::Builder::new();
        builder.prefix("durable-admission-test-").permissions(fs::Permissions::from_mode(0o755));
        let outer = builder.tempdir().unwrap();
        // In memory where that can be: what a run's databases outlive is not what is tested here, and a disk is slow.
        let around_temporary = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap();
        let folder = outer.path().join("受理 of a checkout");
        let temporary = around_temporary.path().join("临时 files");
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&temporary).unwrap();
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(folder.join("Cargo.toml"), include_str!("../../Cargo.toml")).unwrap();
        let results = folder.join("results.json");
        fs::write(&results, FROZEN).unwrap();
        Place { outer, _around_temporary: around_temporary, folder, results, temporary }
    }

    /// With this text as its results.json.
    pub fn holding(text: impl AsRef<[u8]>) -> Place {
        let place = Place::new();
        fs::write(&place.results, text).unwrap();
        place
    }

    pub fn run<const N: usize>(&self, arguments: [&str; N]) -> Said {
        self.end(self.command(BINARY).args(arguments))
    }

    /// `script` in a shell, with the binary as `$0` and the arguments after it.
    pub fn shell<const N: usize>(&self, script: &str, arguments: [&OsStr; N]) -> Said {
        self.end(self.command("sh").arg("-c").arg(script).arg(BINARY).args(arguments))
    }

    /// A command in the checkout, with nothing in its environment that says more than a user's would.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("TMPDIR", &self.temporary).stdin(Stdio::null());
        for name in ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CARGO_MANIFEST_DIR", "RUST_BACKTRACE"] {
            command.env_remove(name);
        }
        command
    }

    pub fn start(&self, command: &mut Command) -> Running {
        let (out, err) = (self.outer.path().join("out"), self.outer.path().join("err"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Running { process: command.spawn().unwrap(), out, err }
    }

    /// The end of the command, which has to come in time and to leave neither a process nor a temporary file.
    pub fn end(&self, command: &mut Command) -> Said {
        let said = self.start(command).end();
        self.nothing_is_left();
        said
    }

    pub fn nothing_is_left(&self) {
        assert!(self.left().is_empty(), "left: {:?}", self.left());
        assert_eq!(self.processes(), [0; 0]);
    }

    /// What lies in the temporary folder.
    pub fn left(&self) -> Vec<String> {
        names(&self.temporary)
    }

    /// Waits until the kernel has let go of the locks of runs that were killed: a moment after they were reaped, or once a
    /// child that was just being started has come to its exec.
    pub fn until_nobody_holds_what_is_left(&self) {
        let deadline = Instant::now() + PATIENCE;
        let is_held = |name: &String| {
            let lock = File::open(self.temporary.join(name).join(".lock"));
            lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
        };
        while self.left().iter().any(is_held) {
            assert!(Instant::now() < deadline, "somebody still holds {:?}", self.left());
            sleep(Duration::from_millis(1));
        }
    }

    /// Processes whose arguments name something in the temporary folder: children of a run.
    pub fn processes(&self) -> Vec<u32> {
        let needle = self.temporary.as_os_str().as_encoded_bytes();
        let about_us = |process: &Path| {
            fs::read(process.join("cmdline"))
                .is_ok_and(|arguments| arguments.windows(needle.len()).any(|part| part == needle))
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbered = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(|pid| (pid, entry)));
        numbered.filter(|(_, entry)| about_us(&entry.path())).map(|(pid, _)| pid).collect()
    }

    pub fn held(&self) -> String {
        fs::read_to_string(&self.results).unwrap()
    }

    /// That the checkout holds results.json with this text, and nothing that was not there before.
    pub fn holds(&self, text: &str) {
        assert!(self.held() == text, "results.json holds something else");
        assert_eq!(names(&self.folder), ["Cargo.toml", "results.json"]);
    }

    /// Another place for a file, outside of checkout and temporary folder.
    pub fn elsewhere(&self, name: &str) -> PathBuf {
        self.outer.path().join(name)
    }

    /// A copy of the binary, there.
    pub fn copied_binary(&self) -> PathBuf {
        let copy = self.elsewhere("拷贝 of it");
        copy_binary(&copy);
        copy
    }
}

/// By a process of its own: what we write ourselves, a child that another test is just starting holds open for an instant, and
/// then it can't be executed (text file busy).
pub fn copy_binary(to: &Path) {
    assert!(Command::new("cp").arg(BINARY).arg(to).status().unwrap().success());
}

pub struct Running {
    pub process: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub fn stderr(&self) -> String {
        text(&self.err)
    }

    /// Waits for what may happen while it runs, and says whether it did.
    pub fn meets(&mut self, happens: impl Fn(&Running) -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !happens(self) {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "never happened: {}", self.stderr());
            std::thread::yield_now();
        }
        true
    }

    /// Waits for what has to happen while it runs.
    pub fn until(&mut self, happened: impl Fn(&Running) -> bool) {
        assert!(self.meets(happened), "ended before: {}", self.stderr());
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
    }

    pub fn end(mut self) -> Said {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.process.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() >= deadline => {
                    self.process.kill().unwrap();
                    self.process.wait().unwrap();
                    panic!("still running after {PATIENCE:?}: {}", self.stderr());
                }
                None => sleep(Duration::from_millis(2)),
            }
        };
        let said = Said { status, out: text(&self.out), err: text(&self.err) };
        assert!(!said.err.contains("panicked") && !said.out.contains("panicked"), "{said:?}");
        said
    }
}

#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Demands this exit code, and gives what was said.
    #[track_caller]
    pub fn code(self, code: i32) -> Said {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub fn died_of(self, signal: Signal) -> Said {
        assert_eq!(self.status.signal(), Some(signal as i32), "{self:#?}");
        self
    }

    #[track_caller]
    pub fn last_line(&self) -> &str {
        self.out.lines().last().unwrap_or_else(|| panic!("{self:#?}"))
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The frozen text with the first answer of one group changed.
pub fn differing_in(group: &str) -> String {
    let start = FROZEN.find(&format!("    \"{group}\": {{")).unwrap();
    let (head, tail) = FROZEN.split_at(start);
    let changed = tail.replacen("\"answer\": \"accepted\"", "\"answer\": \"accepted?\"", 1);
    assert_ne!(changed, tail);
    format!("{head}{changed}")
}

/// A word on why a test shows nothing here.
pub fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// Whether this machine lets us be somebody else, or mount something in a name space of our own.
pub fn is_possible(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
