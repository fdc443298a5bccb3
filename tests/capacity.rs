//! Budgets: what fits, what does not, and that nothing but an end gives room back.
mod laboratory;

use durable_admission::{Admission, Budget, Cancellation, Full, Quarantine, Redrive, Resolution, Scope, State, Store};
use serde_json::json;

use laboratory::worker::{self, Worker};
use laboratory::{FIXTURE, Laboratory, ROOMY, accept, admit, brief, claim, limits, size, state, usage};

#[test]
fn worker_process() {
    worker::serve();
}

#[test]
fn one_free_slot_goes_to_exactly_one_of_eight_processes_in_every_round() {
    const ROUNDS: usize = 500;
    const PROCESSES: usize = 8;
    let laboratory = Laboratory::fast(limits((4, 256), (4, 256), 96));
    let mut store = laboratory.open();
    for id in ["held-1", "held-2", "held-3"] {
        accept(&mut store, id, "tenant", "payload");
    }
    store.close().unwrap();

    let mut workers: Vec<Worker> =
        (0..PROCESSES).map(|_| Worker::opened(&laboratory.path(), &laboratory.limits)).collect();
    for round in 0..ROUNDS {
        let id = |place: usize| format!("round-{round}-{place}");
        for (place, worker) in workers.iter_mut().enumerate() {
            worker.tell(worker::admit(&id(place), &format!("tenant-{place}"), "payload"));
        }
        let answers: Vec<String> = workers.iter_mut().map(Worker::hear).collect();
        let winners: Vec<usize> = (0..PROCESSES).filter(|&place| answers[place] == "accepted").collect();
        assert_eq!(winners.len(), 1, "round {round}: {answers:?}");
        assert_eq!(answers.iter().filter(|answer| *answer == "global_full").count(), PROCESSES - 1, "{answers:?}");
        let other = &mut workers[(winners[0] + 1) % PROCESSES];
        assert_eq!(other.ask(json!(["usage"])), "4 28", "round {round}");
        assert_eq!(other.ask(json!(["cancel", id(winners[0])])), "cancelled", "round {round}");
    }
    workers.into_iter().for_each(Worker::end);
    assert_eq!(laboratory.open().usage().unwrap(), usage(3, 21));
    assert_eq!(laboratory.recomputed_usage(), usage(3, 21));
}

#[test]
fn one_free_slot_goes_to_exactly_one_of_eight_threads() {
    let laboratory = Laboratory::fast(limits((1, 256), (1, 256), 96));
    drop(laboratory.open());
    for round in 0..50 {
        let barrier = std::sync::Barrier::new(8);
        let accepted: usize = std::thread::scope(|scope| {
            let contend = |place: usize| {
                let (barrier, laboratory) = (&barrier, &laboratory);
                scope.spawn(move || {
                    let mut store = laboratory.open();
                    barrier.wait();
                    admit(&mut store, &format!("{round}-{place}"), "tenant", "") == Admission::Accepted
                })
            };
            let threads: Vec<_> = (0..8).map(contend).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(accepted, 1);
        let mut store = laboratory.open();
        let claimed = claim(&mut store, 0);
        assert_eq!(store.resolve(&claimed.token, 0).unwrap(), Resolution::Done);
    }
}

#[test]
fn a_count_limit_lets_in_exactly_that_many() {
    for limit in [0, 1, 5] {
        for (scope, limits) in [
            (Scope::Global, limits((limit, 1000), (1000, 1000), 96)),
            (Scope::Tenant, limits((1000, 1000), (limit, 1000), 96)),
        ] {
            let laboratory = Laboratory::fast(limits);
            let mut store = laboratory.open();
            for number in 0..limit {
                accept(&mut store, &format!("in-{number}"), "tenant", "");
            }
            let full = Full { scope, budget: Budget::Count, used: limit, limit, needed: 1 };
            assert_eq!(admit(&mut store, "out", "tenant", ""), Admission::Full(full));
            assert_eq!(store.usage().unwrap(), usage(limit, 0));
        }
    }
}

#[test]
fn a_byte_limit_is_filled_exactly_and_then_takes_no_byte_more() {
    for limit in [0_u64, 1, 5] {
        for (scope, limits) in [
            (Scope::Global, limits((1000, limit), (1000, 1000), 96)),
            (Scope::Tenant, limits((1000, 1000), (1000, limit), 96)),
        ] {
            let laboratory = Laboratory::fast(limits);
            let mut store = laboratory.open();
            let over = "x".repeat(limit as usize + 1);
            let full = Full { scope, budget: Budget::Bytes, used: 0, limit, needed: limit + 1 };
            assert_eq!(admit(&mut store, "too-much", "tenant", &over), Admission::Full(full));
            accept(&mut store, "exactly", "tenant", &over[1..]);
            let full = Full { scope, budget: Budget::Bytes, used: limit, limit, needed: 1 };
            assert_eq!(admit(&mut store, "one-more", "tenant", "x"), Admission::Full(full));
            accept(&mut store, "empty-costs-no-bytes", "tenant", "");
        }
    }
}

#[test]
fn one_payload_may_be_as_long_as_its_limit_and_not_a_byte_longer() {
    for limit in [0_u64, 1, 96] {
        let laboratory = Laboratory::fast(limits((4, 256), (4, 256), limit));
        let mut store = laboratory.open();
        let over = "x".repeat(limit as usize + 1);
        let oversize = Admission::Oversize { payload_bytes: limit + 1, limit };
        assert_eq!(admit(&mut store, "a", "tenant", &over), oversize);
        accept(&mut store, "a", "tenant", &over[1..]);
    }
}

#[test]
fn bytes_are_counted_in_utf_8_and_not_in_characters() {
    let laboratory = Laboratory::with(limits((9, 12), (9, 12), 6));
    let mut store = laboratory.open();
    accept(&mut store, "six-bytes", "tenant", "é😀");
    assert_eq!(store.usage().unwrap(), usage(1, 6));
    assert_eq!(admit(&mut store, "seven", "tenant", "é😀x"), Admission::Oversize { payload_bytes: 7, limit: 6 });
    accept(&mut store, "six-more", "tenant", "中文");
    let full = Full { scope: Scope::Global, budget: Budget::Bytes, used: 12, limit: 12, needed: 1 };
    assert_eq!(admit(&mut store, "one-more", "tenant", "x"), Admission::Full(full));
}

#[test]
fn a_nul_character_counts_and_comes_back() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "id\0with nul", "ten\0ant", "a\0b");
    accept(&mut store, "id", "ten", "\0\0\0\0");
    assert_eq!(store.usage().unwrap(), usage(2, 7));
    assert_eq!(admit(&mut store, "id\0with nul", "ten\0ant", "a\0b"), Admission::Replay);
    assert_eq!(admit(&mut store, "id\0with nul", "ten\0ant", "a\0c"), Admission::Conflict);
    assert_eq!(admit(&mut store, "id\0with nul", "ten\0ANT", "a\0b"), Admission::Conflict);
    let claimed = claim(&mut store, 0);
    assert_eq!((claimed.tenant.as_str(), claimed.payload.as_str()), ("ten\0ant", "a\0b"));
    assert_eq!(store.resolve(&claimed.token, 0).unwrap(), Resolution::Done);
    assert_eq!(store.usage().unwrap(), usage(1, 4));
    assert_eq!(laboratory.recomputed_usage(), usage(1, 4));
}

#[test]
fn ninety_bytes_of_chinese_and_thirty_nine_more_fill_a_tenant_that_holds_one_task() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    let chinese = "持久准入".repeat(10)[..90].to_owned();
    assert_eq!(chinese.chars().count(), 30);
    accept(&mut store, "chinese", "tenant", &chinese);
    let full = Full { scope: Scope::Tenant, budget: Budget::Bytes, used: 90, limit: 128, needed: 39 };
    assert_eq!(admit(&mut store, "more", "tenant", &"x".repeat(39)), Admission::Full(full));
    accept(&mut store, "more", "tenant", &"x".repeat(38));
}

#[test]
fn global_bytes_fill_before_the_global_count_does() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant-a", &"x".repeat(96));
    accept(&mut store, "b", "tenant-b", &"x".repeat(96));
    let full = Full { scope: Scope::Global, budget: Budget::Bytes, used: 192, limit: 256, needed: 65 };
    assert_eq!(admit(&mut store, "c", "tenant-c", &"x".repeat(65)), Admission::Full(full));
    accept(&mut store, "c", "tenant-c", &"x".repeat(64));
}

#[test]
fn a_cap_is_no_reservation() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    for (id, tenant) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
        accept(&mut store, id, tenant, "");
    }
    let full = Full { scope: Scope::Global, budget: Budget::Count, used: 4, limit: 4, needed: 1 };
    assert_eq!(admit(&mut store, "c1", "c", ""), Admission::Full(full));
}

#[test]
fn the_whole_is_asked_before_the_tenant_and_the_payload_before_both() {
    let laboratory = Laboratory::with(limits((1, 10), (1, 10), 5));
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "xxxxx");
    assert_eq!(admit(&mut store, "b", "tenant", "xxxxxx").name(), "oversize");
    assert_eq!(admit(&mut store, "b", "tenant", "xxxxx").name(), "global_full");
}

#[test]
fn every_request_pipelined_into_a_limit_gets_an_answer_and_accepted_means_there() {
    let laboratory = Laboratory::with(limits((5, 256), (5, 256), 96));
    let mut worker = Worker::opened(&laboratory.path(), &laboratory.limits);
    let mut answers = Vec::new();
    for ids in [0..3, 3..9] {
        ids.clone().for_each(|id| worker.tell(worker::admit(&format!("id-{id}"), "tenant", "x")));
        answers.extend(ids.map(|_| worker.hear()));
    }
    worker.end();
    let counted = |name: &str| answers.iter().filter(|answer| *answer == name).count();
    assert_eq!((answers.len(), counted("accepted"), counted("global_full")), (9, 5, 4), "{answers:?}");
    let snapshot = laboratory.open().snapshot().unwrap();
    assert_eq!((snapshot.tasks.len(), snapshot.intents, snapshot.usage), (5, 5, usage(5, 5)));
}

#[test]
fn quarantine_and_redrive_give_no_room_back() {
    let laboratory = Laboratory::with(limits((2, 256), (2, 256), 96));
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "xx");
    accept(&mut store, "b", "tenant", "xx");
    let tokens = [claim(&mut store, 0).token, claim(&mut store, 0).token];
    assert_eq!(admit(&mut store, "more", "tenant", "").name(), "global_full");
    for token in &tokens {
        assert_eq!(store.quarantine(token, 0).unwrap(), Quarantine::Quarantined);
        assert_eq!(store.usage().unwrap(), usage(2, 4));
    }
    assert_eq!(admit(&mut store, "more", "tenant", "").name(), "global_full");
    for token in &tokens {
        assert_eq!(store.redrive(token).unwrap(), Redrive::Requeued);
        assert_eq!(store.usage().unwrap(), usage(2, 4));
    }
    assert_eq!(admit(&mut store, "more", "tenant", "").name(), "global_full");
    assert_eq!(laboratory.recomputed_usage(), usage(2, 4));
}

#[test]
fn three_reports_of_two_claims_release_one_slot() {
    let laboratory = Laboratory::with(limits((2, 256), (2, 256), 96));
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "xx");
    let first = claim(&mut store, 0).token;
    let second = claim(&mut store, 5).token;
    assert_eq!(store.resolve(&second, 5).unwrap(), Resolution::Done);
    assert_eq!(store.resolve(&first, 5).unwrap(), Resolution::Stale);
    assert_eq!(store.resolve(&second, 5).unwrap(), Resolution::Stale);
    let snapshot = store.snapshot().unwrap();
    assert_eq!((snapshot.usage, snapshot.effects), (usage(0, 0), 1));
    accept(&mut store, "b", "tenant", "");
    accept(&mut store, "c", "tenant", "");
    assert_eq!(admit(&mut store, "d", "tenant", "").name(), "global_full");
}

#[test]
fn a_killed_workers_expired_claim_holds_its_room() {
    let laboratory = Laboratory::with(limits((1, 256), (1, 256), 96));
    let mut worker = Worker::opened(&laboratory.path(), &laboratory.limits);
    assert_eq!(worker.ask(worker::admit("a", "tenant", "x")), "accepted");
    assert_eq!(worker.ask(json!(["claim", 0])), "a 1");
    // Another report moves the clock past the lease.
    assert_eq!(worker.ask(json!(["resolve", "none", 1, 9])), "stale");
    worker.kill();
    let mut store = laboratory.open();
    assert_eq!(admit(&mut store, "b", "tenant", "").name(), "global_full");
    assert_eq!(store.usage().unwrap(), usage(1, 1));
    let again = claim(&mut store, 9);
    assert_eq!((again.token.request_id.as_str(), again.token.generation, again.lease), ("a", 2, 14));
}

#[test]
fn a_store_filled_by_a_killed_process_drains_and_refills_to_the_same_bound() {
    let laboratory = Laboratory::new();
    let fill = |name: &str| {
        let mut worker = Worker::opened(&laboratory.path(), &FIXTURE);
        for number in 0..6 {
            let answer = worker.ask(worker::admit(&format!("{name}-{number}"), &format!("t{}", number / 2), "xyz"));
            assert_eq!(answer, if number < 4 { "accepted" } else { "global_full" });
        }
        worker.kill();
        assert!(size(&laboratory.wal()) > 0, "a killed process leaves its WAL");
    };
    fill("first");
    let mut store = laboratory.open();
    assert_eq!((store.usage().unwrap(), laboratory.recomputed_usage()), (usage(4, 12), usage(4, 12)));
    for _ in 0..4 {
        let claimed = claim(&mut store, 0);
        assert_eq!(store.resolve(&claimed.token, 0).unwrap(), Resolution::Done);
    }
    assert_eq!((store.usage().unwrap(), laboratory.recomputed_usage()), (usage(0, 0), usage(0, 0)));
    store.close().unwrap();
    fill("second");
    let snapshot = laboratory.open().snapshot().unwrap();
    assert_eq!((snapshot.usage, snapshot.intents, snapshot.effects), (usage(4, 12), 8, 4));
    assert_eq!(snapshot.tenants.keys().collect::<Vec<_>>(), ["t0", "t1"]);
}

#[test]
fn only_the_never_claimed_can_be_cancelled_and_once() {
    let laboratory = Laboratory::with(ROOMY);
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant", "xx");
    accept(&mut store, "b", "tenant", "xx");
    assert_eq!(store.cancel_unstarted("unknown").unwrap(), Cancellation::NotCancelled);
    assert_eq!(store.cancel_unstarted("a").unwrap(), Cancellation::Cancelled);
    assert_eq!(store.cancel_unstarted("a").unwrap(), Cancellation::NotCancelled);
    assert_eq!(store.usage().unwrap(), usage(1, 2));

    let not_cancelled = |store: &mut Store, state: &str| {
        assert_eq!(store.cancel_unstarted("b").unwrap(), Cancellation::NotCancelled);
        assert_eq!(brief(&store.snapshot().unwrap())[1], state);
        assert_eq!(store.usage().unwrap(), usage(1, 2));
    };
    let first = claim(&mut store, 0).token;
    not_cancelled(&mut store, "b:inflight:1");
    assert_eq!(store.resolve(&first, 5).unwrap(), Resolution::Stale);
    not_cancelled(&mut store, "b:inflight:1");
    let second = claim(&mut store, 5).token;
    assert_eq!(store.quarantine(&second, 5).unwrap(), Quarantine::Quarantined);
    not_cancelled(&mut store, "b:quarantined:2");
    assert_eq!(store.redrive(&second).unwrap(), Redrive::Requeued);
    not_cancelled(&mut store, "b:queued:3");
}

#[test]
fn of_cancel_and_claim_at_the_same_instant_one_wins() {
    const ROUNDS: usize = 1000;
    let laboratory = Laboratory::fast(limits((1, 256), (1, 256), 96));
    let mut cancelling = Worker::opened(&laboratory.path(), &laboratory.limits);
    let mut claiming = Worker::opened(&laboratory.path(), &laboratory.limits);
    let mut cancelled = 0;
    for round in 0..ROUNDS {
        let id = format!("round-{round}");
        // The only slot: accepted only if the round before gave back exactly what it held.
        assert_eq!(cancelling.ask(worker::admit(&id, "tenant", "x")), "accepted");
        // Who is told first takes turns, so that neither always wins.
        if round % 2 == 0 {
            cancelling.tell(json!(["cancel", id]));
            claiming.tell(json!(["claim", 0]));
        } else {
            claiming.tell(json!(["claim", 0]));
            cancelling.tell(json!(["cancel", id]));
        }
        let answers = (cancelling.hear(), claiming.hear());
        if answers == ("cancelled".to_owned(), "nothing".to_owned()) {
            cancelled += 1;
        } else {
            assert_eq!(answers, ("not_cancelled".to_owned(), format!("{id} 1")));
            assert_eq!(claiming.ask(json!(["resolve", id, 1, 0])), "done");
        }
    }
    cancelling.end();
    claiming.end();
    let snapshot = laboratory.open().snapshot().unwrap();
    assert_eq!((snapshot.usage, snapshot.effects), (usage(0, 0), (ROUNDS - cancelled) as u64));
    println!("{cancelled} of {ROUNDS} rounds were cancelled");
}

/// Each budget alone too small, and the payload's own limit: two thousand attempts at each.
#[test]
fn ten_thousand_refusals_leave_no_row_and_no_byte() {
    let full = |scope, budget, limit, needed| Admission::Full(Full { scope, budget, used: 3, limit, needed });
    let count = |scope| Admission::Full(Full { scope, budget: Budget::Count, used: 1, limit: 1, needed: 1 });
    for (limits, refusal) in [
        (limits((1, 99), (9, 99), 9), count(Scope::Global)),
        (limits((9, 5), (9, 99), 9), full(Scope::Global, Budget::Bytes, 5, 3)),
        (limits((9, 99), (1, 99), 9), count(Scope::Tenant)),
        (limits((9, 99), (9, 5), 9), full(Scope::Tenant, Budget::Bytes, 5, 3)),
        (limits((9, 99), (9, 99), 2), Admission::Oversize { payload_bytes: 3, limit: 2 }),
    ] {
        let laboratory = Laboratory::fast(limits);
        let mut store = laboratory.open();
        accept(&mut store, "held", "tenant", if limits.payload_bytes == 2 { "xx" } else { "xxx" });
        let sizes = || (size(&laboratory.path()), size(&laboratory.wal()));
        let (before, snapshot) = (sizes(), store.snapshot().unwrap());
        for number in 0..2_000 {
            assert_eq!(admit(&mut store, &format!("refused-{number}"), "tenant", "xyz"), refusal);
        }
        assert_eq!(store.snapshot().unwrap(), snapshot);
        assert_eq!(sizes(), before, "{refusal:?}");
        store.close().unwrap();
        let closed = size(&laboratory.path());
        laboratory.open().close().unwrap();
        assert_eq!(size(&laboratory.path()), closed);
    }
}

#[test]
fn a_finished_history_holds_no_room_and_keeps_every_identity() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    for number in 0..10 {
        accept(&mut store, &format!("task-{number}"), "tenant", "xyz");
        let claimed = claim(&mut store, number);
        assert_eq!(store.resolve(&claimed.token, number).unwrap(), Resolution::Done);
    }
    let snapshot = store.snapshot().unwrap();
    assert_eq!((snapshot.usage, snapshot.intents, snapshot.effects, snapshot.tick), (usage(0, 0), 10, 10, 9));
    assert!(snapshot.tenants.is_empty());
    for number in 0..10 {
        assert_eq!(admit(&mut store, &format!("task-{number}"), "tenant", "xyz"), Admission::Replay);
        assert_eq!(state(&store, &format!("task-{number}")), State::Done);
    }
    assert_eq!(store.snapshot().unwrap(), snapshot);
}

#[test]
fn each_tenant_is_charged_for_its_own_and_given_back_its_own() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "tenant-a", "aaa");
    accept(&mut store, "b", "tenant-b", "bbbbb");
    let tenants = |store: &Store| Vec::from_iter(store.snapshot().unwrap().tenants);
    assert_eq!(tenants(&store), [("tenant-a".to_owned(), usage(1, 3)), ("tenant-b".to_owned(), usage(1, 5))]);
    let claimed = claim(&mut store, 0);
    assert_eq!(store.resolve(&claimed.token, 0).unwrap(), Resolution::Done);
    assert_eq!(tenants(&store), [("tenant-b".to_owned(), usage(1, 5))]);
    assert_eq!(store.cancel_unstarted("b").unwrap(), Cancellation::Cancelled);
    assert_eq!(tenants(&store), []);
    assert_eq!(store.usage().unwrap(), usage(0, 0));
}
