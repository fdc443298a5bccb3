//! The power goes: every disk that a cut anywhere in a run over all verbs may leave, recovered and held against the model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::counterexample::{in_full, sentence, smallest};
use super::ground::Ground;
use super::journey::{Connections, Journey, Unrecorded};
use super::recovery::{Again, Recovery, Swept, Verdict, WHOLE_RUN_EVERY};
use super::{Found, Replay};
use crate::disk::image::{Coverage, ImageId, Rule, enumerate};
use crate::disk::log::Entry;
use crate::process::NotMeasured;

/// All subsets of up to eight unsynced writes; see [`Rule`] for the rest.
pub const RULE: Rule =
    Rule { full_product: 1024, subsets_up_to: 8, random_subsets: 128, damages: 2048, storms: 128, seed: 73 };

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    // Recorded before any thread is at work: SQLite's random numbers are the process's.
    let recorded = Connections::ALL.map(|connections| Journey::record(ground, connections));
    let mut figures = Figures { rule: RuleFigures::of(&RULE), ..Figures::default() };
    let mut broken = Vec::new();
    for journey in recorded {
        let journey = match journey {
            Ok(journey) => journey,
            Err(Unrecorded::Disagrees(what)) => {
                broken.push(what);
                continue;
            }
            Err(Unrecorded::NotMeasured(error)) => return Err(error),
        };
        let swept = Swept::over(ground, &journey, &RULE)?;
        broken.extend(convictions(&swept));
        figures.runs.insert(journey.connections.name(), RunFigures::of(&swept));
    }
    Found::new(&figures, broken)
}

/// `point`: the run, a slash, the image's id.
pub fn replay(ground: &Ground<'_>, point: &str) -> Result<Replay, NotMeasured> {
    let unknown = || Replay::Unknown(format!("{point:?} is no point of this sweep; write one as in kept/12.345"));
    let named = point.split_once('/').and_then(|(run, id)| {
        let connections = Connections::ALL.into_iter().find(|connections| connections.name() == run)?;
        Some((connections, id.parse::<ImageId>().ok()?))
    });
    let Some((connections, id)) = named else { return Ok(unknown()) };
    // All, in the sweep's order: the log is then the sweep's to the byte.
    let journeys = Connections::ALL.map(|connections| Journey::record(ground, connections));
    let recorded = journeys.into_iter().zip(Connections::ALL).find(|(_, of)| *of == connections);
    let Some((journey, _)) = recorded else { return Ok(unknown()) };
    Ok(replayed(ground, &journey?, &RULE, id, "power", point)?.unwrap_or_else(unknown))
}

/// One image judged again; `None` if there is none of that id.
pub fn replayed(
    ground: &Ground<'_>,
    journey: &Journey,
    rule: &Rule,
    id: ImageId,
    sweep: &str,
    point: &str,
) -> Result<Option<Replay>, NotMeasured> {
    let found = enumerate(&journey.log, rule);
    let Some(image) = found.find(id) else { return Ok(None) };
    let verdict = Recovery::new(ground, journey).judge(&found, image, Again::WholeRun)?;
    let text = in_full(journey, &found, image, &verdict, sweep, point) + "\n";
    Ok(Some(match verdict {
        Verdict::Legal { .. } => Replay::Legal(text),
        Verdict::Lost { .. } | Verdict::Broken { .. } => Replay::Convicted(text),
    }))
}

/// The run with a kept connection, then the one with a connection for each verb.
///
/// # Errors
/// As [`Journey::record`].
pub fn record_both(ground: &Ground<'_>) -> Result<[Journey; 2], Unrecorded> {
    let [kept, one_per_verb] = Connections::OF_ONE_CALLER.map(|connections| Journey::record(ground, connections));
    Ok([kept?, one_per_verb?])
}

/// The smallest counterexample in full; then each request lost and each way to be broken, with its own smallest.
fn convictions(swept: &Swept<'_>) -> Vec<String> {
    let journey = swept.journey;
    let run = journey.connections.name();
    let Some((image, verdict)) = smallest(swept, |verdict| !matches!(verdict, Verdict::Legal { .. })) else {
        return Vec::new();
    };
    let first = in_full(journey, &swept.found, image, verdict, "power", &format!("{run}/{}", image.id));
    let mut kinds: BTreeMap<(usize, String), usize> = BTreeMap::new();
    for verdict in &swept.verdicts {
        match verdict {
            Verdict::Legal { .. } => {}
            Verdict::Lost { lost, .. } => *kinds.entry((*lost, String::new())).or_default() += 1,
            Verdict::Broken { why, .. } => *kinds.entry((usize::MAX, why.clone())).or_default() += 1,
        }
    }
    let told = kinds.into_iter().filter_map(|((lost_step, broken_why), count)| {
        let (image, verdict) = smallest(swept, |verdict| match verdict {
            Verdict::Legal { .. } => false,
            Verdict::Lost { lost, .. } => *lost == lost_step,
            Verdict::Broken { why, .. } => lost_step == usize::MAX && *why == broken_why,
        })?;
        Some(format!(
            "{count} images of {run}, the smallest --point {run}/{}: {}",
            image.id,
            sentence(journey, verdict)
        ))
    });
    [first].into_iter().chain(told).collect()
}

#[derive(Default, Serialize)]
struct Figures {
    rule: RuleFigures,
    runs: BTreeMap<&'static str, RunFigures>,
}

/// How the windows are tried that have more combinations than can be tried.
#[derive(Default, Serialize)]
pub struct RuleFigures {
    exhaustive: String,
    sampled: String,
    seed: u64,
    asked_again: String,
}

impl RuleFigures {
    pub fn of(rule: &Rule) -> RuleFigures {
        let Rule { full_product, subsets_up_to, random_subsets, damages, storms, seed } = rule;
        RuleFigures {
            exhaustive: format!("windows between two syncs with up to {full_product} combinations: all of them"),
            sampled: format!(
                "the others: every subset of up to {subsets_up_to} unsynced writes, of more each prefix, suffix, single one \
                 and all but one, and {random_subsets} at random; {damages} single damages; {storms} random mixtures"
            ),
            seed: *seed,
            asked_again: format!(
                "every image, every request by its id; one image in {WHOLE_RUN_EVERY} of a window, all that the run had still to do as well"
            ),
        }
    }
}

#[derive(Serialize)]
struct RunFigures {
    exhaustive_windows: u64,
    sampled_windows: u64,
    all: Row,
    by_verb: BTreeMap<&'static str, Row>,
}

/// Each cut counts for the step under way at it, each image for the first cut that can leave it.
#[derive(Default, Serialize)]
struct Row {
    requests: u64,
    /// I/O calls that change a file or a name, or sync.
    calls: u64,
    cuts: u64,
    sampled_windows: u64,
    /// Tried, before those that are the same disk were put together.
    states: u64,
    images: u64,
    before: u64,
    after: u64,
    lost: u64,
    broken: u64,
}

impl RunFigures {
    fn of(swept: &Swept<'_>) -> RunFigures {
        let (journey, counts) = (swept.journey, &swept.found.counts);
        let mut rows: BTreeMap<&'static str, Row> = BTreeMap::new();
        let mut all = Row::default();
        let mut add = |step: usize, add: &dyn Fn(&mut Row)| {
            add(rows.entry(journey.steps[step].kind()).or_default());
            add(&mut all);
        };
        for step in 0..journey.steps.len() {
            add(step, &|row| row.requests += journey.steps[step].requests() as u64);
        }
        for cut in 0..=journey.log.entries.len() {
            add(journey.step_at(cut), &|row| row.cuts += 1);
        }
        for (entry, what) in journey.log.entries.iter().enumerate() {
            match what {
                Entry::Open { .. }
                | Entry::Write { .. }
                | Entry::Truncate { .. }
                | Entry::Sync { .. }
                | Entry::Delete { .. } => add(journey.step_at(entry), &|row| row.calls += 1),
                Entry::SharedMemory { .. }
                | Entry::Fault { .. }
                | Entry::Called { .. }
                | Entry::Acknowledged { .. } => {}
            }
        }
        for window in swept.found.windows.iter().filter(|window| window.coverage == Coverage::Sampled) {
            add(journey.step_at(window.last_cut), &|row| row.sampled_windows += 1);
        }
        for (&cut, &tried) in &swept.found.tried_from {
            add(journey.step_at(cut), &|row| row.states += tried);
        }
        for (image, verdict) in swept.images() {
            let step = journey.step_at(image.earliest_cut);
            add(step, &|row| {
                row.images += 1;
                match verdict {
                    Verdict::Legal { reached } if journey.states[*reached] == journey.states[step + 1] => {
                        row.after += 1
                    }
                    Verdict::Legal { .. } => row.before += 1,
                    Verdict::Lost { .. } => row.lost += 1,
                    Verdict::Broken { .. } => row.broken += 1,
                }
            });
        }
        RunFigures {
            exhaustive_windows: counts.exhaustive,
            sampled_windows: counts.windows - counts.exhaustive,
            all,
            by_verb: rows,
        }
    }
}
