//! The crash matrix: boundary against what is on disk, with the line that COMMIT draws.

use maud::{Markup, html};

use super::tree::{at, held, items, members, number, said, text};
use crate::baseline::read::{Document, Member, Node};
use crate::baseline::show::visible;

/// One boundary at which a process died.
pub struct Death {
    pub boundary: String,
    pub after_commit: bool,
    pub exit_code: Option<i64>,
    pub on_disk: String,
    /// `[count, bytes]`, before the retry.
    pub held: Option<[i64; 2]>,
    pub written: String,
    pub not_yet_written: String,
    pub wal: String,
    /// The answer to the retry, and what is held then.
    pub retry: Option<String>,
    pub held_after_retry: Option<[i64; 2]>,
}

/// In the order of the document.
pub fn deaths(seen: &Document) -> Vec<Death> {
    let boundaries = at(seen.root(), &["groups", "crash-boundaries", "boundaries"]).map(members).unwrap_or_default();
    boundaries.iter().filter_map(death).collect()
}

fn death(Member { name, node }: &Member) -> Option<Death> {
    let steps = at(node, &["steps"]).map(items)?;
    let index = steps.iter().position(|step| at(step, &["dies_at"]).is_some())?;
    let (died, retry) = (&steps[index], steps.get(index + 1));
    let saying = |member: &str| at(died, &[member]).map_or_else(|| "?".to_owned(), said);
    Some(Death {
        boundary: visible(name),
        after_commit: name.ends_with(".after_commit"),
        exit_code: number(died, &["exit_code"]),
        on_disk: at(died, &["found"]).map_or_else(|| "?".to_owned(), on_disk),
        held: at(died, &["found", "usage"]).and_then(held),
        written: saying("written"),
        not_yet_written: saying("not_yet_written"),
        wal: saying("wal_left_to_recover"),
        retry: retry.and_then(|step| text(step, &["answer"])).map(visible),
        held_after_retry: retry.and_then(|step| at(step, &["usage"])).and_then(held),
    })
}

fn on_disk(found: &Node) -> String {
    let count = |member: &str| number(found, &[member]).unwrap_or_default();
    let states = at(found, &["tasks"]).map(items).unwrap_or_default();
    let mut parts = Vec::new();
    if count("intents") > 0 {
        parts.push("the intent".to_owned());
    }
    parts.extend(states.iter().filter_map(|task| Some(format!("a task {}", visible(text(task, &["state"])?)))));
    if count("effects") > 0 {
        parts.push("its effect".to_owned());
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

pub fn room(held: Option<[i64; 2]>) -> String {
    held.map_or_else(|| "?".to_owned(), |[count, bytes]| format!("[{count}, {bytes}]"))
}

pub fn commit_line(boundary: &str) -> String {
    let verb = boundary.split('.').next().unwrap_or_default();
    format!("COMMIT of {verb}")
}

/// Where the line is drawn: before a row that lies after COMMIT and follows one that doesn't.
pub fn is_below_the_line(deaths: &[Death], index: usize) -> bool {
    deaths[index].after_commit && index.checked_sub(1).is_none_or(|before| !deaths[before].after_commit)
}

pub fn matrix(deaths: &[Death]) -> Markup {
    html! {
        div.wide {
            table.matrix {
                thead { tr {
                    th scope="col" { "dies at" }
                    th scope="col" { "exit code" }
                    th scope="col" { "written by then" }
                    th scope="col" { "not yet" }
                    th scope="col" { "on disk afterwards" }
                    th scope="col" { "room held" }
                    th scope="col" { "left in the WAL" }
                    th scope="col" { "the retry hears" }
                    th scope="col" { "room held then" }
                } }
                tbody {
                    @for (index, death) in deaths.iter().enumerate() {
                        @if is_below_the_line(deaths, index) {
                            tr.commit { td colspan="9" { "━━ " (commit_line(&death.boundary)) " ━━" } }
                        }
                        tr {
                            th scope="row" { code { (death.boundary) } }
                            td.number { (death.exit_code.map_or_else(|| "?".to_owned(), |code| code.to_string())) }
                            td { (death.written) }
                            td { (death.not_yet_written) }
                            td { (death.on_disk) }
                            td.number { (room(death.held)) }
                            td { (death.wal) }
                            td { b { (death.retry.as_deref().unwrap_or("nothing")) } }
                            td.number { (room(death.held_after_retry)) }
                        }
                    }
                }
            }
        }
    }
}
