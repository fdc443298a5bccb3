//! The report of a run: plays the groups, and the sweeps if asked, judges them, and writes it down for people
//! (`report.html`, `report.md`) and for programs (`evidence.intoto.json`).
//!
//! Reading order: what is told of the run ([`surroundings`]), in short ([`in_short`]), and at length ([`page`] and what it
//! is put together of); then the same as Markdown ([`summary`]) and as a statement ([`statement`]).

mod surroundings;
mod in_short;
mod page;
mod groups;
mod crashes;
mod races;
mod figures;
mod chart;
mod not_claimed;
mod summary;
mod statement;
mod tree;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{stderr, stdout};
use std::path::{Path, PathBuf};

use crate::baseline::emit::emit;
use crate::baseline::load::load;
use crate::baseline::outcome::{Outcome, Run, Scope, Verdict, judge};
use crate::baseline::read::Document;
use crate::baseline::replace::{refuse_early, replace, settle};
use crate::baseline::show::{verdict_line, visible};
use crate::baseline::{self, Subject};
use crate::heat::Heat;
use crate::job::{Job, Played, not_measured};
use crate::process::NotMeasured;
use crate::progress::{Progress, say};
use crate::results::{Databases, ScenarioGroups};
use crate::sweeps::AllSweeps;
use crate::{checkout, signal};
use surroundings::Surroundings;

/// Each race is run so often; the first of them is the judged one.
const HEATS: usize = 5;

const RESULTS: &str = "results.json";
const SWEEPS: &str = "experiments/sweeps.json";
const FLAWS: &str = "experiments/flaws/matrix.json";
const SQL_MUTANTS: &str = "experiments/flaws/sql.json";

/// Whether the sweeps are run, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Groups,
    GroupsAndSweeps,
}

/// All that a report tells.
struct Report {
    groups: Part,
    sweeps: Sweeps,
    matrices: [Matrix; 2],
    heats: Vec<(&'static str, Heat)>,
    surroundings: Surroundings,
    /// Writes this report again.
    command: String,
}

/// What was run, and what it came to.
struct Part {
    outcome: Outcome,
    /// `None` where nothing was seen.
    seen: Option<Document>,
}

enum Sweeps {
    Run(Part),
    /// Not run now: what is frozen of them, or why that can't be read.
    Frozen(Result<Document, String>),
}

/// What was convicted of being wrong, and by what: frozen, never run by a report.
struct Matrix {
    subject: Subject,
    heading: &'static str,
    /// Tries all of it again.
    command: &'static str,
    /// The frozen file, or why it can't be read.
    frozen: Result<Document, String>,
}

/// Runs, judges, writes the three files into `folder`, and prints where they are and the verdict. The exit code is the
/// verdict's.
///
/// # Errors
/// What is wrong with the folder, as a sentence.
pub fn write(folder: Option<PathBuf>, reach: Reach) -> Result<u8, String> {
    let checkout = checkout::find()?;
    let folder = folder.unwrap_or_else(|| checkout.join("target/report"));
    let files = ["report.html", "report.md", "evidence.intoto.json"].map(|name| folder.join(name));
    fs::create_dir_all(&folder).map_err(|error| {
        format!("{}: the folder can't be made ({error}); name another with --out", folder.display())
    })?;
    // Before there is anything to lose.
    files.iter().try_for_each(|file| refuse_early(file)).map_err(|error| error.to_string())?;
    // Never unlocked again: no replacement begins once an interrupt has waited for the last one.
    let _whole = signal::hold().on_interrupt(|| std::mem::forget(settle()));

    let report = Report::of(&checkout, reach);
    // An interrupt being served ends the process: what it tore down is no finding.
    signal::stand_aside();
    let texts = [page::html(&report), summary::markdown(&report), statement::json(&report)];
    let mut printed = String::new();
    for (file, text) in files.iter().zip(texts) {
        replace(file, text.as_bytes()).map_err(|error| error.to_string())?;
        printed += &format!("{}\n", visible(&file.to_string_lossy()));
    }
    for line in report.verdict_lines() {
        printed += &format!("{line}\n");
    }
    Ok(emit(&printed, report.verdict(), &mut stdout().lock(), &mut stderr()))
}

impl Report {
    fn of(checkout: &Path, reach: Reach) -> Report {
        let surroundings = Surroundings::look(checkout);
        let (groups, heats) = play_groups(&checkout.join(RESULTS));
        let sweeps = match reach {
            Reach::GroupsAndSweeps => Sweeps::Run(play_sweeps(&checkout.join(SWEEPS))),
            Reach::Groups => Sweeps::Frozen(frozen(&checkout.join(SWEEPS), baseline::SWEEPS)),
        };
        let command = match reach {
            Reach::Groups => "cargo run --release --locked -- report",
            Reach::GroupsAndSweeps => "cargo run --release --locked -- report --sweeps",
        };
        let matrices = [
            Matrix {
                subject: baseline::FLAWS,
                heading: "Flaws",
                command: "cargo run --release --locked -- flaws --check",
                frozen: frozen(&checkout.join(FLAWS), baseline::FLAWS),
            },
            Matrix {
                subject: baseline::SQL_MUTANTS,
                heading: "SQL mutants",
                command: "cargo run --release --locked -- sql-mutants --check",
                frozen: frozen(&checkout.join(SQL_MUTANTS), baseline::SQL_MUTANTS),
            },
        ];
        Report { groups, sweeps, matrices, heats, surroundings, command: command.to_owned() }
    }

    /// What was run now.
    fn parts(&self) -> impl Iterator<Item = &Part> {
        let sweeps = match &self.sweeps {
            Sweeps::Run(part) => Some(part),
            Sweeps::Frozen(_) => None,
        };
        [&self.groups].into_iter().chain(sweeps)
    }

    /// The worst of those of the parts.
    fn verdict(&self) -> Verdict {
        let verdicts = self.parts().map(|part| part.outcome.verdict());
        verdicts.fold(Verdict::Pass, |worst, next| if next.is_worse_than(worst) { next } else { worst })
    }

    /// One for each part, the worst last.
    fn verdict_lines(&self) -> Vec<String> {
        let mut outcomes: Vec<&Outcome> = self.parts().map(|part| &part.outcome).collect();
        outcomes.sort_by(|one, other| {
            let (one, other) = (one.verdict(), other.verdict());
            one.is_worse_than(other).cmp(&other.is_worse_than(one))
        });
        outcomes.into_iter().map(verdict_line).collect()
    }
}

/// The verdict in one word, for those who see no colours.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Unreadable => "CANNOT CHECK",
        Verdict::NotMeasured => "INCONCLUSIVE",
    }
}

fn frozen(file: &Path, subject: Subject) -> Result<Document, String> {
    load(file, subject).map_err(|error| error.to_string())
}

fn play_groups(file: &Path) -> (Part, Vec<(&'static str, Heat)>) {
    let job = ScenarioGroups::new(Databases::Removed);
    let part = play_against(file, &job, |played| {
        for _ in 1..HEATS {
            let again = job.play(&job.raced(), &Progress::Quiet)?;
            for now in again.seen {
                if let Some(seen) = played.seen.iter_mut().find(|seen| seen.name == now.name) {
                    seen.run = worse(std::mem::replace(&mut seen.run, Run::Measured), now.run);
                }
            }
        }
        Ok(())
    });
    (part, job.into_heats())
}

/// Of two runs of one entry, what can't be excused.
fn worse(first: Run, again: Run) -> Run {
    match (first, again) {
        (Run::Measured, Run::Measured) => Run::Measured,
        (Run::Measured, worse @ (Run::Broken(_) | Run::NotMeasured(_))) => worse,
        (Run::NotMeasured(_), broken @ Run::Broken(_)) => broken,
        (first @ (Run::Broken(_) | Run::NotMeasured(_)), _) => first,
    }
}

fn play_sweeps(file: &Path) -> Part {
    play_against(file, &AllSweeps, |_| Ok(()))
}

/// `further`: what else is run before it is judged.
fn play_against(file: &Path, job: &dyn Job, further: impl FnOnce(&mut Played) -> Result<(), NotMeasured>) -> Part {
    let subject = job.subject();
    let shown = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let baseline = match load(file, subject) {
        Ok(baseline) => baseline,
        Err(error) => return Part { outcome: Outcome::cannot_check(subject, shown, error), seen: None },
    };
    say(&format!("comparing with {}", file.display()));
    let names = job.names();
    let progress = Progress::new(names.len() as u64);
    let played = job.play(&names, &progress);
    progress.finish();
    let played = played.and_then(|mut played| further(&mut played).map(|()| played));
    let seen = played.as_ref().ok().map(|played| played.document.clone());
    let played = played.unwrap_or_else(|error| not_measured(&names, &baseline, &error));
    let outcome = judge(subject, shown, Scope::Whole, &baseline, &played.document, played.seen);
    Part { outcome, seen }
}
