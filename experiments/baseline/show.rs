//! An outcome as text for one kind of reader. Printing it is the caller's.

mod github;
mod json;
mod junit;
mod text;

use super::outcome::{Count, Deed, Outcome, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people; the last line is the verdict.
    Text,
    /// Every difference, with a schema version.
    Json,
    /// For Jenkins and GitLab.
    Junit,
    /// GitHub's workflow commands: annotations on the lines of the baseline.
    Github,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// With ANSI colors; text format only.
    Ansi,
}

/// How much the text format prints; the other formats always carry everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The verdict line alone.
    Verdict,
    /// At most [`MOST_SHOWN`] differences, long values shortened, with what was left out counted.
    Capped,
    Full,
}

/// Differences printed in [`Extent::Capped`].
pub const MOST_SHOWN: usize = 50;

/// The whole result, ending in a line end.
pub fn render(outcome: &Outcome, format: Format, style: Style, extent: Extent) -> String {
    match format {
        Format::Text => text::render(outcome, style, extent),
        Format::Json => json::render(outcome),
        Format::Junit => junit::render(outcome),
        Format::Github => github::render(outcome),
    }
}

/// The verdict as one line without a line end.
pub fn verdict_line(outcome: &Outcome) -> String {
    let subject = outcome.subject;
    let count = outcome.count();
    let file = visible(&outcome.file);
    let entries = |n: usize| counted(n, subject.one, subject.many);
    match &outcome.deed {
        Deed::Compared => {}
        Deed::Created => return format!("CREATED {file} with {}: review it", entries(count.entries)),
        Deed::Written => return format!("WROTE {file}: {}", changes(count, subject.member)),
        Deed::Unchanged => return format!("UNCHANGED: {}, which was not written", matching(outcome)),
        Deed::DryRun => return format!("DRY RUN: {}, nothing written", changes(count, subject.member)),
        Deed::Refused(why) => {
            return format!("REFUSED: {}, {file} not written: {}", changes(count, subject.member), visible(why));
        }
    }
    match outcome.verdict() {
        Verdict::Pass => format!("PASS: {}", matching(outcome)),
        Verdict::Fail => format!("FAIL: {}", failures(count, subject.member).join(", ")),
        Verdict::NotMeasured if count.entries == 0 => {
            format!("INCONCLUSIVE: no {} was compared with {file}", subject.one)
        }
        Verdict::NotMeasured => {
            let (n, all) = (count.not_measured, entries(count.entries));
            format!("INCONCLUSIVE: {n} of {all} could not be measured")
        }
        Verdict::Unreadable => format!("CANNOT CHECK: {}", visible(outcome.why().unwrap_or_default())),
    }
}

/// Text in which nothing acts or hides: control and escape characters, direction and format marks, combining marks
/// and odd spaces become JSON escapes (`\u202e`), so that what is inside quotes still is the same JSON.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            hidden if is_hidden(hidden) => {
                for unit in hidden.encode_utf16(&mut [0; 2]) {
                    shown.push_str(&format!("\\u{unit:04x}"));
                }
            }
            plain => shown.push(plain),
        }
    }
    shown
}

fn matching(outcome: &Outcome) -> String {
    let (count, subject, file) = (outcome.count(), outcome.subject, visible(&outcome.file));
    let verb = if count.entries == 1 { "matches" } else { "match" };
    let all = counted(count.entries + outcome.skipped(), subject.one, subject.many);
    // A selection must not read like the whole.
    match outcome.skipped() {
        0 => format!("{all} {verb} {file}"),
        _ => format!("{} of {all} {verb} {file}", count.entries),
    }
}

fn changes(count: Count, noun: &str) -> String {
    match failures(count, noun) {
        none if none.is_empty() => "0 differences".to_owned(),
        parts => parts.join(", "),
    }
}

fn failures(count: Count, noun: &str) -> Vec<String> {
    let differences = |n: usize| counted(n, "difference", "differences");
    let mut parts = Vec::new();
    if count.inside > 0 {
        let (n, k, all) = (differences(count.inside), count.differing, count.entries);
        parts.push(format!("{n} in {k} of {all} {noun}"));
    }
    if count.outside > 0 {
        parts.push(format!("{} outside the {noun}", differences(count.outside)));
    }
    if count.broken > 0 {
        parts.push(counted(count.broken, "broken expectation", "broken expectations"));
    }
    if count.not_measured > 0 {
        parts.push(format!("{} of {} {noun} not measured", count.not_measured, count.entries));
    }
    parts
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{a0}' | '\u{ad}' // no-break space, soft hyphen
            | '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' // combining
            | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{115f}'..='\u{1160}'
            | '\u{1680}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{2000}'..='\u{200f}' // spaces, joiners, direction marks
            | '\u{2028}'..='\u{202f}' // line ends, embeddings and overrides, a space
            | '\u{205f}'..='\u{206f}' // a space, word joiner, isolates
            | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{ffa0}' // blanks
            | '\u{e000}'..='\u{f8ff}' // private use
            | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' // variation selectors, combining halves
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' // byte order mark, annotations, no characters
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}' // musical formats, tags, private use
        )
}

#[cfg(test)]
mod tests;
