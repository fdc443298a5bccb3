//! Faults that snapshot tools have shipped, tried on a document like the real one.

use std::fs;

use serde::Serialize;

use super::GROUPS;
use super::compare::{Difference, Kind, differences};
use super::load::load;
use super::outcome::{Outcome, Run, Scope, Seen, Verdict, judge};
use super::read::{Document, Fault, Member, Node, Pointer, Value};
use super::replace::{Replaced, replace};
use super::write::{canonical, document_of};

const GROUP_NAMES: [&str; 3] = [
    "identity-before-capacity",
    "crash-boundaries",
    "race/twelve~tenants",
];

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
    let seen = GROUP_NAMES.map(|name| Seen {
        name: name.into(),
        sentence: "shown".into(),
        run: Run::Measured,
    });
    judge(
        GROUPS,
        "results.json",
        Scope::Whole,
        baseline,
        actual,
        seen.into(),
    )
}

fn summary(found: &[Difference]) -> Vec<(Kind, &str)> {
    found.iter().map(|d| (d.kind, d.pointer.as_str())).collect()
}

/// Every node of the document by its pointer, the root first.
fn pointers(node: &Node, at: Pointer, all: &mut Vec<Pointer>) {
    all.push(at.clone());
    match &node.value {
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => {}
        Value::Array(elements) => {
            elements
                .iter()
                .enumerate()
                .for_each(|(index, element)| pointers(element, at.child(index), all));
        }
        Value::Object(members) => members
            .iter()
            .for_each(|m| pointers(&m.node, at.child(&m.name), all)),
    }
}

/// What `change` makes of the node at `pointer`, in a copy read back from its text as a tampered file would be.
fn tampered(document: &Document, pointer: &Pointer, change: impl FnOnce(&mut Value)) -> Document {
    let mut root = document.root().clone();
    let mut node = &mut root;
    for token in pointer.tokens() {
        node = match &mut node.value {
            Value::Object(members) => {
                &mut members
                    .iter_mut()
                    .find(|m| m.name == token)
                    .expect("a member")
                    .node
            }
            Value::Array(elements) => &mut elements[token.parse::<usize>().expect("an index")],
            _ => panic!("{pointer} leads through a leaf"),
        };
    }
    change(&mut node.value);
    Document::read(canonical(&root).as_bytes()).expect("still strict")
}

fn without_last(pointer: &Pointer) -> (Pointer, String) {
    let tokens: Vec<String> = pointer.tokens().collect();
    let (last, above) = tokens.split_last().expect("not the root");
    let parent = above
        .iter()
        .fold(Pointer::default(), |parent, token| parent.child(token));
    (parent, last.clone())
}

fn all_pointers(document: &Document) -> Vec<Pointer> {
    let mut all = Vec::new();
    pointers(document.root(), Pointer::default(), &mut all);
    all
}

/// Convicts a tampered copy, on either side, of exactly one difference.
fn assert_convicted(original: &Document, tampered: &Document, kind: Kind, pointer: &Pointer) {
    let found = differences(tampered, original);
    let mirrored = match kind {
        Kind::Missing => Kind::Extra,
        Kind::Extra => Kind::Missing,
        Kind::Value | Kind::Type => kind,
    };
    assert_eq!(
        summary(&found),
        [(mirrored, pointer.as_str())],
        "the baseline was tampered with"
    );
    let found = differences(original, tampered);
    assert_eq!(
        summary(&found),
        [(kind, pointer.as_str())],
        "what was seen was tampered with"
    );
    assert_eq!(check(tampered, original).verdict(), Verdict::Fail);
    assert!(!original.same_values(tampered));
}

#[test]
fn every_changed_leaf_is_convicted_by_name() {
    let original = frozen();
    let mut tampers = 0;
    for pointer in all_pointers(&original) {
        let mut is_leaf = true;
        let changed = tampered(&original, &pointer, |value| match value {
            Value::Integer(number) => *number += 1,
            Value::Bool(flag) => *flag = !*flag,
            Value::Text(text) => text.push('x'),
            Value::Null | Value::Float(_) | Value::Array(_) | Value::Object(_) => is_leaf = false,
        });
        if is_leaf {
            assert_convicted(&original, &changed, Kind::Value, &pointer);
            tampers += 1;
        }
    }
    assert!(tampers > 60, "{tampers}");
}

#[test]
fn every_changed_type_is_convicted_by_name() {
    let original = frozen();
    for pointer in all_pointers(&original) {
        let changed = tampered(&original, &pointer, |value| {
            *value = match value {
                Value::Integer(number) => Value::Float(format!("{number}.0")),
                Value::Bool(flag) => Value::Integer(i64::from(*flag)),
                Value::Text(_) => Value::Null,
                Value::Null => Value::Text("null".into()),
                Value::Array(_) => Value::Object(vec![]),
                Value::Object(_) | Value::Float(_) => Value::Array(vec![]),
            };
        });
        assert_convicted(&original, &changed, Kind::Type, &pointer);
    }
}

#[test]
fn every_removed_member_and_element_is_convicted_by_name() {
    let original = frozen();
    for pointer in all_pointers(&original).into_iter().skip(1) {
        let (parent, last) = without_last(&pointer);
        let mut named = pointer.clone();
        let changed = tampered(&original, &parent, |value| match value {
            Value::Object(members) => members.retain(|m| m.name != last),
            Value::Array(elements) => {
                let index: usize = last.parse().expect("an index");
                // Among equal neighbours nobody can say which one went: the last is named.
                let text = |i: usize| canonical(&elements[i]);
                let equal = (index + 1..elements.len())
                    .take_while(|i| text(*i) == text(index))
                    .count();
                named = parent.child(index + equal);
                elements.remove(index);
            }
            _ => panic!("{parent} holds nothing"),
        });
        assert_convicted(&original, &changed, Kind::Missing, &named);
    }
}

#[test]
fn every_added_member_and_element_is_convicted_by_name() {
    let original = frozen();
    for pointer in all_pointers(&original) {
        let mut added = None;
        let changed = tampered(&original, &pointer, |value| match value {
            Value::Object(members) => {
                added = Some(pointer.child("added"));
                members.insert(
                    0,
                    Member {
                        name: "added".into(),
                        node: Value::Null.unplaced(),
                    },
                );
            }
            Value::Array(elements) => {
                let middle = elements.len() / 2;
                added = Some(pointer.child(middle));
                elements.insert(middle, Value::Text("added".into()).unplaced());
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => {
            }
        });
        if let Some(added) = added {
            assert_convicted(&original, &changed, Kind::Extra, &added);
        }
    }
}

#[test]
fn a_difference_stands_in_the_entry_it_is_in() {
    let original = frozen();
    for pointer in all_pointers(&original) {
        let changed = tampered(&original, &pointer, |value| {
            *value = Value::Float("0.5".into())
        });
        let outcome = check(&changed, &original);
        let tokens: Vec<String> = pointer.tokens().collect();
        let entry = outcome
            .entries()
            .iter()
            .find(|e| !e.status.differences().is_empty());
        let expected = (tokens.len() > 1 && tokens[0] == "groups").then(|| tokens[1].clone());
        assert_eq!(entry.map(|e| e.name.clone()), expected, "{pointer}");
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
                Value::Object(
                    reverse
                        .map(|m| Member {
                            name: m.name.clone(),
                            node: reversed(&m.node),
                        })
                        .collect(),
                )
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
    assert_eq!(
        check(&inside, &original).count().differences(),
        5,
        "line ends inside the five payloads count"
    );
}

/// U2. One text however often, and an equal file is left alone.
#[test]
fn twenty_regenerations_give_one_text_and_write_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("results.json");
    let written = (0..20).filter(|_| {
        replace(&file, canonical(frozen().root()).as_bytes()).expect("replaced")
            == Replaced::Written
    });
    assert_eq!(written.count(), 1);
    let loaded = load(&file, GROUPS).expect("what was written loads");
    assert_eq!(check(&loaded, &frozen()).verdict(), Verdict::Pass);
}

/// U3. A group too few, one too many, and what lax readers take for the same.
#[test]
fn what_lax_judges_let_pass_is_a_difference_or_a_named_error() {
    let original = frozen();
    let groups = Pointer::default().child("groups");
    let too_few = tampered(&original, &groups, |value| {
        if let Value::Object(members) = value {
            members.retain(|m| m.name != GROUP_NAMES[1]);
        }
    });
    let outcome = check(&too_few, &original);
    assert_eq!(
        summary(outcome.entries()[1].status.differences()),
        [(Kind::Extra, "/groups/crash-boundaries")]
    );
    let outcome = check(&original, &too_few);
    assert_eq!(
        summary(outcome.entries()[1].status.differences()),
        [(Kind::Missing, "/groups/crash-boundaries")]
    );
    let text = canonical(original.root());
    let twice = text.replace("\"lease_ticks\": 5", "\"payload_bytes\": 5");
    let error = Document::read(twice.as_bytes()).expect_err("a key twice");
    assert!(matches!(error.fault, Fault::KeyTwice { .. }));
    assert_eq!(error.pointer.as_str(), "/protocol/payload_bytes");
    for large in ["18446744073709551616", "18446744073709551617"] {
        let error = Document::read(
            text.replace("\"lease_ticks\": 5", &format!("\"lease_ticks\": {large}"))
                .as_bytes(),
        );
        let error = error.expect_err("too large");
        assert_eq!(
            (error.pointer.as_str(), error.fault),
            (
                "/protocol/lease_ticks",
                Fault::IntegerTooLarge {
                    literal: large.into()
                }
            )
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
    for content in [
        &b""[..],
        b"{}",
        b"null",
        b"\xff\xfe",
        b"\xef\xbb\xbf{\"groups\": {}}",
    ] {
        fs::write(&file, content).expect("written");
        assert_eq!(verdict(), (Verdict::Unreadable, 2));
        assert_eq!(fs::read(&file).expect("the file"), content);
    }
    fs::remove_file(&file)
        .and_then(|()| fs::create_dir(&file))
        .expect("a directory");
    assert_eq!(verdict(), (Verdict::Unreadable, 2));
    assert_eq!(fs::read_dir(&file).expect("the directory").count(), 0);
}
