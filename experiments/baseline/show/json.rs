//! The JSON format: everything that was found, for programs.
//!
//! `expected` and `actual` are absent where there is no such value, so that a JSON null is told from nothing.

use super::{is_hidden, verdict_line};
use crate::baseline::compare::Difference;
use crate::baseline::outcome::{Entry, Outcome, Status};
use crate::baseline::read::{Member, Place, Value};
use crate::baseline::write::canonical;

/// Raised when a member changes its meaning or goes; not when one is added.
pub const SCHEMA_VERSION: i64 = 1;

pub(super) fn render(outcome: &Outcome) -> String {
    let count = outcome.count();
    let verdict = outcome.verdict();
    let mut members = vec![
        ("schema_version", Value::Integer(SCHEMA_VERSION)),
        ("verdict", text(verdict.name())),
        ("exit_code", Value::Integer(verdict.exit_code().into())),
        ("summary", text(&verdict_line(outcome))),
        ("file", text(&outcome.file)),
        ("of", text(outcome.subject.member)),
        ("differences", number(count.differences())),
        ("skipped", number(outcome.skipped())),
        ("outside", list(outcome.outside(), difference)),
        ("entries", list(outcome.entries(), entry)),
    ];
    if let crate::baseline::outcome::Finding::CannotCheck(why) = &outcome.finding {
        members.push(("why", text(why)));
    }
    // Hidden characters occur only inside strings, where an escape is the same value and can't act on a terminal.
    let plain = canonical(&object(members).unplaced());
    let mut safe = String::with_capacity(plain.len());
    for character in plain.chars() {
        if character != '\n' && is_hidden(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(character);
        }
    }
    safe
}

fn entry(entry: &Entry) -> Value {
    let mut members = vec![
        ("name", text(&entry.name)),
        ("shows", text(&entry.sentence)),
        ("status", text(entry.status.name())),
        ("differences", list(entry.status.differences(), difference)),
    ];
    match &entry.status {
        Status::Agrees | Status::Differs(_) => {}
        Status::Broken { sentences, .. } => {
            members.push(("broken", list(sentences, |sentence| text(sentence))));
        }
        Status::NotMeasured(why) => members.push(("why", text(why))),
    }
    object(members)
}

fn difference(difference: &Difference) -> Value {
    let Place { line, column } = difference.place;
    let mut members = vec![
        ("pointer", text(difference.pointer.as_str())),
        ("kind", text(difference.kind.name())),
        ("line", number(line)),
        ("column", number(column)),
    ];
    let sides = [("expected", &difference.expected), ("actual", &difference.actual)];
    let present = sides.into_iter().filter_map(|(name, node)| Some((name, node.as_ref()?.value.clone())));
    members.extend(present);
    object(members)
}

fn object(members: Vec<(&str, Value)>) -> Value {
    let members = members.into_iter().map(|(name, value)| Member { name: name.to_string(), node: value.unplaced() });
    Value::Object(members.collect())
}

fn list<T>(items: &[T], value: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(|item| value(item).unplaced()).collect())
}

fn text(text: &str) -> Value {
    Value::Text(text.to_string())
}

/// Counts, lines and columns are far below where a cast would wrap.
fn number(number: usize) -> Value {
    Value::Integer(number as i64)
}
