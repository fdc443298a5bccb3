//! What a recorder does at the n-th call: nothing, a death, or a fault.

use std::fmt;

use rusqlite::ffi;

use super::log::Role;

/// A counted call. Reads, locks and the rest are counted so that faults can meet them; they are not logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Open,
    Read,
    Write,
    Truncate,
    Sync,
    Delete,
    /// The directory's own sync inside a delete. The unix VFS ignores a failure of the one inside a file's sync.
    DirectorySync,
    FileSize,
    /// A file lock taken (never one given back).
    Lock,
    /// A lock in shared memory taken.
    SharedMemoryLock,
    SharedMemoryMap,
}

impl Call {
    pub const ALL: [Call; 11] = [
        Call::Open,
        Call::Read,
        Call::Write,
        Call::Truncate,
        Call::Sync,
        Call::Delete,
        Call::DirectorySync,
        Call::FileSize,
        Call::Lock,
        Call::SharedMemoryLock,
        Call::SharedMemoryMap,
    ];

    /// What changes the disk, or makes a change durable: where a death is told apart from the death before it.
    pub const CHANGING: &'static [Call] = &[Call::Write, Call::Truncate, Call::Sync, Call::Delete];
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Call::Open => "open",
            Call::Read => "read",
            Call::Write => "write",
            Call::Truncate => "truncate",
            Call::Sync => "sync",
            Call::Delete => "delete",
            Call::DirectorySync => "directory_sync",
            Call::FileSize => "file_size",
            Call::Lock => "lock",
            Call::SharedMemoryLock => "shared_memory_lock",
            Call::SharedMemoryMap => "shared_memory_map",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// EIO. Nothing of the call happens.
    InputOutput,
    /// ENOSPC on a write. Nothing of it is written.
    DiskFull,
    /// EIO on a write after half of its bytes.
    ShortWriteError,
    /// ENOSPC on a write after half of its bytes.
    ShortWriteFull,
    /// Half of the bytes, the rest zeros: what the unix VFS reports at the end of a file.
    ShortRead,
    CannotOpen,
    /// Somebody else has the lock.
    LockBusy,
    /// The lock call itself fails.
    LockFailed,
    SharedMemoryOpen,
    SharedMemoryMap,
    /// The directory's sync inside a delete fails; the file is gone already.
    DirectorySync,
}

impl Fault {
    pub const ALL: [Fault; 11] = [
        Fault::InputOutput,
        Fault::DiskFull,
        Fault::ShortWriteError,
        Fault::ShortWriteFull,
        Fault::ShortRead,
        Fault::CannotOpen,
        Fault::LockBusy,
        Fault::LockFailed,
        Fault::SharedMemoryOpen,
        Fault::SharedMemoryMap,
        Fault::DirectorySync,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::InputOutput => "eio",
            Fault::DiskFull => "disk_full",
            Fault::ShortWriteError => "short_write_eio",
            Fault::ShortWriteFull => "short_write_full",
            Fault::ShortRead => "short_read",
            Fault::CannotOpen => "cannot_open",
            Fault::LockBusy => "lock_busy",
            Fault::LockFailed => "lock_failed",
            Fault::SharedMemoryOpen => "shared_memory_open",
            Fault::SharedMemoryMap => "shared_memory_map",
            Fault::DirectorySync => "directory_sync",
        }
    }

    /// The calls that this fault can meet: the ones to count for it.
    pub fn calls(self) -> &'static [Call] {
        match self {
            Fault::InputOutput => &[Call::Read, Call::Write, Call::Truncate, Call::Sync, Call::Delete, Call::FileSize],
            Fault::DiskFull | Fault::ShortWriteError | Fault::ShortWriteFull => &[Call::Write],
            Fault::ShortRead => &[Call::Read],
            Fault::CannotOpen => &[Call::Open],
            Fault::LockBusy | Fault::LockFailed => &[Call::Lock, Call::SharedMemoryLock],
            Fault::SharedMemoryOpen | Fault::SharedMemoryMap => &[Call::SharedMemoryMap],
            Fault::DirectorySync => &[Call::DirectorySync],
        }
    }

    /// SQLite's code for this fault at this call.
    pub fn code(self, call: Call) -> i32 {
        match self {
            Fault::InputOutput => input_output_code(call),
            Fault::DiskFull | Fault::ShortWriteFull => ffi::SQLITE_FULL,
            Fault::ShortWriteError => ffi::SQLITE_IOERR_WRITE,
            Fault::ShortRead => ffi::SQLITE_IOERR_SHORT_READ,
            Fault::CannotOpen => ffi::SQLITE_CANTOPEN,
            Fault::LockBusy => ffi::SQLITE_BUSY,
            Fault::LockFailed => input_output_code(call),
            Fault::SharedMemoryOpen => ffi::SQLITE_IOERR_SHMOPEN,
            Fault::SharedMemoryMap => ffi::SQLITE_IOERR_SHMMAP,
            Fault::DirectorySync => ffi::SQLITE_IOERR_DIR_FSYNC,
        }
    }
}

/// The code with which each call reports that the device failed.
pub fn input_output_code(call: Call) -> i32 {
    match call {
        Call::Open => ffi::SQLITE_CANTOPEN,
        Call::Read => ffi::SQLITE_IOERR_READ,
        Call::Write => ffi::SQLITE_IOERR_WRITE,
        Call::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
        Call::Sync => ffi::SQLITE_IOERR_FSYNC,
        Call::Delete => ffi::SQLITE_IOERR_DELETE,
        Call::DirectorySync => ffi::SQLITE_IOERR_DIR_FSYNC,
        Call::FileSize => ffi::SQLITE_IOERR_FSTAT,
        Call::Lock => ffi::SQLITE_IOERR_LOCK,
        Call::SharedMemoryLock => ffi::SQLITE_IOERR_SHMLOCK,
        Call::SharedMemoryMap => ffi::SQLITE_IOERR_SHMMAP,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Before,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Span {
    Once,
    FromThenOn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// `std::process::exit(73)`: a real death of this process.
    Die(Side),
    /// As if the process had died, without dying: from here on no call reaches the disk, each fails. The log ends
    /// here, and [`Log::files_at`](super::log::Log::files_at) tells what the next process would find.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the disk's own tests plan it"))]
    Halt(Side),
    Fault(Fault, Span),
}

/// At the `at`-th call of the `counted` kinds (the first is 1): `action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    counted: &'static [Call],
    /// Of the counted kinds this one alone.
    only: Option<Call>,
    at: u64,
    action: Option<Action>,
}

impl Plan {
    /// Only records.
    pub const NOTHING: Plan = Plan { counted: &[], only: None, at: 0, action: None };

    /// Dies at the `at`-th write, truncate, sync or delete.
    pub fn die(side: Side, at: u64) -> Plan {
        Plan { counted: Call::CHANGING, only: None, at, action: Some(Action::Die(side)) }
    }

    /// Halts at the `at`-th write, truncate, sync or delete.
    #[cfg(test)]
    pub fn halt(side: Side, at: u64) -> Plan {
        Plan { counted: Call::CHANGING, only: None, at, action: Some(Action::Halt(side)) }
    }

    /// Faults at the `at`-th call that this fault can meet.
    pub fn fault(fault: Fault, span: Span, at: u64) -> Plan {
        Plan { counted: fault.calls(), only: None, at, action: Some(Action::Fault(fault, span)) }
    }

    /// The same, counting and meeting calls of one kind only.
    #[cfg(test)]
    pub fn only(self, call: Call) -> Plan {
        Plan { only: Some(call), ..self }
    }

    pub fn counts(&self, call: Call) -> bool {
        self.counted.contains(&call) && self.only.is_none_or(|only| only == call)
    }

    /// What to do at the `n`-th counted call.
    pub fn at(&self, n: u64) -> Option<Action> {
        match self.action? {
            action @ Action::Fault(_, Span::FromThenOn) => (n >= self.at).then_some(action),
            action @ (Action::Die(_) | Action::Halt(_) | Action::Fault(_, Span::Once)) => {
                (n == self.at).then_some(action)
            }
        }
    }

    /// A lock that stays busy for ever must not be waited for in real time.
    pub fn sleeps_are_skipped(&self) -> bool {
        matches!(self.action, Some(Action::Fault(Fault::LockBusy, _)))
    }
}

/// The point where a plan struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Counted from 1 among the plan's counted calls.
    pub n: u64,
    pub call: Call,
    pub role: Role,
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} of {}", self.n, self.call, self.role)
    }
}
