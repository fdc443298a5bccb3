//! The page: one file, no script, nothing fetched.

use durable_admission::Setting;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figures::{self, Totals};
use super::groups::{group, status_word};
use super::not_claimed::{self, Piece, pieces};
use super::surroundings::Tree;
use super::tree::{at, grouped, items, members, said};
use super::{Matrix, Part, Report, Sweeps, crashes, in_short, races, word};
use crate::baseline::Subject;
use crate::baseline::compare::Difference;
use crate::baseline::outcome::{Entry, Status, Verdict};
use crate::baseline::read::{Document, Node};
use crate::baseline::show::visible;
use crate::baseline::write::on_one_line;

const STYLE: &str = include_str!("style.css");

/// The page shows no more than this of either side of a difference, in characters.
const CUT: usize = 300;
/// And no more differences than this; the command line prints all.
const MOST_DIFFERENCES: usize = 100;

pub fn html(report: &Report) -> String {
    let verdict = report.verdict();
    let seen = report.groups.seen.as_ref();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (word(verdict)) " · evidence of durable admission" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Evidence of durable admission" }
                    div.verdict.(class(verdict)) {
                        p.word { (word(verdict)) }
                        @for line in report.verdict_lines().iter().rev() { p { (line) } }
                    }
                }
                main {
                    @if verdict != Verdict::Pass { (wrong(report)) }
                    (tiles(&report.groups))
                    (compared(report))
                    section #short {
                        h2 { "In short" }
                        dl { @for answer in in_short::answers(report) {
                            dt { (answer.question) }
                            dd { (answer.answer) }
                        }
                        dt { "What is not claimed?" }
                        dd { (not_claimed::items().len()) " things: " a href="#not-claimed" { "the list" } "." }
                        }
                    }
                    section #groups {
                        h2 { "Groups" }
                        (limits(seen))
                        @for (index, entry) in report.groups.outcome.entries().iter().enumerate() {
                            article id=(anchor(index)) {
                                h3 { (visible(&entry.name)) " " span.status.(status_class(&entry.status)) { (status_word(&entry.status)) } }
                                (findings(entry))
                                (group(entry, seen))
                            }
                        }
                        @if report.groups.outcome.entries().is_empty() { p { "No group was run." } }
                    }
                    section #crashes {
                        h2 { "Crash matrix" }
                        p {
                            "A real process dies at each boundary; then a fresh connection looks, and the same request is admitted again. A "
                            "death above the line that COMMIT draws has to leave what was there before, one below it all that was committed."
                        }
                        @let deaths = seen.map(crashes::deaths).unwrap_or_default();
                        @if deaths.is_empty() { p { "Not measured in this run." } } @else { (crashes::matrix(&deaths)) }
                    }
                    section #races { h2 { "Races" } (races::races(&report.heats)) }
                    section #sweeps { h2 { "Sweeps" } (sweeps(&report.sweeps)) }
                    @for matrix in &report.matrices { section id=(matrix.subject.member) { h2 { (matrix.heading) } (self::matrix(matrix)) } }
                    section #not-claimed {
                        h2 { "Not claimed" }
                        ul { @for item in not_claimed::items() { li {
                            @for piece in pieces(&item) {
                                @match piece { Piece::Text(text) => (text), Piece::Code(code) => code { (code) } }
                            }
                        } } }
                    }
                }
                footer { p { "Written by " (env!("CARGO_PKG_NAME")) " " (env!("CARGO_PKG_VERSION")) "." } }
            }
        }
    };
    page.into_string() + "\n"
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "good",
        Verdict::Fail | Verdict::Unreadable => "bad",
        Verdict::NotMeasured => "unsure",
    }
}

fn status_class(status: &Status) -> &'static str {
    match status {
        Status::Agrees => "good",
        Status::Differs(_) | Status::Broken { .. } => "bad",
        Status::NotMeasured(_) => "unsure",
    }
}

fn anchor(index: usize) -> String {
    format!("group-{}", index + 1)
}

/// What is wrong comes first.
fn wrong(report: &Report) -> Markup {
    html! {
        section #wrong {
            h2 { "What is wrong" }
            @for part in report.parts().filter(|part| part.outcome.verdict() != Verdict::Pass) {
                @if let Some(why) = part.outcome.why() { p { (visible(why)) } }
                @if !part.outcome.outside().is_empty() {
                    h3 { "Outside the " (part.outcome.subject.member) }
                    (differences(part.outcome.outside()))
                }
                @for entry in part.outcome.entries().iter().filter(|entry| !matches!(entry.status, Status::Agrees)) {
                    h3 { (visible(&entry.name)) " " span.status.(status_class(&entry.status)) { (status_word(&entry.status)) } }
                    (findings(entry))
                }
            }
        }
    }
}

fn findings(entry: &Entry) -> Markup {
    html! {
        @match &entry.status {
            Status::Agrees => {}
            Status::NotMeasured(why) => p { (visible(why)) },
            Status::Differs(found) => (differences(found)),
            Status::Broken { sentences, differences: found } => {
                ul { @for sentence in sentences { li { "broken: " (visible(sentence)) } } }
                (differences(found))
            }
        }
    }
}

fn differences(found: &[Difference]) -> Markup {
    let side = |node: &Option<Node>| {
        node.as_ref().map_or_else(|| "(nothing)".to_owned(), |node| cut(&visible(&on_one_line(node))))
    };
    html! {
        @if !found.is_empty() {
            div.wide { table.differences {
                thead { tr {
                    th scope="col" { "where" }
                    th scope="col" { "kind" }
                    th scope="col" { "expected" }
                    th scope="col" { "actual" }
                    th scope="col" { "line" }
                } }
                tbody { @for difference in found.iter().take(MOST_DIFFERENCES) { tr {
                    th scope="row" { code { (visible(difference.pointer.as_str())) } }
                    td { (difference.kind.name()) }
                    td { code { (side(&difference.expected)) } }
                    td { code { (side(&difference.actual)) } }
                    td.number { (difference.place.line) }
                } } }
            } }
            @if found.len() > MOST_DIFFERENCES {
                p { "And " (found.len() - MOST_DIFFERENCES) " more, which " code { "--check --full" } " prints." }
            }
        }
    }
}

pub fn cut(text: &str) -> String {
    match text.char_indices().nth(CUT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn tiles(groups: &Part) -> Markup {
    html! {
        section #tiles {
            h2 { "The scenario groups" }
            ol.tiles { @for (index, entry) in groups.outcome.entries().iter().enumerate() {
                li.(status_class(&entry.status)) { a href=(format!("#{}", anchor(index))) {
                    span.name { (visible(&entry.name)) } " "
                    span.status { (status_word(&entry.status)) }
                } }
            } }
            @if groups.outcome.entries().is_empty() { p { "None was run." } }
        }
    }
}

fn compared(report: &Report) -> Markup {
    let about = &report.surroundings;
    let known = |value: &Option<String>| html! { @match value { Some(value) => code { (visible(value)) }, None => "not known" } };
    let rows: Vec<(&str, Markup)> = vec![
        ("results.json, SHA-256", known(&about.results)),
        ("sweeps.json, SHA-256", known(&about.sweeps)),
        ("Cargo.lock of this build, SHA-256", html! { code { (about.lock) } }),
        ("this program, SHA-256", known(&about.binary)),
        (
            "commit",
            html! { @match &about.commit {
                None => "not known",
                Some(commit) => { code { (visible(&commit.id)) } @match commit.tree {
                    Tree::Clean => ", the tree is clean",
                    Tree::Changed => { ", and the tree is " b { "NOT clean" } }
                } }
            } },
        ),
        ("SQLite", html! { (about.sqlite) }),
        (
            "pragmas, read back from a store",
            html! { @match &about.settings {
                Ok(settings) => @for (index, setting) in settings.iter().enumerate() {
                    @if index > 0 { ", " } code { (setting.pragma) "=" (visible(&setting.value)) (in_words(setting)) }
                },
                Err(sentence) => { "not known: " (visible(sentence)) }
            } },
        ),
        ("kernel", html! { (about.kernel.as_deref().map_or_else(|| "not known".to_owned(), visible)) }),
        (
            "file system of the databases",
            html! { (about.file_system.as_deref().map_or_else(|| "not known".to_owned(), visible)) },
        ),
        ("cores", html! { (about.cores.map_or_else(|| "not known".to_owned(), |cores| cores.to_string())) }),
        (
            "run it again",
            html! { code { (report.command) } ", or the check alone: " code { "cargo run --release --locked -- --check" } },
        ),
    ];
    html! {
        section #compared {
            h2 { "What was compared" }
            div.wide { table.about { tbody { @for (name, value) in rows { tr { th scope="row" { (name) } td { (value) } } } } } }
        }
    }
}

/// What SQLite tells as a number alone.
fn in_words(setting: &Setting) -> &'static str {
    match (setting.pragma, setting.value.as_str()) {
        ("synchronous", "0") => " (OFF)",
        ("synchronous", "1") => " (NORMAL)",
        ("synchronous", "2") => " (FULL)",
        ("synchronous", "3") => " (EXTRA)",
        ("busy_timeout", _) => " ms",
        ("journal_size_limit" | "page_size", _) => " bytes",
        ("wal_autocheckpoint", _) => " pages",
        (_, _) => "",
    }
}

fn limits(seen: Option<&Document>) -> Markup {
    let protocol = seen.and_then(|seen| at(seen.root(), &["protocol"]));
    html! {
        @if let Some(protocol) = protocol {
            @let saying = |path: &[&str]| at(protocol, path).map_or_else(|| "?".to_owned(), said);
            p { "Limits of every experiment, small on purpose: of all tenants "
                (saying(&["limits", "global", "count"])) " tasks and " (saying(&["limits", "global", "bytes"])) " bytes, of one tenant "
                (saying(&["limits", "tenant", "count"])) " and " (saying(&["limits", "tenant", "bytes"])) ", of one payload "
                (saying(&["limits", "payload_bytes"])) " bytes. A lease is " (saying(&["lease_ticks"])) " ticks. "
                "A usage is [tasks, bytes]." }
        }
    }
}

fn sweeps(sweeps: &Sweeps) -> Markup {
    html! {
        @match sweeps {
            Sweeps::Frozen(Err(sentence)) => p { "Not run now, and what is frozen can't be read: " (visible(sentence)) },
            Sweeps::Frozen(Ok(document)) => {
                p.frozen { b { "Frozen, not run now." } " These figures are those of experiments/sweeps.json; run "
                    code { "report --sweeps" } " to see them held against a run." }
                (table_of_sweeps(document, None))
            }
            Sweeps::Run(Part { seen: None, outcome }) => {
                p { "Run now, and nothing was seen." @if let Some(why) = outcome.why() { " " (visible(why)) } }
            }
            Sweeps::Run(part @ Part { seen: Some(document), .. }) => {
                p { "Run now, and compared with experiments/sweeps.json." }
                (table_of_sweeps(document, Some(part)))
            }
        }
    }
}

/// `part`: what they came to, where they were run now.
fn table_of_sweeps(document: &Document, part: Option<&Part>) -> Markup {
    let all = document.entries("sweeps");
    let said = |figure: Option<i64>| figure.map_or_else(|| "–".to_owned(), grouped);
    let status = |name: &str| match part {
        None => "frozen".to_owned(),
        Some(part) => {
            let entry = part.outcome.entries().iter().find(|entry| entry.name == name);
            entry.map_or_else(|| "?".to_owned(), |entry| status_word(&entry.status))
        }
    };
    html! {
        div.wide { table {
            thead { tr {
                th scope="col" { "sweep" }
                th scope="col" { "" (if part.is_some() { "result" } else { "state" }) }
                th scope="col" { "rounds" }
                th scope="col" { "points" }
                th scope="col" { "states" }
                th scope="col" { "images" }
                th scope="col" { "lost" }
                th scope="col" { "broken" }
                th scope="col" { "what it shows" }
            } }
            tbody { @for sweep in all { tr {
                @let totals = Totals::of(&sweep.node);
                th scope="row" { (visible(&sweep.name)) }
                td { (status(&sweep.name)) }
                @for figure in [totals.rounds, totals.points, totals.states, totals.images, totals.lost, totals.broken] { td.number { (said(figure)) } }
                td { (at(&sweep.node, &["shows"]).map(super::tree::said).unwrap_or_default()) }
            } } }
        } }
        @if let Some(sentence) = figures::wrong_on_purpose(all) { p { (sentence) } }
        @for sweep in all {
            h3 { (visible(&sweep.name)) " " span.status { (status(&sweep.name)) } }
            p { (at(&sweep.node, &["shows"]).map(super::tree::said).unwrap_or_default()) }
            details {
                summary { "All figures" }
                (figures::shown(&figures::blocks(&sweep.node)))
            }
        }
    }
}

fn matrix(matrix: &Matrix) -> Markup {
    let document = match &matrix.frozen {
        Ok(document) => document,
        Err(sentence) => return html! { p { "What is frozen can't be read: " (visible(sentence)) } },
    };
    let kinds = convicts(document, matrix.subject);
    let all = document.entries(matrix.subject.member);
    html! {
        p.frozen {
            b { "Frozen, not run now." } " Each of these " (all.len()) " is a small change to the library that is wrong; it was built, and "
            "tried, and this is what convicted it. " code { (matrix.command) } " does it again."
        }
        div.wide { table {
            thead { tr {
                th scope="col" { (matrix.subject.one) }
                th scope="col" { "what is wrong" }
                @for kind in &kinds { th scope="col" { "convicted by " (visible(kind)) } }
            } }
            tbody { @for entry in all { tr {
                th scope="row" { (visible(&entry.name)) }
                td { (fault(&entry.node)) }
                @for kind in &kinds {
                    @let by = at(&entry.node, &["convicted_by", kind]).map(items).unwrap_or_default();
                    td { @if by.is_empty() { "–" } @else { b { (by.len()) } ": " (by.iter().map(said).collect::<Vec<_>>().join(", ")) } }
                }
            } } }
        } }
    }
}

/// All that is told of an entry in words of its own.
pub fn fault(entry: &Node) -> String {
    let told =
        members(entry).iter().filter(|member| member.name != "convicted_by").map(|member| match member.name.as_str() {
            "wrong" => said(&member.node),
            other => format!("{}: {}", visible(&other.replace('_', " ")), said(&member.node)),
        });
    told.collect::<Vec<_>>().join(" ")
}

/// Kinds of convictions, in the order in which they are first met.
pub fn convicts(document: &Document, subject: Subject) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for entry in document.entries(subject.member) {
        for kind in at(&entry.node, &["convicted_by"]).map(members).unwrap_or_default() {
            if !kinds.contains(&kind.name) {
                kinds.push(kind.name.clone());
            }
        }
    }
    kinds
}
