//! Snapshots taken while another connection writes: each has to be one instant. Parts read at different instants contradict
//! each other, since every write changes the ledger and the tasks together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use durable_admission::{Admission, Error, Request, Snapshot, State, Store};
use serde::Serialize;

use super::Found;
use super::ground::Ground;
use crate::fixture;
use crate::process::NotMeasured;

/// Snapshots that differ from the one before: the writer was at work in between.
const SNAPSHOTS: usize = 50;

/// What a sound run takes is a hundredth of it.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Figures {
    snapshots: usize,
    torn: usize,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let path = ground.folder.database("instant")?;
    let told = |error: Error| NotMeasured { what: format!("{}: {error}", path.display()) };
    let mut writer = Store::open(&path, &fixture::LIMITS).map_err(told)?;
    let reader = Store::open(&path, &fixture::LIMITS).map_err(told)?;
    let is_enough = AtomicBool::new(false);
    let (written, watched) = thread::scope(|scope| {
        let written = scope.spawn(|| write(&mut writer, &is_enough));
        let watched = watch(&reader, || !written.is_finished());
        is_enough.store(true, Ordering::SeqCst);
        (written.join(), watched)
    });
    match written {
        Ok(written) => written.map_err(told)?,
        Err(_) => return Err(NotMeasured { what: "the writer panicked".to_owned() }),
    }
    let Watched { moved, torn } = watched.map_err(told)?;
    if moved < SNAPSHOTS {
        return Err(NotMeasured {
            what: format!("only {moved} of {SNAPSHOTS} snapshots met the writer at work in {PATIENCE:?}; run again"),
        });
    }
    Found::new(&Figures { snapshots: moved, torn: torn.len() }, torn)
}

/// Admits tasks and ends them, one after the other. Each holds one byte, and moves the tick.
fn write(store: &mut Store, is_enough: &AtomicBool) -> Result<(), Error> {
    let mut tick = 0;
    while !is_enough.load(Ordering::SeqCst) {
        let request_id = format!("task-{tick}");
        let admission = store.admit(Request { request_id: &request_id, tenant: "a", payload: "x" })?;
        if admission != Admission::Accepted {
            return Err(Error::Corrupt(format!("{request_id} was {admission}, with all the room there is")));
        }
        if let Some(claim) = store.claim(tick)? {
            let _ = store.resolve(&claim.token, tick)?;
        }
        tick += 1;
    }
    Ok(())
}

struct Watched {
    /// Snapshots that differ from the one before.
    moved: usize,
    /// A sentence for each that contradicts itself.
    torn: Vec<String>,
}

/// Until it is enough, or the writer is no longer at work.
fn watch(store: &Store, is_at_work: impl Fn() -> bool) -> Result<Watched, Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut watched = Watched { moved: 0, torn: Vec::new() };
    let mut last = store.snapshot()?;
    while watched.moved < SNAPSHOTS && is_at_work() && Instant::now() < deadline {
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
