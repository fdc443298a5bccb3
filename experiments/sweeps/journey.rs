//! The tour as one run on the recording disk: from no store at all to the last connection closed, with checkpoints.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use durable_admission::{Error, Store};
use rusqlite::Connection;

use super::ground::Ground;
use super::perform::{Said, perform};
use super::together::{Heard, Together};
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
    /// One, shared by callers that come in groups, each of which is one commit. Else as `Kept`.
    Shared,
}

impl Connections {
    pub const ALL: [Connections; 3] = [Connections::Kept, Connections::OnePerVerb, Connections::Shared];

    /// What one caller does: a step for each verb.
    pub const OF_ONE_CALLER: [Connections; 2] = [Connections::Kept, Connections::OnePerVerb];

    pub fn name(self) -> &'static str {
        match self {
            Connections::Kept => "kept",
            Connections::OnePerVerb => "one_per_verb",
            Connections::Shared => "shared",
        }
    }
}

/// What the run does, one after the other; each is marked as called and as acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Init,
    Verb(Verb),
    /// One commit: there is no state between its verbs that a disk may hold.
    Group(Vec<Verb>),
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

/// How many verbs of the tour are asked together, one group after the other. Groups end where checkpoints are due.
const GROUPS: [usize; 7] = [3, 4, 3, 3, 3, 3, 3];

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
            Step::Group(_) => "group",
            Step::Checkpoint(_) => "checkpoint",
            Step::Close => "close",
        }
    }
}

impl Step {
    /// What is asked of the store by its verbs.
    pub fn verbs(&self) -> &[Verb] {
        match self {
            Step::Verb(verb) => slice::from_ref(verb),
            Step::Group(verbs) => verbs,
            Step::Init | Step::Checkpoint(_) | Step::Close => &[],
        }
    }

    /// How many callers wait for an answer.
    pub fn requests(&self) -> usize {
        match self {
            Step::Group(verbs) => verbs.len(),
            Step::Init | Step::Verb(_) | Step::Checkpoint(_) | Step::Close => 1,
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
            Step::Group(verbs) => {
                let verbs: Vec<_> = verbs.iter().map(|verb| Step::Verb(verb.clone()).to_string()).collect();
                write!(out, "{kind} of ({})", verbs.join("; "))
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

impl From<Error> for Amiss {
    /// On a disk without a fault, with nobody else at the store, only the machine below it can excuse an error.
    fn from(error: Error) -> Self {
        fn is_of_the_machine(error: &Error) -> bool {
            match error {
                Error::OutcomeUnknown(why) => is_of_the_machine(why),
                other => matches!(other, Error::DiskFull(_) | Error::Io(_) | Error::Unavailable(_)),
            }
        }
        match is_of_the_machine(&error) {
            true => Amiss::Failed(error.to_string()),
            false => Amiss::Disagrees(error.to_string()),
        }
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
        // One of a group stands for the group.
        let counted = |marked: fn(&Entry) -> Option<u64>| {
            let mut steps = 0;
            let after = log.entries.iter().map(|entry| {
                steps = marked(entry).map_or(steps, |step| steps.max(step as usize + 1));
                steps
            });
            [0].into_iter().chain(after).collect()
        };
        Marks {
            called: counted(|entry| if let Entry::Called { request } = entry { Some(*request) } else { None }),
            acknowledged: counted(
                |entry| {
                    if let Entry::Acknowledged { request, .. } = entry { Some(*request) } else { None }
                },
            ),
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
        let mut driver = Driver {
            recorder,
            path: path.clone(),
            store: None,
            together: None,
            under_way: Arc::default(),
            steps: Vec::new(),
            states: vec![None],
        };
        let driven = {
            let _shim = vfs::register().map_err(not_recorded)?;
            let _recording = vfs::record(&driver.recorder);
            let driven = driver.drive(connections);
            (driver.store, driver.together) = (None, None);
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
    together: Option<Together>,
    /// The step that is.
    under_way: Arc<AtomicU64>,
    steps: Vec<Step>,
    states: Vec<Option<State>>,
}

/// What the model holds after a step, and what each of its callers heard.
type Taken = (Option<State>, Vec<&'static str>);

impl Driver {
    fn drive(&mut self, connections: Connections) -> Result<(), Amiss> {
        self.step(Step::Init, |driver| {
            driver.open()?;
            Ok((Some(State::default()), vec!["opened"]))
        })?;
        match connections {
            Connections::Kept => {
                for (number, verb) in tour().into_iter().enumerate() {
                    self.step(Step::Verb(verb.clone()), |driver| driver.perform(&verb))?;
                    self.checkpoint_if_due(number + 1)?;
                }
                self.close()
            }
            Connections::OnePerVerb => {
                self.close()?;
                for verb in tour() {
                    self.step(Step::Verb(verb.clone()), |driver| driver.perform(&verb))?;
                    self.close()?;
                }
                Ok(())
            }
            Connections::Shared => {
                self.share()?;
                let mut asked = 0;
                for group in groups() {
                    asked += group.len();
                    self.step(Step::Group(group.clone()), |driver| driver.perform_together(&group))?;
                    self.checkpoint_if_due(asked)?;
                }
                self.close()
            }
        }
    }

    fn step(&mut self, step: Step, take: impl FnOnce(&mut Driver) -> Result<Taken, Amiss>) -> Result<(), Amiss> {
        let number = self.steps.len() as u64;
        self.under_way.store(number, Ordering::SeqCst);
        (0..step.requests()).for_each(|_| self.recorder.called(number));
        let (state, answers) = take(self).map_err(|amiss| match amiss {
            Amiss::Disagrees(why) => Amiss::Disagrees(format!("{step}: {why}")),
            Amiss::Failed(why) => Amiss::Failed(format!("{step}: {why}")),
        })?;
        answers.into_iter().for_each(|answer| self.recorder.acknowledged(number, answer));
        self.steps.push(step);
        self.states.push(state);
        Ok(())
    }

    fn now(&self) -> Option<State> {
        self.states.last().cloned().flatten()
    }

    fn open(&mut self) -> Result<(), Amiss> {
        self.store = Some(Store::open(&self.path, &LIMITS)?);
        Ok(())
    }

    /// An answer before its COMMIT is marked there and then, by the thread that records.
    fn share(&mut self) -> Result<(), String> {
        let Some(store) = self.store.take() else { return Err("no store".to_owned()) };
        let (recorder, under_way) = (Arc::clone(&self.recorder), Arc::clone(&self.under_way));
        let early = move || recorder.acknowledged(under_way.load(Ordering::SeqCst), "an answer before its COMMIT");
        let together = Together::of(store, Arc::<Heard>::default(), Some(Box::new(early)));
        self.together = Some(together.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn perform_together(&mut self, verbs: &[Verb]) -> Result<Taken, Amiss> {
        let Some(together) = &self.together else { return Err("no store is shared".to_owned().into()) };
        let mut state = self.now().unwrap_or_default();
        let said = together.ask(verbs)?;
        let mut answers = Vec::new();
        for (verb, said) in verbs.iter().zip(said) {
            let (after, answer) = as_the_model(&state, verb, said)?;
            state = after;
            answers.push(answer);
        }
        Ok((Some(state), answers))
    }

    fn perform(&mut self, verb: &Verb) -> Result<Taken, Amiss> {
        if self.store.is_none() {
            self.open()?;
        }
        let Some(store) = &mut self.store else { return Err("no store".to_owned().into()) };
        let before = self.states.last().cloned().flatten().unwrap_or_default();
        let (after, answer) = as_the_model(&before, verb, perform(store, verb))?;
        Ok((Some(after), vec![answer]))
    }

    fn close(&mut self) -> Result<(), Amiss> {
        self.step(Step::Close, |driver| {
            let store = driver.store.take().map(Store::close);
            match store.or_else(|| driver.together.take().map(Together::close)) {
                None => Err("was closed before".to_owned().into()),
                Some(Err(error)) => Err(error.into()),
                Some(Ok(())) => Ok((driver.now(), vec!["closed"])),
            }
        })
    }

    fn checkpoint_if_due(&mut self, verbs: usize) -> Result<(), Amiss> {
        match CHECKPOINTS.iter().find(|(after, _)| *after == verbs) {
            Some((_, checkpoint)) => self.checkpoint(*checkpoint),
            None => Ok(()),
        }
    }

    /// From a connection of the laboratory's own, beside the store's.
    fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), Amiss> {
        self.step(Step::Checkpoint(checkpoint), |driver| {
            write_back(&driver.path, checkpoint)?;
            Ok((driver.now(), vec!["checkpointed"]))
        })
    }
}

/// The tour, cut into [`GROUPS`].
fn groups() -> Vec<Vec<Verb>> {
    let mut rest = tour().into_iter();
    GROUPS.map(|verbs| rest.by_ref().take(verbs).collect()).into()
}

/// The model's state and answer, if that is what was heard.
fn as_the_model(before: &State, verb: &Verb, said: Said) -> Result<(State, &'static str), Amiss> {
    let (after, expected) = step(&FIXTURE, before, verb).map_err(|error| format!("the model says {}", error.name()))?;
    match said {
        Said::Heard(Ok(answer)) if answer == expected => Ok((after, answer.name())),
        Said::Heard(heard) => Err(Amiss::Disagrees(format!("{heard:?}, and the model says {expected:?}"))),
        Said::Failed(error) => Err(error.into()),
    }
}

fn write_back(path: &Path, checkpoint: Checkpoint) -> Result<(), Amiss> {
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
            // The store keeps a transaction open.
            Err(Amiss::Disagrees(format!("busy {busy}, {written_back} of {in_wal} frames were written back")))
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
        for connections in Connections::ALL {
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

    /// A commit is one sync of the WAL's frames.
    #[test]
    fn the_groups_are_the_tour_and_each_is_one_commit() {
        assert_eq!(groups().concat(), tour());
        let ground = Ground::prepare("test", &Progress::Quiet).expect("a folder");
        let journey = Journey::record(&ground, Connections::Shared).expect("records");
        let (mut step, mut commits) = (0, vec![0; journey.steps.len()]);
        for entry in &journey.log.entries {
            if let Entry::Called { request } = entry {
                step = *request as usize;
            } else if let Entry::Sync { purpose: SyncPurpose::Commit, .. } = entry {
                commits[step] += 1;
            }
        }
        let of_groups: Vec<_> = journey.steps.iter().zip(commits).filter(|(step, _)| step.kind() == "group").collect();
        assert_eq!(of_groups.iter().map(|(_, commits)| *commits).collect::<Vec<_>>(), vec![1; GROUPS.len()]);
    }
}
