//! What is refused before anything is read, in which words.
mod laboratory;

use durable_admission::{Error, LIMIT_CEILING, PAYLOAD_BYTES_CEILING, Result, Store, Token};

use laboratory::{FIXTURE, Laboratory, accept, claim, files, request, usage};

#[track_caller]
fn refused<T>(answer: Result<T>, field: &str, sentence: &str) {
    match answer.map(drop) {
        Err(error @ Error::Input { field: found, .. }) => {
            assert_eq!(found, field);
            assert_eq!(error.to_string(), format!("{field} {sentence}"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn ids_and_tenants_are_1_to_128_bytes() {
    let laboratory = Laboratory::with(laboratory::ROOMY);
    let mut store = laboratory.open();
    let long = "é".repeat(64);
    accept(&mut store, &long, "t", "");
    accept(&mut store, "a", &long, "");
    let longer = format!("{long}x");
    let before = store.snapshot().unwrap();
    for (text, sentence) in
        [("", "is empty; give 1 to 128 UTF-8 bytes"), (longer.as_str(), "is 129 UTF-8 bytes long; give 1 to 128")]
    {
        refused(store.admit(request(text, "t", "")), "request id", sentence);
        refused(store.admit(request("b", text, "")), "tenant", sentence);
        refused(store.cancel_unstarted(text), "request id", sentence);
        refused(store.status(text), "request id", sentence);
        let token = Token { request_id: text.to_owned(), generation: 1 };
        refused(store.resolve(&token, 1), "token's request id", sentence);
        refused(store.quarantine(&token, 1), "token's request id", sentence);
        refused(store.redrive(&token), "token's request id", sentence);
    }
    assert_eq!(store.snapshot().unwrap(), before);
    assert_eq!(store.snapshot().unwrap().tenants[&long], usage(1, 0));
}

#[test]
fn a_tokens_generation_is_1_to_its_ceiling() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "t", "");
    let before = store.snapshot().unwrap();
    for generation in [0, -1, 1_000_000_001, i64::MIN, i64::MAX] {
        let token = Token { request_id: "a".to_owned(), generation };
        let sentence = format!("{generation} is not between 1 and 1000000000; report with the token that a claim gave");
        refused(store.resolve(&token, 9), "token's generation", &sentence);
        refused(store.quarantine(&token, 9), "token's generation", &sentence);
        refused(store.redrive(&token), "token's generation", &sentence);
    }
    assert_eq!(store.snapshot().unwrap(), before);
}

#[test]
fn bad_input_is_refused_before_the_store_is_asked() {
    let laboratory = Laboratory::new();
    let mut store = laboratory.open();
    accept(&mut store, "a", "t", "");
    let token = claim(&mut store, 5).token;
    // Held lock, missing tables: whoever asks the store would hear of it.
    laboratory.tamper("DROP TABLE effect; DROP TABLE task; DROP TABLE intent; DROP TABLE usage; DROP TABLE store;");
    refused(store.admit(request("", "t", "")), "request id", "is empty; give 1 to 128 UTF-8 bytes");
    refused(store.claim(-1), "tick", "-1 is not between 0 and 999999995; give a tick in there");
    let sentence = "1000000001 is not between 0 and 1000000000; give a tick in there";
    refused(store.resolve(&token, 1_000_000_001), "tick", sentence);
    assert!(matches!(store.claim(6), Err(Error::Sqlite(_) | Error::Corrupt(_))));
}

#[test]
fn limits_beyond_their_ceilings_are_refused_and_leave_no_file() {
    let laboratory = Laboratory::new();
    let mut cases = [FIXTURE; 5];
    cases[0].global.count = u64::MAX;
    cases[1].global.bytes = LIMIT_CEILING + 1;
    cases[2].tenant.count = LIMIT_CEILING + 1;
    cases[3].tenant.bytes = LIMIT_CEILING + 1;
    cases[4].payload_bytes = PAYLOAD_BYTES_CEILING + 1;
    let fields =
        ["global count limit", "global bytes limit", "tenant count limit", "tenant bytes limit", "payload bytes limit"];
    for (limits, field) in cases.iter().zip(fields) {
        match Store::open(laboratory.path(), limits).map(drop) {
            Err(Error::Input { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{other:?}"),
        }
    }
    assert!(files(laboratory.folder()).is_empty());
}

#[test]
fn the_highest_limits_count_without_overflow() {
    let laboratory =
        Laboratory::with(laboratory::limits((LIMIT_CEILING, LIMIT_CEILING), (LIMIT_CEILING, LIMIT_CEILING), 96));
    let mut store = laboratory.open();
    accept(&mut store, "a", "t", "xyz");
    laboratory.tamper("UPDATE usage SET bytes = 9223372036854775807, count = 9223372036854775806");
    assert_eq!(store.admit(request("b", "t", "x")).unwrap().name(), "global_full");
    accept(&mut store, "c", "t", "");
    assert_eq!(store.usage().unwrap(), usage(LIMIT_CEILING, LIMIT_CEILING));
    assert_eq!(store.admit(request("d", "t", "")).unwrap().name(), "global_full");
    assert_eq!(store.status("c").unwrap().unwrap().sequence, 2);
}
