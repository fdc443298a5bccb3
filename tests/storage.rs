//! SQLite and the disk beneath: writers in turn, failing writes, failing statements, lost files.
mod laboratory;

use std::fs;
use std::process::Command;

use durable_admission::{Cancellation, Error, Store, Token};
use serde_json::json;

use laboratory::worker::{self, Worker};
use laboratory::{
    FIXTURE, Laboratory, ROOMY, accept, admit, brief, claim, files, logical_dump, request, rows, size, usage,
};

#[test]
fn worker_process() {
    worker::serve();
}

/// A deferred transaction that turns into a writing one fails at once, whatever the busy timeout.
#[test]
fn sixteen_writers_wait_for_each_other_and_none_is_told_busy() {
    // Of seven writing verbs or so: a thousand transactions for each writer.
    const ROUNDS: u64 = 150;
    let laboratory = Laboratory::fast(ROOMY);
    let mut workers: Vec<Worker> = (0..16).map(|_| Worker::opened(&laboratory.path(), &ROOMY)).collect();
    for (place, worker) in workers.iter_mut().enumerate() {
        worker.tell(json!(["churn", format!("writer-{place}"), ROUNDS]));
    }
    for worker in &mut workers {
        assert_eq!(worker.hear(), "churned");
    }
    workers.into_iter().for_each(Worker::end);
    let snapshot = laboratory.open().snapshot().unwrap();
    assert_eq!(snapshot.intents, 16 * ROUNDS * 2);
    assert_eq!(snapshot.usage, laboratory.recomputed_usage());
    let done = snapshot.tasks.iter().filter(|task| task.state.name() == "done").count();
    assert_eq!(snapshot.effects, done as u64);
}

/// The lock is free for moments only, as each commit syncs and its writer comes back at once.
#[test]
fn twelve_writers_on_a_disk_that_syncs_are_all_answered_within_the_default_busy_timeout() {
    const EACH: u64 = 400;
    let laboratory = Laboratory::with(ROOMY);
    let mut workers: Vec<Worker> = (0..12).map(|_| Worker::start()).collect();
    for worker in &mut workers {
        assert_eq!(worker.ask(worker::open_by_default(&laboratory.path(), &ROOMY)), "opened");
    }
    for (place, worker) in workers.iter_mut().enumerate() {
        worker.tell(json!(["admit_many", format!("writer-{place}"), EACH]));
    }
    for worker in &mut workers {
        assert_eq!(worker.hear(), "admitted");
    }
    workers.into_iter().for_each(Worker::end);
    let snapshot = laboratory.open().snapshot().unwrap();
    assert_eq!((snapshot.intents, snapshot.usage), (12 * EACH, laboratory.recomputed_usage()));
}

#[test]
fn a_reader_left_open_lets_the_wal_grow_and_its_end_bounds_it_again() {
    let laboratory = Laboratory::fast(ROOMY);
    let mut store = laboratory.open();
    let mut cycle = |name: &str| {
        for number in 0..1_500 {
            let id = format!("{name}-{number}");
            accept(&mut store, &id, "tenant", "");
            assert_eq!(store.cancel_unstarted(&id).unwrap(), Cancellation::Cancelled);
        }
        size(&laboratory.wal())
    };
    let alone = cycle("alone");
    let reader = laboratory.plain();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task;").unwrap();
    let with_reader = cycle("with-reader");
    assert!(with_reader > 2 * alone, "{alone} then {with_reader}: the reader should hold the WAL");
    reader.execute_batch("COMMIT").unwrap();
    // The file keeps its size and is written from its start again.
    let after = cycle("after");
    assert!(after < with_reader + alone, "{with_reader} then {after}");
    drop(reader);
    store.close().unwrap();
    assert_eq!(files(laboratory.folder()).keys().collect::<Vec<_>>(), ["store.db"]);
}

#[test]
fn sqlite_is_without_the_wal_reset_fault() {
    assert!(rusqlite::version_number() >= 3_051_003, "SQLite {}", rusqlite::version());
}

/// Every limit from no new byte to far past one transaction; a write that the limit cuts leaves half a
/// frame in the WAL.
#[test]
fn a_write_that_the_disk_cuts_short_is_no_answer_and_loses_nothing_acknowledged() {
    let mut failed = 0;
    for step in 0..48 {
        let laboratory = Laboratory::with(ROOMY);
        let mut worker = Worker::start_ignoring_file_size_signal();
        assert_eq!(worker.ask(worker::open(&laboratory.path(), &ROOMY)), "opened");
        assert_eq!(worker.ask(worker::admit("before", "tenant", "x")), "accepted");
        let room = size(&laboratory.wal()) + step * 1200;
        assert_eq!(worker.ask(json!(["limit_file_size", room])), "limited");
        let cut = worker.ask(worker::admit("cut", "tenant", &"y".repeat(9000)));
        assert_eq!(worker.ask(json!(["limit_file_size", null])), "limited");
        let again = worker.ask(worker::admit("cut", "tenant", &"y".repeat(9000)));
        if cut == "accepted" {
            assert_eq!(again, "replay", "step {step}");
        } else {
            // Of its own kind, and never a full budget.
            assert!(cut.starts_with("error: OutcomeUnknown(Io(") || cut.starts_with("error: Io("), "{cut}");
            assert_eq!(again, "accepted", "step {step}: with room it works again");
            failed += 1;
        }
        assert_eq!(worker.ask(worker::admit("after", "tenant", "z")), "accepted");
        worker.kill();
        let store = laboratory.open();
        assert_eq!(brief(&store.snapshot().unwrap()), ["before:queued:0", "cut:queued:0", "after:queued:0"]);
        assert_eq!((store.usage().unwrap(), laboratory.recomputed_usage()), (usage(3, 9002), usage(3, 9002)));
    }
    assert!((20..48).contains(&failed), "{failed} of 48 limits were too low");
}

/// As above, with the death right after the failure: what is there is all of the request or nothing, and
/// the same id tells which.
#[test]
fn a_process_that_dies_after_a_failed_write_leaves_all_of_it_or_nothing() {
    for step in 0..24 {
        let laboratory = Laboratory::with(ROOMY);
        let mut worker = Worker::start_ignoring_file_size_signal();
        assert_eq!(worker.ask(worker::open(&laboratory.path(), &ROOMY)), "opened");
        assert_eq!(worker.ask(worker::admit("before", "tenant", "x")), "accepted");
        let room = size(&laboratory.wal()) + step * 2400;
        assert_eq!(worker.ask(json!(["limit_file_size", room])), "limited");
        let heard = worker.ask(worker::admit("cut", "tenant", &"y".repeat(9000)));
        worker.kill();
        let mut store = laboratory.open();
        let found = brief(&store.snapshot().unwrap()).len() == 2;
        let retried = admit(&mut store, "cut", "tenant", &"y".repeat(9000)).name();
        assert_eq!(retried, if found { "replay" } else { "accepted" });
        assert!(found || heard != "accepted", "step {step}: an acknowledged request is gone");
        assert_eq!(laboratory.recomputed_usage(), usage(2, 9001));
    }
}

#[test]
fn a_disk_without_room_makes_no_store_and_the_next_opening_with_room_does() {
    let mut failed = 0;
    for room in (0..60_000).step_by(4_000) {
        let laboratory = Laboratory::with(ROOMY);
        let mut worker = Worker::start_ignoring_file_size_signal();
        assert_eq!(worker.ask(json!(["limit_file_size", room])), "limited");
        let answer = worker.ask(worker::open(&laboratory.path(), &ROOMY));
        failed += usize::from(answer != "opened");
        let storage = ["opened", "error: Io(", "error: OutcomeUnknown(Io(", "error: Unavailable("];
        assert!(storage.iter().any(|start| answer.starts_with(start)), "room {room}: {answer}");
        assert_eq!(worker.ask(json!(["limit_file_size", null])), "limited");
        assert_eq!(worker.ask(worker::open(&laboratory.path(), &ROOMY)), "opened", "room {room}");
        assert_eq!(worker.ask(worker::admit("a", "tenant", "")), "accepted");
    }
    assert!((3..15).contains(&failed), "{failed} of 15 limits were too low");
}

/// Plants a trigger on each table that a verb writes, so that each of its statements fails in turn.
#[test]
fn a_statement_that_fails_or_does_nothing_takes_the_whole_verb_with_it() {
    type Verb = fn(&mut Store) -> Result<(), Error>;
    let admit: Verb = |store| store.admit(request("new", "tenant", "xyz")).map(drop);
    let claim_next: Verb = |store| store.claim(2).map(drop);
    let resolve: Verb = |store| store.resolve(&inflight(), 2).map(drop);
    let set_aside: Verb = |store| store.quarantine(&inflight(), 2).map(drop);
    let redrive: Verb = |store| store.redrive(&quarantined()).map(drop);
    let cancel: Verb = |store| store.cancel_unstarted("queued").map(drop);
    for (verb, events) in [
        (admit, &["INSERT ON intent", "INSERT ON task", "INSERT ON usage", "UPDATE ON usage"][..]),
        (claim_next, &["UPDATE ON store", "UPDATE ON task"]),
        (resolve, &["UPDATE ON store", "INSERT ON effect", "UPDATE ON task", "UPDATE ON usage"]),
        (set_aside, &["UPDATE ON store", "UPDATE ON task"]),
        (redrive, &["UPDATE ON task"]),
        (cancel, &["UPDATE ON task", "UPDATE ON usage"]),
    ] {
        for event in events {
            for outcome in ["ABORT, 'planted'", "FAIL, 'planted'", "ROLLBACK, 'planted'", "IGNORE"] {
                let laboratory = Laboratory::fast(ROOMY);
                let mut store = laboratory::one_of_each(&laboratory);
                let plain = laboratory.plain();
                let before = (store.snapshot().unwrap(), logical_dump(&plain));
                // A separate connection plants it, as a fault of the schema would.
                plain
                    .execute_batch(&format!("CREATE TRIGGER planted BEFORE {event} BEGIN SELECT RAISE({outcome}); END"))
                    .unwrap();
                let error = verb(&mut store).expect_err(&format!("{event} {outcome}"));
                assert!(matches!(error, Error::Corrupt(_)), "{event} {outcome}: {error:?}");
                assert_eq!((store.snapshot().unwrap(), logical_dump(&plain)), before, "{event} {outcome}");
                plain.execute_batch("DROP TRIGGER planted").unwrap();
                verb(&mut store).unwrap();
                assert_ne!(store.snapshot().unwrap(), before.0, "{event}");
                assert_eq!(store.usage().unwrap(), laboratory.recomputed_usage());
            }
        }
    }
}

/// The claims that `one_of_each` leaves.
fn inflight() -> Token {
    Token { request_id: "inflight".to_owned(), generation: 1 }
}

fn quarantined() -> Token {
    Token { request_id: "quarantined".to_owned(), generation: 1 }
}

#[test]
fn a_ledger_without_its_rows_is_damage_and_no_room() {
    for (tamper, tenant_is_new) in [("DELETE FROM usage WHERE tenant = ''", false), ("DELETE FROM usage", true)] {
        let laboratory = Laboratory::new();
        let mut store = laboratory.open();
        accept(&mut store, "a", "tenant", "");
        accept(&mut store, "b", "tenant", "");
        let claimed = claim(&mut store, 0).token;
        laboratory.tamper(tamper);
        let tenant = if tenant_is_new { "new" } else { "tenant" };
        let errors = [
            store.admit(request("c", tenant, "")).map(drop).unwrap_err(),
            store.resolve(&claimed, 0).map(drop).unwrap_err(),
            store.cancel_unstarted("b").map(drop).unwrap_err(),
            store.usage().map(drop).unwrap_err(),
            store.snapshot().map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
        }
        let states: Vec<String> = rows(&laboratory.plain(), "SELECT state FROM task ORDER BY sequence");
        assert_eq!(states, ["inflight", "queued"]);
    }
}

#[test]
fn every_table_is_strict_and_no_statement_swallows_a_violation() {
    let laboratory = Laboratory::new();
    drop(laboratory.open());
    let lax = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND NOT strict AND name NOT LIKE 'sqlite_%'";
    assert!(rows::<String>(&laboratory.plain(), lax).is_empty());
    let tables = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND strict ORDER BY name";
    assert_eq!(rows::<String>(&laboratory.plain(), tables), ["effect", "intent", "store", "task", "usage"]);
    for (file, source) in [
        ("open.rs", include_str!("../src/open.rs")),
        ("schema.rs", include_str!("../src/schema.rs")),
        ("verbs.rs", include_str!("../src/verbs.rs")),
        ("view.rs", include_str!("../src/view.rs")),
        ("write.rs", include_str!("../src/write.rs")),
    ] {
        for swallowing in ["OR IGNORE", "OR REPLACE", "OR FAIL", "DO NOTHING"] {
            assert!(!source.contains(swallowing), "{file}: {swallowing}");
        }
        for begin in ["BEGIN DEFERRED", "BEGIN EXCLUSIVE", "\"BEGIN\"", "SAVEPOINT"] {
            assert!(!source.contains(begin), "{file}: {begin}");
        }
    }
}

/// The control to the whole folder's copy: an acknowledged request is in the WAL alone.
#[test]
fn a_copy_without_the_wal_loses_an_acknowledged_request_and_one_with_it_does_not() {
    let source = Laboratory::new();
    let mut worker = Worker::opened(&source.path(), &FIXTURE);
    assert_eq!(worker.ask(worker::admit("a", "tenant", "")), "accepted");
    worker.kill();
    let copy = |files: &[std::path::PathBuf]| {
        let laboratory = Laboratory::new();
        assert!(Command::new("cp").args(files).arg(laboratory.folder()).status().unwrap().success());
        laboratory.open().status("a").unwrap().is_some()
    };
    assert!(!copy(&[source.path()]));
    assert!(copy(&[source.path(), source.wal()]));
}

#[test]
fn a_wal_of_another_run_beside_a_new_store_is_not_read() {
    let source = Laboratory::new();
    let mut worker = Worker::opened(&source.path(), &FIXTURE);
    assert_eq!(worker.ask(worker::admit("a", "tenant", "")), "accepted");
    worker.kill();
    let laboratory = Laboratory::new();
    fs::copy(source.wal(), laboratory.wal()).unwrap();
    let mut store = laboratory.open();
    assert_eq!(store.status("a").unwrap(), None);
    assert_eq!(store.snapshot().unwrap().intents, 0);
    accept(&mut store, "a", "other tenant", "");
}

#[test]
fn what_a_verb_changes_is_there_before_it_answers() {
    let laboratory = Laboratory::with(ROOMY);
    let mut worker = Worker::opened(&laboratory.path(), &ROOMY);
    let mut steps = vec![
        (worker::admit("a", "tenant", "x"), "accepted", "a:queued:0"),
        (json!(["claim", 0]), "a 1", "a:inflight:1"),
        (json!(["quarantine", "a", 1, 1]), "quarantined", "a:quarantined:1"),
        (json!(["redrive", "a", 1]), "requeued", "a:queued:2"),
        (json!(["claim", 1]), "a 3", "a:inflight:3"),
        (json!(["resolve", "a", 3, 2]), "done", "a:done:3"),
    ];
    for (command, answer, found) in steps.drain(..) {
        assert_eq!(worker.ask(command), answer);
        // Killed at once; the next one recovers from the WAL.
        worker.kill();
        assert_eq!(brief(&laboratory.open().snapshot().unwrap()), [found]);
        worker = Worker::opened(&laboratory.path(), &ROOMY);
    }
    assert_eq!(worker.ask(worker::admit("b", "tenant", "x")), "accepted");
    assert_eq!(worker.ask(json!(["cancel", "b"])), "cancelled");
    worker.kill();
    assert_eq!(brief(&laboratory.open().snapshot().unwrap()), ["a:done:3", "b:cancelled:0"]);
}

#[test]
fn a_reader_sees_one_instant() {
    let laboratory = Laboratory::fast(ROOMY);
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "x");
    let mut worker = Worker::opened(&laboratory.path(), &ROOMY);
    worker.tell(json!(["churn", "writer", 300]));
    let mut looks = 0;
    loop {
        let snapshot = store.snapshot().unwrap();
        let held = snapshot.tasks.iter().filter(|task| !matches!(task.state.name(), "done" | "cancelled"));
        let (count, bytes) = held.fold((0, 0), |(count, bytes), task| (count + 1, bytes + task.bytes));
        assert_eq!(snapshot.usage, usage(count, bytes));
        assert_eq!(snapshot.intents as usize, snapshot.tasks.len());
        assert_eq!(snapshot.effects as usize, snapshot.tasks.iter().filter(|task| task.state.name() == "done").count());
        looks += 1;
        if snapshot.intents == 1 + 2 * 300 {
            break;
        }
    }
    assert_eq!(worker.hear(), "churned");
    assert!(looks > 1);
}

#[test]
fn a_payload_beyond_what_sqlite_can_hold_is_oversize() {
    let laboratory = Laboratory::with(ROOMY);
    let mut store = laboratory.open();
    accept(&mut store, "known", "tenant", "x");
    let payload = String::from_utf8(vec![0; 1_000_000_001]).unwrap();
    assert_eq!(admit(&mut store, "new", "tenant", &payload).name(), "oversize");
    assert_eq!(admit(&mut store, "known", "tenant", &payload).name(), "conflict");
}

#[test]
fn the_longest_payload_that_limits_may_allow_fits() {
    let mut limits = ROOMY;
    limits.payload_bytes = durable_admission::PAYLOAD_BYTES_CEILING;
    let laboratory = Laboratory::fast(limits);
    let mut store = laboratory.open();
    // Not the ceiling itself, which would take a gigabyte of disk; ten megabytes cross many pages.
    let payload = "中".repeat(3_500_000);
    accept(&mut store, "a", "tenant", &payload);
    assert_eq!(admit(&mut store, "a", "tenant", &payload).name(), "replay");
    assert_eq!(claim(&mut store, 0).payload, payload);
}

#[test]
fn damage_to_the_schema_is_an_error_in_every_verb() {
    let laboratory = Laboratory::with(ROOMY);
    let mut store = laboratory::one_of_each(&laboratory);
    laboratory.tamper("ALTER TABLE task RENAME TO work");
    assert!(store.admit(request("new", "tenant", "")).is_err());
    assert!(store.claim(9).is_err());
    assert!(store.cancel_unstarted("queued").is_err());
    assert!(store.snapshot().is_err());
    assert!(store.status("queued").is_err());
    assert!(store.resolve(&quarantined(), 9).is_err());
    assert!(store.quarantine(&quarantined(), 9).is_err());
    assert!(store.redrive(&quarantined()).is_err());
}
