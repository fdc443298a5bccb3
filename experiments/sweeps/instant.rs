//! Snapshots taken while another connection writes: each has to be one instant. Parts read at different instants contradict
//! each other, since every write changes the ledger and the tasks together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use durable_admission::{Admission, Error, Request, Snapshot, State, Store};
use serde::Serialize;

use super::Found;
use super::ground::Ground;
use crate::fixture;
use crate::process::NotMeasured;

/// Tasks that the writer admits and ends, one after the other.
const TASKS: usize = 500;

/// Fewer snapshots that differ from the one before say nothing of what comes between.
const ENOUGH: usize = 20;

#[derive(Serialize)]
struct Figures {
    tasks: usize,
    torn: usize,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let path = ground.folder.database("instant")?;
    let told = |error: Error| NotMeasured { what: format!("{}: {error}", path.display()) };
    let mut writer = Store::open(&path, &fixture::LIMITS).map_err(told)?;
    let reader = Store::open(&path, &fixture::LIMITS).map_err(told)?;
    let has_ended = AtomicBool::new(false);
    let (written, read) = thread::scope(|scope| {
        let written = scope.spawn(|| {
            let written = write(&mut writer);
            has_ended.store(true, Ordering::SeqCst);
            written
        });
        let read = watch(&reader, &has_ended);
        (written.join(), read)
    });
    match written {
        Ok(written) => written.map_err(told)?,
        Err(_) => return Err(NotMeasured { what: "the writer panicked".to_owned() }),
    }
    let Watched { moved, torn } = read.map_err(told)?;
    if moved < ENOUGH {
        return Err(NotMeasured {
            what: format!("only {moved} snapshots met the writer at work, and {ENOUGH} are needed; run again"),
        });
    }
    Found::new(&Figures { tasks: TASKS, torn: torn.len() }, torn)
}

/// Each task holds one byte, and moves the tick.
fn write(store: &mut Store) -> Result<(), Error> {
    for number in 0..TASKS {
        let request_id = format!("task-{number}");
        let admission = store.admit(Request { request_id: &request_id, tenant: "a", payload: "x" })?;
        if admission != Admission::Accepted {
            return Err(Error::Corrupt(format!("{request_id} was {admission}, with all the room there is")));
        }
        if let Some(claim) = store.claim(number as i64)? {
            let _ = store.resolve(&claim.token, number as i64)?;
        }
    }
    Ok(())
}

struct Watched {
    /// Snapshots that differ from the one before.
    moved: usize,
    /// A sentence for each that contradicts itself.
    torn: Vec<String>,
}

fn watch(store: &Store, has_ended: &AtomicBool) -> Result<Watched, Error> {
    let mut watched = Watched { moved: 0, torn: Vec::new() };
    let mut last = store.snapshot()?;
    while !has_ended.load(Ordering::SeqCst) {
        let now = store.snapshot()?;
        if now != last {
            watched.moved += 1;
            watched.torn.extend(contradiction(&now));
        }
        last = now;
    }
    Ok(watched)
}

fn contradiction(snapshot: &Snapshot) -> Option<String> {
    let count = |states: &[State]| snapshot.tasks.iter().filter(|task| states.contains(&task.state)).count() as u64;
    let held = count(&[State::Queued, State::Inflight, State::Quarantined]);
    let (done, tasks) = (count(&[State::Done]), snapshot.tasks.len() as u64);
    let (usage, of_tenant) = (snapshot.usage, snapshot.tenants.get("a").map_or(0, |usage| usage.count));
    let is_one_instant = (usage.count, usage.bytes, of_tenant) == (held, held, held)
        && (snapshot.intents, snapshot.effects) == (tasks, done);
    (!is_one_instant).then(|| {
        format!(
            "a snapshot says {usage:?}, of the tenant {of_tenant}, {} intents and {} effects; its {tasks} tasks say {held} held and {done} done",
            snapshot.intents, snapshot.effects
        )
    })
}
