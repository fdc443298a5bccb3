//! What was run, on what: the digests, the commit, SQLite as a store of the library finds it, the machine.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use durable_admission::{Setting, Store};
use nix::sys::utsname::uname;
use sha2::{Digest, Sha256};

use super::{RESULTS, SWEEPS};
use crate::child::deadline;
use crate::fixture;
use crate::folder::Folder;
use crate::process::{Child, Exit, Start};

/// The lock file that this program was built with, whatever lies in the checkout now.
const LOCK: &[u8] = include_bytes!("../../Cargo.lock");

pub struct Surroundings {
    /// What can't be told is `None` throughout.
    pub results: Option<Sha256Hex>,
    pub sweeps: Option<Sha256Hex>,
    pub lock: Sha256Hex,
    pub binary: Option<Sha256Hex>,
    pub commit: Option<Commit>,
    pub sqlite: &'static str,
    /// Read back from a store that was just opened, or why there is none.
    pub settings: Result<Vec<Setting>, String>,
    pub kernel: Option<String>,
    /// Of the folder in which the databases lie.
    pub file_system: Option<String>,
    pub cores: Option<usize>,
}

/// Of the checkout.
pub struct Commit {
    pub id: String,
    pub tree: Tree,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    Clean,
    /// Something tracked differs, or something untracked is there.
    Changed,
}

/// In lower case.
pub type Sha256Hex = String;

impl Surroundings {
    pub fn look(checkout: &Path) -> Surroundings {
        let digest = |path: io::Result<PathBuf>| Some(sha256(&fs::read(path.ok()?).ok()?));
        let kernel = uname().ok().map(|name| {
            let parts = [name.sysname(), name.release(), name.machine()];
            parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
        });
        let store = Folder::create().map_err(|error| error.what).and_then(|folder| settings_in(&folder));
        let (settings, file_system) = match store {
            Ok((settings, file_system)) => (Ok(settings), file_system),
            Err(sentence) => (Err(sentence), None),
        };
        Surroundings {
            results: digest(Ok(checkout.join(RESULTS))),
            sweeps: digest(Ok(checkout.join(SWEEPS))),
            lock: sha256(LOCK),
            binary: digest(env::current_exe()),
            commit: commit_of(checkout),
            sqlite: rusqlite::version(),
            settings,
            kernel,
            file_system,
            cores: available_parallelism().ok().map(usize::from),
        }
    }
}

fn sha256(bytes: &[u8]) -> Sha256Hex {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn settings_in(folder: &Folder) -> Result<(Vec<Setting>, Option<String>), String> {
    let path = folder.database("settings").map_err(|error| error.what)?;
    let settings = Store::open(&path, &fixture::LIMITS).and_then(|store| store.settings());
    Ok((settings.map_err(|error| error.to_string())?, file_system_of(&path)))
}

fn commit_of(checkout: &Path) -> Option<Commit> {
    // Of this very folder: the repository of one around it would say nothing of what was run.
    let repository = [checkout.join(".git").into_os_string(), checkout.into()];
    let git = |arguments: &[&str]| {
        let [directory, tree] = &repository;
        let mut all = vec!["--no-optional-locks".into(), "-c".into(), "core.fsmonitor=false".into()];
        all.extend(["--git-dir".into(), directory.clone(), "--work-tree".into(), tree.clone()]);
        all.extend(arguments.iter().map(Into::into));
        let ended = Child::spawn(&Start::program("git", "git", all)).ok()?.finish(deadline()).ok()?;
        (ended.exit == Exit::Code(0)).then_some(ended.lines)
    };
    let id = git(&["rev-parse", "--verify", "HEAD"])?.pop()?;
    let tree = if git(&["status", "--porcelain"])?.is_empty() { Tree::Clean } else { Tree::Changed };
    Some(Commit { id, tree })
}

/// Its type, by the mounts that this process sees.
fn file_system_of(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path.parent()?).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    file_system_in(&mounts, &path)
}

/// Each line: ids, root, mount point, options, a dash, the type. The longest mount point that holds the path counts; of
/// two the later one, which lies on top.
fn file_system_in(mounts: &str, path: &Path) -> Option<String> {
    let holding = mounts.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = PathBuf::from(mount.split(' ').nth(4)?.replace("\\040", " "));
        path.starts_with(&point).then(|| (point.as_os_str().len(), file_system.split(' ').next()))
    });
    holding.max_by_key(|(length, _)| *length)?.1.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_is_the_file_system() {
        let mounts = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      22 21 0:5 / /tmp rw - tmpfs tmpfs rw\n\
                      23 22 0:6 / /tmp/with\\040space rw - xfs /dev/sdb rw\n\
                      24 21 0:7 / /tmp rw master:1 - overlay overlay rw\n";
        let of = |path| file_system_in(mounts, Path::new(path)).unwrap();
        assert_eq!(
            [of("/home"), of("/tmp/x"), of("/tmpx"), of("/tmp/with space/x")],
            ["ext4", "overlay", "ext4", "xfs"]
        );
        assert_eq!(file_system_in("nothing of the kind\n", Path::new("/")), None);
    }

    #[test]
    fn the_digest_is_that_of_fips_180() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
