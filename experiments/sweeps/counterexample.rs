//! What a sweep of disks shows when one of them convicts: the smallest, and the command that plays just that one again.

use super::journey::Journey;
use super::recovery::{Swept, Verdict, legal_at};
use crate::disk::image::{Enumeration, Image};
use crate::model::State;

/// The image that convicts by the fewest dropped writes, of those by the earliest cut.
pub fn smallest<'s>(swept: &'s Swept<'_>, wanted: impl Fn(&Verdict) -> bool) -> Option<(&'s Image, &'s Verdict)> {
    let convicting = swept.images().filter(|(_, verdict)| wanted(verdict));
    convicting.min_by_key(|(image, verdict)| {
        let cut = convicted_from(swept.journey, image, verdict);
        (swept.found.dropped_at(image, cut), cut, image.id)
    })
}

/// The first cut that both leaves the image and makes it illegal.
pub fn convicted_from(journey: &Journey, image: &Image, verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Lost { lost, .. } => {
            journey.marks.acknowledged.partition_point(|steps| steps <= lost).max(image.earliest_cut)
        }
        Verdict::Legal { .. } | Verdict::Broken { .. } => image.earliest_cut,
    }
}

/// One sentence.
pub fn sentence(journey: &Journey, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Legal { reached } => format!("legal: {}", place(journey, *reached)),
        Verdict::Lost { reached, lost, .. } => {
            format!("{} was acknowledged and is lost: {}", journey.steps[*lost], place(journey, *reached))
        }
        Verdict::Broken { why, .. } => format!("broken: {why}"),
    }
}

fn place(journey: &Journey, reached: usize) -> String {
    match reached.checked_sub(1) {
        None => "there is no store".to_owned(),
        Some(last) => format!("what is there is as after {}", journey.steps[last]),
    }
}

/// One image in full, some lines. `point`: what `--point` takes for it.
pub fn in_full(
    journey: &Journey,
    found: &Enumeration,
    image: &Image,
    verdict: &Verdict,
    sweep: &str,
    point: &str,
) -> String {
    let cut = convicted_from(journey, image, verdict);
    let mut lines = vec![format!("{sweep} {point}: {}", sentence(journey, verdict))];
    let (entry, under_way) = (cut.checked_sub(1), &journey.steps[journey.step_at(cut)]);
    lines.push(match entry {
        None => "  the power goes before the first entry of the log".to_owned(),
        Some(entry) => {
            format!("  the power goes after entry {entry} of the log ({}), in {under_way}", journey.log.entries[entry])
        }
    });
    lines.extend(found.describe_at(image, cut).into_iter().map(|line| format!("  {line}")));
    let legal = legal_at(journey, cut);
    let (recovered, nearest) = match verdict {
        Verdict::Legal { reached } | Verdict::Lost { reached, .. } => {
            (shown(journey.states[*reached].as_ref()), nearest(journey, journey.states[*reached].as_ref(), legal))
        }
        Verdict::Broken { found, .. } => (
            found.as_ref().map_or("nothing that can be read as a state".to_owned(), |state| shown(Some(state))),
            nearest(journey, found.as_ref(), legal),
        ),
    };
    lines.push(format!("  recovered      {recovered}"));
    lines.push(format!("  nearest legal  {}", shown(journey.states[nearest].as_ref())));
    match verdict {
        Verdict::Legal { .. } => {}
        Verdict::Lost { integrity, .. } | Verdict::Broken { integrity, .. } => {
            lines.push(format!("  integrity_check says {integrity:?}"));
        }
    }
    lines.push(format!("  again: durable-admission sweep {sweep} --point {point}"));
    lines.join("\n")
}

fn shown(state: Option<&State>) -> String {
    state.map_or("no store".to_owned(), |state| format!("{state:?}"))
}

/// Of the legal numbers of steps, that whose state differs least.
fn nearest(journey: &Journey, found: Option<&State>, mut legal: std::ops::RangeInclusive<usize>) -> usize {
    let first = *legal.start();
    legal.by_ref().min_by_key(|&steps| distance(found, journey.states[steps].as_ref())).unwrap_or(first)
}

/// Tasks that differ, and the tick.
fn distance(one: Option<&State>, other: Option<&State>) -> usize {
    let (Some(one), Some(other)) = (one, other) else { return usize::from(one != other) * usize::MAX };
    let longer = one.tasks.len().max(other.tasks.len());
    (0..longer).filter(|&index| one.tasks.get(index) != other.tasks.get(index)).count()
        + usize::from(one.tick != other.tick)
}
