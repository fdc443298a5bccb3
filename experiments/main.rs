//! The experiment harness of durable admission: plays its scenario groups for real and says whether the frozen
//! evidence still holds.
//!
//! Reading order: the command line; the job and its table of groups; what a group plays with (scenes, crashes,
//! children); the laboratory (processes, folders, signals); the audit; the judge.
#![deny(unsafe_code)]

mod command_line;
mod job;
mod results;
mod report;
mod self_test;
mod groups;
mod scene;
mod crash;
mod heat;
mod child;
mod sweeps;
mod flaws;
mod dice;
mod fixture;
mod record;
mod process;
mod clock;
mod folder;
mod signal;
mod progress;
mod parallel;
mod audit;
mod history;
mod model;
mod disk;
mod checkout;
mod baseline;

use std::io::{ErrorKind, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::audit::INVARIANTS;
use crate::baseline::emit::{emit, print};
use crate::baseline::outcome::Verdict;
use crate::baseline::show::visible;
use crate::command_line::{CommandLine, Job, Judging};
use crate::flaws::sql::SqlMutants;
use crate::flaws::{Extent, FLAWS, Gallery};
use crate::groups::GROUPS;
use crate::job::{Order, carry_out};
use crate::report::Reach;
use crate::results::{Databases, ScenarioGroups};
use crate::self_test::NoTrial;
use crate::sweeps::{AllSweeps, Replay, SWEEPS};

/// Usage, or a baseline that cannot be read or written.
const CANNOT: u8 = 2;
/// Neither pass nor fail.
const NOT_MEASURED: u8 = 3;

fn main() -> ExitCode {
    disk::vfs::keep_no_statistics();
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(told) => return tell(&told),
    };
    match command_line.job {
        Some(Job::Child(role)) => role.play(),
        Some(Job::Audit { database }) => audit_store(&database),
        Some(Job::SelfTest { results }) => try_judge(results),
        Some(Job::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), env!("CARGO_PKG_NAME"), &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Some(Job::Man) => {
            let mut page = Vec::new();
            match clap_mangen::Man::new(CommandLine::command()).render(&mut page) {
                Ok(()) => print(&String::from_utf8_lossy(&page)),
                Err(error) => complain(CANNOT, &error.to_string()),
            }
        }
        Some(Job::Report { out, sweeps }) => {
            write_report(out, if sweeps { Reach::GroupsAndSweeps } else { Reach::Groups })
        }
        Some(Job::Sweep { list: true, .. }) => print(&table(SWEEPS.iter().map(|sweep| (sweep.name, sweep.shows)))),
        Some(Job::Sweep { names, point: Some(point), .. }) => play_point(&names, &point),
        Some(Job::Sweep { names, judging, .. }) => {
            let selected = SWEEPS.iter().map(|sweep| sweep.name).filter(|name| names.iter().any(|named| named == name));
            carry_out_job(&AllSweeps, selected.collect(), "experiments/sweeps.json", &judging)
        }
        Some(Job::Flaws { list: true, .. }) => print(&table(FLAWS.iter().map(|flaw| (flaw.name, flaw.wrong())))),
        Some(Job::Flaws { names, quick, judging, .. }) => try_flaws(&names, quick, &judging),
        Some(Job::SqlMutants { list: true, .. }) => list_sql_mutants(),
        Some(Job::SqlMutants { names, judging, .. }) => try_sql_mutants(&names, &judging),
        None if command_line.list => print(&table(GROUPS.iter().map(|group| (group.name, group.shows)))),
        None => play_groups(&command_line),
    }
}

/// Of a store of anybody's, also one in use: read-only.
fn audit_store(database: &Path) -> ExitCode {
    let broken = match audit::is_store(database).and_then(|()| audit::audit(database)) {
        Ok(broken) => broken,
        Err(sentence) => return complain(CANNOT, &sentence),
    };
    let mut text: String = broken.iter().map(|sentence| format!("broken  {}\n", visible(sentence))).collect();
    let (all, shown) = (INVARIANTS.len(), visible(&database.to_string_lossy()));
    let verdict = if broken.is_empty() { Verdict::Pass } else { Verdict::Fail };
    text += &match broken.len() {
        0 => format!("PASS: all {all} invariants hold in {shown}\n"),
        some => format!("FAIL: {some} of {all} invariants are broken in {shown}\n"),
    };
    emit(&text, verdict, &mut stdout().lock(), &mut stderr()).into()
}

fn write_report(folder: Option<PathBuf>, reach: Reach) -> ExitCode {
    if let Err(error) = signal::handle_interrupts() {
        return complain(NOT_MEASURED, &error.to_string());
    }
    report::write(folder, reach).map_or_else(|sentence| complain(CANNOT, &sentence), ExitCode::from)
}

fn play_point(names: &[String], point: &str) -> ExitCode {
    let [name] = names else { return complain(CANNOT, "--point is of one sweep; name one") };
    if let Err(error) = signal::handle_interrupts() {
        return complain(NOT_MEASURED, &error.to_string());
    }
    let replay = sweeps::replay(name, point);
    signal::stand_aside();
    let (text, verdict) = match replay {
        Ok(Replay::Legal(text)) => (text, Verdict::Pass),
        Ok(Replay::Convicted(text)) => (text, Verdict::Fail),
        Ok(Replay::Unknown(sentence)) => return complain(CANNOT, &sentence),
        Err(error) => return complain(NOT_MEASURED, &error.what),
    };
    emit(&text, verdict, &mut stdout().lock(), &mut stderr()).into()
}

/// Help and version are results; all else is a usage error, with what is meant where that shows.
fn tell(told: &clap::Error) -> ExitCode {
    match told.print() {
        Err(error) if !told.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            complain(CANNOT, &format!("the text can't be written: {error}; make room, or send it elsewhere"))
        }
        Ok(()) | Err(_) if told.use_stderr() => CANNOT.into(),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

fn try_judge(results: Option<PathBuf>) -> ExitCode {
    if let Err(error) = signal::handle_interrupts() {
        return complain(NOT_MEASURED, &error.to_string());
    }
    let job = ScenarioGroups::new(Databases::Removed);
    let file = match frozen_file(results, "results.json") {
        Ok(file) => file,
        Err(sentence) => return complain(CANNOT, &sentence),
    };
    let trial = self_test::self_test(&job, &file);
    signal::stand_aside();
    match trial {
        Ok(trial) => emit(&trial.text(), trial.verdict(), &mut stdout().lock(), &mut stderr()).into(),
        Err(error @ (NoTrial::Unreadable(_) | NoTrial::Disagrees { .. })) => complain(CANNOT, &error.to_string()),
        Err(error @ NoTrial::NotMeasured(_)) => complain(NOT_MEASURED, &error.to_string()),
    }
}

fn table<'t>(rows: impl Iterator<Item = (&'t str, &'t str)> + Clone) -> String {
    let width = rows.clone().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.map(|(name, shows)| format!("{name:width$}  {shows}\n")).collect()
}

fn play_groups(command_line: &CommandLine) -> ExitCode {
    let databases = if command_line.keep { Databases::Kept } else { Databases::Removed };
    let selected =
        GROUPS.iter().map(|group| group.name).filter(|name| command_line.groups.iter().any(|group| group == name));
    carry_out_job(&ScenarioGroups::new(databases), selected.collect(), "results.json", &command_line.judging)
}

fn try_flaws(names: &[String], quick: bool, judging: &Judging) -> ExitCode {
    const FROZEN: &str = "experiments/flaws/matrix.json";
    let checkout = match checkout::find() {
        Ok(checkout) => checkout,
        Err(sentence) => return complain(CANNOT, &sentence),
    };
    let frozen = judging.results.clone().unwrap_or_else(|| checkout.join(FROZEN));
    let extent = match (judging.check, quick) {
        (true, true) => Extent::Quick(frozen),
        (true, false) => Extent::Frozen(frozen),
        (false, _) => Extent::Everything,
    };
    let selected = FLAWS.iter().map(|flaw| flaw.name).filter(|name| names.iter().any(|named| named == name)).collect();
    carry_out_job(&Gallery { checkout, extent }, selected, FROZEN, judging)
}

fn list_sql_mutants() -> ExitCode {
    match checkout::find().and_then(|checkout| SqlMutants::of(checkout, Extent::Everything)) {
        Ok(mutants) => print(&table(mutants.mutants().iter().map(|mutant| (mutant.name, mutant.sentence.as_str())))),
        Err(sentence) => complain(CANNOT, &sentence),
    }
}

fn try_sql_mutants(names: &[String], judging: &Judging) -> ExitCode {
    const FROZEN: &str = "experiments/flaws/sql.json";
    let mutants = checkout::find().and_then(|checkout| {
        let extent = match judging.check {
            true => Extent::Frozen(judging.results.clone().unwrap_or_else(|| checkout.join(FROZEN))),
            false => Extent::Everything,
        };
        SqlMutants::of(checkout, extent)
    });
    let mutants = match mutants {
        Ok(mutants) => mutants,
        Err(sentence) => return complain(CANNOT, &sentence),
    };
    let known = job::Job::names(&mutants);
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return complain(CANNOT, &format!("there is no SQL mutant {unknown:?}; --list names them all"));
    }
    let selected = known.into_iter().filter(|name| names.iter().any(|named| named == name)).collect();
    carry_out_job(&mutants, selected, FROZEN, judging)
}

/// `frozen`: the file's path in the checkout.
fn carry_out_job(job: &dyn job::Job, selected: Vec<&'static str>, frozen: &str, judging: &Judging) -> ExitCode {
    if let Err(error) = signal::handle_interrupts() {
        return complain(NOT_MEASURED, &error.to_string());
    }
    match frozen_file(judging.results.clone(), frozen) {
        Ok(file) => carry_out(&Order { job, selected, file, judging }).into(),
        Err(sentence) => complain(CANNOT, &sentence),
    }
}

fn frozen_file(given: Option<PathBuf>, name: &str) -> Result<PathBuf, String> {
    given.map_or_else(|| Ok(checkout::find()?.join(name)), Ok)
}

fn complain(code: u8, sentence: &str) -> ExitCode {
    progress::say(&format!("error: {sentence}"));
    code.into()
}
