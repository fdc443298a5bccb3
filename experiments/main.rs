//! The experiment harness of durable admission: plays its scenario groups for real and says whether the frozen
//! evidence still holds.
//!
//! Reading order: the command line; the job and its table of groups; what a group plays with (scenes, crashes,
//! children); the laboratory (processes, folders, signals); the audit; the judge.
#![deny(unsafe_code)]

mod command_line;
mod job;
mod results;
mod self_test;
mod groups;
mod scene;
mod crash;
mod child;
#[allow(dead_code, reason = "more sweeps are on their way")]
mod sweeps;
mod dice;
mod fixture;
mod record;
#[allow(dead_code, reason = "the sweeps will use the rest")]
mod process;
#[allow(dead_code, reason = "the sweeps will use the rest")]
mod folder;
mod signal;
#[allow(dead_code, reason = "more sweeps are on their way")]
mod progress;
mod audit;
#[allow(dead_code, reason = "the history sweeps come next")]
mod history;
#[allow(dead_code, reason = "the history sweeps come next")]
mod model;
#[allow(dead_code, reason = "the power and fault sweeps come next")]
mod disk;
mod checkout;
#[allow(dead_code, reason = "the sweeps will use the rest")]
mod baseline;

use std::io::{stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::baseline::emit::{emit, print};
use crate::command_line::{CommandLine, Job, Judging};
use crate::groups::GROUPS;
use crate::job::{Order, carry_out};
use crate::results::{Databases, ScenarioGroups};
use crate::sweeps::{AllSweeps, SWEEPS};

/// Usage, or a baseline that cannot be read or written.
const CANNOT: u8 = 2;
/// Neither pass nor fail.
const NOT_MEASURED: u8 = 3;

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    match command_line.job {
        Some(Job::Child(role)) => role.play(),
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
        Some(Job::Sweep { list: true, .. }) => print(&table(SWEEPS.iter().map(|sweep| (sweep.name, sweep.shows)))),
        Some(Job::Sweep { names, judging, .. }) => {
            let selected = SWEEPS.iter().map(|sweep| sweep.name).filter(|name| names.iter().any(|named| named == name));
            carry_out_job(&AllSweeps, selected.collect(), "experiments/sweeps.json", &judging)
        }
        None if command_line.list => print(&table(GROUPS.iter().map(|group| (group.name, group.shows)))),
        None => play_groups(&command_line),
    }
}

fn try_judge(results: Option<PathBuf>) -> ExitCode {
    if let Err(error) = signal::handle_interrupts() {
        return complain(NOT_MEASURED, &error.to_string());
    }
    let job = ScenarioGroups { databases: Databases::Removed };
    let trial = frozen_file(results, "results.json").and_then(|file| self_test::self_test(&job, &file));
    signal::stand_aside();
    match trial {
        Ok(trial) => emit(&trial.text(), trial.verdict(), &mut stdout().lock(), &mut stderr()).into(),
        Err(sentence) => complain(CANNOT, &sentence),
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
    carry_out_job(&ScenarioGroups { databases }, selected.collect(), "results.json", &command_line.judging)
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
