//! The parent of the workers: lets them go together, hears them all, kills whom it is to kill, and tells what each said.

use super::worker::{Event, Line, Work};
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

/// What one thread of a worker told until its end, one call after the other.
pub type Lane = Vec<Call>;

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

/// Lets them all work, and die as planned. What each told, thread by thread, in the order of the members.
///
/// # Errors
/// A worker that ended otherwise than planned, or that an error of the machine met.
pub fn play(members: &[Member]) -> Result<Vec<Lane>, NotMeasured> {
    let deadline = child::deadline();
    let start = |(number, member): (usize, &Member)| Start::own(format!("worker {number}"), member.work.arguments());
    let starts = members.iter().enumerate().map(start).collect::<Result<Vec<_>, _>>()?;
    let children = Race::assemble(&starts, deadline)?.let_go()?;
    let mut busy: Vec<Heard> = children
        .into_iter()
        .zip(members)
        .map(|(child, member)| Heard {
            child,
            end: member.end,
            threads: member.work.threads,
            lines: Vec::new(),
            over: false,
        })
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
    let lanes = busy.into_iter().map(|heard| heard.finish(deadline)).collect::<Result<Vec<_>, _>>()?;
    Ok(lanes.into_iter().flatten().collect())
}

struct Heard {
    child: Child,
    end: End,
    threads: usize,
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
                End::Finishes => self.over = self.lines.last().is_some_and(|line| line.ends_with(r#""Finished"]"#)),
            }
        }
        self.over = self.over || self.child.is_silent();
        Ok(())
    }

    fn finish(mut self, deadline: std::time::Instant) -> Result<Vec<Lane>, NotMeasured> {
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
        told(&label, self.threads, &self.lines)
    }
}

fn told(label: &str, threads: usize, lines: &[String]) -> Result<Vec<Lane>, NotMeasured> {
    let mut events: Vec<Vec<Event>> = vec![Vec::new(); threads];
    for line in lines {
        let (thread, event): Line = serde_json::from_str(line)
            .map_err(|error| unplanned(&format!("{label} said {line:?}, which is no event ({error})")))?;
        let Some(events) = events.get_mut(thread) else {
            return Err(unplanned(&format!(
                "{label} has no thread {thread}; this is a fault of the harness, report it"
            )));
        };
        events.push(event);
    }
    events.into_iter().map(|events| calls(label, events)).collect()
}

/// Calls and returns of one thread, paired.
fn calls(label: &str, events: Vec<Event>) -> Result<Lane, NotMeasured> {
    let mut calls = Vec::new();
    let mut pending: Option<(Verb, u64)> = None;
    for event in events {
        let came_back = match event {
            Event::Invokes { verb, at } => {
                if pending.replace((verb, at)).is_some() {
                    return Err(out_of_turn(label));
                }
                continue;
            }
            Event::Finished => continue,
            Event::Returns { result, at } => CameBack::Heard(Outcome::Known { returned: at, result }),
            Event::Busy => CameBack::Busy,
            Event::Damaged { error } => CameBack::Damaged(error),
            Event::Failed { error } => return Err(unplanned(&format!("{label} met an error: {error}"))),
        };
        let (verb, invoked) = pending.take().ok_or_else(|| out_of_turn(label))?;
        calls.push(Call { verb, invoked, came_back });
    }
    calls.extend(pending.map(|(verb, invoked)| Call { verb, invoked, came_back: CameBack::Heard(Outcome::Unknown) }));
    Ok(calls)
}

fn out_of_turn(label: &str) -> NotMeasured {
    unplanned(&format!("{label} told its calls out of turn; this is a fault of the harness, report it"))
}

fn unplanned(what: &str) -> NotMeasured {
    NotMeasured { what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Answer;

    const CLAIM: &str = r#"{"Invokes":{"verb":{"Claim":{"tick":3}},"at":7}}"#;
    const NOTHING: &str = r#"{"Returns":{"result":{"Ok":"Nothing"},"at":9}}"#;

    fn lanes(lines: &[(usize, &str)]) -> Result<Vec<Lane>, NotMeasured> {
        let lines: Vec<String> = lines.iter().map(|(thread, event)| format!("[{thread},{event}]")).collect();
        told("worker", 2, &lines)
    }

    #[test]
    fn calls_are_paired_with_returns_thread_by_thread() {
        let lanes = lanes(&[(0, CLAIM), (1, CLAIM), (1, NOTHING), (1, r#""Finished""#)]).unwrap();
        let returned = Outcome::Known { returned: 9, result: Ok(Answer::Nothing) };
        let came_back = |call: &Call| match &call.came_back {
            CameBack::Heard(outcome) => outcome.clone(),
            CameBack::Busy | CameBack::Damaged(_) => panic!("{call:?}"),
        };
        assert_eq!(lanes[0].iter().map(came_back).collect::<Vec<_>>(), [Outcome::Unknown]);
        assert_eq!(lanes[1].iter().map(came_back).collect::<Vec<_>>(), [returned]);
        assert!(lanes[0][0].is_open() && !lanes[1][0].is_open());
    }

    #[test]
    fn lines_out_of_turn_torn_or_of_a_failing_machine_are_not_measured() {
        let failed = r#"{"Failed":{"error":"disk I/O"}}"#;
        let told: [(&[(usize, &str)], &str); 5] = [
            (&[(0, CLAIM), (0, CLAIM)], "out of turn"),
            (&[(0, NOTHING)], "out of turn"),
            (&[(0, CLAIM), (0, failed)], "disk I/O"),
            (&[(2, CLAIM)], "no thread 2"),
            (&[(0, "error: no store")], "no event"),
        ];
        for (lines, wanted) in told {
            let said = lanes(lines).unwrap_err().to_string();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
