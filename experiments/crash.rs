//! One scene per crash boundary: a real child dies there, then a fresh connection looks.
//!
//! What is on disk can't tell two boundaries of one transaction apart. So the scene also tells, for every table that the
//! verb writes, whether the boundary is crossed before that write or after it: a trigger that refuses the write is
//! planted, and the verb is played to see whether it still comes to the boundary. Played unhindered, the verb has to
//! cross each of its boundaries once: one that it never comes to is a finding, and not merely a child that did not die.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use durable_admission::{Boundary, Error, Observer, Snapshot, State, Store};
use rusqlite::Connection;

use crate::child::{self, Crossing, PAYLOAD, REQUEST_ID, RESOLVE_TICK, TENANT};
use crate::fixture;
use crate::process::{Child, NotMeasured, PLANNED_EXIT_CODE, PlannedDeath};
use crate::record::{self, Input, Request, Wal};
use crate::scene::{Death, Expectation, Laboratory, Scene, Stop, wal_left_beside};

/// PROTOCOL, *The eight crash boundaries*: what is on disk afterwards, and what the retry hears.
struct Expected {
    on_disk: Option<State>,
    retry: &'static str,
    wal: Wal,
}

const fn expected_at(boundary: Boundary) -> Expected {
    let (on_disk, retry, wal) = match boundary {
        Boundary::AdmitAfterIntent | Boundary::AdmitBeforeCommit => (None, "accepted", Wal::Nothing),
        Boundary::AdmitAfterCommit => (Some(State::Queued), "replay", Wal::Frames),
        Boundary::ResolveAfterEffect | Boundary::ResolveBeforeCommit => (Some(State::Inflight), "replay", Wal::Nothing),
        Boundary::ResolveAfterCommit => (Some(State::Done), "replay", Wal::Frames),
        Boundary::CancelBeforeCommit => (Some(State::Queued), "replay", Wal::Nothing),
        Boundary::CancelAfterCommit => (Some(State::Cancelled), "replay", Wal::Frames),
    };
    Expected { on_disk, retry, wal }
}

/// Plays all eight, each on a store of its own.
pub fn play(laboratory: &mut Laboratory<'_>) -> Result<Vec<(&'static str, record::Scene)>, Stop> {
    let mut rehearsals: Vec<(Crossing, Rehearsal)> = Vec::new();
    let mut scenes = Vec::new();
    for boundary in Boundary::ALL {
        let crossing = Crossing::of(boundary);
        let mut scene = Scene::of_boundary(laboratory, boundary)?;
        prepare(&mut scene, crossing)?;
        scene.leave()?;
        let at = match rehearsals.iter().position(|(of, _)| *of == crossing) {
            Some(at) => at,
            None => {
                let scratch = scene.laboratory.scratch(boundary.name())?;
                rehearsals.push((crossing, Rehearsal::of(crossing, scene.path(), &scratch)?));
                rehearsals.len() - 1
            }
        };
        let (_, rehearsal) = &rehearsals[at];
        let (pointer, times) = (scene.next_pointer(), rehearsal.times_crossed(boundary));
        scene.laboratory.expect(
            || format!("{pointer}/dies_at: {boundary} is crossed {times} times by its verb, not once"),
            Expectation::equal(times, 1),
        );
        let (written, not_yet_written) =
            rehearsal.writes.iter().partition::<Vec<_>, _>(|write| !write.crossed_before.contains(&boundary));
        die(&mut scene, boundary, tables(&written), tables(&not_yet_written))?;
        scene.admit(REQUEST_ID, TENANT, PAYLOAD, expected_at(boundary).retry)?;
        scenes.push((boundary.name(), scene.end_scene()?));
    }
    Ok(scenes)
}

/// What has to be there before the verb makes sense.
fn prepare(scene: &mut Scene<'_, '_>, crossing: Crossing) -> Result<(), Stop> {
    match crossing {
        Crossing::Admit => Ok(()),
        Crossing::Resolve => {
            scene.admit(REQUEST_ID, TENANT, PAYLOAD, "accepted")?;
            scene.claim(0, (REQUEST_ID, 1)).map(drop)
        }
        Crossing::Cancel => scene.admit(REQUEST_ID, TENANT, PAYLOAD, "accepted"),
    }
}

fn die(
    scene: &mut Scene<'_, '_>,
    boundary: Boundary,
    written: Vec<&'static str>,
    not_yet_written: Vec<&'static str>,
) -> Result<(), Stop> {
    let pointer = scene.next_pointer();
    let child = Child::spawn(&child::casualty(scene.path(), boundary)?)?;
    PlannedDeath::witness(child, boundary.name(), child::deadline())
        .map_err(|error| NotMeasured { what: format!("{pointer}/exit_code: {}", error.what) })?;

    let expected = expected_at(boundary);
    let wal = wal_left_beside(scene.path());
    scene.laboratory.expect(
        || format!("{pointer}/wal_left_to_recover: {wal:?} was left by a death at {boundary}, not {:?}", expected.wal),
        Expectation::equal(&wal, &expected.wal),
    );
    let found = scene.return_to()?;
    let on_disk = found.tasks.first().map(|task| task.state);
    scene.laboratory.expect(
        || format!("{pointer}/found: {on_disk:?} is on disk after a death at {boundary}, not {:?}", expected.on_disk),
        Expectation::equal(summary(&found), expected_summary(expected.on_disk)),
    );
    let (verb, input) = verb_of(boundary);
    scene.died(Death { verb, input, at: boundary, exit_code: PLANNED_EXIT_CODE, written, not_yet_written, wal, found });
    Ok(())
}

fn verb_of(boundary: Boundary) -> (&'static str, Input) {
    match Crossing::of(boundary) {
        Crossing::Admit => {
            let request = Request { id: REQUEST_ID.to_owned(), tenant: TENANT.to_owned(), payload: PAYLOAD };
            ("admit", Input::Request { request })
        }
        Crossing::Resolve => ("resolve", Input::Report { token: (&child::token()).into(), tick: RESOLVE_TICK }),
        Crossing::Cancel => ("cancel_unstarted", Input::Id { request_id: REQUEST_ID.to_owned() }),
    }
}

/// State of the one task, intents, effects, usage.
type Summary = (Option<State>, usize, u64, u64, (u64, u64));

fn summary(found: &Snapshot) -> Summary {
    let state = found.tasks.first().map(|task| task.state);
    (state, found.tasks.len(), found.intents, found.effects, (found.usage.count, found.usage.bytes))
}

fn expected_summary(on_disk: Option<State>) -> Summary {
    let there = u64::from(on_disk.is_some());
    let (effects, held) = match on_disk {
        None | Some(State::Cancelled) => (0, (0, 0)),
        Some(State::Done) => (1, (0, 0)),
        Some(State::Queued | State::Inflight | State::Quarantined) => (0, (1, 3)),
    };
    (on_disk, there as usize, there, effects, held)
}

const TABLES: [&str; 4] = ["intent", "task", "effect", "usage"];

/// One write of a verb, and the boundaries that the verb crosses before it.
struct WriteOrder {
    table: &'static str,
    crossed_before: Vec<Boundary>,
}

fn tables(writes: &[&WriteOrder]) -> Vec<&'static str> {
    writes.iter().map(|write| write.table).collect()
}

/// A verb played where nothing dies: what it crosses, and when.
struct Rehearsal {
    /// In the order of the unhindered verb.
    crossed: Vec<Boundary>,
    /// One for each table that the verb writes.
    writes: Vec<WriteOrder>,
}

impl Rehearsal {
    /// Every play is on a fresh copy of the prepared store, which nobody has open: its closing moved all of its WAL into it.
    fn of(crossing: Crossing, prepared: &Path, scratch: &Path) -> Result<Rehearsal, Stop> {
        let copy = |name: &str| {
            let store = scratch.with_file_name(format!("{name}.db"));
            fs::copy(prepared, &store).map(|_| store).map_err(|error| NotMeasured {
                what: format!(
                    "{} can't be copied beside itself ({error}); make room and run again",
                    prepared.display()
                ),
            })
        };
        let play = |store: &Path| -> Result<_, Stop> {
            let crossed = Crossed::default();
            let mut store = Store::open(store, &fixture::LIMITS)?.observed_by(crossed.clone());
            let answer = crossing.play(&mut store);
            Ok((crossed.0.take(), answer))
        };
        let (crossed, answer) = play(&copy("unhindered")?)?;
        answer?;
        let mut writes = Vec::new();
        for table in TABLES {
            let store = copy(table)?;
            refuse_writes(&store, table)?;
            match play(&store)? {
                // The verb does not write this table.
                (_, Ok(_)) => {}
                (crossed_before, Err(Error::Corrupt(_))) => writes.push(WriteOrder { table, crossed_before }),
                (_, Err(error)) => return Err(error.into()),
            }
        }
        Ok(Rehearsal { crossed, writes })
    }

    fn times_crossed(&self, boundary: Boundary) -> usize {
        self.crossed.iter().filter(|crossed| **crossed == boundary).count()
    }
}

fn refuse_writes(store: &Path, table: &str) -> Result<(), Stop> {
    let plant = || {
        let connection = Connection::open(store)?;
        connection.execute_batch(&format!(
            "PRAGMA synchronous = OFF;
             CREATE TRIGGER refuse_insert BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END;
             CREATE TRIGGER refuse_update BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END;"
        ))
    };
    // A table that is not there is broken; a disk that is full is not.
    plant().map_err(|error| Error::from(error).into())
}

#[derive(Clone, Default)]
struct Crossed(Rc<RefCell<Vec<Boundary>>>);

impl Observer for Crossed {
    fn crossed(&mut self, boundary: Boundary) {
        self.0.borrow_mut().push(boundary);
    }
}
