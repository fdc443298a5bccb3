//! Faults that snapshot tools have shipped, tried on a document like the real one.

use std::fs;

use serde::Serialize;

use super::GROUPS;
use super::compare::{Difference, Kind, differences};
use super::load::load;
use super::outcome::{Outcome, Run, Scope, Seen, Verdict, judge};
use super::read::{Document, Fault, Member, Node, Pointer, Value};
use super::replace::{Replaced, replace};
use super::tamper::{Deed, Tamper, convict, tampers};
use super::write::{canonical, document_of};

const GROUP_NAMES: [&str; 3] = ["identity-before-capacity", "crash-boundaries", "race/twelve~tenants"];

#[derive(Serialize)]
struct Results {
    format: u32,
    protocol: serde_json::Value,
    groups: serde_json::Value,
}

/// With equal neighbours, text that needs escapes, names that a pointer escapes, and empty containers.
fn results() -> Results {
    let admit = |id: &str, answer: &str, count: u32| {
        serde_json::json!({
            "verb": "admit",
            "request": {"request_id": id, "tenant": "租户 a", "payload": "é😀\r\n\u{202e}"},
            "answer": answer,
            "usage": {"global": [count, 3 * count], "tenant": [count, count]},
        })
    };
    let crash = |boundary: &str, exit: u32| serde_json::json!({"boundary": boundary, "exit_code": exit, "on_disk": {"intent": null, "held": false}, "retry": "accepted"});
    Results {
        format: 1,
        protocol: serde_json::json!({"global": {"tasks": 4, "bytes": 256}, "payload_bytes": 96, "lease_ticks": 5}),
        groups: serde_json::json!({
            GROUP_NAMES[0]: {
                "shows": "at a full store the known id is a replay",
                "steps": [
                    admit("one", "accepted", 1), admit("two", "accepted", 2), admit("one", "replay", 2), admit("one", "replay", 2),
                    admit("one", "conflict", 2), {"verb": "claim", "tick": 5, "answer": "nothing"}
                ],
                "end": {"tasks": [], "notes": {}},
            },
            GROUP_NAMES[1]: {
                "shows": "eight boundaries",
                "steps": [crash("admit.after_intent", 73), crash("admit.before_commit", 73)],
            },
            GROUP_NAMES[2]: {"shows": "four of twelve", "answers": {"accepted": 4, "global_full": 8}},
        }),
    }
}

fn frozen() -> Document {
    document_of(&results()).expect("readable")
}

fn check(baseline: &Document, actual: &Document) -> Outcome {
    let seen = GROUP_NAMES.map(|name| Seen { name: name.into(), sentence: "shown".into(), run: Run::Measured });
    judge(GROUPS, "results.json", Scope::Whole, baseline, actual, seen.into())
}

fn summary(found: &[Difference]) -> Vec<(Kind, &str)> {
    found.iter().map(|d| (d.kind, d.pointer.as_str())).collect()
}

/// The spoiled document as a file would give it.
fn read_back(tamper: &Tamper) -> Document {
    Document::read(canonical(tamper.document.root()).as_bytes()).expect("a tampered file stays readable")
}

#[test]
fn every_tamper_is_convicted_by_exactly_its_pointer() {
    let original = frozen();
    let mut counts = Deed::ALL.map(|_| 0);
    for tamper in tampers(&original, GROUPS) {
        let spoiled = read_back(&tamper);
        assert_eq!(convict(&tamper, &original), Ok(()));
        assert_eq!(convict(&Tamper { document: spoiled.clone(), ..tamper.clone() }, &original), Ok(()));
        assert!(!original.same_values(&spoiled));
        assert_eq!(check(&spoiled, &original).verdict(), Verdict::Fail);
        counts[Deed::ALL.iter().position(|deed| *deed == tamper.deed).expect("a deed")] += 1;
    }
    // Counted by hand: 68 leaves (2 of them null), 30 objects and 13 arrays are 111 nodes, of which the root and the groups
    // as a whole are neither retyped nor removed.
    assert_eq!(counts, [66, 109, 109, 30, 13]);
}

#[test]
fn values_that_have_no_neighbour_are_spoiled_as_well() {
    let text = br#"{"groups": {"a": [9007199254740991, -9007199254740991, 0, 0.5, 1.5]}}"#;
    let original = Document::read(text).expect("readable");
    let spoiled: Vec<Tamper> = tampers(&original, GROUPS).collect();
    for tamper in &spoiled {
        assert_eq!(convict(&Tamper { document: read_back(tamper), ..tamper.clone() }, &original), Ok(()));
    }
    let places = |deed| spoiled.iter().filter(move |tamper| tamper.deed == deed).map(|tamper| tamper.pointer.as_str());
    assert_eq!(places(Deed::Changed).count(), 5);
    assert_eq!(places(Deed::ElementAdded).collect::<Vec<_>>(), ["/groups/a/2"], "in the middle");
}

#[test]
fn every_tamper_is_convicted_in_what_was_seen_as_well() {
    let original = frozen();
    for tamper in tampers(&original, GROUPS) {
        let mirrored = match tamper.deed.kind_in_baseline() {
            Kind::Missing => Kind::Extra,
            Kind::Extra => Kind::Missing,
            kind @ (Kind::Value | Kind::Type) => kind,
        };
        let found = differences(&original, &read_back(&tamper));
        assert_eq!(summary(&found), [(mirrored, tamper.pointer.as_str())], "{}", tamper.deed.name());
    }
}

#[test]
fn a_judge_that_overlooks_or_misnames_convicts_nobody() {
    let original = frozen();
    let tamper = tampers(&original, GROUPS).next().expect("a tamper");
    let overlooked = Tamper { document: original.clone(), ..tamper.clone() };
    let said = convict(&overlooked, &original).expect_err("nothing was found");
    assert_eq!(said, "member added: \"missing /added by a tamper\" should be found, and nothing was");
    let misnamed = Tamper { pointer: Pointer::default().child("elsewhere"), ..tamper };
    assert!(convict(&misnamed, &original).is_err());
}

#[test]
fn a_difference_stands_in_the_entry_it_is_in() {
    let original = frozen();
    for tamper in tampers(&original, GROUPS) {
        let outcome = check(&tamper.document, &original);
        let tokens: Vec<String> = tamper.pointer.tokens().collect();
        let entry = outcome.entries().iter().find(|e| !e.status.differences().is_empty());
        let expected = (tokens.len() > 1 && tokens[0] == "groups").then(|| tokens[1].clone());
        assert_eq!(entry.map(|e| e.name.clone()), expected, "{}", tamper.pointer);
        assert_eq!(outcome.count().differences(), 1);
    }
}

/// U1. Line ends, key order and the final newline are no values.
#[test]
fn a_checkout_with_crlf_and_reordered_keys_passes() {
    fn reversed(node: &Node) -> Node {
        let value = match &node.value {
            Value::Object(members) => {
                let reverse = members.iter().rev();
                Value::Object(reverse.map(|m| Member { name: m.name.clone(), node: reversed(&m.node) }).collect())
            }
            Value::Array(elements) => Value::Array(elements.iter().map(reversed).collect()),
            leaf => leaf.clone(),
        };
        value.unplaced()
    }
    let original = frozen();
    let text = canonical(original.root());
    for variant in [
        text.replace('\n', "\r\n"),
        canonical(&reversed(original.root())),
        text.trim_end().to_string(),
        text.replace('\n', " "),
    ] {
        assert_ne!(variant, text);
        let checked_out = Document::read(variant.as_bytes()).expect("strict");
        assert!(original.same_values(&checked_out));
        assert_eq!(check(&checked_out, &original).verdict(), Verdict::Pass);
    }
    let inside = Document::read(text.replace("\\r\\n", "\\n").as_bytes()).expect("strict");
    assert_eq!(check(&inside, &original).count().differences(), 5, "line ends inside the five payloads count");
}

/// U2. One text however often, and an equal file is left alone.
#[test]
fn twenty_regenerations_give_one_text_and_write_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("results.json");
    let written = (0..20)
        .filter(|_| replace(&file, canonical(frozen().root()).as_bytes()).expect("replaced") == Replaced::Written);
    assert_eq!(written.count(), 1);
    let loaded = load(&file, GROUPS).expect("what was written loads");
    assert_eq!(check(&loaded, &frozen()).verdict(), Verdict::Pass);
}

/// U3. A group too few, one too many, and what lax readers take for the same.
#[test]
fn what_lax_judges_let_pass_is_a_difference_or_a_named_error() {
    let original = frozen();
    let gone = Pointer::default().child("groups").child(GROUP_NAMES[1]);
    let is_that = |tamper: &Tamper| tamper.deed == Deed::Removed && tamper.pointer == gone;
    let too_few = tampers(&original, GROUPS).find(is_that).expect("a tamper").document;
    let outcome = check(&too_few, &original);
    assert_eq!(summary(outcome.entries()[1].status.differences()), [(Kind::Extra, "/groups/crash-boundaries")]);
    let outcome = check(&original, &too_few);
    assert_eq!(summary(outcome.entries()[1].status.differences()), [(Kind::Missing, "/groups/crash-boundaries")]);
    let text = canonical(original.root());
    let twice = text.replace("\"lease_ticks\": 5", "\"payload_bytes\": 5");
    let error = Document::read(twice.as_bytes()).expect_err("a key twice");
    assert!(matches!(error.fault, Fault::KeyTwice { .. }));
    assert_eq!(error.pointer.as_str(), "/protocol/payload_bytes");
    for large in ["18446744073709551616", "18446744073709551617"] {
        let error = Document::read(text.replace("\"lease_ticks\": 5", &format!("\"lease_ticks\": {large}")).as_bytes());
        let error = error.expect_err("too large");
        assert_eq!(
            (error.pointer.as_str(), error.fault),
            ("/protocol/lease_ticks", Fault::IntegerTooLarge { literal: large.into() })
        );
    }
}

/// U4. Nothing to compare with is its own verdict, and nothing is created.
#[test]
fn a_baseline_that_is_none_cannot_be_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("results.json");
    let verdict = || {
        let error = load(&file, GROUPS).expect_err("no baseline");
        let outcome = Outcome::cannot_check(GROUPS, "results.json", error);
        (outcome.verdict(), outcome.verdict().exit_code())
    };
    assert_eq!(verdict(), (Verdict::Unreadable, 2));
    assert!(!file.exists());
    for content in [&b""[..], b"{}", b"null", b"\xff\xfe", b"\xef\xbb\xbf{\"groups\": {}}"] {
        fs::write(&file, content).expect("written");
        assert_eq!(verdict(), (Verdict::Unreadable, 2));
        assert_eq!(fs::read(&file).expect("the file"), content);
    }
    fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).expect("a directory");
    assert_eq!(verdict(), (Verdict::Unreadable, 2));
    assert_eq!(fs::read_dir(&file).expect("the directory").count(), 0);
}
