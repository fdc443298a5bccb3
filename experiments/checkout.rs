//! Where the frozen files are: in the checkout that this run belongs to.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the checkout: what `cargo run` says, else the nearest one around the current folder, else the one
/// around the executable. A path from the time of the build would be wrong for a copied binary or a moved checkout.
pub fn find() -> Result<PathBuf, String> {
    let told = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).filter(|folder| is_checkout(folder));
    let around = |path: Option<PathBuf>| {
        path.and_then(|path| path.ancestors().find(|folder| is_checkout(folder)).map(Path::to_owned))
    };
    told.or_else(|| around(env::current_dir().ok())).or_else(|| around(env::current_exe().ok())).ok_or_else(|| {
        "no checkout of durable-admission is around this folder or this executable; name the frozen file with --results PATH"
            .to_owned()
    })
}

fn is_checkout(folder: &Path) -> bool {
    fs::read_to_string(folder.join("Cargo.toml"))
        .is_ok_and(|text| text.lines().any(|line| line == "name = \"durable-admission\""))
}
