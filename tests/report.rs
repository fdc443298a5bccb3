//! `report`, as a shell sees it.

mod place;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use place::{FROZEN, Place, differing_in, names};

const FILES: [&str; 3] = ["evidence.intoto.json", "report.html", "report.md"];

fn read(folder: &Path) -> [String; 3] {
    assert_eq!(names(folder), FILES);
    FILES.map(|name| fs::read_to_string(folder.join(name)).unwrap())
}

#[test]
fn a_run_that_agrees_is_reported_and_each_file_replaced_as_a_whole() {
    let place = Place::new();
    let folder = place.elsewhere("报告/of it");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("report.md"), "longer than it will be\n".repeat(10_000)).unwrap();
    let said = place.run(["report", "--out", folder.to_str().unwrap()]).code(0);
    assert_eq!(said.last_line(), "PASS: 11 scenario groups match results.json");
    let [statement, html, markdown] = read(&folder);
    for text in [&html, &markdown] {
        assert!(text.contains("PASS: 11 scenario groups match results.json"));
        assert!(
            text.contains("accepted 4, global") && text.contains("in 5 of 5"),
            "the races' outcomes over five runs"
        );
        for seen in ["a task queued", "a task done, its effect", "synchronous", "not known"] {
            assert!(text.contains(seen), "{seen}");
        }
    }
    assert!(!markdown.contains("longer than it will be"));
    assert_eq!(html.matches("<article").count(), 11);
    assert_eq!(html.matches("COMMIT of ").count(), 3);
    let statement: serde_json::Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(statement["predicate"]["result"], "PASSED");
    assert_eq!(statement["predicate"]["passedTests"].as_array().unwrap().len(), 11);
    // The frozen file is only read.
    place.holds(FROZEN);
}

#[test]
fn a_run_that_differs_is_reported_with_the_exit_code_of_its_verdict() {
    let place = Place::holding(differing_in("global-bytes"));
    let said = place.run(["report"]).code(1);
    assert_eq!(said.last_line(), "FAIL: 1 difference in 1 of 11 groups");
    let [statement, html, markdown] = read(&place.folder.join("target/report"));
    for text in [&html, &markdown] {
        let at = |wanted: &str| text.find(wanted).unwrap_or_else(|| panic!("no {wanted}"));
        assert!(at("FAIL") < at("/groups/global-bytes/steps/0/answer"));
        assert!(
            at("/groups/global-bytes/steps/0/answer") < at("identity-before-capacity"),
            "the difference comes first"
        );
    }
    let statement: serde_json::Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(statement["predicate"]["result"], "FAILED");
    assert_eq!(statement["predicate"]["failedTests"], serde_json::json!(["groups/global-bytes"]));
}

#[test]
fn a_baseline_that_can_not_be_read_is_reported_and_is_exit_code_2() {
    let place = Place::holding("{\"groups\": {");
    let said = place.run(["report"]).code(2);
    assert!(said.last_line().starts_with("CANNOT CHECK: "), "{said:?}");
    let [statement, html, _] = read(&place.folder.join("target/report"));
    assert!(html.contains("the file is torn"));
    assert!(statement.contains("\"FAILED\""));
}

#[test]
fn a_folder_that_can_not_be_one_is_a_sentence_and_nothing_is_played() {
    let place = Place::new();
    let file = place.results.to_str().unwrap().to_owned();
    let taken = place.elsewhere("taken");
    fs::create_dir_all(taken.join("report.html")).unwrap();
    let circle = place.elsewhere("circle");
    symlink(&circle, &circle).unwrap();
    let below = format!("{file}/below");
    let folders = [file.as_str(), &below, circle.to_str().unwrap(), taken.to_str().unwrap(), "/proc/none"];
    for folder in folders {
        let said = place.run(["report", "--out", folder]).code(2);
        assert_eq!(said.out, "");
        let named = said.err.starts_with(&format!("error: {folder}"));
        assert!(named && !said.err.contains("played") && said.err.lines().count() == 1, "{folder}: {said:?}");
    }
    place.holds(FROZEN);
}
