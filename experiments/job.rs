//! A job plays entries (scenario groups, sweeps) and holds what it saw against their frozen file: it checks, or
//! regenerates under review.

use std::env;
use std::fs;
use std::io::{IsTerminal, stderr, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::baseline::Subject;
use crate::baseline::compare::{Difference, differences};
use crate::baseline::load::{LoadError, load};
use crate::baseline::outcome::{Deed, Outcome, Run, Scope, Seen, Verdict, judge};
use crate::baseline::read::{Document, Member, Value};
use crate::baseline::replace::{Replaced, refuse_early, replace, settle, target_of};
use crate::baseline::show::{Extent, Style, render};
use crate::baseline::splice::splice;
use crate::baseline::write::canonical;
use crate::baseline::{emit, show};
use crate::checkout;
use crate::command_line::{FormatName, Judging, When};
use crate::process::NotMeasured;
use crate::progress::{Progress, say};
use crate::signal;

const STEADY_RUNS: usize = 3;

pub trait Job {
    fn subject(&self) -> Subject;

    /// All entries, in the order of the table.
    fn names(&self) -> Vec<&'static str>;

    /// How often a regenerated answer has to come out the same.
    fn steady_runs(&self) -> usize {
        STEADY_RUNS
    }

    /// Plays the selected entries.
    fn play(&self, selected: &[&'static str], progress: &Progress) -> Result<Played, NotMeasured>;
}

/// What playing gave.
#[derive(Clone)]
pub struct Played {
    /// As it would be frozen, with the entries that were measured.
    pub document: Document,
    pub seen: Vec<Seen>,
}

/// What a job works on.
pub struct Order<'j> {
    pub job: &'j dyn Job,
    /// Entries named on the command line; none means all.
    pub selected: Vec<&'static str>,
    /// The frozen file.
    pub file: PathBuf,
    pub judging: &'j Judging,
}

/// Does the job and prints its result. The exit code is the verdict's.
pub fn carry_out(order: &Order<'_>) -> u8 {
    // Never unlocked again: no replacement begins once an interrupt has waited for the last one.
    let _whole = signal::hold().on_interrupt(|| std::mem::forget(settle()));
    let outcome = if order.judging.check { check(order) } else { regenerate(order) };
    // An interrupt being served ends the process: what it tore down is no finding.
    signal::stand_aside();
    let judging = order.judging;
    let text = render(&outcome, judging.format.into(), style(judging), extent(judging));
    emit::emit(&text, outcome.verdict(), &mut stdout().lock(), &mut stderr())
}

fn style(judging: &Judging) -> Style {
    let wanted = match judging.color {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !refused && stdout().is_terminal() && judging.format == FormatName::Text
        }
    };
    if wanted { Style::Ansi } else { Style::Plain }
}

fn extent(judging: &Judging) -> Extent {
    match (judging.full, judging.quiet) {
        (true, _) => Extent::Full,
        (false, true) => Extent::Verdict,
        (false, false) => Extent::Capped,
    }
}

impl Order<'_> {
    fn names(&self) -> Vec<&'static str> {
        if self.selected.is_empty() { self.job.names() } else { self.selected.clone() }
    }

    fn scope(&self) -> Scope {
        if self.selected.is_empty() { Scope::Whole } else { Scope::Selected }
    }

    fn shown_file(&self) -> String {
        // In the checkout as its readers and their tools know it.
        let inside = checkout::find().ok().and_then(|checkout| {
            let (file, checkout) = (fs::canonicalize(&self.file).ok()?, fs::canonicalize(checkout).ok()?);
            Some(file.strip_prefix(checkout).ok()?.to_owned())
        });
        let shown = inside.as_deref().map_or(self.file.file_name().unwrap_or(self.file.as_os_str()), Path::as_os_str);
        shown.to_string_lossy().into_owned()
    }

    fn cannot(&self, why: impl ToString) -> Outcome {
        Outcome::cannot_check(self.job.subject(), self.shown_file(), why)
    }

    fn play(&self, rounds: u32) -> Result<Played, NotMeasured> {
        let names = self.names();
        let progress = match self.judging.quiet {
            true => Progress::Quiet,
            false => Progress::new(names.len() as u64 * u64::from(rounds)),
        };
        let played = self.job.play(&names, &progress);
        progress.finish();
        played
    }

    fn judge(&self, baseline: &Document, played: Result<Played, NotMeasured>) -> Outcome {
        let played = played.unwrap_or_else(|error| not_measured(&self.names(), baseline, &error));
        judge(self.job.subject(), self.shown_file(), self.scope(), baseline, &played.document, played.seen)
    }

    fn say(&self, line: &str) {
        if !self.judging.quiet {
            say(line);
        }
    }
}

/// As if it had been played: nothing is known of any of them, and nothing differs.
pub fn not_measured(names: &[&'static str], baseline: &Document, error: &NotMeasured) -> Played {
    let seen = names.iter().map(|name| Seen {
        name: (*name).to_owned(),
        sentence: String::new(),
        run: Run::NotMeasured(error.to_string()),
    });
    Played { document: baseline.clone(), seen: seen.collect() }
}

fn check(order: &Order<'_>) -> Outcome {
    let baseline = match load(&order.file, order.job.subject()) {
        Ok(baseline) => baseline,
        Err(error) => return order.cannot(error),
    };
    if let Some(refusal) = refuse_out(order) {
        return order.cannot(refusal);
    }
    order.say(&format!("comparing with {}", order.file.display()));
    let runs = order.judging.repeat;
    let mut worst: Option<Outcome> = None;
    let mut differed = Vec::new();
    for number in 1..=runs {
        let played = order.play(1);
        if let (1, Some(out), Ok(played)) = (number, &order.judging.out, &played)
            && let Err(error) = replace(out, canonical(played.document.root()).as_bytes())
        {
            return order.cannot(error);
        }
        let outcome = order.judge(&baseline, played);
        if outcome.verdict() != Verdict::Pass {
            differed.push(number.to_string());
        }
        if worst.as_ref().is_none_or(|worst| outcome.verdict().is_worse_than(worst.verdict())) {
            worst = Some(outcome);
        }
    }
    if runs > 1 {
        match differed.is_empty() {
            true => order.say(&format!("{runs} of {runs} runs passed")),
            false => say(&format!("of {runs} runs, these did not pass: {}; the worst is shown", differed.join(", "))),
        }
    }
    worst.unwrap_or_else(|| order.cannot("no run was asked for; give --repeat at least 1"))
}

fn regenerate(order: &Order<'_>) -> Outcome {
    let subject = order.job.subject();
    let baseline = match load(&order.file, subject) {
        Ok(baseline) => Some(baseline),
        Err(LoadError::Absent { .. }) if order.selected.is_empty() => None,
        Err(LoadError::Absent { path }) => {
            return order.cannot(format!(
                "{}: there is no file in which to replace only some {}; run without names first",
                path.display(),
                subject.many
            ));
        }
        Err(error) => return order.cannot(error),
    };
    if let Some(refusal) = refuse_out(order) {
        return order.cannot(refusal);
    }
    if baseline.is_none()
        && order.judging.out.is_none()
        && let Err(error) = refuse_early(&order.file)
    {
        return order.cannot(error);
    }
    order.say(&match order.job.steady_runs() {
        1 => format!("for {}", order.file.display()),
        times => format!("playing {times} times, for {}", order.file.display()),
    });
    let nothing = nothing(subject);
    let held = baseline.as_ref().unwrap_or(&nothing);
    let played = match play_steadily(order) {
        Ok(played) => played,
        Err(error) => return order.judge(held, Err(error)),
    };
    let seen = played.document.clone();
    let outcome = order.judge(held, Ok(played.clone()));
    if outcome.count().broken > 0 || outcome.count().not_measured > 0 {
        return outcome;
    }
    let new = match (&baseline, order.scope()) {
        (Some(baseline), Scope::Selected) => splice(baseline, &seen, subject, &order.job.names()),
        (Some(_) | None, Scope::Whole) | (None, Scope::Selected) => seen.clone(),
    };
    if let Some(out) = &order.judging.out {
        return match replace(out, canonical(new.root()).as_bytes()) {
            Ok(Replaced::Written | Replaced::Unchanged) => {
                order.say(&format!("what was seen is in {}", out.display()));
                outcome
            }
            Err(error) => order.cannot(error),
        };
    }
    // Entries that were seen under other constants say nothing beside those that were not run.
    if order.scope() == Scope::Selected && outcome.count().outside > 0 {
        return outcome.with(Deed::Refused(format!(
            "what differs outside the {} can't be replaced by a selection; run without names",
            subject.member
        )));
    }
    if held.same_values(&new) {
        return outcome.with(Deed::Unchanged);
    }
    if order.judging.dry_run {
        return outcome.with(Deed::DryRun);
    }
    if env::var_os("CI").is_some_and(|value| !value.is_empty()) && !order.judging.regenerate_in_ci {
        return outcome.with(Deed::Refused(
            "CI is set, and a CI run must not bless what it saw; regenerate where it is reviewed, or give --regenerate-in-ci"
                .to_owned(),
        ));
    }
    if !still_holds(order, baseline.as_ref()) {
        return outcome.with(Deed::Refused(
            "it was changed while we were playing, and the differences are to what it was before; run again".to_owned(),
        ));
    }
    match (replace(&order.file, canonical(new.root()).as_bytes()), &baseline) {
        (Ok(Replaced::Written | Replaced::Unchanged), Some(_)) => outcome.with(Deed::Written),
        // Where there was no file there is nothing to differ from.
        (Ok(Replaced::Written | Replaced::Unchanged), None) => order.judge(&seen, Ok(played)).with(Deed::Created),
        (Err(error), _) => outcome.with(Deed::Refused(error.to_string())),
    }
}

/// Stands for a file that is not there.
fn nothing(subject: Subject) -> Document {
    let entries = Member { name: subject.member.to_owned(), node: Value::Object(Vec::new()).unplaced() };
    Document::from_root(Value::Object(vec![entries]).unplaced())
}

/// Whether the frozen file is as it was when it was read, or still absent.
fn still_holds(order: &Order<'_>, baseline: Option<&Document>) -> bool {
    match (load(&order.file, order.job.subject()), baseline) {
        (Ok(now), Some(before)) => now.same_values(before),
        (Err(LoadError::Absent { .. }), None) => true,
        (Ok(_) | Err(_), Some(_) | None) => false,
    }
}

/// `--out` is for what was seen; the frozen file is never reached that way. What can't be written is refused before the
/// groups are played.
fn refuse_out(order: &Order<'_>) -> Option<String> {
    let out = order.judging.out.as_deref()?;
    if is_same_file(out, &order.file) {
        return Some(format!("{}: this is the frozen file itself; name another one with --out", out.display()));
    }
    refuse_early(out).err().map(|error| error.to_string())
}

/// By whatever name: through links of both kinds. Where one of them is not there yet, where it would be counts.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => place_of(one) == place_of(other),
    }
}

fn place_of(path: &Path) -> Option<PathBuf> {
    let target = std::path::absolute(target_of(path).ok()?).ok()?;
    Some(fs::canonicalize(target.parent()?).ok()?.join(target.file_name()?))
}

/// Plays several times. An entry whose answers vary from run to run was not measured.
fn play_steadily(order: &Order<'_>) -> Result<Played, NotMeasured> {
    let mut first = order.play(1)?;
    for _ in 1..order.job.steady_runs() {
        let again = order.play(1)?;
        for (seen, now) in first.seen.iter_mut().zip(again.seen) {
            match (&seen.run, now.run) {
                (Run::Broken(_) | Run::NotMeasured(_), _) | (Run::Measured, Run::Measured) => {}
                (Run::Measured, worse @ (Run::Broken(_) | Run::NotMeasured(_))) => seen.run = worse,
            }
        }
        for difference in differences(&first.document, &again.document) {
            let name = difference.pointer.tokens().nth(1);
            let Some(seen) = first.seen.iter_mut().find(|seen| name.as_ref() == Some(&seen.name)) else { continue };
            if let Run::Measured = seen.run {
                seen.run = Run::NotMeasured(varies(&difference));
            }
        }
    }
    Ok(first)
}

fn varies(difference: &Difference) -> String {
    let value = |node: &Option<crate::baseline::read::Node>| {
        node.as_ref().map_or_else(|| "nothing".to_owned(), crate::baseline::write::on_one_line)
    };
    show::visible(&format!(
        "answers vary from run to run: {} was {}, then {}; freeze only what does not vary",
        difference.pointer.as_str(),
        value(&difference.expected),
        value(&difference.actual)
    ))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::baseline::GROUPS;
    use crate::baseline::write::document_of;
    use crate::command_line::CommandLine;

    /// Two groups: one is steady; the other answers by the number of the run.
    struct Wavering {
        runs: Cell<usize>,
        answer: fn(usize) -> Run,
        told: fn(usize) -> &'static str,
    }

    impl Wavering {
        fn new(told: fn(usize) -> &'static str) -> Wavering {
            Wavering { runs: Cell::new(0), answer: |_| Run::Measured, told }
        }
    }

    impl Job for Wavering {
        fn subject(&self) -> Subject {
            GROUPS
        }

        fn names(&self) -> Vec<&'static str> {
            vec!["steady", "wavering"]
        }

        fn play(&self, selected: &[&'static str], _progress: &Progress) -> Result<Played, NotMeasured> {
            let run = self.runs.replace(self.runs.get() + 1);
            let all = [("steady", "accepted"), ("wavering", (self.told)(run))];
            let of = selected.iter().filter_map(|name| all.iter().find(|(known, _)| known == name));
            let groups: serde_json::Map<_, _> =
                of.map(|(name, answer)| ((*name).to_owned(), json!({"answer": answer}))).collect();
            let seen = selected.iter().map(|name| Seen {
                name: (*name).to_owned(),
                sentence: "shown".to_owned(),
                run: if *name == "wavering" { (self.answer)(run) } else { Run::Measured },
            });
            Ok(Played { document: document_of(&json!({ "groups": groups })).unwrap(), seen: seen.collect() })
        }
    }

    const FROZEN: &str = r#"{"groups": {"steady": {"answer": "accepted"}, "wavering": {"answer": "frozen"}}}"#;

    /// What a job came to on a file of its own, with the file's text afterwards.
    fn done(job: &Wavering, selected: &[&'static str], arguments: &[&str]) -> (Outcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        fs::write(&file, FROZEN).unwrap();
        let arguments = ["durable-admission", "-q", "--regenerate-in-ci"].iter().chain(arguments);
        let judging = match CommandLine::try_parse_from(arguments) {
            Ok(command_line) => command_line.judging,
            Err(error) => panic!("{error}"),
        };
        let order = Order { job, selected: selected.to_vec(), file: file.clone(), judging: &judging };
        let outcome = regenerate(&order);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        (outcome, fs::read_to_string(file).unwrap())
    }

    fn text(outcome: &Outcome) -> String {
        render(outcome, show::Format::Text, Style::Plain, Extent::Full)
    }

    /// U8. In whichever of the runs it wavers, and also if the first answer is the frozen one.
    #[test]
    fn a_group_whose_answers_vary_is_inconclusive_by_name_and_never_written() {
        let waverings: [fn(usize) -> &'static str; 4] = [
            |run| ["one", "two", "three"][run],
            |run| ["one", "one", "two"][run],
            |run| ["one", "two", "one"][run],
            |run| ["frozen", "frozen", "new"][run],
        ];
        for told in waverings {
            for arguments in [[].as_slice(), &["--dry-run"]] {
                let job = Wavering::new(told);
                let (outcome, held) = done(&job, &[], arguments);
                assert_eq!(job.runs.get(), STEADY_RUNS);
                assert_eq!(outcome.verdict(), Verdict::NotMeasured);
                let said = text(&outcome);
                assert!(said.contains("answers vary from run to run: /groups/wavering/answer was \""), "{said}");
                assert!(said.ends_with("INCONCLUSIVE: 1 of 2 scenario groups could not be measured\n"), "{said}");
                assert_eq!(held, FROZEN);
            }
        }
    }

    #[test]
    fn a_group_that_fails_in_one_run_of_three_is_not_written() {
        for failing in 0..STEADY_RUNS {
            let runs: [fn(usize) -> Run; 3] = [
                |run| if run == 0 { Run::Broken(vec!["lost".to_owned()]) } else { Run::Measured },
                |run| if run == 1 { Run::NotMeasured("hung".to_owned()) } else { Run::Measured },
                |run| if run == 2 { Run::Broken(vec!["lost".to_owned()]) } else { Run::Measured },
            ];
            let job = Wavering { answer: runs[failing], ..Wavering::new(|_| "new") };
            let (outcome, held) = done(&job, &[], &[]);
            assert_eq!(outcome.verdict(), if failing == 1 { Verdict::NotMeasured } else { Verdict::Fail });
            assert_eq!(held, FROZEN);
        }
    }

    #[test]
    fn a_steady_answer_is_written_and_a_selection_is_not_held_up_by_what_it_leaves_out() {
        let (outcome, held) = done(&Wavering::new(|_| "new"), &[], &[]);
        assert_eq!((outcome.verdict(), held.contains("new")), (Verdict::Pass, true));
        let (outcome, held) = done(&Wavering::new(|run| ["one", "two", "three"][run]), &["steady"], &[]);
        assert_eq!((outcome.verdict(), held.as_str()), (Verdict::Pass, FROZEN));
    }
}
