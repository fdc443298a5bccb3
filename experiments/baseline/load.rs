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
    #[error("{path}: there is no such file; run without --check to create it, and review what it says")]
    Absent { path: PathBuf },
    #[error("{path}: this symbolic link leads to no file; mend it, or remove it and run without --check")]
    LeadsNowhere { path: PathBuf },
    #[error("{path}: this is {what}, not a file; move it away and run without --check to create the file, and review")]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("{path}: the file is larger than {LARGEST_BYTES} bytes; restore it from version control")]
    TooLarge { path: PathBuf },
    #[error("{path}: the file can't be read ({source}); make it readable and check again")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    NotStrictJson { path: PathBuf, source: ReadError },
    #[error(
        "{path}: there is no object at /{member}, so this is no file of ours ({found} at the root); \
         restore it from version control, or move it away and run without --check to write it anew, and review"
    )]
    NotOurs { path: PathBuf, member: &'static str, found: &'static str },
}

/// Reads the baseline at `path`; symbolic links are followed. Waits for no writer of a FIFO and touches no device.
pub fn load(path: &Path, subject: Subject) -> Result<Document, LoadError> {
    let at = || path.to_path_buf();
    let bytes = read_regular(path)?;
    let document = Document::read(&bytes).map_err(|source| LoadError::NotStrictJson { path: at(), source })?;
    match document.root().member(subject.member).map(|node| &node.value) {
        Some(Value::Object(_)) => Ok(document),
        Some(_) | None => {
            Err(LoadError::NotOurs { path: at(), member: subject.member, found: document.root().value.type_name() })
        }
    }
}

fn read_regular(path: &Path) -> Result<Vec<u8>, LoadError> {
    let at = || path.to_path_buf();
    let unreadable = |source: io::Error| match source.kind() {
        ErrorKind::NotFound if fs::symlink_metadata(path).is_ok() => LoadError::LeadsNowhere { path: at() },
        ErrorKind::NotFound => LoadError::Absent { path: at() },
        _ => LoadError::Unreadable { path: at(), source },
    };
    // Asked before opening, since opening a device may already do something.
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "a pipe, socket or device" };
        return Err(LoadError::NotAFile { path: at(), what });
    }
    // Not blocking, should it have become a FIFO meanwhile.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file: File = options.open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST_BYTES {
        return Err(LoadError::TooLarge { path: at() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::GROUPS;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// The sentence about the file, after its path, which must start it.
    fn refused(path: &Path) -> String {
        let error = load(path, GROUPS).expect_err("this must not load").to_string();
        let path = format!("{}: ", path.display());
        error.strip_prefix(&path).unwrap_or_else(|| panic!("{error}")).to_string()
    }

    /// A folder whose only file has that content.
    fn with(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("results.json");
        fs::write(&file, content).expect("a file");
        (folder, file)
    }

    #[test]
    fn a_missing_file_is_named_and_not_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("results.json");
        assert_eq!(refused(&file), "there is no such file; run without --check to create it, and review what it says");
        symlink("nowhere", &file).expect("a link");
        assert!(refused(&file).starts_with("this symbolic link leads to no file; "));
        fs::remove_file(&file).expect("the link");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }

    #[test]
    fn what_is_no_object_with_our_member_can_not_be_checked() {
        for (content, found) in [
            ("{}", "object"),
            ("null", "null"),
            ("[]", "array"),
            ("[{\"groups\": {}}]", "array"),
            ("{\"groups\": []}", "object"),
            ("{\"groups\": null}", "object"),
            ("{\"sweeps\": {}}", "object"),
            ("7", "integer"),
        ] {
            let (_folder, file) = with(content.as_bytes());
            let expected = format!("there is no object at /groups, so this is no file of ours ({found} at the root); ");
            assert!(refused(&file).starts_with(&expected), "{content}");
            assert_eq!(fs::read(&file).expect("the file"), content.as_bytes());
        }
    }

    #[test]
    fn what_is_no_strict_json_is_named_with_line_and_column() {
        for (content, expected) in [
            (&b""[..], "line 1, column 1, at the root: the text is empty; "),
            (b"\xef\xbb\xbf{}", "line 1, column 1, at the root: the text starts with a byte order mark; "),
            (b"{\"groups\":\n{\"\xff\"", "line 2, column 3, at the root: byte 13 (from 0) is not UTF-8; "),
            (b"{\"groups\": {", "line 1, column 13, at /groups: the text ends in the middle of a value"),
        ] {
            let (_folder, file) = with(content);
            assert!(refused(&file).starts_with(expected), "{}", refused(&file));
        }
    }

    #[test]
    fn directories_pipes_and_devices_are_refused_without_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(refused(folder.path()).starts_with("this is a directory, not a file; "));
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        assert!(refused(&fifo).starts_with("this is a pipe, socket or device, not a file; "));
        assert!(refused(Path::new("/dev/zero")).starts_with("this is a pipe, socket or device, not a file; "));
    }

    #[test]
    fn a_file_under_a_file_or_without_permission_is_unreadable() {
        let (_folder, file) = with(b"{\"groups\": {}}");
        assert!(refused(&file.join("below")).starts_with("the file can't be read ("));
        // Root reads everything, so only others can be refused.
        if !nix::unistd::geteuid().is_root() {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("chmod");
            assert!(refused(&file).starts_with("the file can't be read ("));
        }
    }

    #[test]
    fn a_file_too_large_to_be_ours_is_refused() {
        let (_folder, file) = with(b"");
        let grown_to = |bytes| {
            File::options().write(true).open(&file).and_then(|f| f.set_len(bytes)).expect("a sparse file");
            refused(&file)
        };
        assert!(grown_to(LARGEST_BYTES + 1).starts_with("the file is larger than "));
        assert!(grown_to(LARGEST_BYTES).starts_with("line 1, column 1, "), "it is read, and holds zeros");
    }

    #[test]
    fn a_link_to_a_good_file_loads() {
        let (folder, file) = with(b"{\"groups\": {\"a\": 1}}");
        let link = folder.path().join("link");
        symlink(&file, &link).expect("a link");
        assert_eq!(load(&link, GROUPS).expect("loads").entries("groups").len(), 1);
    }
}
