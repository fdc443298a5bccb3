//! The tour as one run on the recording disk: from no store at all to the last connection closed, with checkpoints.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durable_admission::Store;
use rusqlite::Connection;

use super::ground::Ground;
use super::perform::{Said, perform};
use super::tour::tour;
use crate::disk::log::{Entry, Log};
use crate::disk::plan::Plan;
use crate::disk::recorder::Recorder;
use crate::disk::vfs;
use crate::disk::wrong::WrongDisk;
use crate::fixture::LIMITS;
use crate::model::{FIXTURE, State, Verb, step};
use crate::process::NotMeasured;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// One for the whole run. The library leaves its WAL alone until it closes, so somebody else checkpoints now and then.
    Kept,
    /// Each verb opens the store and closes it, and closing checkpoints and deletes the WAL.
    OnePerVerb,
}

impl Connections {
    pub const BOTH: [Connections; 2] = [Connections::Kept, Connections::OnePerVerb];

    pub fn name(self) -> &'static str {
        match self {
            Connections::Kept => "kept",
            Connections::OnePerVerb => "one_per_verb",
        }
    }
}

/// What the run does, one after the other; each is marked as called and as acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Init,
    Verb(Verb),
    Checkpoint(Checkpoint),
    Close,
}

/// What SQLite does to the WAL once its pages are in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// Nothing: the next write starts it from the front.
    Passive,
    Truncate,
}

/// With a kept connection, after so many verbs of the tour.
const CHECKPOINTS: [(usize, Checkpoint); 3] =
    [(7, Checkpoint::Passive), (13, Checkpoint::Truncate), (19, Checkpoint::Passive)];

impl Step {
    /// The row of the figures that it is counted in.
    pub fn kind(&self) -> &'static str {
        match self {
            Step::Init => "init",
            Step::Verb(Verb::Admit(_)) => "admit",
            Step::Verb(Verb::Claim { .. }) => "claim",
            Step::Verb(Verb::Resolve { .. }) => "resolve",
            Step::Verb(Verb::Quarantine { .. }) => "quarantine",
            Step::Verb(Verb::Redrive { .. }) => "redrive",
            Step::Verb(Verb::CancelUnstarted { .. }) => "cancel",
            Step::Verb(Verb::Status { .. }) => "status",
            Step::Verb(Verb::Snapshot) => "snapshot",
            Step::Checkpoint(_) => "checkpoint",
            Step::Close => "close",
        }
    }
}

impl Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Step::Init | Step::Close | Step::Verb(Verb::Snapshot) => write!(out, "{kind}"),
            Step::Verb(Verb::Admit(request)) => write!(out, "{kind} {:?} of {:?}", request.id, request.tenant),
            Step::Verb(Verb::Claim { tick }) => write!(out, "{kind} at {tick}"),
            Step::Verb(Verb::Resolve { token, tick } | Verb::Quarantine { token, tick }) => {
                write!(out, "{kind} {:?}.{} at {tick}", token.request_id, token.generation)
            }
            Step::Verb(Verb::Redrive { token }) => write!(out, "{kind} {:?}.{}", token.request_id, token.generation),
            Step::Verb(Verb::CancelUnstarted { request_id } | Verb::Status { request_id }) => {
                write!(out, "{kind} {request_id:?}")
            }
            Step::Checkpoint(Checkpoint::Passive) => write!(out, "{kind}, passive"),
            Step::Checkpoint(Checkpoint::Truncate) => write!(out, "{kind}, truncating"),
        }
    }
}

/// One run: what was done, what the model holds after each step, and what reached the disk.
#[derive(Clone)]
pub struct Journey {
    pub connections: Connections,
    pub steps: Vec<Step>,
    /// After so many steps; at first there is no store.
    pub states: Vec<Option<State>>,
    pub log: Log,
    pub marks: Marks,
}

/// Why there is no journey.
#[derive(Debug)]
pub enum Unrecorded {
    /// The store did not answer as the model does, which convicts it.
    Disagrees(String),
    NotMeasured(NotMeasured),
}

impl From<NotMeasured> for Unrecorded {
    fn from(error: NotMeasured) -> Self {
        Unrecorded::NotMeasured(error)
    }
}

impl From<Unrecorded> for NotMeasured {
    fn from(why: Unrecorded) -> Self {
        match why {
            Unrecorded::Disagrees(what) => NotMeasured { what },
            Unrecorded::NotMeasured(error) => error,
        }
    }
}

/// How a step went wrong.
enum Amiss {
    Disagrees(String),
    Failed(String),
}

impl From<String> for Amiss {
    fn from(why: String) -> Self {
        Amiss::Failed(why)
    }
}

/// How many steps were called and how many acknowledged at each cut of a log.
#[derive(Clone)]
pub struct Marks {
    pub called: Vec<usize>,
    pub acknowledged: Vec<usize>,
}

impl Marks {
    fn of(log: &Log) -> Marks {
        let counted = |is_mark: fn(&Entry) -> bool| {
            let mut sum = 0;
            let after = log.entries.iter().map(|entry| {
                sum += usize::from(is_mark(entry));
                sum
            });
            [0].into_iter().chain(after).collect()
        };
        Marks {
            called: counted(|entry| matches!(entry, Entry::Called { .. })),
            acknowledged: counted(|entry| matches!(entry, Entry::Acknowledged { .. })),
        }
    }
}

impl Journey {
    /// Records one. SQLite's random numbers belong to the process: no other thread may use SQLite meanwhile, or the salts
    /// in the WAL are others.
    ///
    /// # Errors
    /// The run did not go as the model says, or could not be recorded.
    pub fn record(ground: &Ground<'_>, connections: Connections) -> Result<Journey, Unrecorded> {
        let path = ground.folder.database(connections.name())?;
        let not_recorded = |why: String| NotMeasured { what: format!("{}: no run to look at: {why}", path.display()) };
        let recorder = Recorder::new(&path, Plan::NOTHING).map_err(|error| not_recorded(error.to_string()))?;
        let mut driver = Driver { recorder, path: path.clone(), store: None, steps: Vec::new(), states: vec![None] };
        let driven = {
            let _shim = vfs::register().map_err(not_recorded)?;
            let _recording = vfs::record(&driver.recorder);
            let driven = driver.drive(connections);
            driver.store = None;
            driven
        };
        driven.map_err(|amiss| match amiss {
            Amiss::Disagrees(what) => Unrecorded::Disagrees(format!("{}: {what}", connections.name())),
            Amiss::Failed(why) => not_recorded(why).into(),
        })?;
        if driver.recorder.open_files() > 0 {
            return Err(not_recorded("a connection outlived its recording".to_owned()).into());
        }
        let log = driver.recorder.log();
        Ok(Journey { connections, steps: driver.steps, states: driver.states, marks: Marks::of(&log), log })
    }

    /// The same run on a disk that lies.
    pub fn on(&self, disk: WrongDisk) -> Journey {
        let log = self.log.on(disk);
        Journey { marks: Marks::of(&log), log, ..self.clone() }
    }

    /// The step under way at a cut, or the last that was; before all of them, the first.
    pub fn step_at(&self, cut: usize) -> usize {
        self.marks.called[cut].saturating_sub(1)
    }
}

struct Driver {
    recorder: Arc<Recorder>,
    path: PathBuf,
    store: Option<Store>,
    steps: Vec<Step>,
    states: Vec<Option<State>>,
}

impl Driver {
    fn drive(&mut self, connections: Connections) -> Result<(), Amiss> {
        let close_after_each = |driver: &mut Driver| match connections {
            Connections::Kept => Ok(()),
            Connections::OnePerVerb => driver.close(),
        };
        self.step(Step::Init, |driver| {
            driver.open()?;
            Ok((Some(State::default()), "opened"))
        })?;
        close_after_each(self)?;
        for (number, verb) in tour().into_iter().enumerate() {
            self.step(Step::Verb(verb.clone()), |driver| driver.perform(&verb))?;
            close_after_each(self)?;
            let due = CHECKPOINTS.iter().find(|(after, _)| *after == number + 1);
            if let (Connections::Kept, Some((_, checkpoint))) = (connections, due) {
                self.checkpoint(*checkpoint)?;
            }
        }
        match connections {
            Connections::Kept => self.close(),
            Connections::OnePerVerb => Ok(()),
        }
    }

    fn step(
        &mut self,
        step: Step,
        take: impl FnOnce(&mut Driver) -> Result<(Option<State>, &'static str), Amiss>,
    ) -> Result<(), Amiss> {
        let number = self.steps.len() as u64;
        self.recorder.called(number);
        let (state, answer) = take(self).map_err(|amiss| match amiss {
            Amiss::Disagrees(why) => Amiss::Disagrees(format!("{step}: {why}")),
            Amiss::Failed(why) => Amiss::Failed(format!("{step}: {why}")),
        })?;
        self.recorder.acknowledged(number, answer);
        self.steps.push(step);
        self.states.push(state);
        Ok(())
    }

    fn now(&self) -> Option<State> {
        self.states.last().cloned().flatten()
    }

    fn open(&mut self) -> Result<(), String> {
        self.store = Some(Store::open(&self.path, &LIMITS).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn perform(&mut self, verb: &Verb) -> Result<(Option<State>, &'static str), Amiss> {
        if self.store.is_none() {
            self.open()?;
        }
        let Some(store) = &mut self.store else { return Err("no store".to_owned().into()) };
        let before = self.states.last().cloned().flatten().unwrap_or_default();
        let (after, expected) =
            step(&FIXTURE, &before, verb).map_err(|error| format!("the model says {}", error.name()))?;
        match perform(store, verb) {
            Said::Heard(Ok(answer)) if answer == expected => Ok((Some(after), answer.name())),
            Said::Heard(heard) => Err(Amiss::Disagrees(format!("{heard:?}, and the model says {expected:?}"))),
            Said::Failed(error) => Err(Amiss::Failed(error.to_string())),
        }
    }

    fn close(&mut self) -> Result<(), Amiss> {
        self.step(Step::Close, |driver| match driver.store.take().map(Store::close) {
            None => Err("was closed before".to_owned().into()),
            Some(Err(error)) => Err(error.to_string().into()),
            Some(Ok(())) => Ok((driver.now(), "closed")),
        })
    }

    /// From a connection of the laboratory's own, beside the store's.
    fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), Amiss> {
        self.step(Step::Checkpoint(checkpoint), |driver| {
            write_back(&driver.path, checkpoint)?;
            Ok((driver.now(), "checkpointed"))
        })
    }
}

fn write_back(path: &Path, checkpoint: Checkpoint) -> Result<(), String> {
    let beside = Connection::open(path).map_err(|error| error.to_string())?;
    let sql = match checkpoint {
        Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
        Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    let done: [i64; 3] = beside
        .query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
        .map_err(|error| error.to_string())?;
    match done {
        [0, in_wal, written_back] if in_wal == written_back => Ok(()),
        [busy, in_wal, written_back] => {
            Err(format!("busy {busy}, {written_back} of {in_wal} frames were written back"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::image::{Rule, enumerate};
    use crate::disk::log::SyncPurpose;
    use crate::progress::Progress;

    const COARSE: Rule =
        Rule { full_product: 32, subsets_up_to: 4, random_subsets: 4, damages: 16, storms: 4, seed: 73 };

    /// Two folders with names of other lengths; other tests use SQLite meanwhile, so the salts may differ.
    #[test]
    fn two_runs_have_the_same_calls_and_the_same_counts() {
        for connections in Connections::BOTH {
            let [one, other] = [(); 2].map(|()| {
                let ground = Ground::prepare("test", &Progress::Quiet).expect("a folder");
                Journey::record(&ground, connections).expect("records")
            });
            assert_eq!(one.log.lines(), other.log.lines());
            assert_eq!(enumerate(&one.log, &COARSE).counts, enumerate(&other.log, &COARSE).counts);
        }
    }

    #[test]
    fn a_kept_connection_sees_checkpoints_and_its_wal_begun_anew() {
        let ground = Ground::prepare("test", &Progress::Quiet).expect("a folder");
        let journey = Journey::record(&ground, Connections::Kept).expect("records");
        let syncs = |wanted| {
            let is = |entry: &&Entry| matches!(entry, Entry::Sync { purpose, .. } if *purpose == wanted);
            journey.log.entries.iter().filter(is).count()
        };
        assert_eq!((syncs(SyncPurpose::Checkpoint), syncs(SyncPurpose::WalHeader)), (CHECKPOINTS.len() + 1, 4));
        assert!(journey.log.entries.iter().any(|entry| matches!(entry, Entry::Truncate { len: 0, .. })));
        assert_eq!(journey.marks.acknowledged.last(), Some(&journey.steps.len()));
    }
}
