//! A frozen file from disk. Whatever is wrong with it is one sentence, and nothing is ever created here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use thiserror::Error;

use super::Subject;
use super::read::{Document, ReadError, Value};

/// No frozen file comes near this many bytes.
const LARGEST_BYTES: u64 = 64 << 20;

/// Why there is no baseline to compare with. The text names the file and says what to do.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error(
        "{path}: there is no such file; run without --check to create it, and review what it says"
    )]
    Absent { path: PathBuf },
    #[error(
        "{path}: this symbolic link leads to no file; mend it, or remove it and run without --check"
    )]
    LeadsNowhere { path: PathBuf },
    #[error(
        "{path}: this is {what}, not a file; move it away and run without --check to create the file, and review"
    )]
    NotAFile { path: PathBuf, what: &'static str },
    #[error(
        "{path}: the file is larger than {LARGEST_BYTES} bytes; restore it from version control"
    )]
    TooLarge { path: PathBuf },
    #[error("{path}: the file can't be read ({source}); make it readable and check again")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    NotStrictJson { path: PathBuf, source: ReadError },
    #[error(
        "{path}: there is no object at /{member}, so this is no file of ours ({found} at the root); \
         restore it from version control, or run without --check to write it anew, and review"
    )]
    NotOurs {
        path: PathBuf,
        member: &'static str,
        found: &'static str,
    },
}

/// Reads the baseline at `path`; symbolic links are followed. Waits for no writer of a FIFO and touches no device.
pub fn load(path: &Path, subject: Subject) -> Result<Document, LoadError> {
    let at = || path.to_path_buf();
    let bytes = read_regular(path)?;
    let document =
        Document::read(&bytes).map_err(|source| LoadError::NotStrictJson { path: at(), source })?;
    match document
        .root()
        .member(subject.member)
        .map(|node| &node.value)
    {
        Some(Value::Object(_)) => Ok(document),
        Some(_) | None => Err(LoadError::NotOurs {
            path: at(),
            member: subject.member,
            found: document.root().value.type_name(),
        }),
    }
}

fn read_regular(path: &Path) -> Result<Vec<u8>, LoadError> {
    let at = || path.to_path_buf();
    let unreadable = |source: io::Error| match source.kind() {
        ErrorKind::NotFound if fs::symlink_metadata(path).is_ok() => {
            LoadError::LeadsNowhere { path: at() }
        }
        ErrorKind::NotFound => LoadError::Absent { path: at() },
        _ => LoadError::Unreadable { path: at(), source },
    };
    // Asked before opening, since opening a device may already do something.
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() {
            "a directory"
        } else {
            "a pipe, socket or device"
        };
        return Err(LoadError::NotAFile { path: at(), what });
    }
    // Not blocking, should it have become a FIFO meanwhile.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file: File = options.open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST_BYTES {
        return Err(LoadError::TooLarge { path: at() });
    }
    Ok(bytes)
}
