//! The questions that a reviewer asks first, answered from what was seen.

use super::crashes::deaths;
use super::figures::Totals;
use super::tree::{grouped, held, items, number, text};
use super::{Part, Report, Sweeps, tree};
use crate::baseline::read::Document;

pub struct Answer {
    pub question: &'static str,
    pub answer: String,
}

pub fn answers(report: &Report) -> [Answer; 3] {
    let seen = report.groups.seen.as_ref();
    let unseen = || "Not measured in this run.".to_owned();
    [
        Answer {
            question: "What survives a crash after COMMIT but before the answer?",
            answer: seen.and_then(after_commit).unwrap_or_else(unseen),
        },
        Answer {
            question: "Does a full store mask a replay?",
            answer: seen.and_then(while_full).unwrap_or_else(unseen),
        },
        Answer { question: "How many power-cut states were tried?", answer: power(&report.sweeps) },
    ]
}

fn after_commit(seen: &Document) -> Option<String> {
    let deaths = deaths(seen).into_iter().filter(|death| death.after_commit);
    let told = deaths.map(|death| {
        format!(
            "{} leaves {}, and the retry hears {}",
            death.boundary,
            death.on_disk,
            death.retry.as_deref().unwrap_or("nothing")
        )
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("What was committed: {}.", told.join("; ")))
}

fn while_full(seen: &Document) -> Option<String> {
    let root = seen.root();
    let limit = number(root, &["protocol", "limits", "global", "count"])?;
    let steps = items(tree::at(root, &["groups", "identity-before-capacity", "steps"])?);
    let full = steps.iter().filter(|step| step.member("usage").and_then(held).is_some_and(|[count, _]| count == limit));
    let (mut replays, mut conflicts, mut refused) = (0, 0, 0);
    for step in full {
        match text(step, &["answer"]) {
            Some("replay") => replays += 1,
            Some("conflict") => conflicts += 1,
            Some("global_full") => refused += 1,
            Some(_) | None => {}
        }
    }
    let no = if replays > 0 { "No" } else { "No replay was heard" };
    Some(format!(
        "{no}: with {limit} of {limit} tasks held, a known id was a replay {replays} times and a conflict {conflicts} times, where a \
         new one was refused {refused} times."
    ))
}

fn power(sweeps: &Sweeps) -> String {
    const NAME: &str = "power";
    let (document, when) = match sweeps {
        Sweeps::Run(Part { seen: Some(document), .. }) => (document, "in this run"),
        Sweeps::Run(Part { seen: None, .. }) => return "The sweeps could not be measured.".to_owned(),
        Sweeps::Frozen(Ok(document)) => (document, "as frozen; not run now"),
        Sweeps::Frozen(Err(sentence)) => return format!("Not known: {sentence}."),
    };
    let Some(power) = tree::at(document.root(), &["sweeps", NAME]) else {
        return "None: there is no power sweep among the sweeps.".to_owned();
    };
    let totals = Totals::of(power);
    let said = |figure: Option<i64>| figure.map_or_else(|| "?".to_owned(), grouped);
    let windows = |kind: &str| -> i64 {
        let runs = tree::at(power, &["runs"]).map(tree::members).unwrap_or_default();
        runs.iter().filter_map(|run| tree::number(&run.node, &[kind])).sum()
    };
    let (whole, sampled) = (windows("exhaustive_windows"), windows("sampled_windows"));
    let share = match sampled {
        0 => String::new(),
        _ => format!(
            " Of the {} windows between two syncs {sampled} are sampled, the others tried whole.",
            whole + sampled
        ),
    };
    format!(
        "{} states of the disk, which are {} distinct images; lost {}, broken {} ({when}).{share}",
        said(totals.states.or(totals.points)),
        said(totals.images),
        said(totals.lost),
        said(totals.broken)
    )
}
