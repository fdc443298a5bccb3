//! The races: a lane for each process, and the outcomes over several runs.

use maud::{Markup, html};

use super::chart;
use super::tree::grouped;
use crate::baseline::show::visible;
use crate::clock::Nanoseconds;
use crate::heat::Heat;

/// The heats of one group, in the order in which they were run.
pub fn by_group<'h>(heats: &'h [(&'static str, Heat)]) -> Vec<(&'static str, Vec<&'h Heat>)> {
    let mut groups: Vec<(&'static str, Vec<&Heat>)> = Vec::new();
    for (name, heat) in heats {
        match groups.iter_mut().find(|(known, _)| known == name) {
            Some((_, heats)) => heats.push(heat),
            None => groups.push((name, vec![heat])),
        }
    }
    groups
}

/// `accepted 4, global_full 8`.
pub fn outcome(heat: &Heat) -> String {
    let answers = heat.answers();
    answers.iter().map(|(answer, count)| format!("{} {count}", visible(answer))).collect::<Vec<_>>().join(", ")
}

/// Of several heats: each outcome, with how often it was seen.
pub fn outcomes(heats: &[&Heat]) -> String {
    let mut seen: Vec<(String, usize)> = Vec::new();
    for outcome in heats.iter().map(|heat| outcome(heat)) {
        match seen.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, times)) => *times += 1,
            None => seen.push((outcome, 1)),
        }
    }
    seen.iter()
        .map(|(outcome, times)| format!("{outcome} in {times} of {}", heats.len()))
        .collect::<Vec<_>>()
        .join("; ")
}

pub fn start(heat: &Heat) -> String {
    let all = heat.lanes.len();
    if heat.is_fair_start() { format!("all {all}") } else { format!("NOT all {all}") }
}

/// `1.25 ms`.
pub fn milliseconds(time: Nanoseconds) -> String {
    format!("{}.{:02} ms", grouped((time / 1_000_000) as i64), time / 10_000 % 100)
}

pub fn races(heats: &[(&'static str, Heat)]) -> Markup {
    let groups = by_group(heats);
    html! {
        p {
            "Instants are of this run and machine, on one monotonic clock; they are never frozen. A lane goes from \"ready\" (its own \
             connection is open) over \"let go\" to \"answered\". SQLite lets one writer in at a time, so answers come one after \
             the other though the requests are there together."
        }
        @if groups.is_empty() { p { "No race was measured in this run." } }
        @for (name, heats) in &groups {
            h3 { (name) }
            p { "Outcomes over " (heats.len()) " runs: " b { (outcomes(heats)) } "." }
            @if let Some(first) = heats.first() { div.wide { (chart::lanes(first)) } }
            div.wide { table {
                caption { "Each run; the first is the one drawn and judged" }
                thead { tr {
                    th scope="col" { "run" }
                    th scope="col" { "outcome" }
                    th scope="col" { "ready before the first was let go" }
                    th scope="col" { "most inside admit at once" }
                    th scope="col" { "first let go to last answer" }
                } }
                tbody { @for (index, heat) in heats.iter().enumerate() { tr {
                    th scope="row" { (index + 1) }
                    td { (outcome(heat)) }
                    td { (start(heat)) }
                    td.number { (heat.most_at_once()) " of " (heat.lanes.len()) }
                    td.number { (milliseconds(heat.took())) }
                } } }
            } }
        }
    }
}
