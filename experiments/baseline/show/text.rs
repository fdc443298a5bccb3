//! The text format: the entries, their differences, and on the last line the verdict.

use similar::{ChangeTag, TextDiff};

use super::{Extent, MOST_SHOWN, Style, counted, verdict_line, visible};
use crate::baseline::compare::Difference;
use crate::baseline::outcome::{Entry, Outcome, Status, Verdict};
use crate::baseline::read::{Node, Value};
use crate::baseline::write::{on_one_line, quoted};

/// From this many characters on, two strings are shown as one diff instead of side by side.
const LONG: usize = 60;

/// A value on one line is cut here, in characters, unless everything is asked for.
const CUT: usize = 160;

/// Lines of a line diff, unless everything is asked for.
const MOST_LINES: usize = 40;

/// Equal characters kept beside a change within a long line.
const CONTEXT: usize = 20;

pub(super) fn render(outcome: &Outcome, style: Style, extent: Extent) -> String {
    let mut page = Page::new(outcome, style, extent);
    if extent != Extent::Verdict {
        if !outcome.outside().is_empty() {
            let status = page.colored(Color::Red, &format!("{:<12}", "differs"));
            page.line(&format!("{status}  outside the {}", outcome.subject.member));
            page.differences(outcome.outside());
        }
        for entry in outcome.entries() {
            page.entry(entry);
        }
        if page.left_out > 0 {
            let left_out = counted(page.left_out, "more difference", "more differences");
            page.line(&format!("... {left_out} not shown; --full shows all"));
        }
    }
    let color = match outcome.verdict() {
        Verdict::Pass => Color::Green,
        Verdict::Fail | Verdict::Unreadable => Color::Red,
        Verdict::NotMeasured => Color::Yellow,
    };
    let verdict = page.colored(color, &verdict_line(outcome));
    page.line(&verdict);
    page.text
}

/// All of some differences without anything around them, for the formats that embed text.
pub(super) fn differences_alone(outcome: &Outcome, differences: &[Difference]) -> String {
    let mut page = Page::new(outcome, Style::Plain, Extent::Full);
    page.differences(differences);
    page.text
}

#[derive(Clone, Copy)]
enum Color {
    Red,
    Green,
    Yellow,
}

struct Page<'o> {
    text: String,
    file: &'o str,
    style: Style,
    extent: Extent,
    /// Differences that may still be shown.
    room: usize,
    left_out: usize,
}

impl<'o> Page<'o> {
    fn new(outcome: &'o Outcome, style: Style, extent: Extent) -> Page<'o> {
        Page {
            text: String::new(),
            file: &outcome.file,
            style,
            extent,
            room: match extent {
                Extent::Verdict => 0,
                Extent::Capped => MOST_SHOWN,
                Extent::Full => usize::MAX,
            },
            left_out: 0,
        }
    }

    fn entry(&mut self, entry: &Entry) {
        let color = match &entry.status {
            Status::Agrees => Color::Green,
            Status::Differs(_) | Status::Broken { .. } => Color::Red,
            Status::NotMeasured(_) => Color::Yellow,
        };
        let status = self.colored(color, &format!("{:<12}", entry.status.name()));
        let name = visible(&entry.name);
        let sentence = match entry.sentence.as_str() {
            "" => "only in the baseline".to_string(),
            known => visible(known),
        };
        self.line(&format!("{status}  {name}: {sentence}"));
        match &entry.status {
            Status::Agrees | Status::Differs(_) => {}
            Status::Broken { sentences, .. } => {
                for sentence in sentences {
                    // A counterexample has several lines.
                    for (number, line) in sentence.lines().enumerate() {
                        let margin = if number == 0 { "  broken: " } else { "    " };
                        self.line(&format!("{margin}{}", visible(line)));
                    }
                }
            }
            Status::NotMeasured(why) => self.line(&format!("  {}", visible(why))),
        }
        self.differences(entry.status.differences());
    }

    fn differences(&mut self, differences: &[Difference]) {
        let shown = differences.len().min(self.room);
        self.room -= shown;
        self.left_out += differences.len() - shown;
        for difference in &differences[..shown] {
            self.difference(difference);
        }
    }

    fn difference(&mut self, difference: &Difference) {
        let pointer = match difference.pointer.as_str() {
            "" => "(the root)".to_string(),
            pointer => visible(pointer),
        };
        let kind = difference.kind.name();
        let (file, place) = (visible(self.file), difference.place);
        self.line(&format!("  {pointer}  {kind}  ({file}:{}:{})", place.line, place.column));
        match (&difference.expected, &difference.actual) {
            (Some(Node { value: Value::Text(old), .. }), Some(Node { value: Value::Text(new), .. }))
                if old.contains('\n') || new.contains('\n') =>
            {
                self.line_diff(old, new);
            }
            (Some(Node { value: Value::Text(old), .. }), Some(Node { value: Value::Text(new), .. }))
                if old.chars().count().max(new.chars().count()) >= LONG =>
            {
                self.inline_diff(old, new);
            }
            (expected, actual) => {
                self.side(Color::Green, "expected", expected.as_ref());
                self.side(Color::Red, "actual  ", actual.as_ref());
            }
        }
    }

    fn side(&mut self, color: Color, label: &str, node: Option<&Node>) {
        if let Some(node) = node {
            let value = self.cut(&visible(&on_one_line(node)));
            let side = self.colored(color, &format!("{label}  {value}"));
            self.line(&format!("    {side}"));
        }
    }

    fn line_diff(&mut self, old: &str, new: &str) {
        self.line("    lines: - expected, + actual");
        let diff = TextDiff::from_lines(old, new);
        let hunks = diff.unified_diff().context_radius(2).iter_hunks().map(|hunk| {
            let lines = hunk.iter_changes().map(|change| (change.tag(), change.value().to_string()));
            lines.collect::<Vec<_>>()
        });
        let lines: Vec<_> = hunks.collect::<Vec<_>>().concat();
        let most = match self.extent {
            Extent::Verdict | Extent::Capped => MOST_LINES,
            Extent::Full => usize::MAX,
        };
        for (tag, line) in lines.iter().take(most) {
            // Quoted, so that a line end that one side lacks or spells otherwise is seen.
            let line = self.cut(&visible(&quoted(line)));
            let line = match tag {
                ChangeTag::Equal => format!("  {line}"),
                ChangeTag::Delete => self.colored(Color::Green, &format!("- {line}")),
                ChangeTag::Insert => self.colored(Color::Red, &format!("+ {line}")),
            };
            self.line(&format!("    {line}"));
        }
        if lines.len() > most {
            let left_out = counted(lines.len() - most, "more line", "more lines");
            self.line(&format!("    ... {left_out} not shown; --full shows all"));
        }
    }

    /// One line on which `[-expected-]` and `{+actual+}` stand where the two part.
    fn inline_diff(&mut self, old: &str, new: &str) {
        let has_words = |text: &str| text.contains(' ');
        let diff = match has_words(old) && has_words(new) {
            true => TextDiff::from_words(old, new),
            false => TextDiff::from_chars(old, new),
        };
        let mut runs: Vec<(ChangeTag, String)> = Vec::new();
        for change in diff.iter_all_changes() {
            match runs.last_mut() {
                Some((tag, run)) if *tag == change.tag() => run.push_str(change.value()),
                Some(_) | None => runs.push((change.tag(), change.value().to_string())),
            }
        }
        let mut shown = String::new();
        for (tag, run) in &runs {
            let quoted = quoted(run);
            let run = visible(quoted[1..quoted.len() - 1].as_ref());
            shown.push_str(&match tag {
                ChangeTag::Equal => self.elided(&run),
                ChangeTag::Delete => self.colored(Color::Green, &format!("[-{}-]", self.cut(&run))),
                ChangeTag::Insert => self.colored(Color::Red, &format!("{{+{}+}}", self.cut(&run))),
            });
        }
        self.line("    where they part: [-expected-] {+actual+}");
        self.line(&format!("    \"{shown}\""));
    }

    fn elided(&self, run: &str) -> String {
        let count = run.chars().count();
        if self.extent == Extent::Full || count <= 3 * CONTEXT {
            return run.to_string();
        }
        let head: String = run.chars().take(CONTEXT).collect();
        let tail: String = run.chars().skip(count - CONTEXT).collect();
        format!("{head}…({} equal)…{tail}", count - 2 * CONTEXT)
    }

    fn cut(&self, line: &str) -> String {
        let count = line.chars().count();
        if self.extent == Extent::Full || count <= CUT {
            return line.to_string();
        }
        let head: String = line.chars().take(CUT).collect();
        format!("{head}…({})", counted(count - CUT, "more character", "more characters"))
    }

    fn colored(&self, color: Color, text: &str) -> String {
        let code = match color {
            Color::Red => 31,
            Color::Green => 32,
            Color::Yellow => 33,
        };
        match self.style {
            Style::Plain => text.to_string(),
            Style::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}
