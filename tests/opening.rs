//! Opening: a store is made or found, with the limits it has; what is not ours stays as it was, to the byte.
mod laboratory;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use durable_admission::{Error, Limits, OpenOptions, Result, Store};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use serde_json::json;

use laboratory::worker::{self, Worker};
use laboratory::{FIXTURE, Laboratory, ROOMY, accept, admit, claim, files, limits, request, size, usage};

#[test]
fn worker_process() {
    worker::serve();
}

fn open(path: &Path) -> Result<Store> {
    Store::open(path, &FIXTURE)
}

/// Not ours, and every file of the folder as it was, with none added. Twice: the first look may not be
/// what lets the second one in.
#[track_caller]
fn refused_untouched(laboratory: &Laboratory) {
    let before = files(laboratory.folder());
    for _ in 0..2 {
        match open(&laboratory.path()).map(drop) {
            Err(Error::NotOurs { .. }) => {}
            other => panic!("{other:?}"),
        }
        let after = files(laboratory.folder());
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
        let changed: Vec<_> =
            before.keys().filter(|name| !name.ends_with("-shm") && after[*name] != before[*name]).collect();
        assert!(changed.is_empty(), "{changed:?}");
    }
}

const FOREIGN: &str = "CREATE TABLE diary (day TEXT, entry TEXT); INSERT INTO diary VALUES ('monday', 'rain');";

#[test]
fn a_file_of_another_kind_is_refused_untouched() {
    let laboratory = Laboratory::new();
    let contents: [&[u8]; 8] = [
        b"x",
        b"a text of somebody's\n",
        b"SQLite format 3\0",
        b"SQLite format 2\0 and more",
        &[0; 4096],
        &[0xff; 5000],
        &[b'\n'; 100_000],
        b"\xef\xbb\xbf{}",
    ];
    for content in contents {
        fs::write(laboratory.path(), content).unwrap();
        refused_untouched(&laboratory);
    }
}

#[test]
fn another_programs_database_is_refused_untouched_in_every_journal_mode() {
    for mode in ["delete", "truncate", "persist", "wal"] {
        let laboratory = Laboratory::new();
        let foreign = laboratory.plain();
        foreign.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
        foreign.execute_batch(FOREIGN).unwrap();
        foreign.close().unwrap();
        refused_untouched(&laboratory);
    }
}

#[test]
fn another_programs_database_is_refused_untouched_whatever_marks_it() {
    for marks in [
        "PRAGMA application_id = 7;",
        "PRAGMA application_id = 7; CREATE TABLE t (x);",
        "PRAGMA user_version = 3;",
        "PRAGMA encoding = 'UTF-16'; CREATE TABLE t (x); DROP TABLE t;",
        "CREATE VIEW only_a_view AS SELECT 1;",
        // Looks like ours by its tables, but not by its mark.
        "CREATE TABLE store (id); CREATE TABLE intent (id); CREATE TABLE task (id);",
    ] {
        let laboratory = Laboratory::new();
        laboratory.tamper(marks);
        refused_untouched(&laboratory);
    }
}

/// Leaves a foreign database with its commits in a WAL that nobody moved into the file.
fn foreign_with_wal(laboratory: &Laboratory) {
    let foreign = laboratory.plain();
    foreign.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    foreign.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    foreign.execute_batch(FOREIGN).unwrap();
    foreign.close().unwrap();
    assert!(size(&laboratory.wal()) > 0);
}

#[test]
fn another_programs_database_with_a_wal_is_refused_untouched() {
    let laboratory = Laboratory::new();
    foreign_with_wal(&laboratory);
    refused_untouched(&laboratory);
    let found: String = laboratory.plain().query_row("SELECT entry FROM diary", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "rain");
}

#[test]
fn another_programs_database_with_a_wal_but_no_shared_memory_is_refused_untouched() {
    let laboratory = Laboratory::new();
    foreign_with_wal(&laboratory);
    fs::remove_file(laboratory.folder().join("store.db-shm")).unwrap();
    refused_untouched(&laboratory);
}

#[test]
fn another_programs_live_database_is_refused_and_goes_on() {
    let laboratory = Laboratory::new();
    let foreign = laboratory.plain();
    foreign.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    foreign.execute_batch(FOREIGN).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE; INSERT INTO diary VALUES ('tuesday', 'sun');").unwrap();
    for _ in 0..2 {
        assert!(matches!(open(&laboratory.path()), Err(Error::NotOurs { .. })));
    }
    foreign.execute_batch("COMMIT").unwrap();
    let entries: Vec<String> = laboratory::rows(&laboratory.plain(), "SELECT entry FROM diary");
    assert_eq!(entries, ["rain", "sun"]);
}

#[test]
fn another_programs_database_with_a_hot_journal_is_refused_untouched() {
    let source = Laboratory::new();
    let foreign = source.plain();
    foreign.execute_batch(FOREIGN).unwrap();
    // A transaction too large for its cache spills into the file, with the old pages in the journal.
    foreign
        .execute_batch(
            "PRAGMA cache_size = 1; BEGIN;
             INSERT INTO diary WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
                 SELECT n, hex(randomblob(50)) FROM n;
             UPDATE diary SET entry = 'sun';",
        )
        .unwrap();
    let laboratory = Laboratory::new();
    // Another process copies, so that this one does not lose its locks.
    let journal = source.folder().join("store.db-journal");
    assert!(Command::new("cp").arg(source.path()).arg(journal).arg(laboratory.folder()).status().unwrap().success());
    assert!(size(&laboratory.folder().join("store.db-journal")) > 512);
    refused_untouched(&laboratory);
    let entries: Vec<String> = laboratory::rows(&laboratory.plain(), "SELECT entry FROM diary");
    assert_eq!(entries, ["rain"]);
}

/// Somebody may be putting the store back into WAL mode; only what is still there at the end of the wait is dead.
#[test]
fn a_stores_own_rollback_journal_is_waited_for_and_a_dead_one_is_refused() {
    let source = Laboratory::new();
    source.open().close().unwrap();
    let plain = source.plain();
    plain.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).unwrap();
    // A transaction too large for its cache spills into the file, with the old pages in the journal.
    plain
        .execute_batch(
            "PRAGMA cache_size = 1; BEGIN;
             CREATE TABLE large AS WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
                 SELECT hex(randomblob(50)) FROM n;",
        )
        .unwrap();
    let laboratory = Laboratory::new();
    let journal = source.folder().join("store.db-journal");
    assert!(Command::new("cp").arg(source.path()).arg(journal).arg(laboratory.folder()).status().unwrap().success());
    let before = files(laboratory.folder());
    let options = OpenOptions { busy_timeout: Duration::from_millis(300) };
    let begun = Instant::now();
    let refused = Store::open_with(laboratory.path(), &FIXTURE, options).map(drop).unwrap_err();
    assert!(begun.elapsed() >= options.busy_timeout, "{:?}", begun.elapsed());
    assert!(refused.to_string().contains("this database has a rollback journal, which a store never has"), "{refused}");
    assert_eq!(files(laboratory.folder()), before);
}

#[test]
fn a_store_of_another_schema_version_is_refused_untouched() {
    for mode in ["wal", "delete"] {
        let laboratory = Laboratory::new();
        let mut store = laboratory.open();
        accept(&mut store, "a", "tenant", "");
        store.close().unwrap();
        let plain = laboratory.plain();
        plain.execute_batch("PRAGMA user_version = 2").unwrap();
        plain.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
        plain.close().unwrap();
        refused_untouched(&laboratory);
        let refused = open(&laboratory.path()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("this store has schema version 2, not 1; "), "{refused}");
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let laboratory = Laboratory::new();
    let folder = laboratory.folder();
    for (path, reason) in [(folder, "this is a folder"), (Path::new("/dev/null"), "this is no regular file")] {
        let refused = open(path).map(drop).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!("{}: {reason}; give the path of a store or of a file that does not exist yet", path.display())
        );
    }

    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let start = Instant::now();
    assert!(matches!(open(&pipe), Err(Error::NotOurs { .. })));
    assert!(start.elapsed() < Duration::from_secs(5), "opening a pipe waits for its other end");

    let file = folder.join("file");
    fs::write(&file, "text").unwrap();
    assert!(matches!(open(&file.join("store.db")), Err(Error::NotOurs { .. })));
    assert!(matches!(open(&folder.join("missing/store.db")), Err(Error::Unavailable(_))));
    symlink("loop", folder.join("loop")).unwrap();
    assert!(matches!(open(&folder.join("loop")), Err(Error::Unavailable(_))));
    let long = folder.join("x".repeat(300));
    assert!(matches!(open(&long), Err(Error::Unavailable(_))));

    assert_eq!(files(folder).keys().collect::<Vec<_>>(), ["file"]);
}

#[test]
fn a_path_that_sqlite_would_take_for_something_else_is_no_store_in_memory() {
    let laboratory = Laboratory::new();
    for path in ["", ":memory:", "a\0b"] {
        assert!(matches!(open(Path::new(path)), Err(Error::Input { field: "path", .. })), "{path:?}");
    }
    let mut worker = Worker::start();
    assert_eq!(worker.ask(json!(["enter", laboratory.folder()])), "entered");
    let names = ["file:uri.db", "file:memory.db?mode=memory", "file:unlocked.db?nolock=1", "plain.db", "./:memory:"];
    for name in names {
        assert_eq!(worker.ask(worker::open(Path::new(name), &FIXTURE)), "opened", "{name}");
        assert_eq!(worker.ask(worker::admit("a", "tenant", "")), "accepted");
        assert_eq!(worker.ask(worker::open(Path::new(name), &FIXTURE)), "opened", "{name}");
        assert_eq!(worker.ask(worker::admit("a", "tenant", "")), "replay", "{name}");
        assert_eq!(worker.ask(json!(["close"])), "closed");
    }
    worker.end();
    let mut expected = names.map(|name| name.trim_start_matches("./"));
    expected.sort_unstable();
    assert_eq!(files(laboratory.folder()).keys().collect::<Vec<_>>(), expected);
}

#[test]
fn any_file_name_will_do() {
    let laboratory = Laboratory::new();
    let folder = laboratory.folder().join("a folder/持久 准入");
    fs::create_dir_all(&folder).unwrap();
    let names: [&[u8]; 9] = [
        b"with space",
        b"100%",
        b"%41",
        b"what?mode=ro",
        b"#1",
        "受理.db".as_bytes(),
        b"'\"`",
        b"not \xff utf-8",
        b"-wal",
    ];
    for name in names {
        let path = folder.join(OsStr::from_bytes(name));
        for expected in ["accepted", "replay"] {
            let mut store = open(&path).unwrap();
            assert_eq!(store.path(), path);
            assert_eq!(admit(&mut store, "a", "tenant", "").name(), expected);
        }
        assert!(fs::metadata(&path).unwrap().is_file());
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), names.len());
}

#[test]
fn a_link_to_a_store_is_that_store() {
    let laboratory = Laboratory::new();
    let elsewhere = laboratory.folder().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let link = elsewhere.join("link.db");
    symlink(laboratory.path(), &link).unwrap();
    // The link dangles: the store is made where it points.
    let mut store = open(&link).unwrap();
    accept(&mut store, "a", "tenant", "");
    assert!(size(&laboratory.wal()) > 0);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    assert_eq!(admit(&mut laboratory.open(), "a", "tenant", "").name(), "replay");
    drop(store);

    let foreign = laboratory.folder().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch(FOREIGN).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&foreign, &link).unwrap();
    let before = fs::read(&foreign).unwrap();
    assert!(matches!(open(&link), Err(Error::NotOurs { .. })));
    assert_eq!(fs::read(&foreign).unwrap(), before);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[test]
fn what_may_not_be_written_is_unavailable() {
    let laboratory = Laboratory::new();
    if fs::metadata(laboratory.folder()).unwrap().uid() == 0 {
        println!("skipped: permissions do not bind root");
        return;
    }
    drop(laboratory.open());
    let forbid = |path: &Path| {
        let mut permissions = fs::metadata(path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(path, permissions).unwrap();
    };
    forbid(&laboratory.path());
    assert!(matches!(open(&laboratory.path()), Err(Error::Unavailable(_))));
    forbid(laboratory.folder());
    assert!(matches!(open(&laboratory.path()), Err(Error::Unavailable(_))));
    assert!(matches!(open(&laboratory.folder().join("new.db")), Err(Error::Unavailable(_))));
}

#[test]
fn an_empty_file_becomes_a_store() {
    let laboratory = Laboratory::new();
    fs::write(laboratory.path(), "").unwrap();
    accept(&mut laboratory.open(), "a", "tenant", "");
    assert_eq!(admit(&mut laboratory.open(), "a", "tenant", "").name(), "replay");
}

#[test]
fn a_closed_store_is_one_file_in_wal_mode() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    store.close().unwrap();
    assert_eq!(files(laboratory.folder()).keys().collect::<Vec<_>>(), ["store.db"]);
    let mode: String = laboratory.plain().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn a_store_taken_out_of_wal_mode_is_put_back_into_it() {
    let laboratory = Laboratory::new();
    accept(&mut laboratory.open(), "a", "tenant", "");
    laboratory.plain().pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).unwrap();
    accept(&mut laboratory.open(), "b", "tenant", "");
    let mode: String = laboratory.plain().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn other_limits_are_refused_in_each_of_the_five_and_nothing_changes() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    store.close().unwrap();
    let before = files(laboratory.folder());
    let others: [fn(&mut Limits); 6] = [
        |limits| limits.global.count += 1,
        |limits| limits.global.bytes -= 1,
        |limits| limits.tenant.count += 1,
        |limits| limits.tenant.bytes -= 1,
        |limits| limits.payload_bytes = 0,
        |limits| std::mem::swap(&mut limits.global, &mut limits.tenant),
    ];
    for change in others {
        let mut other = FIXTURE;
        change(&mut other);
        match Store::open(laboratory.path(), &other).map(drop) {
            Err(error @ Error::LimitsDiffer { .. }) => {
                let stored = "global 4 tasks / 256 bytes, tenant 2 tasks / 128 bytes, one payload 96 bytes";
                let start =
                    format!("{}: the store was created with {stored}, not with global ", laboratory.path().display());
                assert!(error.to_string().starts_with(&start), "{error}");
                let Error::LimitsDiffer { stored, given, path } = error else { unreachable!() };
                assert_eq!((*stored, *given, path), (FIXTURE, other, laboratory.path()));
            }
            answer => panic!("{answer:?}"),
        }
        assert_eq!(files(laboratory.folder()), before);
    }
    assert_eq!(laboratory.open().limits(), &FIXTURE);
}

#[test]
fn a_busy_timeout_beyond_what_sqlite_counts_is_refused() {
    let laboratory = Laboratory::new();
    for busy_timeout in [Duration::MAX, Duration::from_millis(1 << 31)] {
        let answer = Store::open_with(laboratory.path(), &FIXTURE, OpenOptions { busy_timeout });
        assert!(matches!(answer, Err(Error::Input { field: "busy timeout", .. })));
        assert!(files(laboratory.folder()).is_empty());
    }
    for busy_timeout in [Duration::ZERO, Duration::from_micros(1500), Duration::from_millis((1 << 31) - 1)] {
        drop(Store::open_with(laboratory.path(), &FIXTURE, OpenOptions { busy_timeout }).unwrap());
    }
}

#[test]
fn twelve_processes_that_make_one_store_at_the_same_instant_all_succeed() {
    let laboratory = Laboratory::new();
    let mut workers: Vec<Worker> = (0..12).map(|_| Worker::start()).collect();
    for round in 0..40 {
        let path = laboratory.folder().join(format!("round-{round}.db"));
        for worker in &mut workers {
            worker.tell(worker::open(&path, &FIXTURE));
        }
        for worker in &mut workers {
            assert_eq!(worker.hear(), "opened", "round {round}");
        }
        for (place, worker) in workers.iter_mut().enumerate() {
            worker.tell(worker::admit(&format!("id-{place}"), &format!("tenant-{place}"), "x"));
        }
        let answers: Vec<String> = workers.iter_mut().map(Worker::hear).collect();
        let counted = |name: &str| answers.iter().filter(|answer| *answer == name).count();
        assert_eq!((counted("accepted"), counted("global_full")), (4, 8), "round {round}: {answers:?}");
        for worker in &mut workers {
            assert_eq!(worker.ask(json!(["close"])), "closed");
        }
        assert_eq!(open(&path).unwrap().usage().unwrap(), usage(4, 4));
    }
}

#[test]
fn twelve_processes_that_put_one_store_back_into_wal_mode_all_succeed() {
    let laboratory = Laboratory::new();
    accept(&mut laboratory.open(), "a", "tenant", "");
    let mut workers: Vec<Worker> = (0..12).map(|_| Worker::start()).collect();
    for round in 0..20 {
        laboratory.plain().pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).unwrap();
        for worker in &mut workers {
            worker.tell(worker::open(&laboratory.path(), &FIXTURE));
        }
        for worker in &mut workers {
            assert_eq!(worker.hear(), "opened", "round {round}");
        }
        for worker in &mut workers {
            assert_eq!(worker.ask(json!(["close"])), "closed");
        }
    }
}

/// Another writer keeps the file from going into WAL mode, for which SQLite itself does not wait.
#[test]
fn a_store_that_is_kept_out_of_wal_mode_is_waited_for_and_then_busy() {
    let laboratory = Laboratory::new();
    laboratory.open().close().unwrap();
    let writer = laboratory.plain();
    writer.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let options = OpenOptions { busy_timeout: Duration::from_millis(400) };
    let begun = Instant::now();
    let answer = Store::open_with(laboratory.path(), &FIXTURE, options).map(drop);
    assert!(matches!(answer, Err(Error::Busy(_))), "{answer:?}");
    // It gives up when the next pause would end too late, and none is longer than a twentieth of this.
    assert!(begun.elapsed() >= options.busy_timeout / 2, "{:?}", begun.elapsed());
    writer.execute_batch("COMMIT").unwrap();
    laboratory.open().close().unwrap();
}

#[test]
fn processes_that_make_one_store_with_different_limits_agree_on_one_of_them() {
    let laboratory = Laboratory::new();
    let mut workers: Vec<Worker> = (0..6).map(|_| Worker::start()).collect();
    for round in 0..20 {
        let path = laboratory.folder().join(format!("round-{round}.db"));
        for (place, worker) in workers.iter_mut().enumerate() {
            worker.tell(worker::open(&path, if place % 2 == 0 { &FIXTURE } else { &ROOMY }));
        }
        let opened: Vec<bool> = workers
            .iter_mut()
            .map(|worker| match worker.hear() {
                answer if answer == "opened" => true,
                answer if answer.starts_with("error: LimitsDiffer") => false,
                other => panic!("round {round}: {other}"),
            })
            .collect();
        let expected: Vec<bool> = (0..6).map(|place| (place % 2 == 0) == opened[0]).collect();
        assert_eq!(opened, expected, "round {round}");
        for (worker, opened) in workers.iter_mut().zip(opened) {
            if opened {
                assert_eq!(worker.ask(json!(["close"])), "closed");
            }
        }
    }
}

#[test]
fn a_store_whose_making_was_killed_is_made_again() {
    let laboratory = Laboratory::new();
    let mut blank = 0;
    for round in 0..40_u32 {
        let path = laboratory.folder().join(format!("round-{round}.db"));
        let mut worker = Worker::start();
        // Once for the answer, so that the process is up before the one that counts.
        assert_eq!(worker.ask(json!(["enter", laboratory.folder()])), "entered");
        worker.tell(worker::open(&path, &FIXTURE));
        let until = Instant::now() + Duration::from_micros(100) * round;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        worker.kill();
        let size = size(&path);
        blank += usize::from(size == 0);
        let mut store = open(&path).unwrap_or_else(|error| panic!("round {round}, {size} bytes: {error}"));
        assert_eq!(store.usage().unwrap(), usage(0, 0));
        accept(&mut store, "a", "tenant", "");
    }
    println!("{blank} of 40 rounds left an empty file or none");
}

/// What a power cut may leave of a making, as files: whole, without the WAL, without the file.
#[test]
fn a_store_of_which_only_a_part_was_written_is_found_or_made_again() {
    let source = Laboratory::new();
    let worker = Worker::opened(&source.path(), &FIXTURE);
    worker.kill();
    let image = files(source.folder());
    assert!(!image["store.db-wal"].is_empty());
    for (parts, found) in [
        (["store.db", "store.db-wal"].as_slice(), true),
        (&["store.db"], false),
        (&["store.db-wal"], false),
        (&[], false),
    ] {
        for empty_file in [false, true] {
            let laboratory = Laboratory::new();
            if empty_file {
                fs::write(laboratory.path(), "").unwrap();
            }
            for part in parts {
                fs::write(laboratory.folder().join(part), &image[*part]).unwrap();
            }
            // Other limits are refused by a store that was made, and go with one that is made now.
            let answer = Store::open(laboratory.path(), &ROOMY);
            match (found, answer.map(drop)) {
                (true, Err(Error::LimitsDiffer { .. })) | (false, Ok(())) => {}
                (_, other) => panic!("{parts:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_second_store_in_one_process_does_not_let_go_of_the_first_ones_locks() {
    let laboratory = Laboratory::new();
    let mut first = laboratory.open();
    accept(&mut first, "a", "tenant", "");
    for _ in 0..3 {
        assert!(Store::open(laboratory.path(), &ROOMY).is_err());
        drop(laboratory.open());
    }
    // To the worker the first one has to be visible still: who closes last removes the WAL.
    let worker = Worker::opened(&laboratory.path(), &FIXTURE);
    worker.end();
    assert!(size(&laboratory.wal()) > 0, "a stranger took the WAL away");
    accept(&mut first, "b", "tenant", "");
    first.close().unwrap();
    assert_eq!(laboratory.open().snapshot().unwrap().tasks.len(), 2);
}

#[test]
fn a_truncated_store_is_an_error_and_no_panic() {
    let source = Laboratory::with(ROOMY);
    let mut store = source.open();
    for number in 0..200 {
        accept(&mut store, &format!("id-{number}"), "tenant", &"x".repeat(300));
    }
    store.close().unwrap();
    let whole = fs::read(source.path()).unwrap();
    for length in [1, 100, 1024, 4096, 4097, 8192, whole.len() / 2, whole.len() - 4096] {
        let laboratory = Laboratory::with(ROOMY);
        fs::write(laboratory.path(), &whole[..length]).unwrap();
        let error = every_verb(&laboratory).map(|()| panic!("{length} of {}", whole.len())).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_) | Error::NotOurs { .. }), "{length}: {error:?}");
    }
}

/// The mark of ours stands in the header; what comes after it has to be read to see the damage.
#[test]
fn a_damaged_store_is_not_taken_for_somebody_elses() {
    let laboratory = Laboratory::new();
    laboratory.open().close().unwrap();
    let mut torn = fs::read(laboratory.path()).unwrap();
    torn[100..4096].fill(0xff);
    fs::write(laboratory.path(), &torn).unwrap();
    let answer = open(&laboratory.path()).map(drop);
    assert!(matches!(answer, Err(Error::Corrupt(_))), "{answer:?}");
    assert!(fs::read(laboratory.path()).unwrap() == torn, "the damaged file was changed");
}

/// Beside shared memory the first look leaves it to the one under lock, which has to see the same.
#[test]
fn a_file_of_another_kind_is_refused_beside_a_stores_companions_too() {
    let source = Laboratory::new();
    Worker::opened(&source.path(), &FIXTURE).kill();
    let laboratory = Laboratory::new();
    for (name, content) in files(source.folder()) {
        fs::write(laboratory.folder().join(name), content).unwrap();
    }
    fs::write(laboratory.path(), [b'\n'; 100_000]).unwrap();
    fs::write(laboratory.wal(), [b'\n'; 100]).unwrap();
    assert!(laboratory.folder().join("store.db-shm").exists());
    refused_untouched(&laboratory);
}

#[test]
fn a_page_of_garbage_is_an_error_and_no_panic() {
    let source = Laboratory::with(ROOMY);
    let mut store = source.open();
    for number in 0..40 {
        accept(&mut store, &format!("id-{number}"), "tenant", &"x".repeat(300));
    }
    store.close().unwrap();
    let whole = fs::read(source.path()).unwrap();
    let mut answered = 0;
    for page in 0..whole.len() / 4096 {
        for garbage in [0x00, 0xff, 0x0d] {
            let laboratory = Laboratory::with(ROOMY);
            let mut torn = whole.clone();
            torn[page * 4096..(page + 1) * 4096].fill(garbage);
            fs::write(laboratory.path(), torn).unwrap();
            match every_verb(&laboratory) {
                // The page was one that these verbs do not read.
                Ok(()) => answered += 1,
                Err(Error::Corrupt(_) | Error::NotOurs { .. } | Error::Sqlite(_)) => {}
                Err(other) => panic!("page {page}: {other:?}"),
            }
        }
    }
    assert!(answered < whole.len() / 4096, "{answered}");
}

fn every_verb(laboratory: &Laboratory) -> Result<()> {
    let mut store = Store::open(laboratory.path(), &ROOMY)?;
    let _ = store.admit(request("id-0", "tenant", ""))?;
    let _ = store.admit(request("new", "tenant", ""))?;
    let _ = store.cancel_unstarted("id-7")?;
    if let Some(claim) = store.claim(0)? {
        let _ = store.quarantine(&claim.token, 0)?;
        let _ = store.redrive(&claim.token)?;
    }
    if let Some(claim) = store.claim(0)? {
        let _ = store.resolve(&claim.token, 0)?;
    }
    store.status("id-9")?;
    store.snapshot().map(drop)
}

#[test]
fn a_store_without_its_tables_or_its_limits_is_damaged() {
    for sql in ["DROP TABLE store", "DELETE FROM store"] {
        let laboratory = Laboratory::new();
        drop(laboratory.open());
        laboratory.tamper(sql);
        let error = open(&laboratory.path()).map(drop).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{sql}: {error:?}");
    }
}

#[test]
fn an_opened_store_may_move_to_another_thread() {
    let laboratory = Laboratory::with(limits((1, 1), (1, 1), 1));
    let mut store = laboratory.open();
    let claimed = std::thread::spawn(move || {
        accept(&mut store, "a", "tenant", "x");
        claim(&mut store, 0)
    });
    assert_eq!(claimed.join().unwrap().payload, "x");
}
