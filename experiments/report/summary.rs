//! The report in short, as Markdown: for a pull request's comment, or a CI run's summary.

use super::figures::{Totals, wrong_on_purpose};
use super::groups::status_word;
use super::page::{convicts, cut};
use super::surroundings::Tree;
use super::tree::{at, grouped, items};
use super::{Matrix, Report, Sweeps, crashes, in_short, not_claimed, races};
use crate::baseline::outcome::{Status, Verdict};
use crate::baseline::read::{Document, Member, Node};
use crate::baseline::show::visible;
use crate::baseline::write::on_one_line;

/// More differences than this are for the page.
const MOST_DIFFERENCES: usize = 20;

pub fn markdown(report: &Report) -> String {
    let mut lines = vec!["# Evidence of durable admission".to_owned(), String::new()];
    for line in report.verdict_lines().iter().rev() {
        lines.extend([format!("**{}**", plain(line)), String::new()]);
    }
    if report.verdict() != Verdict::Pass {
        lines.extend(wrong(report));
    }
    lines.extend(table(
        &["group", "result", "shows"],
        report
            .groups
            .outcome
            .entries()
            .iter()
            .map(|entry| vec![plain(&entry.name), status_word(&entry.status), plain(&entry.sentence)]),
    ));
    for answer in in_short::answers(report) {
        lines.extend([format!("**{}** {}", answer.question, plain(&answer.answer)), String::new()]);
    }

    lines.extend(heading("Crash matrix"));
    lines.extend(matrix(report.groups.seen.as_ref()));

    lines.extend(heading("Races"));
    for (name, heats) in races::by_group(&report.heats) {
        let most = heats.iter().map(|heat| heat.most_at_once()).max().unwrap_or_default();
        let outcomes = plain(&races::outcomes(&heats));
        lines.push(format!("- {}: {outcomes}; up to {most} processes inside admit at once", plain(name)));
    }
    lines.push(String::new());

    lines.extend(heading("Sweeps"));
    lines.extend(sweeps(&report.sweeps));

    for matrix in &report.matrices {
        lines.extend(heading(matrix.heading));
        lines.extend(convicted(matrix));
    }

    lines.extend(heading("What was compared"));
    lines.extend(compared(report));
    lines.extend([
        "Again:".to_owned(),
        String::new(),
        "```sh".to_owned(),
        report.command.clone(),
        "```".to_owned(),
        String::new(),
    ]);

    lines.extend(heading("Not claimed"));
    lines.extend(not_claimed::items().iter().map(|item| format!("- {item}")));
    lines.join("\n") + "\n"
}

fn heading(text: &str) -> [String; 2] {
    [format!("## {text}"), String::new()]
}

/// Text in which nothing is markup: neither Markdown's nor HTML's, and nobody is mentioned.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in visible(text).chars() {
        match character {
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '&' => plain.push_str("&amp;"),
            // GitHub takes a word after it for somebody's name, escaped or not.
            '@' => plain.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' | '$' => plain.extend(['\\', character]),
            other => plain.push(other),
        }
    }
    plain
}

/// The cells are Markdown already.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let mut lines =
        vec![line(head.iter().map(|cell| (*cell).to_owned()).collect()), format!("|{}", "---|".repeat(head.len()))];
    lines.extend(rows.map(line));
    lines.push(String::new());
    lines
}

fn wrong(report: &Report) -> Vec<String> {
    let side = |node: &Option<Node>| {
        node.as_ref().map_or_else(|| "(nothing)".to_owned(), |node| plain(&cut(&on_one_line(node))))
    };
    let mut lines = Vec::new();
    let mut found = Vec::new();
    for outcome in report.parts().map(|part| &part.outcome) {
        lines.extend(outcome.why().map(|why| format!("- {}", plain(why))));
        found.extend(outcome.outside());
        for entry in outcome.entries() {
            match &entry.status {
                Status::Agrees | Status::Differs(_) => {}
                Status::NotMeasured(why) => {
                    lines.push(format!("- {} was NOT MEASURED: {}", plain(&entry.name), plain(why)))
                }
                Status::Broken { sentences, .. } => {
                    lines.extend(sentences.iter().map(|sentence| format!("- BROKEN: {}", plain(sentence))));
                }
            }
            found.extend(entry.status.differences());
        }
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    if !found.is_empty() {
        let rows = found.iter().take(MOST_DIFFERENCES).map(|difference| {
            let pointer = plain(difference.pointer.as_str());
            vec![pointer, difference.kind.name().to_owned(), side(&difference.expected), side(&difference.actual)]
        });
        lines.extend(table(&["where", "kind", "expected", "actual"], rows));
    }
    if found.len() > MOST_DIFFERENCES {
        lines.extend([format!("And {} more.", found.len() - MOST_DIFFERENCES), String::new()]);
    }
    lines
}

fn matrix(seen: Option<&Document>) -> Vec<String> {
    let deaths = seen.map(crashes::deaths).unwrap_or_default();
    if deaths.is_empty() {
        return vec!["Not measured in this run.".to_owned(), String::new()];
    }
    let mut rows = Vec::new();
    for (index, death) in deaths.iter().enumerate() {
        if crashes::is_below_the_line(&deaths, index) {
            rows.push(vec![format!("━━ {} ━━", plain(&crashes::commit_line(&death.boundary)))]);
        }
        rows.push(vec![
            plain(&death.boundary),
            death.exit_code.map_or_else(|| "?".to_owned(), |code| code.to_string()),
            plain(&death.on_disk),
            crashes::room(death.held),
            plain(death.retry.as_deref().unwrap_or("nothing")),
        ]);
    }
    let head = ["dies at", "exit code", "on disk afterwards", "room held", "the retry hears"];
    rows.iter_mut().for_each(|row| row.resize(head.len(), String::new()));
    table(&head, rows.into_iter())
}

fn sweeps(sweeps: &Sweeps) -> Vec<String> {
    let (document, part) = match sweeps {
        Sweeps::Frozen(Err(sentence)) => {
            return vec![format!("Not run now, and not readable: {}", plain(sentence)), String::new()];
        }
        Sweeps::Frozen(Ok(document)) => (document, None),
        Sweeps::Run(part) => match &part.seen {
            Some(document) => (document, Some(part)),
            None => return vec!["Nothing was seen.".to_owned(), String::new()],
        },
    };
    let figure = |figure: Option<i64>| figure.map_or_else(|| "–".to_owned(), grouped);
    let rows = document.entries("sweeps").iter().map(|sweep| {
        let totals = Totals::of(&sweep.node);
        let entry = part.and_then(|part| part.outcome.entries().iter().find(|entry| entry.name == sweep.name));
        let result = entry.map_or_else(|| "frozen, not run now".to_owned(), |entry| status_word(&entry.status));
        let figures =
            [totals.rounds, totals.points, totals.states, totals.images, totals.lost, totals.broken].map(figure);
        [plain(&sweep.name), result].into_iter().chain(figures).collect()
    });
    let mut lines = table(&["sweep", "result", "rounds", "points", "states", "images", "lost", "broken"], rows);
    if let Some(sentence) = wrong_on_purpose(document.entries("sweeps")) {
        lines.extend([sentence.to_owned(), String::new()]);
    }
    lines
}

/// What was convicted by how many; the page has the names.
fn convicted(matrix: &Matrix) -> Vec<String> {
    let document = match &matrix.frozen {
        Ok(document) => document,
        Err(sentence) => return vec![plain(sentence), String::new()],
    };
    let all = document.entries(matrix.subject.member);
    let kinds = convicts(document, matrix.subject).into_iter().map(|kind| {
        let by = |entry: &&Member| at(&entry.node, &["convicted_by", &kind]).is_some_and(|by| !items(by).is_empty());
        format!("{} by {}", all.iter().filter(by).count(), plain(&kind))
    });
    let kinds: Vec<String> = kinds.collect();
    vec![format!("Frozen, not run now: of {} convicted {}.", all.len(), kinds.join(", ")), String::new()]
}

fn compared(report: &Report) -> Vec<String> {
    let about = &report.surroundings;
    let known = |value: &Option<String>| value.as_deref().map_or_else(|| "not known".to_owned(), plain);
    let commit = about.commit.as_ref().map_or_else(
        || "not known".to_owned(),
        |commit| {
            let tree = match commit.tree {
                Tree::Clean => "the tree is clean",
                Tree::Changed => "and the tree is NOT clean",
            };
            format!("{}, {tree}", plain(&commit.id))
        },
    );
    let settings = match &about.settings {
        Ok(settings) => {
            let each = settings.iter().map(|setting| format!("{}={}", setting.pragma, setting.value));
            plain(&each.collect::<Vec<_>>().join(", "))
        }
        Err(sentence) => format!("not known: {}", plain(sentence)),
    };
    let cores = about.cores.map_or_else(|| "not known".to_owned(), |cores| cores.to_string());
    vec![
        format!("- results.json: SHA-256 {}", known(&about.results)),
        format!("- Cargo.lock of this build: SHA-256 {}", about.lock),
        format!("- this program: SHA-256 {}", known(&about.binary)),
        format!("- commit {commit}"),
        format!("- SQLite {}; read back from a store: {settings}", about.sqlite),
        format!("- kernel {}; file system {}; cores {cores}", known(&about.kernel), known(&about.file_system)),
        String::new(),
    ]
}
