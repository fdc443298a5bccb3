//! Claims, leases, tokens, and what each state allows.
mod laboratory;

use durable_admission::{Cancellation, Error, Quarantine, Redrive, Resolution, State, Store, TICK_CEILING, Token};
use serde_json::json;

use laboratory::worker::{self, Worker};
use laboratory::{FIXTURE, Laboratory, ROOMY, accept, brief, claim, logical_dump, one_of_each, state, usage};

#[test]
fn worker_process() {
    worker::serve();
}

fn token(request_id: &str, generation: i64) -> Token {
    Token { request_id: request_id.to_owned(), generation }
}

#[test]
fn a_claim_carries_token_tenant_payload_and_lease() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    assert_eq!(store.claim(0).unwrap(), None);
    accept(&mut store, "a", "tenant-a", "payload of a");
    let claimed = claim(&mut store, 3);
    assert_eq!(claimed.token, token("a", 1));
    assert_eq!((claimed.tenant.as_str(), claimed.payload.as_str(), claimed.lease), ("tenant-a", "payload of a", 8));
    assert_eq!(store.claim(3).unwrap(), None);
    assert_eq!(store.snapshot().unwrap().tick, 3);
}

#[test]
fn the_oldest_claimable_task_comes_first_whatever_made_it_claimable() {
    let laboratory = Laboratory::with(ROOMY);
    let mut store = laboratory.open();
    for id in ["a", "b", "c", "d", "e"] {
        accept(&mut store, id, "tenant", "");
    }
    let tokens: Vec<Token> = (0..4).map(|tick| claim(&mut store, tick).token).collect();
    assert_eq!(store.quarantine(&tokens[2], 3).unwrap(), Quarantine::Quarantined);
    assert_eq!(store.redrive(&tokens[2]).unwrap(), Redrive::Requeued);
    // At tick 5 the lease of a has run out, that of b has not; c is back in its place before e.
    let next: Vec<String> = (0..3).map(|_| claim(&mut store, 5).token.request_id).collect();
    assert_eq!(next, ["a", "c", "e"]);
    assert_eq!(store.claim(5).unwrap(), None);
    assert_eq!(claim(&mut store, 6).token, token("b", 2));
}

#[test]
fn a_lease_is_over_when_due_exactly() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    let first = claim(&mut store, 0);
    assert_eq!(first.lease, 5);
    assert_eq!(store.claim(4).unwrap(), None);
    assert_eq!(store.resolve(&first.token, 5).unwrap(), Resolution::Stale);
    assert_eq!(store.quarantine(&first.token, 5).unwrap(), Quarantine::Stale);
    assert_eq!(brief(&store.snapshot().unwrap()), ["a:inflight:1"]);
    let second = claim(&mut store, 5);
    assert_eq!((second.token.generation, second.lease), (2, 10));
    assert_eq!(store.resolve(&second.token, 9).unwrap(), Resolution::Done);
}

#[test]
fn a_report_one_tick_before_the_lease_ends_is_in_time() {
    for quarantine in ["resolve", "quarantine"] {
        let laboratory = Laboratory::new();
        let mut store = laboratory.open();
        accept(&mut store, "a", "tenant", "");
        let claimed = claim(&mut store, 0);
        match quarantine {
            "resolve" => assert_eq!(store.resolve(&claimed.token, 4).unwrap(), Resolution::Done),
            _ => assert_eq!(store.quarantine(&claimed.token, 4).unwrap(), Quarantine::Quarantined),
        }
    }
}

#[test]
fn an_old_token_is_stale_even_for_the_worker_that_claimed_again() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    let old = claim(&mut store, 0).token;
    let new = claim(&mut store, 5).token;
    assert_eq!(store.quarantine(&old, 6).unwrap(), Quarantine::Stale);
    assert_eq!(store.resolve(&old, 6).unwrap(), Resolution::Stale);
    assert_eq!(store.redrive(&old).unwrap(), Redrive::Stale);
    assert_eq!(state(&store, "a"), State::Inflight);
    assert_eq!(store.resolve(&new, 6).unwrap(), Resolution::Done);
    assert_eq!(store.snapshot().unwrap().effects, 1);
}

#[test]
fn a_lease_runs_from_the_claim_and_not_from_the_admission() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "old", "tenant", "");
    assert_eq!(store.resolve(&token("none", 1), 100).unwrap(), Resolution::Stale);
    let claimed = claim(&mut store, 100);
    assert_eq!((claimed.lease, claimed.token.generation), (105, 1));
    assert_eq!(store.claim(104).unwrap(), None);
    assert_eq!(store.resolve(&claimed.token, 104).unwrap(), Resolution::Done);
}

#[test]
fn another_process_that_opens_the_store_leaves_a_live_lease_alone() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    let claimed = claim(&mut store, 2);
    let before = store.snapshot().unwrap();
    let mut worker = Worker::opened(&laboratory.path(), &FIXTURE);
    assert_eq!(store.snapshot().unwrap(), before);
    assert_eq!(worker.ask(json!(["claim", 6])), "nothing");
    assert_eq!(worker.ask(json!(["close"])), "closed");
    worker.end();
    assert_eq!(store.snapshot().unwrap().tasks, before.tasks);
    assert_eq!(store.resolve(&claimed.token, 6).unwrap(), Resolution::Done);
}

#[test]
fn a_slot_is_held_through_the_whole_life_of_its_task() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "xyz");
    let held = |store: &Store| assert_eq!(store.usage().unwrap(), usage(1, 3));
    let first = claim(&mut store, 0).token;
    held(&store);
    let second = claim(&mut store, 5).token;
    held(&store);
    assert_eq!(store.resolve(&first, 5).unwrap(), Resolution::Stale);
    held(&store);
    assert_eq!(store.quarantine(&second, 6).unwrap(), Quarantine::Quarantined);
    held(&store);
    assert_eq!(store.claim(100).unwrap(), None);
    assert_eq!(store.redrive(&second).unwrap(), Redrive::Requeued);
    held(&store);
    let third = claim(&mut store, 100).token;
    assert_eq!(third, token("a", 4));
    held(&store);
    assert_eq!(store.resolve(&third, 101).unwrap(), Resolution::Done);
    assert_eq!(store.resolve(&third, 101).unwrap(), Resolution::Stale);
    let snapshot = store.snapshot().unwrap();
    assert_eq!((snapshot.usage, snapshot.effects), (usage(0, 0), 1));
    let effects: Vec<String> = laboratory::rows(&laboratory.plain(), "SELECT effect FROM effect");
    assert_eq!(effects, ["synthetic-completed"]);
}

/// Each state × each verb that could report on, revive or end the task, with every generation near it.
#[test]
fn each_state_refuses_every_verb_but_its_own_and_stays_as_it_is() {
    let laboratory = Laboratory::with(ROOMY);
    let mut store = one_of_each(&laboratory);
    let plain = laboratory.plain();
    // Nothing to claim, so that a claim, too, has to leave all five alone.
    let queued = claim(&mut store, 1).token;
    assert_eq!(store.quarantine(&queued, 1).unwrap(), Quarantine::Quarantined);
    assert_eq!(store.redrive(&queued).unwrap(), Redrive::Requeued);
    let before = logical_dump(&plain);
    for (id, generation) in [("done", 1), ("cancelled", 0), ("quarantined", 1), ("inflight", 1), ("queued", 2)] {
        for reported in (1..=generation + 2).filter(|reported| (id, *reported) != ("inflight", 1)) {
            let token = token(id, reported);
            assert_eq!(store.resolve(&token, 1).unwrap(), Resolution::Stale, "{token:?}");
            assert_eq!(store.quarantine(&token, 1).unwrap(), Quarantine::Stale, "{token:?}");
        }
        for reported in (1..=generation + 2).filter(|reported| (id, *reported) != ("quarantined", 1)) {
            assert_eq!(store.redrive(&token(id, reported)).unwrap(), Redrive::Stale, "{id} {reported}");
        }
        assert_eq!(store.cancel_unstarted(id).unwrap(), Cancellation::NotCancelled, "{id}");
        assert_eq!(logical_dump(&plain), before, "{id}");
    }
    // The last claim moves the clock beyond every lease; what has ended still is not claimed.
    assert_eq!(claim(&mut store, 50).token.request_id, "inflight");
    assert_eq!(claim(&mut store, 50).token.request_id, "queued");
    assert_eq!(store.claim(50).unwrap(), None);
    let ended: Vec<_> = store.snapshot().unwrap().tasks.into_iter().filter(|task| task.lease.is_none()).collect();
    assert_eq!(ended.iter().map(|task| task.state.name()).collect::<Vec<_>>(), ["done", "quarantined", "cancelled"]);
}

#[test]
fn a_tick_is_stored_whatever_the_answer() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    let tick = |store: &Store| store.snapshot().unwrap().tick;
    assert_eq!(store.claim(1).unwrap(), None);
    assert_eq!(tick(&store), 1);
    assert_eq!(store.resolve(&token("none", 1), 2).unwrap(), Resolution::Stale);
    assert_eq!(tick(&store), 2);
    assert_eq!(store.quarantine(&token("none", 1), 3).unwrap(), Quarantine::Stale);
    assert_eq!(tick(&store), 3);
    accept(&mut store, "a", "tenant", "");
    let claimed = claim(&mut store, 4).token;
    assert_eq!(tick(&store), 4);
    assert_eq!(store.quarantine(&claimed, 5).unwrap(), Quarantine::Quarantined);
    assert_eq!(store.redrive(&claimed).unwrap(), Redrive::Requeued);
    assert_eq!(tick(&store), 5);
    let claimed = claim(&mut store, 6).token;
    assert_eq!(store.resolve(&claimed, 7).unwrap(), Resolution::Done);
    store.close().unwrap();
    assert_eq!(tick(&laboratory.open()), 7);
}

#[test]
fn a_tick_that_moves_back_is_an_error_and_changes_nothing() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    accept(&mut store, "b", "tenant", "");
    let claimed = claim(&mut store, 7).token;
    let before = store.snapshot().unwrap();
    let errors = [
        store.claim(6).map(drop).unwrap_err(),
        store.resolve(&claimed, 6).map(drop).unwrap_err(),
        store.resolve(&token("none", 1), 0).map(drop).unwrap_err(),
        store.quarantine(&claimed, 0).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::TickMovedBack { stored: 7, .. }), "{error:?}");
    }
    assert_eq!(store.snapshot().unwrap(), before);
    assert_eq!(store.resolve(&claimed, 7).unwrap(), Resolution::Done);
}

#[test]
fn the_tick_goes_up_to_its_ceiling_and_no_further() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    // A lease has to lie on the scale, too.
    assert!(matches!(store.claim(TICK_CEILING - 4), Err(Error::Input { field: "tick", .. })));
    let claimed = claim(&mut store, TICK_CEILING - 5);
    assert_eq!(claimed.lease, TICK_CEILING);
    assert_eq!(store.resolve(&claimed.token, TICK_CEILING).unwrap(), Resolution::Stale);
    for tick in [TICK_CEILING + 1, i64::MAX, i64::MIN, -1] {
        assert!(matches!(store.claim(tick), Err(Error::Input { field: "tick", .. })));
        assert!(matches!(store.resolve(&claimed.token, tick), Err(Error::Input { field: "tick", .. })));
        assert!(matches!(store.quarantine(&claimed.token, tick), Err(Error::Input { field: "tick", .. })));
    }
    assert_eq!(store.snapshot().unwrap().tick, TICK_CEILING);
    assert!(matches!(store.claim(TICK_CEILING - 5), Err(Error::TickMovedBack { .. })));
}

#[test]
fn a_generation_at_its_ceiling_is_an_error_and_changes_nothing() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    let claimed = claim(&mut store, 0).token;
    assert_eq!(store.quarantine(&claimed, 0).unwrap(), Quarantine::Quarantined);
    assert_eq!(store.redrive(&claimed).unwrap(), Redrive::Requeued);
    let plain = laboratory.plain();
    plain.execute_batch("UPDATE task SET generation = 1000000000").unwrap();
    let before = store.snapshot().unwrap();
    let error = store.claim(3).unwrap_err();
    assert!(matches!(error, Error::Ceiling { number: "generation", .. }), "{error:?}");
    assert_eq!(store.snapshot().unwrap(), before, "the tick, too, stays");

    plain.execute_batch("UPDATE task SET generation = 999999999").unwrap();
    let last = claim(&mut store, 3).token;
    assert_eq!(last.generation, 1_000_000_000);
    assert_eq!(store.quarantine(&last, 3).unwrap(), Quarantine::Quarantined);
    let before = store.snapshot().unwrap();
    let error = store.redrive(&last).unwrap_err();
    assert!(matches!(error, Error::Ceiling { number: "generation", .. }), "{error:?}");
    assert_eq!(store.snapshot().unwrap(), before);
}

#[test]
fn a_sequence_at_its_ceiling_is_an_error_and_changes_nothing() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "");
    laboratory.tamper(
        "PRAGMA foreign_keys = OFF;
         UPDATE task SET sequence = 9223372036854775807; UPDATE intent SET sequence = 9223372036854775807;",
    );
    let before = store.snapshot().unwrap();
    let error = store.admit(laboratory::request("b", "tenant", "")).unwrap_err();
    assert!(matches!(error, Error::Ceiling { number: "sequence", .. }), "{error:?}");
    assert_eq!(store.snapshot().unwrap(), before);
}

#[test]
fn what_the_schema_does_not_allow_cannot_be_written_by_hand_either() {
    let laboratory = Laboratory::with(ROOMY);
    drop(one_of_each(&laboratory));
    let plain = laboratory.plain();
    for sql in [
        "UPDATE task SET generation = 1000000001",
        "UPDATE task SET generation = -1",
        "UPDATE store SET tick = 1000000001",
        "UPDATE store SET tick = -1",
        "UPDATE store SET tick = 'soon'",
        "UPDATE task SET state = 'lost'",
        "UPDATE task SET lease = NULL WHERE state = 'inflight'",
        "UPDATE task SET lease = 5 WHERE state = 'queued'",
        "UPDATE task SET generation = 1 WHERE state = 'cancelled'",
        "UPDATE task SET generation = 0 WHERE state = 'done'",
        "UPDATE task SET due = NULL WHERE state = 'queued'",
        "UPDATE task SET due = 0 WHERE state = 'done'",
        "UPDATE intent SET bytes = bytes + 1",
        "UPDATE intent SET payload = x'00'",
        "UPDATE intent SET request_id = ''",
        "UPDATE usage SET count = -1",
        "UPDATE usage SET bytes = 'many'",
        "INSERT INTO store SELECT 2, 1, 1, 1, 1, 1, 0",
    ] {
        let error = plain.execute_batch(sql).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ConstraintViolation), "{sql}: {error}");
    }
}
