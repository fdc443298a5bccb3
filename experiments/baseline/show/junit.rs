//! JUnit XML, the part of it that Jenkins and GitLab both read: one test case per entry.
//!
//! Written by hand: it is four elements, while the crate for it (quick-junit) brings an XML parser, clocks and UUIDs
//! into the lock file, and silently drops control characters, which here may be the very difference.

use super::{text, verdict_line, visible};
use crate::baseline::compare::Difference;
use crate::baseline::outcome::{Entry, Finding, Outcome, Status};

pub(super) fn render(outcome: &Outcome) -> String {
    let cases = cases(outcome);
    let of = |wanted: Element| cases.iter().filter(|case| case.element == wanted).count();
    let counts = format!(
        r#"tests="{}" failures="{}" errors="{}" skipped="0""#,
        cases.len(),
        of(Element::Failure),
        of(Element::Error)
    );
    let (suite, file) = (attribute(outcome.subject.many), attribute(&outcome.file));
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    xml += &format!("<testsuites name=\"durable-admission\" {counts}>\n");
    xml += &format!("  <testsuite name=\"{suite}\" {counts}>\n");
    for case in &cases {
        let (name, class) = (attribute(&case.name), attribute(outcome.subject.member));
        let open = format!("    <testcase name=\"{name}\" classname=\"{class}\" file=\"{file}\"");
        let (message, body) = (attribute(&case.message), content(&case.body));
        xml += &match case.element {
            Element::None => format!("{open}/>\n"),
            Element::Failure => format!(
                "{open}>\n      <failure type=\"failure\" message=\"{message}\">{body}</failure>\n    </testcase>\n"
            ),
            Element::Error => format!(
                "{open}>\n      <error type=\"not measured\" message=\"{message}\">{body}</error>\n    </testcase>\n"
            ),
        };
    }
    xml + "  </testsuite>\n</testsuites>\n"
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    None,
    Failure,
    Error,
}

struct Case {
    name: String,
    element: Element,
    message: String,
    body: String,
}

fn cases(outcome: &Outcome) -> Vec<Case> {
    let entries = outcome.entries().iter().map(|entry| case(outcome, entry));
    let mut cases: Vec<Case> = entries.collect();
    if !outcome.outside().is_empty() {
        cases.push(Case {
            name: format!("outside the {}", outcome.subject.member),
            element: Element::Failure,
            message: first_pointer(outcome.outside()),
            body: text::differences_alone(outcome, outcome.outside()),
        });
    }
    // A report without a case is read as nothing wrong.
    if cases.is_empty() {
        let why = match &outcome.finding {
            Finding::CannotCheck(why) => why.clone(),
            Finding::Compared { .. } => verdict_line(outcome),
        };
        cases.push(Case {
            name: format!("check of {}", outcome.file),
            element: Element::Error,
            message: why,
            body: String::new(),
        });
    }
    cases
}

fn case(outcome: &Outcome, entry: &Entry) -> Case {
    let name = entry.name.clone();
    let differences = entry.status.differences();
    let details = text::differences_alone(outcome, differences);
    match &entry.status {
        Status::Agrees => Case { name, element: Element::None, message: String::new(), body: String::new() },
        Status::Differs(_) => {
            Case { name, element: Element::Failure, message: first_pointer(differences), body: details }
        }
        Status::Broken { sentences, .. } => {
            let broken: String = sentences.iter().map(|s| format!("broken: {}\n", visible(s))).collect();
            Case { name, element: Element::Failure, message: sentences.join("; "), body: broken + &details }
        }
        Status::NotMeasured(why) => Case { name, element: Element::Error, message: why.clone(), body: String::new() },
    }
}

/// What a list of failed tests shows: the first difference, and how many more.
fn first_pointer(differences: &[Difference]) -> String {
    let Some(first) = differences.first() else {
        return String::new();
    };
    let more = match differences.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} at {}{more}", first.kind.name(), first.pointer)
}

/// On one line, as line ends in attributes are normalised away.
fn attribute(text: &str) -> String {
    escaped(&visible(text)).replace('"', "&quot;")
}

/// The lines given are visible already; what stays is `\n`, the one control character among them.
fn content(lines: &str) -> String {
    escaped(lines)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
