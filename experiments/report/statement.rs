//! The in-toto statement of a test result, for programs: `https://in-toto.io/Statement/v1` with the predicate
//! `https://in-toto.io/attestation/test-result/v0.1`. It is not signed; who publishes it signs it.

use serde::Serialize;

use super::surroundings::{Sha256Hex, Tree};
use super::{RESULTS, Report, SWEEPS, Sweeps};
use crate::baseline::outcome::{Status, Verdict};

#[derive(Serialize)]
struct Statement<'r> {
    #[serde(rename = "_type")]
    kind: &'static str,
    subject: Vec<Resource<'r>>,
    #[serde(rename = "predicateType")]
    predicate_type: &'static str,
    predicate: TestResult<'r>,
}

/// A resource descriptor. A subject must have a digest.
#[derive(Clone, Serialize)]
struct Resource<'r> {
    name: &'static str,
    digest: Digests<'r>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations<'r>>,
}

#[derive(Clone, Copy, Serialize)]
struct Digests<'r> {
    sha256: &'r str,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Annotations<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    git_commit: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_is_clean: Option<bool>,
    sqlite_version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TestResult<'r> {
    result: &'static str,
    configuration: Vec<Resource<'r>>,
    passed_tests: Vec<String>,
    warned_tests: Vec<String>,
    failed_tests: Vec<String>,
}

pub fn json(report: &Report) -> String {
    let about = &report.surroundings;
    let annotations = Annotations {
        git_commit: about.commit.as_ref().map(|commit| commit.id.as_str()),
        tree_is_clean: about.commit.as_ref().map(|commit| commit.tree == Tree::Clean),
        sqlite_version: about.sqlite,
    };
    let binary = resource(env!("CARGO_PKG_NAME"), &about.binary);
    let lock = Resource { name: "Cargo.lock", digest: Digests { sha256: &about.lock }, annotations: None };
    let results = resource(RESULTS, &about.results);
    let sweeps = match report.sweeps {
        Sweeps::Run(_) => resource(SWEEPS, &about.sweeps),
        Sweeps::Frozen(_) => None,
    };
    let configuration = results.clone().into_iter().chain(sweeps).chain([lock.clone()]).collect();
    let binary = binary.map(|binary| Resource { annotations: Some(annotations), ..binary });
    let (passed_tests, failed_tests) = tests(report);
    let statement = Statement {
        kind: "https://in-toto.io/Statement/v1",
        subject: binary.into_iter().chain([lock]).chain(results).collect(),
        predicate_type: "https://in-toto.io/attestation/test-result/v0.1",
        predicate: TestResult {
            result: result(report.verdict()),
            configuration,
            passed_tests,
            warned_tests: Vec::new(),
            failed_tests,
        },
    };
    // Text and lists alone: there is nothing in it that JSON could not hold.
    serde_json::to_string_pretty(&statement).unwrap_or_default() + "\n"
}

fn resource<'r>(name: &'static str, sha256: &'r Option<Sha256Hex>) -> Option<Resource<'r>> {
    sha256.as_deref().map(|sha256| Resource { name, digest: Digests { sha256 }, annotations: None })
}

/// The predicate has no word for what could not be measured. A policy may let WARNED through, so that would dress it up
/// as a pass.
fn result(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASSED",
        Verdict::Fail | Verdict::Unreadable | Verdict::NotMeasured => "FAILED",
    }
}

/// Those that passed, and all others.
fn tests(report: &Report) -> (Vec<String>, Vec<String>) {
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    for outcome in report.parts().map(|part| &part.outcome) {
        let of = outcome.subject.member;
        for entry in outcome.entries() {
            match entry.status {
                Status::Agrees => passed.push(format!("{of}/{}", entry.name)),
                Status::Differs(_) | Status::Broken { .. } | Status::NotMeasured(_) => {
                    failed.push(format!("{of}/{}", entry.name))
                }
            }
        }
        // What lies in no entry, or kept all of them from being run, is a failure of the whole.
        if !outcome.outside().is_empty() || outcome.entries().is_empty() {
            failed.push(of.to_owned());
        }
    }
    (passed, failed)
}
