//! A request id is bound by acceptance, by nothing else, and for ever.
mod laboratory;

use std::time::Duration;

use durable_admission::{Admission, Cancellation, Error, OpenOptions, Resolution, State, Store};

use laboratory::{FIXTURE, Laboratory, ROOMY, accept, admit, claim, logical_dump, one_of_each, request, state, usage};

#[test]
fn a_known_id_is_recognised_before_capacity_is_looked_at() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "payload");
    accept(&mut store, "b", "tenant", "");
    assert_eq!(admit(&mut store, "new", "tenant", "").name(), "tenant_full");
    accept(&mut store, "c", "other", "");
    accept(&mut store, "d", "other", "");
    assert_eq!(admit(&mut store, "new", "third", "").name(), "global_full");
    let before = store.snapshot().unwrap();
    assert_eq!(admit(&mut store, "a", "tenant", "payload"), Admission::Replay);
    assert_eq!(admit(&mut store, "a", "tenant", "other payload"), Admission::Conflict);
    assert_eq!(admit(&mut store, "a", "third", "payload"), Admission::Conflict);
    assert_eq!(admit(&mut store, "a", "tenant", &"x".repeat(97)), Admission::Conflict);
    assert_eq!(store.snapshot().unwrap(), before);
}

#[test]
fn a_replay_or_conflict_is_the_same_in_every_state_and_changes_none() {
    let laboratory = Laboratory::with(ROOMY);
    let mut store = one_of_each(&laboratory);
    let before = store.snapshot().unwrap();
    for id in ["queued", "inflight", "quarantined", "done", "cancelled"] {
        assert_eq!(state(&store, id).name(), id);
        assert_eq!(admit(&mut store, id, "tenant", "payload"), Admission::Replay);
        for (tenant, payload) in [
            ("tenant", "payloae"),
            ("tenant", "payload "),
            ("tenant", "ayload"),
            ("tenant", "Payload"),
            ("tenant", "payload\0"),
            ("tenant", ""),
            ("tenanu", "payload"),
            ("tenant ", "payload"),
        ] {
            assert_eq!(admit(&mut store, id, tenant, payload), Admission::Conflict, "{id} {tenant:?} {payload:?}");
        }
    }
    assert_eq!(store.snapshot().unwrap(), before);
}

#[test]
fn a_refusal_binds_nothing() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "one", "a", "");
    accept(&mut store, "two", "a", "");
    assert_eq!(admit(&mut store, "three", "a", "first body").name(), "tenant_full");
    assert_eq!(store.status("three").unwrap(), None);
    assert_eq!(store.cancel_unstarted("one").unwrap(), Cancellation::Cancelled);
    assert_eq!(admit(&mut store, "three", "a", "another body"), Admission::Accepted);
    assert_eq!(admit(&mut store, "three", "a", "first body"), Admission::Conflict);

    assert_eq!(admit(&mut store, "four", "b", &"x".repeat(97)).name(), "oversize");
    accept(&mut store, "four", "b", "");
    accept(&mut store, "five", "b", "");
    assert_eq!(admit(&mut store, "six", "c", "").name(), "global_full");
    assert_eq!(store.cancel_unstarted("five").unwrap(), Cancellation::Cancelled);
    accept(&mut store, "six", "d", "");
}

#[test]
fn ids_that_only_look_alike_are_distinct() {
    let laboratory = Laboratory::with(ROOMY);
    let mut store = laboratory.open();
    let alike =
        ["k", "K", "k ", " k", "k\t", "k\n", "k\0", "\u{e9}", "e\u{301}", "k\u{200b}", "0", "00", "0.0", "NULL"];
    for (place, id) in alike.iter().enumerate() {
        accept(&mut store, id, "tenant", &place.to_string());
    }
    for (place, id) in alike.iter().enumerate() {
        assert_eq!(admit(&mut store, id, "tenant", &place.to_string()), Admission::Replay, "{id:?}");
        let task = store.status(id).unwrap().unwrap();
        assert_eq!((task.sequence, task.request_id.as_str()), (place as i64 + 1, *id));
    }
}

#[test]
fn tenants_that_only_look_alike_have_budgets_of_their_own() {
    let laboratory = Laboratory::with(laboratory::limits((100, 256), (1, 128), 96));
    let mut store = laboratory.open();
    for (place, tenant) in ["t", "T", "t ", "t\0", "\u{e9}", "e\u{301}", "\0"].iter().enumerate() {
        accept(&mut store, &format!("{place}-in"), tenant, "x");
        assert_eq!(admit(&mut store, &format!("{place}-out"), tenant, "x").name(), "tenant_full");
    }
    assert_eq!(store.snapshot().unwrap().tenants.len(), 7);
}

#[test]
fn payloads_are_compared_as_they_came() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    for (id, payload, others) in [
        ("json", r#"{"a":1,"b":2}"#, [r#"{"b":2,"a":1}"#, r#"{"a": 1,"b":2}"#]),
        ("unicode", "\u{e9}", ["e\u{301}", "\u{c9}"]),
        ("number", "1", ["1.0", "01"]),
    ] {
        accept(&mut store, id, id, payload);
        assert_eq!(admit(&mut store, id, id, payload), Admission::Replay);
        for other in others {
            assert_eq!(admit(&mut store, id, id, other), Admission::Conflict, "{other}");
        }
    }
}

#[test]
fn an_ended_id_is_not_revived_when_there_is_room() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "done", "tenant", "x");
    let token = claim(&mut store, 0).token;
    assert_eq!(store.resolve(&token, 0).unwrap(), Resolution::Done);
    assert_eq!(admit(&mut store, "done", "tenant", "x"), Admission::Replay);
    assert_eq!(store.claim(0).unwrap(), None);
    assert_eq!(state(&store, "done"), State::Done);
    assert_eq!(store.usage().unwrap(), usage(0, 0));
}

#[test]
fn a_lock_held_too_long_is_an_error_that_binds_nothing() {
    let laboratory = Laboratory::new();
    drop(laboratory.open());
    let options = OpenOptions { busy_timeout: Duration::from_millis(30) };
    let mut store = Store::open_with(laboratory.path(), &FIXTURE, options).unwrap();
    accept(&mut store, "queued", "tenant", "");
    let before = store.snapshot().unwrap();
    let holder = laboratory.plain();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let token = durable_admission::Token { request_id: "queued".to_owned(), generation: 1 };
    let errors = [
        store.admit(request("a", "tenant", "first body")).map(drop).unwrap_err(),
        store.admit(request("queued", "tenant", "")).map(drop).unwrap_err(),
        store.claim(3).map(drop).unwrap_err(),
        store.resolve(&token, 3).map(drop).unwrap_err(),
        store.quarantine(&token, 3).map(drop).unwrap_err(),
        store.redrive(&token).map(drop).unwrap_err(),
        store.cancel_unstarted("queued").map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Busy(_)), "{error:?}");
    }
    // Reading needs no lock, and sees nothing of it.
    assert_eq!(store.snapshot().unwrap(), before);
    let dump = logical_dump(&holder);
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(logical_dump(&holder), dump);
    accept(&mut store, "a", "tenant", "another body");
    assert_eq!(claim(&mut store, 0).token.request_id, "queued");
}

#[test]
fn an_identity_outlives_the_connection_that_made_it() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "é😀");
    store.close().unwrap();
    let mut store = laboratory.open();
    assert_eq!(admit(&mut store, "a", "tenant", "é😀"), Admission::Replay);
    assert_eq!(claim(&mut store, 0).payload, "é😀");
}
