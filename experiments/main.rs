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
mod fixture;
mod record;
#[allow(dead_code, reason = "the sweeps will use the rest")]
mod process;
#[allow(dead_code, reason = "the sweeps will use the rest")]
mod folder;
mod signal;
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

use std::io::{ErrorKind, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::baseline::emit::{emit, print};
use crate::command_line::{CommandLine, Job};
use crate::groups::GROUPS;
use crate::job::{Order, carry_out};
use crate::results::{Databases, ScenarioGroups};
use crate::self_test::NoTrial;

/// Usage, or a baseline that cannot be read or written.
const CANNOT: u8 = 2;
/// Neither pass nor fail.
const NOT_MEASURED: u8 = 3;

fn main() -> ExitCode {
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(told) => return tell(&told),
    };
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
        None if command_line.list => print(&list()),
        None => play_groups(&command_line),
    }
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
    let job = ScenarioGroups { databases: Databases::Removed };
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

fn list() -> String {
    let width = GROUPS.iter().map(|group| group.name.len()).max().unwrap_or_default();
    GROUPS.iter().map(|group| format!("{:width$}  {}\n", group.name, group.shows)).collect()
}

fn play_groups(command_line: &CommandLine) -> ExitCode {
    if let Err(error) = signal::handle_interrupts() {
        return complain(NOT_MEASURED, &error.to_string());
    }
    let file = match frozen_file(command_line.judging.results.clone(), "results.json") {
        Ok(file) => file,
        Err(sentence) => return complain(CANNOT, &sentence),
    };
    let databases = if command_line.judging.keep { Databases::Kept } else { Databases::Removed };
    let selected =
        GROUPS.iter().map(|group| group.name).filter(|name| command_line.groups.iter().any(|group| group == name));
    let selected = selected.collect();
    carry_out(&Order { job: &ScenarioGroups { databases }, selected, file, judging: &command_line.judging }).into()
}

fn frozen_file(given: Option<PathBuf>, name: &str) -> Result<PathBuf, String> {
    given.map_or_else(|| Ok(checkout::find()?.join(name)), Ok)
}

fn complain(code: u8, sentence: &str) -> ExitCode {
    progress::say(&format!("error: {sentence}"));
    code.into()
}
