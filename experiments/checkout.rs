//! Where the frozen files are: in the checkout that this run belongs to.

use std::env;
use std::fs;
use std::io;
use std::io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, NotFound, PermissionDenied};
use std::path::{Path, PathBuf};

/// The folder of the checkout: what `cargo run` says, else the nearest one around the current folder, else the one
/// around the executable. A path from the time of the build would be wrong for a copied binary or a moved checkout.
///
/// # Errors
/// A sentence: there is none, or it can't be told whether this is one.
pub fn find() -> Result<PathBuf, String> {
    let around = |path: io::Result<PathBuf>| {
        path.map(|path| path.ancestors().map(Path::to_owned).collect::<Vec<_>>()).unwrap_or_default()
    };
    let told = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    for folder in told.into_iter().chain(around(env::current_dir())).chain(around(env::current_exe())) {
        if is_checkout(&folder)? {
            return Ok(folder);
        }
    }
    Err("no checkout of durable-admission is around this folder or this executable; name the frozen file with --results PATH"
        .to_owned())
}

fn is_checkout(folder: &Path) -> Result<bool, String> {
    let manifest = folder.join("Cargo.toml");
    match fs::read_to_string(&manifest) {
        Ok(text) => Ok(text.lines().any(|line| line == "name = \"durable-admission\"")),
        // Others have their own by that name, as they like.
        Err(error)
            if matches!(error.kind(), NotFound | NotADirectory | IsADirectory | PermissionDenied | InvalidData) =>
        {
            Ok(false)
        }
        Err(error) => Err(format!(
            "{}: it can't be told whether the checkout is there ({error}); see to that, or name the frozen file with --results PATH",
            manifest.display()
        )),
    }
}
