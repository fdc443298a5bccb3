//! What a check came to: the state of each entry, and the verdict over all.

use super::Subject;
use super::compare::{Difference, differences};
use super::read::{Document, Place};

/// The result of a check, or of a regeneration, as it is shown.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub subject: Subject,
    pub deed: Deed,
    /// The baseline's path as the reader shall see it.
    pub file: String,
    pub finding: Finding,
}

/// What was done about the frozen file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It was only compared.
    Compared,
    /// There was none, and it holds now what was seen.
    Created,
    /// It holds now what was seen.
    Written,
    /// It held all of it already, and was not touched.
    Unchanged,
    /// It would have been written.
    DryRun,
    /// It must not or cannot be written: why, as a sentence.
    Refused(String),
}

#[derive(Clone, Debug)]
pub enum Finding {
    /// There was nothing to compare with, or no way to; the sentence says what to do.
    CannotCheck(String),
    Compared {
        /// Differences in no entry: the format, the protocol's constants.
        outside: Vec<Difference>,
        entries: Vec<Entry>,
        /// Entries of the baseline that nobody asked for.
        skipped: usize,
    },
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// What it shows; empty for one that only the baseline knows.
    pub sentence: String,
    pub status: Status,
    /// In the baseline, if it is there.
    pub place: Option<Place>,
}

#[derive(Clone, Debug)]
pub enum Status {
    Agrees,
    Differs(Vec<Difference>),
    /// An invariant or a built-in expectation does not hold, whatever the baseline says: one sentence each.
    Broken {
        sentences: Vec<String>,
        differences: Vec<Difference>,
    },
    /// It could not be run or gave no steady answer: neither pass nor fail. Why, as a sentence.
    NotMeasured(String),
}

/// An entry as it was run, before it is compared.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub sentence: String,
    pub run: Run,
}

#[derive(Clone, Debug)]
pub enum Run {
    Measured,
    /// As [`Status::Broken`].
    Broken(Vec<String>),
    /// As [`Status::NotMeasured`]; nothing that was seen of it is compared.
    NotMeasured(String),
}

/// What the baseline's entries that were not run mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that exist were run: each other one is a difference.
    Whole,
    /// Only a selection was run: the others are not looked at.
    Selected,
}

/// The one word, in the order in which the worse wins: `Unreadable` stands alone, `Fail` beats `NotMeasured`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    Unreadable,
    NotMeasured,
}

impl Verdict {
    /// For choosing one of several runs to show.
    pub fn is_worse_than(self, other: Verdict) -> bool {
        let rank = |verdict| match verdict {
            Verdict::Pass => 0,
            Verdict::NotMeasured => 1,
            Verdict::Fail => 2,
            Verdict::Unreadable => 3,
        };
        rank(self) > rank(other)
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Fail => 1,
            Verdict::Unreadable => 2,
            Verdict::NotMeasured => 3,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Unreadable => "cannot-check",
            Verdict::NotMeasured => "inconclusive",
        }
    }
}

/// Compares what was seen with the baseline and hands each difference to its entry.
///
/// `actual` holds the entries of `seen` that were measured. An entry that it holds and `seen` doesn't name, or that
/// only the baseline has (in [`Scope::Whole`]), is listed after the others.
pub fn judge(
    subject: Subject,
    file: impl Into<String>,
    scope: Scope,
    baseline: &Document,
    actual: &Document,
    seen: Vec<Seen>,
) -> Outcome {
    let known = baseline.entries(subject.member);
    let place_of = |name: &str| known.iter().find(|m| m.name == name).map(|m| m.node.place);
    let mut outside = Vec::new();
    let mut by_entry: Vec<(String, Vec<Difference>)> =
        seen.iter().map(|entry| (entry.name.clone(), Vec::new())).collect();
    for difference in differences(baseline, actual) {
        let Some(name) = entry_of(&difference, subject) else {
            outside.push(difference);
            continue;
        };
        match by_entry.iter_mut().find(|(known, _)| *known == name) {
            Some((_, list)) => list.push(difference),
            None => by_entry.push((name, vec![difference])),
        }
    }
    let was_run = |name: &str| {
        let seen_now = actual.entries(subject.member).iter().any(|m| m.name == name);
        seen_now || seen.iter().any(|entry| entry.name == name)
    };
    if scope == Scope::Selected {
        by_entry.retain(|(name, _)| was_run(name));
    }
    let skipped = known.iter().filter(|member| by_entry.iter().all(|(name, _)| *name != member.name)).count();
    let mut runs = seen.into_iter();
    let entries = by_entry.into_iter().map(|(name, differences)| {
        // The first of by_entry are those of seen, in order.
        let run = runs.next();
        let place = place_of(&name);
        let (sentence, status) = match run {
            Some(Seen { sentence, run, .. }) => (sentence, status(run, differences)),
            None => (String::new(), status(Run::Measured, differences)),
        };
        Entry { name, sentence, status, place }
    });
    let entries = entries.collect();
    Outcome {
        subject,
        deed: Deed::Compared,
        file: file.into(),
        finding: Finding::Compared { outside, entries, skipped },
    }
}

impl Outcome {
    pub fn cannot_check(subject: Subject, file: impl Into<String>, why: impl ToString) -> Outcome {
        Outcome { subject, deed: Deed::Compared, file: file.into(), finding: Finding::CannotCheck(why.to_string()) }
    }

    /// The same finding, with what was done about it.
    pub fn with(self, deed: Deed) -> Outcome {
        Outcome { deed, ..self }
    }

    /// A comparison without a single entry shows nothing, and is no pass. What a regeneration has written agrees.
    pub fn verdict(&self) -> Verdict {
        match self.deed {
            Deed::Compared | Deed::DryRun => {}
            Deed::Created | Deed::Written | Deed::Unchanged => return Verdict::Pass,
            Deed::Refused(_) => return Verdict::Unreadable,
        }
        let count = self.count();
        match &self.finding {
            Finding::CannotCheck(_) => Verdict::Unreadable,
            Finding::Compared { .. } if count.differences() + count.broken > 0 => Verdict::Fail,
            Finding::Compared { .. } if count.not_measured > 0 || count.entries == 0 => Verdict::NotMeasured,
            Finding::Compared { .. } => Verdict::Pass,
        }
    }

    /// Why nothing could be compared.
    pub fn why(&self) -> Option<&str> {
        match &self.finding {
            Finding::CannotCheck(sentence) => Some(sentence),
            Finding::Compared { .. } => None,
        }
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.finding {
            Finding::CannotCheck(_) => &[],
            Finding::Compared { entries, .. } => entries,
        }
    }

    /// Differences in no entry.
    pub fn outside(&self) -> &[Difference] {
        match &self.finding {
            Finding::CannotCheck(_) => &[],
            Finding::Compared { outside, .. } => outside,
        }
    }

    /// Entries of the baseline that a selection left out.
    pub fn skipped(&self) -> usize {
        match &self.finding {
            Finding::CannotCheck(_) => 0,
            Finding::Compared { skipped, .. } => *skipped,
        }
    }

    pub fn count(&self) -> Count {
        let mut count = Count { entries: self.entries().len(), outside: self.outside().len(), ..Count::default() };
        for entry in self.entries() {
            let differences = entry.status.differences().len();
            count.inside += differences;
            count.differing += usize::from(differences > 0);
            match &entry.status {
                Status::Agrees | Status::Differs(_) => {}
                Status::Broken { sentences, .. } => count.broken += sentences.len(),
                Status::NotMeasured(_) => count.not_measured += 1,
            }
        }
        count
    }
}

impl Status {
    pub fn differences(&self) -> &[Difference] {
        match self {
            Status::Agrees | Status::NotMeasured(_) => &[],
            Status::Differs(differences) | Status::Broken { differences, .. } => differences,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Status::Agrees => "agrees",
            Status::Differs(_) => "differs",
            Status::Broken { .. } => "broken",
            Status::NotMeasured(_) => "not-measured",
        }
    }
}

/// Totals over an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub entries: usize,
    /// Differences in no entry.
    pub outside: usize,
    /// Differences in entries.
    pub inside: usize,
    /// Entries with differences.
    pub differing: usize,
    /// Broken sentences, over all entries.
    pub broken: usize,
    /// Entries not measured.
    pub not_measured: usize,
}

impl Count {
    pub fn differences(self) -> usize {
        self.outside + self.inside
    }
}

/// The entry that a difference lies in. One of the whole object of entries lies in none.
fn entry_of(difference: &Difference, subject: Subject) -> Option<String> {
    let mut tokens = difference.pointer.tokens();
    (tokens.next()? == subject.member).then(|| tokens.next())?
}

/// A broken entry without a sentence would be a pass, so it gets one.
fn status(run: Run, differences: Vec<Difference>) -> Status {
    match run {
        Run::NotMeasured(why) => Status::NotMeasured(why),
        Run::Broken(mut sentences) => {
            if sentences.is_empty() {
                sentences.push("an expectation is broken, and no sentence says which".to_string());
            }
            Status::Broken { sentences, differences }
        }
        Run::Measured if differences.is_empty() => Status::Agrees,
        Run::Measured => Status::Differs(differences),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::GROUPS;

    fn seen(name: &str, run: Run) -> Seen {
        let (name, sentence) = (name.to_string(), format!("{name} holds"));
        Seen { name, sentence, run }
    }

    fn outcome(scope: Scope, baseline: &str, actual: &str, seen: Vec<Seen>) -> Outcome {
        let read = |text: &str| Document::read(text.as_bytes()).expect("test text");
        judge(GROUPS, "results.json", scope, &read(baseline), &read(actual), seen)
    }

    fn statuses(outcome: &Outcome) -> Vec<(&str, &str, usize)> {
        let row = |e: &'_ Entry| (e.status.name(), e.status.differences().len());
        outcome.entries().iter().map(|e| (e.name.as_str(), row(e).0, row(e).1)).collect()
    }

    #[test]
    fn each_difference_goes_to_its_entry_or_outside() {
        let outcome = outcome(
            Scope::Whole,
            r#"{"format": 1, "groups": {"a/b": 1, "c": {"x": 1, "y": 2}}}"#,
            r#"{"format": 2, "groups": {"a/b": 2, "c": {"x": 3}}}"#,
            vec![seen("a/b", Run::Measured), seen("c", Run::Measured)],
        );
        assert_eq!(statuses(&outcome), [("a/b", "differs", 1), ("c", "differs", 2)]);
        assert_eq!(outcome.outside()[0].pointer.as_str(), "/format");
        assert_eq!(outcome.verdict(), Verdict::Fail);
    }

    #[test]
    fn a_group_too_few_and_a_group_too_many_fail() {
        let both = r#"{"groups": {"a": 1, "b": 1}}"#;
        let one = r#"{"groups": {"a": 1}}"#;
        let forgotten = outcome(Scope::Whole, one, both, vec![seen("a", Run::Measured), seen("b", Run::Measured)]);
        assert_eq!(statuses(&forgotten), [("a", "agrees", 0), ("b", "differs", 1)]);
        let too_many = outcome(Scope::Whole, both, one, vec![seen("a", Run::Measured)]);
        assert_eq!(statuses(&too_many), [("a", "agrees", 0), ("b", "differs", 1)]);
        assert_eq!((forgotten.verdict(), too_many.verdict()), (Verdict::Fail, Verdict::Fail));
        let unnamed = outcome(Scope::Selected, one, both, vec![seen("a", Run::Measured)]);
        assert_eq!(unnamed.verdict(), Verdict::Fail, "seen, and named by nobody");
    }

    #[test]
    fn a_selection_looks_at_nothing_else() {
        let baseline = r#"{"groups": {"a": 1, "b": 1, "c": 1}}"#;
        let outcome = outcome(Scope::Selected, baseline, r#"{"groups": {"b": 1}}"#, vec![seen("b", Run::Measured)]);
        assert_eq!(statuses(&outcome), [("b", "agrees", 0)]);
        assert_eq!(outcome.skipped(), 2);
        assert_eq!(outcome.verdict(), Verdict::Pass);
    }

    #[test]
    fn not_measured_is_neither_pass_nor_fail_unless_something_fails() {
        let baseline = r#"{"groups": {"a": 1, "b": 1}}"#;
        let unsteady = || seen("a", Run::NotMeasured("three runs, two answers".into()));
        let without =
            outcome(Scope::Whole, baseline, r#"{"groups": {"b": 1}}"#, vec![unsteady(), seen("b", Run::Measured)]);
        assert_eq!(statuses(&without), [("a", "not-measured", 0), ("b", "agrees", 0)]);
        assert_eq!(without.verdict(), Verdict::NotMeasured);
        let with =
            outcome(Scope::Whole, baseline, r#"{"groups": {"b": 2}}"#, vec![unsteady(), seen("b", Run::Measured)]);
        assert_eq!(with.verdict(), Verdict::Fail);
    }

    #[test]
    fn broken_fails_though_the_baseline_agrees() {
        let same = r#"{"groups": {"a": 1}}"#;
        for sentences in [vec!["usage is above the limit".to_string()], vec![]] {
            let outcome = outcome(Scope::Whole, same, same, vec![seen("a", Run::Broken(sentences))]);
            assert_eq!(outcome.verdict(), Verdict::Fail);
        }
    }

    #[test]
    fn nothing_compared_is_no_pass() {
        let empty = r#"{"groups": {}}"#;
        assert_eq!(outcome(Scope::Whole, empty, empty, vec![]).verdict(), Verdict::NotMeasured);
        assert_eq!(Outcome::cannot_check(GROUPS, "results.json", "gone").verdict(), Verdict::Unreadable);
    }

    #[test]
    fn what_was_done_about_the_file_decides_before_what_was_found() {
        let text = |answer| format!(r#"{{"groups": {{"a": {answer}}}}}"#);
        let found = outcome(Scope::Whole, &text(1), &text(2), vec![seen("a", Run::Measured)]);
        for (deed, verdict) in [
            (Deed::Compared, Verdict::Fail),
            (Deed::DryRun, Verdict::Fail),
            (Deed::Created, Verdict::Pass),
            (Deed::Written, Verdict::Pass),
            (Deed::Unchanged, Verdict::Pass),
            (Deed::Refused("it is write-protected".into()), Verdict::Unreadable),
        ] {
            let done = found.clone().with(deed);
            assert_eq!(done.verdict(), verdict, "{:?}", done.deed);
            assert_eq!(done.count(), found.count(), "the finding stays");
        }
    }

    #[test]
    fn a_fail_is_worse_than_an_inconclusive_run_and_nothing_than_itself() {
        let ascending = [Verdict::Pass, Verdict::NotMeasured, Verdict::Fail, Verdict::Unreadable];
        for (one, left) in ascending.iter().enumerate() {
            for (other, right) in ascending.iter().enumerate() {
                assert_eq!(left.is_worse_than(*right), one > other, "{left:?} and {right:?}");
            }
        }
    }

    #[test]
    fn the_exit_codes_are_four() {
        let all = [Verdict::Pass, Verdict::Fail, Verdict::Unreadable, Verdict::NotMeasured];
        assert_eq!(all.map(Verdict::exit_code), [0, 1, 2, 3]);
    }
}
