//! A group: its sentence, usage against the limits, its steps as a table.

use maud::{Markup, html};

use super::chart::{self, Panel};
use super::tree::{at, grouped, held, items, members, number, said, text};
use crate::baseline::outcome::{Entry, Status};
use crate::baseline::read::{Document, Node};
use crate::baseline::show::visible;

/// What an entry came to, in words that need no colour.
pub fn status_word(status: &Status) -> String {
    match status {
        Status::Agrees => "agrees".to_owned(),
        Status::Differs(differences) => format!("DIFFERS ({})", differences.len()),
        Status::Broken { .. } => "BROKEN".to_owned(),
        Status::NotMeasured(_) => "NOT MEASURED".to_owned(),
    }
}

/// `seen`: of the whole run; what is shown is what was seen, not what is frozen.
pub fn group(entry: &Entry, seen: Option<&Document>) -> Markup {
    let document = seen.map(Document::root);
    let story = document.and_then(|root| at(root, &["groups", &entry.name]));
    html! {
        p { (visible(&entry.sentence)) }
        @match (document, story) {
            (Some(root), Some(story)) => {
                @if at(story, &["steps"]).is_some() { (scene(root, story, Charted::Yes)) }
                @for boundary in at(story, &["boundaries"]).map(members).unwrap_or_default() {
                    h4 { code { (visible(&boundary.name)) } }
                    (scene(root, &boundary.node, Charted::No))
                }
            }
            _ => p { "Nothing was seen of it in this run." }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Charted {
    Yes,
    No,
}

fn scene(root: &Node, scene: &Node, charted: Charted) -> Markup {
    let steps = at(scene, &["steps"]).map(items).unwrap_or_default();
    let answers: Vec<String> = steps.iter().map(answer).collect();
    html! {
        @if charted == Charted::Yes && let Some(panels) = panels(root, steps) {
            figure {
                div.wide { (chart::steps(&panels, &answers)) }
                figcaption {
                    "Held after each step: solid, all tenants; "
                    @if panels.iter().any(Panel::knows_tenants) { "dashed, the tenant that holds most; " }
                    "dotted, the limits."
                }
            }
        }
        details {
            summary { (steps.len()) @if steps.len() == 1 { " step" } @else { " steps" } ", and what is there at the end" }
            div.wide { table.steps {
                thead { tr {
                    th scope="col" { "step" }
                    th scope="col" { "verb" }
                    th scope="col" { "input" }
                    th scope="col" { "answer" }
                    th scope="col" { "more" }
                    th scope="col" { "held: tasks" }
                    th scope="col" { "bytes" }
                    th scope="col" { "by whom" }
                } }
                tbody { @for (index, step) in steps.iter().enumerate() { tr {
                    @let usage = at(step, &["usage"]).and_then(held);
                    th scope="row" { (index + 1) }
                    td { (text(step, &["verb"]).map(visible).unwrap_or_default()) }
                    td { (input(step)) }
                    td { b { (answer(step)) } }
                    td { (why(step)) }
                    td.number { @if let Some([count, _]) = usage { (grouped(count)) } }
                    td.number { @if let Some([_, bytes]) = usage { (grouped(bytes)) } }
                    td { (holders(step)) }
                } } }
            } }
            @if let Some(end) = at(scene, &["end"]) { p { "At the end: " (found(end)) "." } }
        }
    }
}

fn panels(root: &Node, steps: &[Node]) -> Option<[Panel; 2]> {
    let usage: Vec<[i64; 2]> = steps.iter().map(|step| at(step, &["usage"]).and_then(held)).collect::<Option<_>>()?;
    let limit = |of: &str, unit: &str| number(root, &["protocol", "limits", of, unit]);
    let panel = |which: usize, unit: &'static str, name: &'static str| {
        Some(Panel {
            unit: name,
            global: usage.iter().map(|usage| usage[which]).collect(),
            global_limit: limit("global", unit)?,
            tenant: steps.iter().map(|step| fullest_tenant(step, which)).collect(),
            tenant_limit: limit("tenant", unit)?,
        })
    };
    Some([panel(0, "count", "tasks held")?, panel(1, "bytes", "bytes held")?])
}

/// Of the one that holds most. Where only their number is told, it is known if there is but one.
fn fullest_tenant(step: &Node, which: usize) -> Option<i64> {
    match (at(step, &["tenants"]), number(step, &["tenants_holding"])) {
        (Some(tenants), _) => {
            let each = members(tenants).iter().filter_map(|tenant| held(&tenant.node));
            Some(each.map(|held| held[which]).max().unwrap_or_default())
        }
        (None, Some(1)) => Some(at(step, &["usage"]).and_then(held)?[which]),
        (None, Some(_) | None) => None,
    }
}

/// One word where it is one, and counts where it is a race.
pub fn answer(step: &Node) -> String {
    match (text(step, &["answer"]), at(step, &["answers"]), text(step, &["dies_at"])) {
        (Some(answer), _, _) => visible(answer),
        (None, Some(answers), _) => said(answers),
        (None, None, Some(_)) => "dies".to_owned(),
        (None, None, None) => "?".to_owned(),
    }
}

fn input(step: &Node) -> String {
    let known = ["request", "request_id", "token", "tick", "processes", "requests"];
    let parts = known.into_iter().filter_map(|name| Some((name, at(step, &[name])?)));
    let told = parts.map(|(name, node)| match name {
        "request" => request(node),
        "request_id" | "requests" => said(node),
        "token" => token(node),
        other => format!("{other} {}", said(node)),
    });
    told.collect::<Vec<_>>().join(", ")
}

fn token(token: &Node) -> String {
    let saying = |name: &str| at(token, &[name]).map_or_else(|| "?".to_owned(), said);
    format!("{}, generation {}", saying("request_id"), saying("generation"))
}

/// `one of a: "abc" × 30, 90 bytes`.
fn request(request: &Node) -> String {
    let saying = |path: &[&str]| at(request, path).map_or_else(|| "?".to_owned(), said);
    let times = match number(request, &["payload", "times"]) {
        Some(1) => String::new(),
        Some(_) | None => format!(" × {}", saying(&["payload", "times"])),
    };
    let (id, tenant) = (saying(&["id"]), saying(&["tenant"]));
    format!("{id} of {tenant}: \"{}\"{times}, {} bytes", saying(&["payload", "text"]), saying(&["payload", "bytes"]))
}

/// All that the step tells beyond what has a column of its own.
fn why(step: &Node) -> String {
    const ELSEWHERE: [&str; 12] = [
        "verb",
        "request",
        "request_id",
        "token",
        "tick",
        "processes",
        "requests",
        "answer",
        "answers",
        "usage",
        "tenants",
        "tenants_holding",
    ];
    let parts = members(step).iter().filter(|member| !ELSEWHERE.contains(&member.name.as_str()));
    let told = parts.map(|member| match member.name.as_str() {
        "because" => because(&member.node),
        "claim" => claim(&member.node),
        "found" => format!("found {}", found(&member.node)),
        other => format!("{} {}", visible(&other.replace('_', " ")), said(&member.node)),
    });
    told.collect::<Vec<_>>().join("; ")
}

fn because(because: &Node) -> String {
    let saying = |name: &str| at(because, &[name]).map_or_else(|| "?".to_owned(), said);
    format!("{} {} + {} > {}", saying("budget"), saying("used"), saying("needed"), saying("limit"))
}

fn claim(claim: &Node) -> String {
    let saying = |name: &str| at(claim, &[name]).map_or_else(|| "?".to_owned(), said);
    let token = at(claim, &["token"]).map(token).unwrap_or_default();
    format!("{token}, of {}: \"{}\", lease until {}", saying("tenant"), saying("payload"), saying("lease"))
}

/// What a fresh connection finds.
fn found(end: &Node) -> String {
    let parts = members(end).iter().filter(|member| !["tenants", "tenants_holding"].contains(&member.name.as_str()));
    let told = parts.map(|member| match member.name.as_str() {
        "usage" => {
            let usage = held(&member.node).map_or_else(|| "?".to_owned(), |held| format!("{held:?}"));
            format!("usage {usage} held by {}", holders(end))
        }
        "tasks" => match items(&member.node) {
            [] if members(&member.node).is_empty() => "no tasks".to_owned(),
            [] => format!("tasks {}", said(&member.node)),
            tasks => format!("tasks {}", tasks.iter().map(task).collect::<Vec<_>>().join(", ")),
        },
        other => format!("{} {}", visible(&other.replace('_', " ")), said(&member.node)),
    });
    told.collect::<Vec<_>>().join("; ")
}

/// `one (inflight, generation 1, lease 5)`.
fn task(task: &Node) -> String {
    let id = at(task, &["id"]).map_or_else(|| "?".to_owned(), said);
    let rest = members(task).iter().filter(|member| member.name != "id").map(|member| match member.name.as_str() {
        "state" => said(&member.node),
        other => format!("{} {}", visible(other), said(&member.node)),
    });
    format!("{id} ({})", rest.collect::<Vec<_>>().join(", "))
}

fn holders(step: &Node) -> String {
    match (at(step, &["tenants"]), number(step, &["tenants_holding"])) {
        (Some(tenants), _) if members(tenants).is_empty() => "nobody".to_owned(),
        (Some(tenants), _) => {
            let each = members(tenants).iter().map(|tenant| {
                let held =
                    held(&tenant.node).map_or_else(|| "?".to_owned(), |[count, bytes]| format!("[{count}, {bytes}]"));
                format!("{} {held}", visible(&tenant.name))
            });
            each.collect::<Vec<_>>().join(", ")
        }
        (None, Some(1)) => "1 tenant".to_owned(),
        (None, Some(holding)) => format!("{holding} tenants"),
        (None, None) => String::new(),
    }
}
