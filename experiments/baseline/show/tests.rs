use super::*;
use crate::baseline::outcome::{Run, Scope, Seen, judge};
use crate::baseline::read::{Document, Node, Value};
use crate::baseline::{GROUPS, SWEEPS, Subject};

const BASELINE: &str = r#"{
  "format": 1,
  "groups": {
    "identity": {
      "answer": "accepted",
      "usage": [1, 3]
    },
    "race": {
      "accepted": 4
    }
  }
}
"#;

fn outcome_of(baseline: &str, actual: &str, runs: Vec<(&str, Run)>) -> Outcome {
    let read = |text: &str| Document::read(text.as_bytes()).expect("test text");
    let seen = runs.into_iter().map(|(name, run)| Seen {
        name: name.to_string(),
        sentence: format!("what {name} shows"),
        run,
    });
    judge(GROUPS, "results.json", Scope::Whole, &read(baseline), &read(actual), seen.collect())
}

fn measured(actual: &str) -> Outcome {
    outcome_of(BASELINE, actual, vec![("identity", Run::Measured), ("race", Run::Measured)])
}

fn changed() -> Outcome {
    measured(
        r#"{"format": 1, "groups": {"identity": {"answer": "replay", "usage": [1, 3]}, "race": {"accepted": 4, "full": null}}}"#,
    )
}

/// Both strings at `/groups/identity/text`.
fn texts(expected: &str, actual: &str) -> Outcome {
    let text = |content: &str| {
        let content = crate::baseline::write::quoted(content);
        format!(r#"{{"groups": {{"identity": {{"text": {content}}}}}}}"#)
    };
    outcome_of(&text(expected), &text(actual), vec![("identity", Run::Measured)])
}

fn plain(outcome: &Outcome) -> String {
    render(outcome, Format::Text, Style::Plain, Extent::Capped)
}

fn last_line(outcome: &Outcome) -> String {
    plain(outcome).lines().last().expect("a line").to_string()
}

#[test]
fn the_text_names_every_difference_and_ends_with_the_verdict() {
    assert_eq!(
        plain(&changed()),
        r#"differs       identity: what identity shows
  /groups/identity/answer  value  (results.json:5:17)
    expected  "accepted"
    actual    "replay"
differs       race: what race shows
  /groups/race/full  extra  (results.json:8:13)
    actual    null
FAIL: 2 differences in 2 of 2 groups
"#
    );
}

#[test]
fn the_verdict_line_is_exact() {
    let pass = |subject: Subject, n: usize| {
        let text = format!(r#"{{"{}": {{}}}}"#, subject.member);
        let document = Document::read(text.as_bytes()).expect("test text");
        let seen = (0..n).map(|i| Seen { name: i.to_string(), sentence: String::new(), run: Run::Measured });
        verdict_line(&judge(subject, "results.json", Scope::Whole, &document, &document, seen.collect()))
    };
    assert_eq!(pass(GROUPS, 11), "PASS: 11 scenario groups match results.json");
    assert_eq!(pass(GROUPS, 1), "PASS: 1 scenario group matches results.json");
    assert_eq!(pass(SWEEPS, 3), "PASS: 3 sweeps match results.json");
    assert_eq!(pass(SWEEPS, 0), "INCONCLUSIVE: no sweep was compared with results.json");
    let baseline = Document::read(BASELINE.as_bytes()).expect("test text");
    let race = Seen { name: "race".into(), sentence: String::new(), run: Run::Measured };
    let race_alone = Document::read(br#"{"format": 1, "groups": {"race": {"accepted": 4}}}"#).expect("test text");
    let selected = judge(GROUPS, "results.json", Scope::Selected, &baseline, &race_alone, vec![race]);
    assert_eq!(verdict_line(&selected), "PASS: 1 of 2 scenario groups matches results.json");
    let one = measured(&BASELINE.replace("accepted\"", "x\"").replace("\"x\": 4", "\"accepted\": 4"));
    assert_eq!(last_line(&one), "FAIL: 1 difference in 1 of 2 groups");
    let outside = measured(&BASELINE.replace("\"format\": 1", "\"format\": 2"));
    assert_eq!(last_line(&outside), "FAIL: 1 difference outside the groups");
    let both = outcome_of(
        BASELINE,
        r#"{"format": 1, "groups": {"identity": {"usage": [1, 3]}}}"#,
        vec![
            ("identity", Run::Broken(vec!["usage is above the limit".into(), "an intent has no task".into()])),
            ("race", Run::NotMeasured("a child could not be started".into())),
        ],
    );
    assert_eq!(
        last_line(&both),
        "FAIL: 1 difference in 1 of 2 groups, 2 broken expectations, 1 of 2 groups not measured"
    );
    let unsteady = outcome_of(
        BASELINE,
        &BASELINE
            .replace("\"race\"", "\"gone\"")
            .replace("\"gone\": {\n      \"accepted\": 4\n    }", "\"race\": null"),
        vec![("identity", Run::Measured), ("race", Run::NotMeasured("three runs, two answers".into()))],
    );
    assert_eq!(last_line(&unsteady), "INCONCLUSIVE: 1 of 2 scenario groups could not be measured");
    let gone = Outcome::cannot_check(GROUPS, "results.json", "results.json: there is no such file; create it");
    assert_eq!(plain(&gone), "CANNOT CHECK: results.json: there is no such file; create it\n");
}

#[test]
fn the_verdict_line_says_what_was_done_about_the_file() {
    let after = |deed| verdict_line(&changed().with(deed));
    assert_eq!(after(Deed::Created), "CREATED results.json with 2 scenario groups: review it");
    assert_eq!(after(Deed::Written), "WROTE results.json: 2 differences in 2 of 2 groups");
    assert_eq!(after(Deed::DryRun), "DRY RUN: 2 differences in 2 of 2 groups, nothing written");
    assert_eq!(
        after(Deed::Refused("chmod\nfirst".into())),
        r"REFUSED: 2 differences in 2 of 2 groups, results.json not written: chmod\nfirst"
    );
    let agreeing = |deed| verdict_line(&measured(BASELINE).with(deed));
    assert_eq!(agreeing(Deed::Unchanged), "UNCHANGED: 2 scenario groups match results.json, which was not written");
    assert_eq!(agreeing(Deed::DryRun), "DRY RUN: 0 differences, nothing written");
}

#[test]
fn quiet_is_the_verdict_alone() {
    let quiet = render(&changed(), Format::Text, Style::Plain, Extent::Verdict);
    assert_eq!(quiet, "FAIL: 2 differences in 2 of 2 groups\n");
}

#[test]
fn the_cap_counts_what_it_leaves_out_and_full_lifts_it() {
    let list = |letter: &str| {
        let names: Vec<String> = (0..120).map(|i| format!("\"{i}\": \"{letter}\"")).collect();
        format!(r#"{{"groups": {{"identity": {{{}}}}}}}"#, names.join(", "))
    };
    let outcome = outcome_of(&list("a"), &list("b"), vec![("identity", Run::Measured)]);
    let capped = plain(&outcome);
    assert_eq!(capped.matches("  value  (").count(), MOST_SHOWN);
    assert!(
        capped
            .ends_with("... 70 more differences not shown; --full shows all\nFAIL: 120 differences in 1 of 1 groups\n")
    );
    let full = render(&outcome, Format::Text, Style::Plain, Extent::Full);
    assert_eq!(full.matches("  value  (").count(), 120);
    assert!(!full.contains("not shown"));
}

#[test]
fn long_values_are_cut_and_full_lifts_it() {
    let long = "[".to_string() + &["12345"; 100].join(", ") + "]";
    let actual = format!(r#"{{"groups": {{"identity": {long}}}}}"#);
    let outcome = outcome_of(r#"{"groups": {"identity": 1}}"#, &actual, vec![("identity", Run::Measured)]);
    assert!(plain(&outcome).contains("…(540 more characters)"), "{}", plain(&outcome));
    assert!(render(&outcome, Format::Text, Style::Plain, Extent::Full).contains(&long));
}

#[test]
fn nothing_acts_or_hides_in_the_text() {
    let nasty = "\u{1b}[2J\u{202e}\u{2066}\u{200b}\u{7f}\u{9b}\u{e0041}\u{feff}e\u{301}\r\n::error::\u{7}\u{a0}";
    let outcome = outcome_of(
        &format!(r#"{{"groups": {{"i": {{}}, {}: 1}}}}"#, crate::baseline::write::quoted(nasty)),
        r#"{"groups": {"i": {}}}"#,
        vec![("i", Run::Broken(vec![nasty.to_string()]))],
    );
    let unreadable = Outcome::cannot_check(GROUPS, nasty, nasty);
    for outcome in
        [outcome, unreadable, texts(nasty, "x"), texts(nasty, &nasty.repeat(9)), texts(&nasty.repeat(9), "a\nb")]
    {
        for format in [Format::Text, Format::Json, Format::Junit, Format::Github] {
            let shown = render(&outcome, format, Style::Plain, Extent::Full);
            let acting = shown.chars().find(|c| *c != '\n' && is_hidden(*c));
            assert_eq!(acting, None, "{format:?}: {shown:?}");
            assert!(!shown.contains("\n::error::"), "{format:?}: a command slipped in: {shown}");
        }
    }
    assert_eq!(
        visible(nasty),
        r"\u001b[2J\u202e\u2066\u200b\u007f\u009b\udb40\udc41\ufeffe\u0301\r\n::error::\u0007\u00a0"
    );
}

#[test]
fn composed_and_decomposed_text_are_told_apart() {
    let shown = plain(&texts("\u{e9}", "e\u{301}"));
    assert!(shown.contains("expected  \"é\"\n    actual    \"e\\u0301\"\n"), "{shown}");
}

#[test]
fn long_strings_show_where_they_part() {
    let words = "the quick brown fox jumps over the lazy dog and the store is full at four tasks because a cap is not a reservation";
    let shown = plain(&texts(words, &words.replace("lazy", "sleepy")));
    assert!(shown.contains("jumps over the [-lazy-]{+sleepy+} dog and the store"), "{shown}");
    let chinese = "持久接纳".repeat(30);
    let shown = plain(&texts(&chinese, &format!("{chinese}。")));
    let kept = "持久接纳".repeat(5);
    assert!(shown.contains(&format!("    \"{kept}…(80 equal)…{kept}{{+。+}}\"\n")), "{shown}");
    // Words are compared only where both sides have some.
    let half = "持久接纳".repeat(15);
    let shown = plain(&texts(&chinese, &format!("{half} {half}")));
    assert!(shown.contains(&format!("    \"{half}{{+ +}}{half}\"\n")), "{shown}");
    let quotes = "\"\\".repeat(40);
    let shown = plain(&texts(&quotes, &format!("{quotes}\"")));
    assert!(shown.contains(r#"\"\\{+\"+}""#), "{shown}");
}

#[test]
fn texts_of_several_lines_are_shown_by_line() {
    let lines: Vec<String> = (0..30).map(|i| format!("line {i}")).collect();
    let old = lines.join("\n");
    let shown = plain(&texts(&old, &old.replace("line 15\n", "line 15\r\n")));
    let expected = "      \"line 14\\n\"\n    - \"line 15\\n\"\n    + \"line 15\\r\\n\"\n      \"line 16\\n\"\n";
    assert!(shown.contains(expected), "{shown}");
    assert!(!shown.contains("line 12"), "only a change's surroundings: {shown}");
    // Also where one side has a single line.
    for (expected, actual) in [("one\n", "one"), ("one", "one\n")] {
        let shown = plain(&texts(expected, actual));
        assert!(shown.contains("lines: - expected, + actual\n") && shown.contains("\"one\\n\"\n"), "{shown}");
    }
}

#[test]
fn the_lines_that_differ_are_counted_where_they_are_left_out() {
    let lines = |letter: &str, n: usize| format!("{letter}\n").repeat(n);
    let just_fit = plain(&texts(&lines("a", 25), &lines("b", 15)));
    assert_eq!(just_fit.matches("\\n\"\n").count(), 40, "{just_fit}");
    assert!(!just_fit.contains("not shown"), "{just_fit}");
    let outcome = texts(&lines("a", 25), &lines("b", 20));
    let cut = plain(&outcome);
    assert_eq!(cut.matches("\\n\"\n").count(), 40, "{cut}");
    assert!(cut.contains("    ... 5 more lines not shown; --full shows all\n"), "{cut}");
    let full = render(&outcome, Format::Text, Style::Plain, Extent::Full);
    assert_eq!(full.matches("\\n\"\n").count(), 45, "{full}");
    assert!(!full.contains("not shown"), "{full}");
}

#[test]
fn a_broken_sentence_of_several_lines_keeps_them() {
    let broken = Run::Broken(vec!["no order explains it\nadmit(one): accepted\nadmit(one): accepted".into()]);
    let shown = plain(&outcome_of(BASELINE, BASELINE, vec![("identity", broken), ("race", Run::Measured)]));
    let expected = "  broken: no order explains it\n    admit(one): accepted\n    admit(one): accepted\n";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn color_only_when_asked_and_nothing_else_changes() {
    let color = render(&changed(), Format::Text, Style::Ansi, Extent::Capped);
    let stripped =
        ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[0m"].iter().fold(color.clone(), |text, code| text.replace(code, ""));
    assert_ne!(color, stripped);
    assert_eq!(stripped, plain(&changed()));
}

#[test]
fn json_carries_everything_and_reads_back() {
    let shown = render(&changed(), Format::Json, Style::Ansi, Extent::Verdict);
    let read: serde_json::Value = serde_json::from_str(&shown).expect("json");
    assert_eq!((&read["schema_version"], &read["verdict"], &read["exit_code"]), (&1.into(), &"fail".into(), &1.into()));
    assert_eq!(read["summary"], "FAIL: 2 differences in 2 of 2 groups");
    let first = &read["entries"][0]["differences"][0];
    assert_eq!(
        *first,
        serde_json::json!({"pointer": "/groups/identity/answer", "kind": "value", "line": 5, "column": 17, "expected": "accepted", "actual": "replay"})
    );
    let extra = &read["entries"][1]["differences"][0];
    assert!(extra.get("expected").is_none(), "absent, not null");
    assert_eq!(extra.get("actual"), Some(&serde_json::Value::Null));
    let gone = render(
        &Outcome::cannot_check(GROUPS, "results.json", "no\u{202e}ne"),
        Format::Json,
        Style::Plain,
        Extent::Full,
    );
    let read: serde_json::Value = serde_json::from_str(&gone).expect("json");
    assert_eq!((&read["verdict"], &read["why"]), (&"cannot-check".into(), &"no\u{202e}ne".into()));
    assert!(gone.contains(r"no\u202ene"));
}

#[test]
fn junit_has_one_case_for_each_entry_and_escapes() {
    let outcome = outcome_of(
        r#"{"format": 1, "groups": {"a<&\">": "\u0007<b>", "b": 1, "c": 1}}"#,
        r#"{"format": 2, "groups": {"a<&\">": "]]>", "b": 1}}"#,
        vec![("a<&\">", Run::Measured), ("b", Run::Measured), ("c", Run::NotMeasured("a child hung".into()))],
    );
    assert_eq!(
        render(&outcome, Format::Junit, Style::Plain, Extent::Capped),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="durable-admission" tests="4" failures="2" errors="1" skipped="0">
  <testsuite name="scenario groups" tests="4" failures="2" errors="1" skipped="0">
    <testcase name="a&lt;&amp;&quot;&gt;" classname="groups" file="results.json">
      <failure type="failure" message="value at /groups/a&lt;&amp;&quot;&gt;">  /groups/a&lt;&amp;"&gt;  value  (results.json:1:36)
    expected  "\u0007&lt;b&gt;"
    actual    "]]&gt;"
</failure>
    </testcase>
    <testcase name="b" classname="groups" file="results.json"/>
    <testcase name="c" classname="groups" file="results.json">
      <error type="not measured" message="a child hung"></error>
    </testcase>
    <testcase name="outside the groups" classname="groups" file="results.json">
      <failure type="failure" message="value at /format">  /format  value  (results.json:1:12)
    expected  1
    actual    2
</failure>
    </testcase>
  </testsuite>
</testsuites>
"#
    );
}

#[test]
fn junit_without_an_entry_is_an_error_and_no_empty_report() {
    let gone =
        render(&Outcome::cannot_check(GROUPS, "results.json", "it is gone"), Format::Junit, Style::Plain, Extent::Full);
    assert!(gone.contains(r#"tests="1" failures="0" errors="1""#), "{gone}");
    assert!(gone.contains(r#"message="it is gone""#), "{gone}");
}

#[test]
fn github_annotations_stand_on_the_baselines_line_and_are_escaped() {
    assert_eq!(
        render(&changed(), Format::Github, Style::Ansi, Extent::Verdict),
        "::error file=results.json,line=5,col=17,title=value at /groups/identity/answer::expected \"accepted\"%0Aactual \"replay\"\n\
         ::error file=results.json,line=8,col=13,title=extra at /groups/race/full::actual null\n\
         FAIL: 2 differences in 2 of 2 groups\n"
    );
    let mut outcome = outcome_of(
        r#"{"groups": {"100%: a,b": "50%"}}"#,
        r#"{"groups": {"100%: a,b": "1,2:\r\n"}}"#,
        vec![("100%: a,b", Run::Broken(vec!["100% :: broken\nindeed".into()]))],
    );
    outcome.file = "a, b: 100%/results.json".into();
    assert_eq!(
        render(&outcome, Format::Github, Style::Plain, Extent::Full),
        "::error file=a%2C b%3A 100%25/results.json,line=1,col=26,title=100%25%3A a%2Cb%3A broken::100%25 :: broken%0Aindeed\n\
         ::error file=a%2C b%3A 100%25/results.json,line=1,col=26,title=value at /groups/100%25%3A a%2Cb::expected \"50%25\"%0Aactual \"1,2:\\r\\n\"\n\
         FAIL: 1 difference in 1 of 1 groups, 1 broken expectation\n"
    );
}

#[test]
fn a_long_value_is_cut_in_an_annotation_and_the_cut_is_marked() {
    let shown = |n: usize| {
        let outcome = texts(&"中".repeat(n), "x");
        render(&outcome, Format::Github, Style::Plain, Extent::Full)
    };
    // 200 characters with their quotes.
    assert!(shown(198).contains(&format!("::expected \"{}\"%0Aactual \"x\"\n", "中".repeat(198))), "{}", shown(198));
    assert!(shown(199).contains(&format!("::expected \"{}…%0Aactual \"x\"\n", "中".repeat(199))), "{}", shown(199));
}

#[test]
fn what_visible_shows_inside_quotes_is_the_same_json() {
    let hidden: String = (0..=0x10ffff_u32).filter_map(char::from_u32).filter(|c| is_hidden(*c)).collect();
    let shown = visible(&crate::baseline::write::quoted(&hidden));
    let Node { value, .. } = Document::read(shown.as_bytes()).expect("json").root().clone();
    assert!(value == Value::Text(hidden));
}
