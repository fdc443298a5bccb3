//! `durable-admission audit DB`, the command for a person with a store of their own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use durable_admission::{Admission, Allowance, Limits, Request, Resolution, Store};

const LIMITS: Limits = Limits {
    global: Allowance { count: 4, bytes: 256 },
    tenant: Allowance { count: 2, bytes: 128 },
    payload_bytes: 96,
};

fn audit(database: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_durable-admission"));
    command.arg("audit").arg(database).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A store that holds two tasks of one tenant, and has ended one.
fn store(folder: &Path) -> Store {
    let mut store = Store::open(folder.join("own.db"), &LIMITS).expect("a store");
    for (request_id, payload) in [("one", "abc"), ("two", "de"), ("three", "")] {
        let admission = store.admit(Request { request_id, tenant: "a", payload }).expect("an answer");
        assert_eq!(admission, Admission::Accepted);
        if request_id == "one" {
            let claim = store.claim(0).expect("an answer").expect("a claim");
            assert_eq!(store.resolve(&claim.token, 1).expect("an answer"), Resolution::Done);
        }
    }
    store
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn a_sound_store_passes_and_is_left_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    store(folder.path()).close().expect("closed");
    let database = folder.path().join("own.db");
    let before = fs::read(&database).expect("bytes");
    let output = audit(&database);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).starts_with("PASS: all "));
    assert_eq!(names(folder.path()), ["own.db"]);
    assert_eq!(fs::read(&database).expect("bytes"), before);
}

#[test]
fn a_store_in_use_passes_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path());
    let output = audit(&folder.path().join("own.db"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(store.claim(2).expect("an answer").is_some());
}

#[test]
fn a_ledger_row_changed_by_hand_is_told_stored_against_recomputed() {
    for (change, told) in [
        ("UPDATE usage SET count = 3 WHERE tenant = ''", "all tenants: stored [3, 2], recomputed [2, 2]"),
        ("UPDATE usage SET bytes = 0 WHERE tenant = 'a'", "tenant a: stored [2, 0], recomputed [2, 2]"),
        ("DELETE FROM usage WHERE tenant = 'a'", "tenant a: stored [0, 0], recomputed [2, 2]"),
        ("INSERT INTO usage VALUES ('b', 1, 1)", "tenant b: stored [1, 1], recomputed [0, 0]"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        store(folder.path()).close().expect("closed");
        let database = folder.path().join("own.db");
        rusqlite::Connection::open(&database).expect("the file").execute(change, []).expect("changed");
        let before = fs::read(&database).expect("bytes");
        let output = audit(&database);
        assert_eq!(output.status.code(), Some(1), "{change}");
        let said = text(&output.stdout);
        assert!(said.contains("the usage ledger equals the sum over outstanding tasks"), "{said}");
        assert!(said.contains(told), "{said}");
        assert!(said.lines().last().is_some_and(|line| line.starts_with("FAIL: 1 of ")), "{said}");
        assert_eq!(fs::read(&database).expect("bytes"), before, "an audit mends nothing");
    }
}

#[test]
fn what_is_no_store_is_exit_2_and_a_sentence_and_nothing_is_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("empty"), "").expect("a file");
    fs::write(at("text"), "no database, but long enough to be read as the header of one, which it is not".repeat(3))
        .expect("a file");
    fs::create_dir(at("folder")).expect("a folder");
    let foreign = rusqlite::Connection::open(at("foreign.db")).expect("a database");
    foreign.execute_batch("CREATE TABLE t (x); PRAGMA application_id = 7").expect("its table");
    foreign.close().expect("closed");
    let before = names(folder.path());
    for (name, told) in [
        ("missing", "unable to open"),
        ("empty", "this is no store (application id 0"),
        ("text", "not a database"),
        ("folder", "cannot be audited"),
        ("foreign.db", "this is no store (application id 7"),
    ] {
        let output = audit(&at(name));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.starts_with("error: ") && said.contains(told) && said.contains("; give "), "{name}: {said}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(names(folder.path()), before);
}

/// A backup, a read-only mount, somebody else's folder.
#[test]
fn a_store_in_a_folder_that_may_not_be_written_is_audited_all_the_same() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("copy");
    fs::copy(env!("CARGO_BIN_EXE_durable-admission"), &program).expect("a copy");
    let own = folder.path().join("a store #1%");
    fs::create_dir(&own).expect("a folder");
    store(&own).close().expect("closed");
    for path in [folder.path(), &own] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).expect("set");
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .arg("audit")
        .arg(own.join("own.db"));
    let output = match command.output() {
        Ok(output) if nix::unistd::geteuid().is_root() => output,
        // Who may write nowhere else needs nobody else.
        Ok(_) | Err(_) => Command::new(&program).arg("audit").arg(own.join("own.db")).output().expect("it starts"),
    };
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(names(&own), ["own.db"]);
    for path in [folder.path(), &own] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }
}
