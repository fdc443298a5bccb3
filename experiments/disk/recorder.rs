//! What stands behind the VFS: counts each call, lets the plan strike, and keeps the log. All of it safe code; the
//! real call comes in as a closure that answers with SQLite's code.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rusqlite::ffi;

use super::log::{ByRole, Creation, DirectorySync, Entry, Files, Inode, Log, Role, SyncPurpose};
use super::plan::{Action, Call, Fault, Plan, Point, Side, input_output_code};

/// A planned death ends the process with exactly this code.
pub const PLANNED_DEATH: i32 = 73;

/// Called with the point just before a planned death, so that the parent hears of it. It runs inside an I/O call: it
/// may write to a pipe, and must touch neither SQLite nor the recorder.
pub type Announce = Box<dyn FnMut(Point) + Send>;

/// Records the I/O of one database: its file, WAL and rollback journal. Files of other names are none of its business.
pub struct Recorder {
    path: PathBuf,
    seed: u64,
    tape: Mutex<Tape>,
}

struct Tape {
    log: Log,
    plan: Plan,
    announce: Option<Announce>,
    totals: [u64; Call::ALL.len()],
    counted: u64,
    struck: Option<Point>,
    power: Power,
    births: ByRole<u32>,
    handles: Vec<HandleState>,
    open_handles: usize,
    wal: WalPhase,
    checkpoint: CheckpointPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Off,
}

/// What the last thing was that happened to the WAL, to tell what the next sync is for.
#[derive(Clone, Copy)]
enum WalPhase {
    Header,
    Frames,
    Committed,
}

#[derive(Clone, Copy)]
enum CheckpointPhase {
    Idle,
    Started,
}

struct HandleState {
    inode: Inode,
    /// The unix VFS syncs the directory at the first sync through a handle that was opened with leave to create a WAL
    /// or a journal (`UNIXFILE_DIRSYNC`), whether or not the file was there before.
    first_sync: DirectorySync,
}

/// An open file of a recorder.
#[derive(Clone, Copy)]
pub struct Handle {
    index: usize,
    role: Role,
}

impl Handle {
    pub fn role(self) -> Role {
        self.role
    }
}

enum Verdict {
    Go,
    GoThenDie,
    GoThenHalt,
    Fail(i32),
    Strike(Fault),
}

impl Recorder {
    /// For the database at `path`, in a folder that exists. What is there already is read and taken for durable, so
    /// nothing in this process may have it open (closing a second descriptor drops SQLite's locks).
    pub fn new(path: &Path, plan: Plan) -> io::Result<Arc<Recorder>> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} names no file: give a path to record", path.display()),
            ));
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        // SQLite hands its VFS the real path; so must we compare.
        let path = fs::canonicalize(folder)?.join(name);
        let mut initial = Files::default();
        for role in Role::ALL {
            initial[role] = read_if_there(&beside(&path, role))?;
        }
        Ok(Arc::new(Recorder {
            path,
            seed: 0x5eed_d15c,
            tape: Mutex::new(Tape {
                log: Log { initial, entries: Vec::new() },
                plan,
                announce: None,
                totals: [0; Call::ALL.len()],
                counted: 0,
                struck: None,
                power: Power::On,
                births: ByRole::default(),
                handles: Vec::new(),
                open_handles: 0,
                wal: WalPhase::Committed,
                checkpoint: CheckpointPhase::Idle,
            }),
        }))
    }

    pub fn announce_death(&self, announce: Announce) {
        self.tape().announce = Some(announce);
    }

    /// Marks that the driver is about to call this request.
    pub fn called(&self, request: u64) {
        self.tape().mark(Entry::Called { request });
    }

    /// Marks that the driver has this answer in hand. After a halt there is nobody left to have it.
    pub fn acknowledged(&self, request: u64, answer: &str) {
        self.tape().mark(Entry::Acknowledged { request, answer: answer.to_owned() });
    }

    /// From here on as if the process were dead: each call fails, none reaches the disk, the log has ended.
    pub fn halt(&self) {
        self.tape().power = Power::Off;
    }

    /// The log so far.
    pub fn log(&self) -> Log {
        self.tape().log.clone()
    }

    /// How many calls of these kinds there were.
    pub fn total(&self, calls: &[Call]) -> u64 {
        let tape = self.tape();
        calls.iter().map(|call| tape.totals[*call as usize]).sum()
    }

    /// Where the plan struck first; `None` if the run never came that far.
    pub fn struck(&self) -> Option<Point> {
        self.tape().struck
    }

    /// Files still open. Not 0 when a run has ended means that a connection outlives its recording, and what it does
    /// later to the folder (deleting its WAL) is not in the log.
    pub fn open_files(&self) -> usize {
        self.tape().open_handles
    }

    /// Which of our files this full path is.
    pub fn role_of(&self, full_path: &Path) -> Option<Role> {
        Role::ALL.into_iter().find(|role| beside(&self.path, *role) == full_path)
    }

    /// The bytes that SQLite's random numbers start from: always the same, so that a WAL's salts are.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        let mut state = self.seed;
        for chunk in bytes.chunks_mut(8) {
            let word = crate::dice::splitmix64(&mut state).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    pub fn sleeps_are_skipped(&self) -> bool {
        let tape = self.tape();
        tape.power == Power::Off || tape.plan.sleeps_are_skipped()
    }

    /// `real` opens the file and answers with SQLite's code.
    pub fn open(&self, role: Role, flags: i32, real: impl FnOnce() -> i32) -> Result<Handle, i32> {
        let mut tape = self.tape();
        let (verdict, point) = tape.arrive(Call::Open, role);
        match verdict {
            Verdict::Fail(code) => return Err(code),
            Verdict::Strike(fault) => return Err(fault.code(Call::Open)),
            Verdict::Go | Verdict::GoThenDie | Verdict::GoThenHalt => {}
        }
        let may_create = flags & ffi::SQLITE_OPEN_CREATE != 0;
        // Not through the VFS's own access method: that one takes an empty file for none.
        let existed = fs::symlink_metadata(beside(&self.path, role)).is_ok();
        match real() {
            ffi::SQLITE_OK => {}
            code => return Err(code),
        }
        let creation = if may_create && !existed {
            tape.births[role] += 1;
            Creation::Created
        } else {
            Creation::Existing
        };
        let inode = tape.inode(role);
        tape.log.entries.push(Entry::Open { inode, creation });
        let first_sync = match role {
            Role::Wal | Role::Journal if may_create => DirectorySync::Synced,
            Role::Wal | Role::Journal | Role::Database => DirectorySync::NotSynced,
        };
        let index = tape.handles.len();
        tape.handles.push(HandleState { inode, first_sync });
        tape.open_handles += 1;
        tape.depart(&verdict, point, Call::Open);
        Ok(Handle { index, role })
    }

    pub fn close(&self) {
        let mut tape = self.tape();
        tape.open_handles = tape.open_handles.saturating_sub(1);
    }

    /// `real` fills the buffer.
    pub fn read(&self, handle: Handle, buffer: &mut [u8], mut real: impl FnMut(&mut [u8]) -> i32) -> i32 {
        let mut tape = self.tape();
        match tape.arrive(Call::Read, handle.role).0 {
            Verdict::Fail(code) => code,
            Verdict::Strike(Fault::ShortRead) => {
                let code = real(buffer);
                let half = buffer.len() / 2;
                buffer[half..].fill(0);
                if code == ffi::SQLITE_OK { ffi::SQLITE_IOERR_SHORT_READ } else { code }
            }
            Verdict::Strike(fault) => fault.code(Call::Read),
            Verdict::Go | Verdict::GoThenDie | Verdict::GoThenHalt => real(buffer),
        }
    }

    /// `real` writes the bytes it is given at `offset`.
    pub fn write(&self, handle: Handle, offset: u64, data: &[u8], mut real: impl FnMut(&[u8]) -> i32) -> i32 {
        let mut tape = self.tape();
        let (verdict, point) = tape.arrive(Call::Write, handle.role);
        let (part, then) = match verdict {
            Verdict::Fail(code) => return code,
            Verdict::Strike(fault @ (Fault::ShortWriteError | Fault::ShortWriteFull)) => {
                (&data[..data.len() / 2], Some(fault.code(Call::Write)))
            }
            Verdict::Strike(fault) => return fault.code(Call::Write),
            Verdict::Go | Verdict::GoThenDie | Verdict::GoThenHalt => (data, None),
        };
        let code = real(part);
        if code == ffi::SQLITE_OK {
            if handle.role == Role::Wal {
                tape.wal = if offset == 0 { WalPhase::Header } else { WalPhase::Frames };
            }
            let inode = tape.handles[handle.index].inode;
            tape.log.entries.push(Entry::Write { inode, offset, data: part.into() });
        }
        tape.depart(&verdict, point, Call::Write).unwrap_or(then.unwrap_or(code))
    }

    pub fn truncate(&self, handle: Handle, len: u64, real: impl FnOnce() -> i32) -> i32 {
        self.tape().change(Call::Truncate, handle.role, real, |tape| Entry::Truncate {
            inode: tape.handles[handle.index].inode,
            len,
        })
    }

    pub fn sync(&self, handle: Handle, flags: i32, real: impl FnOnce() -> i32) -> i32 {
        self.tape().change(Call::Sync, handle.role, real, |tape| {
            let purpose = tape.purpose_of_sync(handle.role);
            let state = &mut tape.handles[handle.index];
            Entry::Sync {
                inode: state.inode,
                flags,
                purpose,
                directory: std::mem::replace(&mut state.first_sync, DirectorySync::NotSynced),
            }
        })
    }

    /// `real` deletes the file, and syncs the directory if it is told so.
    pub fn delete(&self, role: Role, directory: DirectorySync, mut real: impl FnMut(DirectorySync) -> i32) -> i32 {
        let mut tape = self.tape();
        let sync_fault = match directory {
            DirectorySync::NotSynced => None,
            DirectorySync::Synced => match tape.arrive(Call::DirectorySync, role).0 {
                Verdict::Fail(code) => return code,
                Verdict::Strike(fault) => Some(fault.code(Call::DirectorySync)),
                Verdict::Go | Verdict::GoThenDie | Verdict::GoThenHalt => None,
            },
        };
        let directory = match sync_fault {
            Some(_) => DirectorySync::NotSynced,
            None => directory,
        };
        let code = tape.change(
            Call::Delete,
            role,
            || real(directory),
            |tape| Entry::Delete { inode: tape.inode(role), directory },
        );
        match code {
            ffi::SQLITE_OK => sync_fault.unwrap_or(code),
            _ => code,
        }
    }

    /// A call that changes nothing on disk: it can only be counted and failed.
    pub fn pass(&self, call: Call, role: Role, real: impl FnOnce() -> i32) -> i32 {
        let verdict = self.tape().arrive(call, role).0;
        match verdict {
            Verdict::Fail(code) => code,
            Verdict::Strike(fault) => fault.code(call),
            Verdict::Go | Verdict::GoThenDie | Verdict::GoThenHalt => real(),
        }
    }

    /// SQLite says that a transaction is through.
    pub fn transaction_ended(&self) {
        self.tape().wal = WalPhase::Committed;
    }

    /// SQLite says that a checkpoint starts to write pages into the database.
    pub fn checkpoint_started(&self) {
        self.tape().checkpoint = CheckpointPhase::Started;
    }

    /// The shared memory as the writer leaves it; logged where it differs from the last.
    pub fn shared_memory(&self, bytes: Vec<u8>) {
        let mut tape = self.tape();
        let last = tape
            .log
            .entries
            .iter()
            .rev()
            .find_map(|entry| if let Entry::SharedMemory { bytes } = entry { Some(bytes) } else { None });
        if last.is_none_or(|last| **last != bytes[..]) {
            let bytes = bytes.into();
            tape.mark(Entry::SharedMemory { bytes });
        }
    }

    /// A panic elsewhere must not make SQLite's next call panic in turn: the log is whole after every push.
    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.tape.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Tape {
    fn arrive(&mut self, call: Call, role: Role) -> (Verdict, Point) {
        self.totals[call as usize] += 1;
        let mut point = Point { n: 0, call, role };
        if self.power == Power::Off {
            return (Verdict::Fail(input_output_code(call)), point);
        }
        if !self.plan.counts(call) {
            return (Verdict::Go, point);
        }
        self.counted += 1;
        point.n = self.counted;
        let Some(action) = self.plan.at(point.n) else {
            return (Verdict::Go, point);
        };
        if self.struck.is_none() {
            self.struck = Some(point);
            if let Action::Fault(fault, _) = action {
                self.mark(Entry::Fault { what: format!("{} at {point}", fault.name()) });
            }
        }
        let verdict = match action {
            Action::Die(Side::Before) => self.die(point),
            Action::Die(Side::After) => Verdict::GoThenDie,
            Action::Halt(Side::Before) => {
                self.power = Power::Off;
                Verdict::Fail(input_output_code(call))
            }
            Action::Halt(Side::After) => Verdict::GoThenHalt,
            Action::Fault(fault, _) => Verdict::Strike(fault),
        };
        (verdict, point)
    }

    /// What the plan wants once the call is done; the code to answer with, if not the call's own.
    fn depart(&mut self, verdict: &Verdict, point: Point, call: Call) -> Option<i32> {
        match verdict {
            Verdict::GoThenDie => self.die(point),
            Verdict::GoThenHalt => {
                self.power = Power::Off;
                Some(input_output_code(call))
            }
            Verdict::Go | Verdict::Fail(_) | Verdict::Strike(_) => None,
        }
    }

    fn change(
        &mut self,
        call: Call,
        role: Role,
        real: impl FnOnce() -> i32,
        entry: impl FnOnce(&mut Tape) -> Entry,
    ) -> i32 {
        let (verdict, point) = self.arrive(call, role);
        match verdict {
            Verdict::Fail(code) => return code,
            Verdict::Strike(fault) => return fault.code(call),
            Verdict::Go | Verdict::GoThenDie | Verdict::GoThenHalt => {}
        }
        let code = real();
        if code == ffi::SQLITE_OK {
            let entry = entry(self);
            self.log.entries.push(entry);
        }
        self.depart(&verdict, point, call).unwrap_or(code)
    }

    fn die(&mut self, point: Point) -> ! {
        if let Some(announce) = &mut self.announce {
            announce(point);
        }
        std::process::exit(PLANNED_DEATH)
    }

    fn mark(&mut self, entry: Entry) {
        if self.power == Power::On {
            self.log.entries.push(entry);
        }
    }

    fn inode(&self, role: Role) -> Inode {
        Inode { role, birth: self.births[role] }
    }

    fn purpose_of_sync(&mut self, role: Role) -> SyncPurpose {
        match role {
            Role::Journal => SyncPurpose::Rollback,
            Role::Database => match std::mem::replace(&mut self.checkpoint, CheckpointPhase::Idle) {
                CheckpointPhase::Started => SyncPurpose::Checkpoint,
                CheckpointPhase::Idle => SyncPurpose::Rollback,
            },
            Role::Wal => match self.wal {
                WalPhase::Header => SyncPurpose::WalHeader,
                WalPhase::Frames => SyncPurpose::Commit,
                WalPhase::Committed => SyncPurpose::WalBeforeCheckpoint,
            },
        }
    }
}

/// The file of this role for the database at `path`.
pub fn beside(path: &Path, role: Role) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(role.suffix());
    PathBuf::from(name)
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
