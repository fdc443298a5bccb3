//! Plays steps on a store through the public verbs, and records each: what went in, what came back, what is held.
//!
//! Each step says what it expects. What comes otherwise is recorded all the same, and is a broken expectation:
//! it can't be frozen, whatever the baseline says.

use std::fs;
use std::path::{Path, PathBuf};

use durable_admission::{Admission, Boundary, Claim, Error, LEASE_TICKS, Request, Snapshot, Store, Token};

use crate::fixture;
use crate::folder::Folder;
use crate::heat::Heat;
use crate::process::NotMeasured;
use crate::record::{self, Because, End, Held, Holders, Input, Outcome, Payload, RecordedClaim, Step, Story, Wal};

/// Why a group could not be played to its end.
#[derive(Debug)]
pub enum Stop {
    /// The machine or a child did otherwise than planned: nothing is known.
    NotMeasured(NotMeasured),
    /// The protocol refused what it must do.
    Broken(String),
}

impl From<NotMeasured> for Stop {
    fn from(error: NotMeasured) -> Self {
        Stop::NotMeasured(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        let machine = matches!(
            error,
            Error::Busy(_) | Error::DiskFull(_) | Error::Io(_) | Error::Unavailable(_) | Error::OutcomeUnknown(_)
        );
        match machine {
            true => Stop::NotMeasured(NotMeasured { what: error.to_string() }),
            false => Stop::Broken(error.to_string()),
        }
    }
}

/// What is beside a database that nobody has open.
pub fn wal_left_beside(database: &Path) -> Wal {
    let mut wal = database.as_os_str().to_owned();
    wal.push("-wal");
    match fs::metadata(wal) {
        Ok(metadata) if metadata.len() > 0 => Wal::Frames,
        Ok(_) | Err(_) => Wal::Nothing,
    }
}

/// What one group works with: fresh databases, and a place for what it finds broken.
pub struct Laboratory<'f> {
    folder: &'f Folder,
    group: &'static str,
    /// Built-in expectations that were not met, one sentence each.
    pub broken: Vec<String>,
    /// Every database that became a store, for the audit.
    pub databases: Vec<PathBuf>,
    /// Never part of what is frozen.
    pub heat: Option<Heat>,
}

impl<'f> Laboratory<'f> {
    pub fn new(folder: &'f Folder, group: &'static str) -> Self {
        Laboratory { folder, group, broken: Vec::new(), databases: Vec::new(), heat: None }
    }

    /// A path in an emptied folder of its own.
    pub fn database(&self, name: &str) -> Result<PathBuf, Stop> {
        Ok(self.folder.database(&format!("{}-{name}", self.group))?)
    }

    /// A path for what is not a store of the group: nothing there is audited.
    pub fn scratch(&self, name: &str) -> Result<PathBuf, Stop> {
        Ok(self.folder.database(&format!("{}-{name}-scratch", self.group))?)
    }

    pub fn expect(&mut self, what: impl FnOnce() -> String, met: Expectation) {
        match met {
            Expectation::Met => {}
            Expectation::Missed => self.broken.push(what()),
        }
    }
}

pub enum Expectation {
    Met,
    Missed,
}

impl Expectation {
    pub fn equal<T: PartialEq>(found: T, expected: T) -> Expectation {
        if found == expected { Expectation::Met } else { Expectation::Missed }
    }
}

/// One store and the steps played on it.
pub struct Scene<'l, 'f> {
    pub laboratory: &'l mut Laboratory<'f>,
    pointer: String,
    path: PathBuf,
    store: Option<Store>,
    steps: Vec<Step>,
}

impl<'l, 'f> Scene<'l, 'f> {
    pub fn new(laboratory: &'l mut Laboratory<'f>) -> Result<Self, Stop> {
        let pointer = format!("/groups/{}/steps", laboratory.group);
        Scene::at(laboratory, "store", pointer)
    }

    pub fn of_boundary(laboratory: &'l mut Laboratory<'f>, boundary: Boundary) -> Result<Self, Stop> {
        let pointer = format!("/groups/{}/boundaries/{boundary}/steps", laboratory.group);
        Scene::at(laboratory, boundary.name(), pointer)
    }

    fn at(laboratory: &'l mut Laboratory<'f>, name: &str, pointer: String) -> Result<Self, Stop> {
        let path = laboratory.database(name)?;
        let store = Store::open(&path, &fixture::LIMITS)?;
        laboratory.databases.push(path.clone());
        Ok(Scene { laboratory, pointer, path, store: Some(store), steps: Vec::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next step will stand in `results.json`.
    pub fn next_pointer(&self) -> String {
        format!("{}/{}", self.pointer, self.steps.len())
    }

    pub fn admit(&mut self, id: &str, tenant: &str, payload: Payload, expected: &str) -> Result<(), Stop> {
        let text = payload.text();
        let answer = self.store()?.admit(Request { request_id: id, tenant, payload: &text })?;
        let name = answer.name().to_owned();
        self.expect_answer("admit", &name, expected);
        let outcome = match answer {
            Admission::Full(full) => Outcome::Full {
                answer: name,
                because: Because {
                    budget: full.budget.name(),
                    used: full.used,
                    needed: full.needed,
                    limit: full.limit,
                },
            },
            Admission::Oversize { payload_bytes, limit } => Outcome::Oversize { answer: name, payload_bytes, limit },
            Admission::Accepted | Admission::Replay | Admission::Conflict => Outcome::Answer { answer: name },
        };
        let request = record::Request { id: id.to_owned(), tenant: tenant.to_owned(), payload };
        self.record("admit", Input::Request { request }, outcome)
    }

    /// Expects the task `(request id, generation)`. Its token comes back, or the expected one if nothing did.
    pub fn claim(&mut self, tick: i64, (request_id, generation): (&str, i64)) -> Result<Token, Stop> {
        let expected = Token { request_id: request_id.to_owned(), generation };
        let claim = self.store()?.claim(tick)?;
        let token = claim.as_ref().map(|claim| claim.token.clone());
        let pointer = self.next_pointer();
        self.laboratory.expect(
            || format!("{pointer}: claim({tick}) gave {token:?}, not {expected:?}"),
            Expectation::equal(token.as_ref(), Some(&expected)),
        );
        self.record("claim", Input::Tick { tick }, claimed(claim))?;
        Ok(token.unwrap_or(expected))
    }

    pub fn claim_nothing(&mut self, tick: i64) -> Result<(), Stop> {
        let claim = self.store()?.claim(tick)?;
        self.expect_answer("claim", if claim.is_some() { "claimed" } else { "nothing" }, "nothing");
        self.record("claim", Input::Tick { tick }, claimed(claim))
    }

    pub fn resolve(&mut self, token: &Token, tick: i64, expected: &str) -> Result<(), Stop> {
        let answer = self.store()?.resolve(token, tick)?;
        self.answered("resolve", Input::Report { token: token.into(), tick }, answer.name(), expected)
    }

    pub fn quarantine(&mut self, token: &Token, tick: i64, expected: &str) -> Result<(), Stop> {
        let answer = self.store()?.quarantine(token, tick)?;
        self.answered("quarantine", Input::Report { token: token.into(), tick }, answer.name(), expected)
    }

    pub fn redrive(&mut self, token: &Token, expected: &str) -> Result<(), Stop> {
        let answer = self.store()?.redrive(token)?;
        self.answered("redrive", Input::Token { token: token.into() }, answer.name(), expected)
    }

    pub fn cancel(&mut self, request_id: &str, expected: &str) -> Result<(), Stop> {
        let answer = self.store()?.cancel_unstarted(request_id)?;
        let input = Input::Id { request_id: request_id.to_owned() };
        self.answered("cancel_unstarted", input, answer.name(), expected)
    }

    /// Expects this `[count, bytes]` after the latest step.
    pub fn holds(&mut self, count: u64, bytes: u64) {
        let Some(step) = self.steps.last() else { return };
        let (found, expected) = (step.usage, Held(count, bytes));
        let pointer = format!("{}/{}/usage", self.pointer, self.steps.len() - 1);
        self.laboratory
            .expect(|| format!("{pointer}: {found:?} is held, not {expected:?}"), Expectation::equal(found, expected));
    }

    /// Lets go of the store, so that children find no other connection.
    pub fn leave(&mut self) -> Result<(), Stop> {
        self.store.take().map_or(Ok(()), Store::close)?;
        // Closing can't say that there was no room to move the log into the database; it leaves the log.
        match wal_left_beside(&self.path) {
            Wal::Nothing => Ok(()),
            Wal::Frames => Err(Stop::NotMeasured(NotMeasured {
                what: format!(
                    "{}: closing the store left its write-ahead log behind; make room and try again",
                    self.pointer
                ),
            })),
        }
    }

    /// Comes back on a fresh connection.
    pub fn return_to(&mut self) -> Result<Snapshot, Stop> {
        let store = Store::open(&self.path, &fixture::LIMITS)?;
        let snapshot = store.snapshot()?;
        self.store = Some(store);
        Ok(snapshot)
    }

    pub fn died(&mut self, death: Death) {
        let Death { verb, input, at, exit_code, written, not_yet_written, wal, found } = death;
        let outcome = Outcome::Death {
            dies_at: at.name(),
            exit_code,
            written,
            not_yet_written,
            wal_left_to_recover: wal,
            found: End::of(&found),
        };
        self.steps.push(step(verb, input, outcome, &found));
    }

    pub fn raced(&mut self, input: Input, outcome: Outcome, found: &Snapshot) {
        self.steps.push(Step { holders: Holders::counted(found), ..step("admit", input, outcome, found) });
    }

    /// Closes the store, looks at it through a fresh connection, and gives the whole story.
    pub fn end(self) -> Result<Story, Stop> {
        Ok(Story::One(self.end_scene()?))
    }

    /// As [`Scene::end`], with counts where chance decided who and which.
    pub fn end_counted(self) -> Result<Story, Stop> {
        Ok(Story::One(self.end_with(End::counted)?))
    }

    pub fn end_scene(self) -> Result<record::Scene, Stop> {
        self.end_with(End::of)
    }

    fn end_with(mut self, end: impl FnOnce(&Snapshot) -> End) -> Result<record::Scene, Stop> {
        self.leave()?;
        let snapshot = self.return_to()?;
        self.leave()?;
        Ok(record::Scene { steps: self.steps, end: end(&snapshot) })
    }

    fn store(&mut self) -> Result<&mut Store, Stop> {
        self.store.as_mut().ok_or_else(|| Stop::Broken(format!("{}: no store is open", self.pointer)))
    }

    fn answered(&mut self, verb: &'static str, input: Input, answer: &str, expected: &str) -> Result<(), Stop> {
        self.expect_answer(verb, answer, expected);
        self.record(verb, input, Outcome::Answer { answer: answer.to_owned() })
    }

    fn expect_answer(&mut self, verb: &str, answer: &str, expected: &str) {
        let pointer = self.next_pointer();
        self.laboratory.expect(
            || format!("{pointer}/answer: {verb} answered {answer}, not {expected}"),
            Expectation::equal(answer, expected),
        );
    }

    fn record(&mut self, verb: &'static str, input: Input, outcome: Outcome) -> Result<(), Stop> {
        let snapshot = self.store()?.snapshot()?;
        self.steps.push(step(verb, input, outcome, &snapshot));
        Ok(())
    }
}

/// How a child died, and what it left.
pub struct Death {
    pub verb: &'static str,
    pub input: Input,
    pub at: Boundary,
    pub exit_code: i32,
    pub written: Vec<&'static str>,
    pub not_yet_written: Vec<&'static str>,
    pub wal: Wal,
    pub found: Snapshot,
}

fn step(verb: &'static str, input: Input, outcome: Outcome, found: &Snapshot) -> Step {
    Step { verb, input, outcome, usage: found.usage.into(), holders: Holders::each(found) }
}

fn claimed(claim: Option<Claim>) -> Outcome {
    let Some(claim) = claim else { return Outcome::Answer { answer: "nothing".to_owned() } };
    Outcome::Claimed {
        answer: "claimed",
        claim: RecordedClaim {
            token: (&claim.token).into(),
            tenant: claim.tenant,
            payload: claim.payload,
            lease: claim.lease,
        },
    }
}

/// A tick at which no lease of `claimed_at` has run out yet.
pub const fn within_lease(claimed_at: i64) -> i64 {
    claimed_at + LEASE_TICKS - 1
}
