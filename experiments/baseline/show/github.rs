//! GitHub's workflow commands: an annotation on the baseline's line for each thing that is wrong, then the verdict.

use super::{verdict_line, visible};
use crate::baseline::compare::Difference;
use crate::baseline::outcome::{Finding, Outcome, Status};
use crate::baseline::read::{Node, Place};
use crate::baseline::write::on_one_line;

/// Characters of a value in a message.
const CUT: usize = 200;

pub(super) fn render(outcome: &Outcome) -> String {
    let mut lines = String::new();
    let mut annotate = |place: Option<Place>, title: &str, message: &str| {
        lines += &annotation(&outcome.file, place, title, message);
        lines.push('\n');
    };
    if let Finding::CannotCheck(why) = &outcome.finding {
        annotate(None, "cannot check", why);
    }
    for difference in outcome.outside() {
        annotate(Some(difference.place), &title(difference), &message(difference));
    }
    for entry in outcome.entries() {
        match &entry.status {
            Status::Agrees | Status::Differs(_) => {}
            Status::Broken { sentences, .. } => {
                for sentence in sentences {
                    annotate(entry.place, &format!("{}: broken", entry.name), sentence);
                }
            }
            Status::NotMeasured(why) => annotate(entry.place, &format!("{}: not measured", entry.name), why),
        }
        for difference in entry.status.differences() {
            annotate(Some(difference.place), &title(difference), &message(difference));
        }
    }
    // Starts with a word of ours, so it is never taken for a command.
    lines + &verdict_line(outcome) + "\n"
}

fn annotation(file: &str, place: Option<Place>, title: &str, message: &str) -> String {
    let position = match place {
        Some(Place { line, column }) => format!(",line={line},col={column}"),
        None => String::new(),
    };
    let (file, title) = (property(&visible(file)), property(&visible(title)));
    format!("::error file={file}{position},title={title}::{}", data(message))
}

fn title(difference: &Difference) -> String {
    format!("{} at {}", difference.kind.name(), difference.pointer)
}

fn message(difference: &Difference) -> String {
    let side = |label: &str, node: &Option<Node>| {
        let value = visible(&on_one_line(node.as_ref()?));
        let cut: String = value.chars().take(CUT).collect();
        let mark = if cut.len() < value.len() { "…" } else { "" };
        Some(format!("{label} {cut}{mark}"))
    };
    let sides = [side("expected", &difference.expected), side("actual", &difference.actual)];
    sides.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The runner decodes exactly these in a message: the percent sign goes first.
fn data(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(visible).collect();
    lines.join("\n").replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// And these two more in a property.
fn property(text: &str) -> String {
    let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    text.replace(':', "%3A").replace(',', "%2C")
}
