//! The three texts, of runs that are made up here.

use maud::html;
use serde_json::{Value as Json, json};

use super::*;
use crate::baseline::outcome::Seen;
use crate::baseline::write::document_of;
use crate::heat::Lane;
use surroundings::{Commit, Tree};

const MARKUP: &str = "</style><script>alert(1)</script> & \"'`|*_[x](y) @somebody \u{202e}";

fn document(value: &Json) -> Document {
    document_of(value).unwrap()
}

/// One group of one step, whose every text is `text`.
fn story(text: &str) -> Json {
    json!({"format": 1,
        "protocol": {"limits": {"global": {"count": 4, "bytes": 256}, "tenant": {"count": 2, "bytes": 128}}, "lease_ticks": 5},
        "groups": {text: {"shows": text, "steps": [{"verb": text,
            "request": {"id": text, "tenant": text, "payload": {"text": text, "times": 1, "bytes": 3}},
            "answer": text, "because": {"budget": text}, "usage": [1, 3], "tenants": {text: [1, 3]}}],
            "end": {"tasks": [{"id": text}]}}}})
}

fn part(subject: Subject, name: &str, baseline: &Json, actual: &Json, run: Run) -> Part {
    let seen = vec![Seen { name: name.to_owned(), sentence: name.to_owned(), run }];
    let (baseline, actual) = (document(baseline), document(actual));
    let outcome = judge(subject, "results.json", Scope::Whole, &baseline, &actual, seen);
    Part { outcome, seen: Some(actual) }
}

fn groups(name: &str, baseline: &Json, actual: &Json, run: Run) -> Part {
    part(baseline::GROUPS, name, baseline, actual, run)
}

fn matrix(frozen: Result<Document, String>) -> Matrix {
    Matrix { subject: baseline::FLAWS, heading: "Flaws", command: "again", frozen }
}

fn report(groups: Part) -> Report {
    let surroundings = Surroundings {
        results: Some("5e".repeat(32)),
        sweeps: None,
        lock: "10c".to_owned(),
        binary: Some("b1".repeat(32)),
        commit: Some(Commit { id: "c0ffee".to_owned(), tree: Tree::Changed }),
        sqlite: "3.0.0",
        settings: Ok(Vec::new()),
        kernel: None,
        file_system: None,
        cores: None,
    };
    let unread = || Err("there is no such file".to_owned());
    let matrices = [matrix(unread()), matrix(unread())];
    let sweeps = Sweeps::Frozen(unread());
    Report { groups, sweeps, matrices, heats: Vec::new(), surroundings, command: "again".to_owned() }
}

fn texts(report: &Report) -> [String; 2] {
    [page::html(report), summary::markdown(report)]
}

/// What a page's reader sees of a text.
fn escaped(text: &str) -> String {
    html! { (visible(text)) }.into_string()
}

#[test]
fn markup_in_a_payload_a_tenant_or_any_name_is_text() {
    let figures = json!({"sweeps": {MARKUP: {"shows": MARKUP, MARKUP: {"deep": {"deeper": {MARKUP: MARKUP}}}}}});
    let flaws = json!({"flaws": {MARKUP: {"wrong": MARKUP, "convicted_by": {MARKUP: [MARKUP]}}}});
    let lane = || Lane {
        request_id: MARKUP.to_owned(),
        tenant: MARKUP.to_owned(),
        answer: MARKUP.to_owned(),
        instants: [1, 2, 3],
    };
    let runs = [Run::Measured, Run::Broken(vec![MARKUP.to_owned()]), Run::NotMeasured(MARKUP.to_owned())];
    for run in runs {
        let report = Report {
            sweeps: Sweeps::Frozen(Ok(document(&figures))),
            matrices: [matrix(Ok(document(&flaws))), matrix(Err(MARKUP.to_owned()))],
            heats: vec![("race", Heat { lanes: vec![lane(), lane()] })],
            ..report(groups(MARKUP, &story("other"), &story(MARKUP), run))
        };
        let [html, markdown] = texts(&report);
        assert!(html.matches(&escaped(MARKUP)).count() >= 20, "{}", html.matches(&escaped(MARKUP)).count());
        for text in [&html, &markdown] {
            for active in ["<script", "\u{202e}"] {
                let around = text.find(active).map(|at| text[..at].chars().rev().take(80).collect::<String>());
                assert_eq!(around, None, "{active:?}, and what stands before it, backwards");
            }
        }
        // The one style element is the page's own.
        assert_eq!((html.matches("</style").count(), html.matches("<style").count()), (1, 1));
        assert!(markdown.contains("&lt;/style&gt;"));
        for active in [" @somebody", "[x](y)", "*_", "'`|"] {
            assert!(!markdown.contains(active), "{active} in {markdown}");
        }
    }
}

#[test]
fn nothing_is_fetched_and_nothing_is_run() {
    let [html, _] = texts(&report(groups("a", &story("a"), &story("a"), Run::Measured)));
    for active in
        ["<script", "<link", "<img", "<iframe", "src=", "@import", "url(", "onload", "javascript:", "http-equiv"]
    {
        assert!(!html.contains(active), "{active}");
    }
    // A name space is no address.
    assert!(!html.replace("http://www.w3.org/2000/svg", "").contains("://"));
}

#[test]
fn a_run_that_fails_says_so_in_words_and_shows_the_difference_first() {
    let mut actual = story("a");
    actual["groups"]["a"]["steps"][0]["answer"] = json!("conflict");
    let report = report(groups("a", &story("a"), &actual, Run::Measured));
    let pointer = "/groups/a/steps/0/answer";
    for text in texts(&report) {
        let at = |wanted: &str| text.find(wanted).unwrap_or_else(|| panic!("{wanted} in {text}"));
        assert!(at("FAIL: 1 difference in 1 of 1 groups") < at(pointer));
        for later in ["DIFFERS (1)", "conflict"] {
            assert!(at(pointer) < text.rfind(later).unwrap());
        }
        for later in ["The scenario groups", "What was compared", "Crash matrix"] {
            assert!(text.find(later).is_none_or(|later| at(pointer) < later), "{later}");
        }
    }
    assert!(page::html(&report).contains("<title>FAIL · "));
    assert!(page::html(&report).contains(r#"<p class="word">FAIL</p>"#));
}

#[test]
fn what_could_not_be_measured_or_compared_is_no_pass() {
    let unmeasured = groups("a", &story("a"), &story("a"), Run::NotMeasured("it hung".to_owned()));
    let unread = Part { outcome: Outcome::cannot_check(baseline::GROUPS, "results.json", "it is torn"), seen: None };
    for (part, word, why) in [(unmeasured, "INCONCLUSIVE", "it hung"), (unread, "CANNOT CHECK", "it is torn")] {
        let report = report(part);
        for text in texts(&report) {
            assert!(text.contains(word) && text.contains(why), "{text}");
            assert!(!text.contains("PASS"), "{text}");
        }
        let statement: Json = serde_json::from_str(&statement::json(&report)).unwrap();
        assert_eq!(statement["predicate"]["result"], "FAILED");
        assert_ne!(statement["predicate"]["failedTests"], json!([]));
        assert_eq!(statement["predicate"]["passedTests"], json!([]));
    }
}

#[test]
fn the_worst_part_is_the_verdict_and_stands_on_the_last_line() {
    let groups = groups("a", &story("a"), &story("a"), Run::Measured);
    let (was, now) = (json!({"sweeps": {"kill": {"lost": 0}}}), json!({"sweeps": {"kill": {"lost": 1}}}));
    let sweeps = Sweeps::Run(part(baseline::SWEEPS, "kill", &was, &now, Run::Measured));
    let report = Report { sweeps, ..report(groups) };
    assert_eq!(report.verdict(), Verdict::Fail);
    let lines = report.verdict_lines();
    assert!(lines[0].starts_with("PASS: 1 scenario group") && lines[1].starts_with("FAIL: 1 difference"), "{lines:?}");
    let statement: Json = serde_json::from_str(&statement::json(&report)).unwrap();
    let predicate = &statement["predicate"];
    assert_eq!(predicate["result"], "FAILED");
    assert_eq!((&predicate["passedTests"], &predicate["failedTests"]), (&json!(["groups/a"]), &json!(["sweeps/kill"])));
}

#[test]
fn figures_that_were_not_run_now_say_so() {
    let figures = json!({"sweeps": {"power": {"all": {"states": 1234567, "images": 89, "lost": 0, "broken": 0}}}});
    let frozen = Sweeps::Frozen(Ok(document(&figures)));
    let groups = || groups("a", &story("a"), &story("a"), Run::Measured);
    for text in texts(&Report { sweeps: frozen, ..report(groups()) }) {
        assert!(
            text.contains("1,234,567 states of the disk, which are 89 distinct images; lost 0, broken 0"),
            "{text}"
        );
        assert!(text.contains("as frozen; not run now") && text.contains("rozen, not run now"), "{text}");
    }
    let run = Sweeps::Run(part(baseline::SWEEPS, "power", &figures, &figures, Run::Measured));
    for text in texts(&Report { sweeps: run, ..report(groups()) }) {
        assert!(text.contains("lost 0, broken 0 (in this run)"), "{text}");
    }
}

#[test]
fn what_is_lost_on_purpose_is_told_apart() {
    for (name, told) in [("teeth", true), ("power", false)] {
        let sweeps = Sweeps::Frozen(Ok(document(&json!({"sweeps": {name: {"lost": 7, "broken": 1}}}))));
        for text in texts(&Report { sweeps, ..report(groups("a", &story("a"), &story("a"), Run::Measured)) }) {
            assert_eq!(text.contains("wrong on purpose"), told, "{text}");
        }
    }
}

#[test]
fn what_convicted_a_flaw_is_named_and_what_is_told_of_it_is_kept() {
    let flaws = json!({"flaws": {
        "one": {"wrong": "it lies.", "shipped_by": "a queue.", "convicted_by": {"groups": ["a", "b"], "sweeps": []}},
        "two": {"equivalent": "nobody can tell."}}});
    let groups = groups("a", &story("a"), &story("a"), Run::Measured);
    let matrices = [matrix(Ok(document(&flaws))), matrix(Err("torn".to_owned()))];
    let [html, markdown] = texts(&Report { matrices, ..report(groups) });
    for told in
        ["convicted by groups", "<b>2</b>: a, b", "it lies.", "shipped by: a queue.", "equivalent: nobody can tell."]
    {
        assert!(html.contains(told), "{told}");
    }
    assert!(markdown.contains("of 2 convicted 1 by groups, 0 by sweeps"), "{markdown}");
}

#[test]
fn a_race_that_breaks_in_a_later_heat_is_broken() {
    let broken = || Run::Broken(vec!["lost".to_owned()]);
    let unknown = || Run::NotMeasured("hung".to_owned());
    assert!(matches!(worse(Run::Measured, Run::Measured), Run::Measured));
    for (first, again) in
        [(Run::Measured, broken()), (broken(), Run::Measured), (unknown(), broken()), (broken(), unknown())]
    {
        assert!(matches!(worse(first, again), Run::Broken(_)));
    }
    for (first, again) in [(Run::Measured, unknown()), (unknown(), Run::Measured)] {
        assert!(matches!(worse(first, again), Run::NotMeasured(_)));
    }
}

/// spec/v1/statement.md, resource_descriptor.md and predicates/test-result.md of in-toto/attestation.
#[test]
fn the_statement_is_shaped_as_in_toto_wants_it() {
    let report = report(groups("a", &story("a"), &story("a"), Run::Measured));
    let statement: Json = serde_json::from_str(&statement::json(&report)).unwrap();
    let names = |value: &Json| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&statement), ["_type", "predicate", "predicateType", "subject"]);
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["predicateType"], "https://in-toto.io/attestation/test-result/v0.1");
    let digests = |list: &Json| {
        let digest =
            |of: &Json| (of["name"].as_str().unwrap().to_owned(), of["digest"]["sha256"].as_str().unwrap().to_owned());
        list.as_array().unwrap().iter().map(digest).collect::<Vec<_>>()
    };
    let pair = |name: &str, digest: &str| (name.to_owned(), digest.to_owned());
    let (binary, lock) = (pair("durable-admission", &"b1".repeat(32)), pair("Cargo.lock", "10c"));
    let results = pair("results.json", &"5e".repeat(32));
    assert_eq!(digests(&statement["subject"]), [binary, lock.clone(), results.clone()]);
    let annotations = json!({"gitCommit": "c0ffee", "treeIsClean": false, "sqliteVersion": "3.0.0"});
    assert_eq!(statement["subject"][0]["annotations"], annotations);
    let predicate = &statement["predicate"];
    assert_eq!(names(predicate), ["configuration", "failedTests", "passedTests", "result", "warnedTests"]);
    assert_eq!(predicate["result"], "PASSED");
    assert_eq!(digests(&predicate["configuration"]), [results, lock]);
    assert_eq!(predicate["passedTests"], json!(["groups/a"]));
    assert_eq!((&predicate["warnedTests"], &predicate["failedTests"]), (&json!([]), &json!([])));
}
