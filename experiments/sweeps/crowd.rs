//! The parent of the workers: lets them go together, hears them all, kills whom it is to kill, and tells what each said.

use super::worker::{Event, Work};
use crate::child;
use crate::history::Outcome;
use crate::model::Verb;
use crate::process::{Child, Exit, NotMeasured, Race, Start, pump};

/// One worker, and its end.
pub struct Member {
    pub work: Work,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Performs all its verbs.
    Finishes,
    /// Works until SIGKILL, which is sent as soon as so many of its lines have come: odd right after the line that tells a
    /// call, even right after one that tells an answer. It goes on meanwhile, so death meets it anywhere.
    Killed { after_lines: usize },
}

/// What one worker told until its end.
#[derive(Debug)]
pub struct Told {
    pub calls: Vec<Call>,
}

#[derive(Debug)]
pub struct Call {
    pub verb: Verb,
    pub invoked: u64,
    pub came_back: CameBack,
}

impl Call {
    /// Whether death met it.
    pub fn is_open(&self) -> bool {
        match &self.came_back {
            CameBack::Heard(outcome) => *outcome == Outcome::Unknown,
            CameBack::Busy | CameBack::Damaged(_) => false,
        }
    }
}

#[derive(Debug)]
pub enum CameBack {
    Heard(Outcome),
    /// An error that changed nothing.
    Busy,
    /// A sentence of the store on its own damage.
    Damaged(String),
}

/// Lets them all work, and die as planned.
///
/// # Errors
/// A worker that ended otherwise than planned, or that an error of the machine met.
pub fn play(members: &[Member]) -> Result<Vec<Told>, NotMeasured> {
    let deadline = child::deadline();
    let start = |(number, member): (usize, &Member)| Start::own(format!("worker {number}"), member.work.arguments());
    let starts = members.iter().enumerate().map(start).collect::<Result<Vec<_>, _>>()?;
    let children = Race::assemble(&starts, deadline)?.let_go()?;
    let mut busy: Vec<Heard> = children
        .into_iter()
        .zip(members)
        .map(|(child, member)| Heard { child, end: member.end, lines: Vec::new(), over: false })
        .collect();
    while busy.iter().any(|heard| !heard.over) {
        pump(busy.iter_mut().filter(|heard| !heard.over).map(|heard| &mut heard.child), deadline)?;
        for heard in busy.iter_mut().filter(|heard| !heard.over) {
            heard.take_lines()?;
        }
        if std::time::Instant::now() >= deadline {
            return Err(unplanned(
                "the workers did not come to their end in time; run again when the machine is less busy",
            ));
        }
    }
    busy.into_iter().map(|heard| heard.finish(deadline)).collect()
}

struct Heard {
    child: Child,
    end: End,
    lines: Vec<String>,
    /// Killed, finished, or gone.
    over: bool,
}

impl Heard {
    fn take_lines(&mut self) -> Result<(), NotMeasured> {
        while let Some(line) = self.child.take_line()? {
            self.lines.push(line);
            match self.end {
                End::Killed { after_lines } if !self.over && self.lines.len() >= after_lines => {
                    self.child.kill()?;
                    self.over = true;
                }
                End::Killed { .. } => {}
                End::Finishes => self.over = self.lines.last().is_some_and(|line| line == "\"Finished\""),
            }
        }
        self.over = self.over || self.child.is_silent();
        Ok(())
    }

    fn finish(mut self, deadline: std::time::Instant) -> Result<Told, NotMeasured> {
        let label = self.child.label().to_owned();
        let ended = self.child.finish(deadline)?;
        let wanted = match self.end {
            End::Finishes => Exit::Code(0),
            End::Killed { .. } => Exit::Signal(nix::sys::signal::Signal::SIGKILL as i32),
        };
        // A line torn by death was not said.
        self.lines.extend(ended.lines);
        if ended.exit != wanted {
            let last = self.lines.last().map_or("", String::as_str);
            return Err(unplanned(&format!(
                "{label} ended with {} instead of {wanted}; its last line: {last:?}; its standard error: {:?}",
                ended.exit, ended.stderr
            )));
        }
        told(&label, &self.lines)
    }
}

fn told(label: &str, lines: &[String]) -> Result<Told, NotMeasured> {
    let mut calls: Vec<Call> = Vec::new();
    let mut pending: Option<(Verb, u64)> = None;
    for line in lines {
        let event: Event = serde_json::from_str(line)
            .map_err(|error| unplanned(&format!("{label} said {line:?}, which is no event ({error})")))?;
        let came_back = match (event, pending.is_some()) {
            (Event::Invokes { verb, at }, false) => {
                pending = Some((verb, at));
                continue;
            }
            (Event::Finished, false) => continue,
            (Event::Returns { result, at }, true) => CameBack::Heard(Outcome::Known { returned: at, result }),
            (Event::Busy, true) => CameBack::Busy,
            (Event::Damaged { error }, true) => CameBack::Damaged(error),
            (Event::Failed { error }, _) => return Err(unplanned(&format!("{label} met an error: {error}"))),
            (Event::Invokes { .. } | Event::Finished, true)
            | (Event::Returns { .. } | Event::Busy | Event::Damaged { .. }, false) => {
                return Err(unplanned(&format!(
                    "{label} said {line:?} out of turn; this is a fault of the harness, report it"
                )));
            }
        };
        let (verb, invoked) = pending.take().expect("pending, as matched above");
        calls.push(Call { verb, invoked, came_back });
    }
    calls.extend(pending.map(|(verb, invoked)| Call { verb, invoked, came_back: CameBack::Heard(Outcome::Unknown) }));
    Ok(Told { calls })
}

fn unplanned(what: &str) -> NotMeasured {
    NotMeasured { what: what.to_owned() }
}
