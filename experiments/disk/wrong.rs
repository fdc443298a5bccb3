//! Disks that lie, as a change to an honest log: a sync never alters what SQLite does next, so one recorded run is
//! enough to ask what each of these would have left after a cut.

use super::log::{DirectorySync, Entry, Log, Role, SyncPurpose};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WrongDisk {
    /// No sync does anything. The same as `synchronous=OFF`.
    SyncsDoNothing,
    /// The sync that makes COMMIT durable is lost. The same as `synchronous=NORMAL` over a `FULL` run.
    CommitSyncDropped,
    /// Files are synced, the directory never is.
    DirectorySyncDropped,
    /// The database's sync at a checkpoint is lost, while the WAL goes on to be overwritten or deleted.
    CheckpointSyncDropped,
    /// The WAL is not synced before its pages go into the database. With `FULL`, the commit's sync has done it
    /// already and nothing is lost; it bites only together with [`WrongDisk::CommitSyncDropped`].
    WalSyncBeforeCheckpointDropped,
}

impl WrongDisk {
    pub fn name(self) -> &'static str {
        match self {
            WrongDisk::SyncsDoNothing => "syncs_do_nothing",
            WrongDisk::CommitSyncDropped => "commit_sync_dropped",
            WrongDisk::DirectorySyncDropped => "directory_sync_dropped",
            WrongDisk::CheckpointSyncDropped => "checkpoint_sync_dropped",
            WrongDisk::WalSyncBeforeCheckpointDropped => "wal_sync_before_checkpoint_dropped",
        }
    }

    fn drops(self, role: Role, purpose: SyncPurpose) -> bool {
        match self {
            WrongDisk::SyncsDoNothing => true,
            WrongDisk::CommitSyncDropped => purpose == SyncPurpose::Commit,
            WrongDisk::DirectorySyncDropped => false,
            WrongDisk::CheckpointSyncDropped => purpose == SyncPurpose::Checkpoint,
            WrongDisk::WalSyncBeforeCheckpointDropped => {
                role == Role::Wal && purpose == SyncPurpose::WalBeforeCheckpoint
            }
        }
    }
}

impl Log {
    /// What this disk would have kept of the same run. A dropped sync is simply not there.
    pub fn on(&self, disk: WrongDisk) -> Log {
        let entries = self.entries.iter().filter_map(|entry| match entry {
            Entry::Sync { inode, purpose, .. } if disk.drops(inode.role, *purpose) => None,
            Entry::Sync { inode, flags, purpose, .. } if disk == WrongDisk::DirectorySyncDropped => Some(Entry::Sync {
                inode: *inode,
                flags: *flags,
                purpose: *purpose,
                directory: DirectorySync::NotSynced,
            }),
            Entry::Delete { inode, .. }
                if matches!(disk, WrongDisk::SyncsDoNothing | WrongDisk::DirectorySyncDropped) =>
            {
                Some(Entry::Delete { inode: *inode, directory: DirectorySync::NotSynced })
            }
            kept => Some(kept.clone()),
        });
        Log { initial: self.initial.clone(), entries: entries.collect() }
    }
}
