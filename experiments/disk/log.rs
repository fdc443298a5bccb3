//! One ordered log of what reached the files of one database, with the marks of its requests.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// The part a file plays for its database. Shared memory is no file here: it is never synced, so a cut may leave
/// anything of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Database,
    Wal,
    Journal,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Database, Role::Wal, Role::Journal];

    /// What follows the database's file name.
    pub fn suffix(self) -> &'static str {
        match self {
            Role::Database => "",
            Role::Wal => "-wal",
            Role::Journal => "-journal",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Role::Database => "database",
            Role::Wal => "wal",
            Role::Journal => "journal",
        })
    }
}

/// One value for each role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByRole<T>([T; 3]);

impl<T> ByRole<T> {
    pub fn from_fn(mut value: impl FnMut(Role) -> T) -> Self {
        ByRole(Role::ALL.map(&mut value))
    }
}

impl<T> Index<Role> for ByRole<T> {
    type Output = T;
    fn index(&self, role: Role) -> &T {
        &self.0[role as usize]
    }
}

impl<T> IndexMut<Role> for ByRole<T> {
    fn index_mut(&mut self, role: Role) -> &mut T {
        &mut self.0[role as usize]
    }
}

/// The bytes of each file, `None` where there is no such file.
pub type Files = ByRole<Option<Vec<u8>>>;

/// One file as the file system knows it. A WAL that was deleted and created again is another inode: the first may
/// come back after a cut, with its own content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    pub role: Role,
    /// 0 for the file that was there first; one more with each creation under that name.
    pub birth: u32,
}

impl fmt::Display for Inode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}#{}", self.role, self.birth)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    Created,
    Existing,
}

/// Whether the directory was synced along with the operation, and so every creation and deletion before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectorySync {
    Synced,
    NotSynced,
}

/// Why SQLite asks for this sync, told from what came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPurpose {
    /// The WAL's header at its (re)start, before the first frame.
    WalHeader,
    /// The frames of a transaction, `synchronous=FULL` only: what makes COMMIT durable.
    Commit,
    /// The WAL, once more, before its pages go into the database. With `FULL` there is nothing left to sync.
    WalBeforeCheckpoint,
    /// The database, after a checkpoint wrote its pages and before the WAL may be overwritten.
    Checkpoint,
    /// The database or its rollback journal, outside WAL mode (the first moments of a new file).
    Rollback,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Open {
        inode: Inode,
        creation: Creation,
    },
    Write {
        inode: Inode,
        offset: u64,
        data: Arc<[u8]>,
    },
    Truncate {
        inode: Inode,
        len: u64,
    },
    /// `flags` are SQLite's `SQLITE_SYNC_*`.
    Sync {
        inode: Inode,
        flags: i32,
        purpose: SyncPurpose,
        directory: DirectorySync,
    },
    Delete {
        inode: Inode,
        directory: DirectorySync,
    },
    /// The shared memory as the last writer left it. Kept only as the stale one that a cut may leave behind.
    SharedMemory {
        bytes: Arc<[u8]>,
    },
    /// A fault was put in here; what the call still did to the file, if anything, is the entry before.
    Fault {
        what: String,
    },
    /// The driver is about to call request `request`.
    Called {
        request: u64,
    },
    /// The driver has the answer in hand.
    Acknowledged {
        request: u64,
        answer: String,
    },
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Open { inode, creation } => write!(
                out,
                "open {inode}{}",
                match creation {
                    Creation::Created => " created",
                    Creation::Existing => "",
                }
            ),
            Entry::Write { inode, offset, data } => write!(out, "write {inode} {offset}+{}", data.len()),
            Entry::Truncate { inode, len } => write!(out, "truncate {inode} {len}"),
            Entry::Sync { inode, flags: _, purpose, directory } => write!(
                out,
                "sync {inode} {}{directory}",
                match purpose {
                    SyncPurpose::WalHeader => "header",
                    SyncPurpose::Commit => "commit",
                    SyncPurpose::WalBeforeCheckpoint => "before-checkpoint",
                    SyncPurpose::Checkpoint => "checkpoint",
                    SyncPurpose::Rollback => "rollback",
                }
            ),
            Entry::Delete { inode, directory } => write!(out, "delete {inode}{directory}"),
            Entry::SharedMemory { bytes } => write!(out, "shared memory {} bytes", bytes.len()),
            Entry::Fault { what } => write!(out, "fault {what}"),
            Entry::Called { request } => write!(out, "called {request}"),
            Entry::Acknowledged { request, answer } => {
                write!(out, "acknowledged {request} {answer}")
            }
        }
    }
}

impl fmt::Display for DirectorySync {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            DirectorySync::Synced => " directory",
            DirectorySync::NotSynced => "",
        })
    }
}

/// What was on disk before, all of it durable, and everything since, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    pub initial: Files,
    pub entries: Vec<Entry>,
}

impl Log {
    /// The files as any process would read them after the first `cut` entries: the page cache, power still on.
    pub fn files_at(&self, cut: usize) -> Files {
        let mut files = self.initial.clone();
        // A write through an old handle to a deleted file reaches nobody.
        let mut births = ByRole::<u32>::default();
        for entry in &self.entries[..cut.min(self.entries.len())] {
            match entry {
                Entry::Open { inode, creation: Creation::Created } => {
                    births[inode.role] = inode.birth;
                    files[inode.role] = Some(Vec::new());
                }
                Entry::Write { inode, offset, data } if births[inode.role] == inode.birth => {
                    if let Some(bytes) = &mut files[inode.role] {
                        overwrite(bytes, *offset, data);
                    }
                }
                Entry::Truncate { inode, len } if births[inode.role] == inode.birth => {
                    if let Some(bytes) = &mut files[inode.role] {
                        bytes.resize(*len as usize, 0);
                    }
                }
                Entry::Delete { inode, .. } => files[inode.role] = None,
                Entry::Open { .. }
                | Entry::Write { .. }
                | Entry::Truncate { .. }
                | Entry::Sync { .. }
                | Entry::SharedMemory { .. }
                | Entry::Fault { .. }
                | Entry::Called { .. }
                | Entry::Acknowledged { .. } => {}
            }
        }
        files
    }

    /// The log as lines, one entry each; for counterexamples and for tests that compare kind and order.
    #[cfg(test)]
    pub fn lines(&self) -> Vec<String> {
        self.entries.iter().map(Entry::to_string).collect()
    }
}

/// Writes as `pwrite` does: past the end the gap reads as zeros.
pub fn overwrite(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (from, to) = (offset as usize, offset as usize + data.len());
    if file.len() < to {
        file.resize(to, 0);
    }
    file[from..to].copy_from_slice(data);
}
