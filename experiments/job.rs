//! A job plays entries (scenario groups, sweeps) and holds what it saw against their frozen file: it checks, or
//! regenerates under review.

use std::env;
use std::fs;
use std::io::{IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};

use crate::baseline::Subject;
use crate::baseline::compare::{Difference, differences};
use crate::baseline::load::{LoadError, load};
use crate::baseline::outcome::{Deed, Outcome, Run, Scope, Seen, Verdict, judge};
use crate::baseline::read::Document;
use crate::baseline::replace::{Replaced, replace};
use crate::baseline::show::{Extent, Style, render};
use crate::baseline::splice::splice;
use crate::baseline::write::canonical;
use crate::baseline::{emit, show};
use crate::command_line::{FormatName, Judging, When};
use crate::process::NotMeasured;
use crate::progress::{Progress, say};
use crate::signal;

/// How often a regenerated answer has to come out the same.
const STEADY_RUNS: usize = 3;

pub trait Job {
    fn subject(&self) -> Subject;

    /// All entries, in the order of the table.
    fn names(&self) -> Vec<&'static str>;

    /// Plays the selected entries.
    fn play(&self, selected: &[&'static str], progress: &Progress) -> Result<Played, NotMeasured>;
}

/// What playing gave.
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
        self.file.file_name().unwrap_or(self.file.as_os_str()).to_string_lossy().into_owned()
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
        match played {
            Ok(Played { document, seen }) => {
                judge(self.job.subject(), self.shown_file(), self.scope(), baseline, &document, seen)
            }
            Err(error) => {
                let seen = self.names().into_iter().map(|name| Seen {
                    name: name.to_owned(),
                    sentence: String::new(),
                    run: Run::NotMeasured(error.to_string()),
                });
                judge(self.job.subject(), self.shown_file(), self.scope(), baseline, baseline, seen.collect())
            }
        }
    }

    fn say(&self, line: &str) {
        if !self.judging.quiet {
            say(line);
        }
    }
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
            true => say(&format!("{runs} of {runs} runs passed")),
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
        Err(error) => {
            return order
                .cannot(format!("{error} (regenerating replaces no file that it can't read: move it away first)"));
        }
    };
    if let Some(refusal) = refuse_out(order) {
        return order.cannot(refusal);
    }
    order.say(&format!("playing {STEADY_RUNS} times, for {}", order.file.display()));
    let played = match play_steadily(order) {
        Ok(played) => played,
        Err(error) => return order.judge(baseline.as_ref().unwrap_or(&empty()), Err(error)),
    };
    let seen = played.document.clone();
    // Where there is no file there is nothing to differ from.
    let outcome = order.judge(baseline.as_ref().unwrap_or(&seen), Ok(played));
    if outcome.count().broken > 0 || outcome.count().not_measured > 0 {
        return outcome;
    }
    let new = match (&baseline, order.scope()) {
        (Some(baseline), Scope::Selected) => splice(baseline, &seen, subject, &order.job.names()),
        (Some(_) | None, Scope::Whole) | (None, Scope::Selected) => seen.clone(),
    };
    if let Some(out) = &order.judging.out {
        return match replace(out, canonical(seen.root()).as_bytes()) {
            Ok(Replaced::Written | Replaced::Unchanged) => {
                order.say(&format!("what was seen is in {}", out.display()));
                outcome
            }
            Err(error) => order.cannot(error),
        };
    }
    let done = match &baseline {
        Some(baseline) if baseline.same_values(&new) => return outcome.with(Deed::Unchanged),
        Some(_) => Deed::Written,
        None => Deed::Created,
    };
    if order.judging.dry_run {
        return outcome.with(Deed::DryRun);
    }
    if env::var_os("CI").is_some_and(|value| !value.is_empty()) && !order.judging.regenerate_in_ci {
        return outcome.with(Deed::Refused(
            "CI is set, and a CI run must not bless what it saw; regenerate where it is reviewed, or give --regenerate-in-ci"
                .to_owned(),
        ));
    }
    match replace(&order.file, canonical(new.root()).as_bytes()) {
        Ok(Replaced::Written | Replaced::Unchanged) => outcome.with(done),
        Err(error) => outcome.with(Deed::Refused(error.to_string())),
    }
}

fn empty() -> Document {
    Document::from_root(crate::baseline::read::Value::Object(Vec::new()).unplaced())
}

/// `--out` is for what was seen; the frozen file is never reached that way.
fn refuse_out(order: &Order<'_>) -> Option<String> {
    let out = order.judging.out.as_deref()?;
    let same = match (fs::canonicalize(out), fs::canonicalize(&order.file)) {
        (Ok(out), Ok(file)) => out == file,
        (Ok(_), Err(_)) | (Err(_), Ok(_) | Err(_)) => absolute(out) == absolute(&order.file),
    };
    same.then(|| format!("{}: this is the frozen file itself; name another one with --out", out.display()))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Plays several times. An entry whose answers vary from run to run was not measured.
fn play_steadily(order: &Order<'_>) -> Result<Played, NotMeasured> {
    let mut first = order.play(1)?;
    for _ in 1..STEADY_RUNS {
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
