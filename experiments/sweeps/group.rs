//! Requests of several callers that share one commit. Every ordered pair of a few verbs, on a store of its own, goes into one
//! group: each has to hear what the model says it hears alone, in the order in which they came; what is stored has to be what
//! the model says; and nobody may have heard anything before the COMMIT.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use durable_admission::{Boundary, Observer, QueueOptions, SharedStore, Store};
use rusqlite::Connection;
use serde::Serialize;

use super::Found;
use super::bench::whole_state;
use super::ground::Ground;
use super::perform::{Said, library_limits, perform, perform_shared};
use super::together::{Heard, wait_for};
use crate::model::{self, Answer, Error, Limits, Request, State, Token, Usage, Verb};
use crate::process::NotMeasured;

/// Room for two more tasks of one tenant.
const LIMITS: Limits = Limits {
    global: Usage { count: 6, bytes: 12 },
    tenant: Usage { count: 2, bytes: 5 },
    payload_bytes: 4,
    lease_ticks: model::FIXTURE.lease_ticks,
};

/// What a sound run takes is a thousandth of it.
const PATIENCE: Duration = Duration::from_secs(30);

fn admit(id: &str, tenant: &str, payload: &str) -> Verb {
    Verb::Admit(Request::new(id, tenant, payload))
}

fn token(request_id: &str) -> Token {
    Token { request_id: request_id.to_owned(), generation: 1 }
}

/// Leads to a task in flight, one in quarantine and one that waits; tenant a is full.
fn prepared() -> Vec<Verb> {
    vec![
        admit("inflight", "a", "ab"),
        Verb::Claim { tick: 1 },
        admit("parked", "b", "ab"),
        Verb::Claim { tick: 1 },
        Verb::Quarantine { token: token("parked"), tick: 1 },
        admit("waiting", "a", "ab"),
    ]
}

/// What may share a commit: each answer, and an error of the verb's own.
fn asked() -> Vec<Verb> {
    vec![
        admit("new", "b", "ab"),
        admit("more", "b", "é"),
        admit("refused", "a", "a"),
        admit("long", "b", "abcde"),
        admit("waiting", "a", "ab"),
        admit("waiting", "b", "ab"),
        admit("waiting", "a", "AB"),
        admit("waiting", "a", "ab "),
        Verb::Claim { tick: 2 },
        Verb::Claim { tick: 6 },
        Verb::Claim { tick: 0 },
        Verb::Resolve { token: token("inflight"), tick: 2 },
        Verb::Quarantine { token: token("inflight"), tick: 2 },
        Verb::Redrive { token: token("parked") },
        Verb::CancelUnstarted { request_id: "waiting".to_owned() },
    ]
}

#[derive(Serialize)]
struct Figures {
    groups: usize,
    answers: BTreeMap<String, usize>,
}

pub fn sweep(ground: &Ground<'_>) -> Result<Found, NotMeasured> {
    let verbs = asked();
    let pairs: Vec<[&Verb; 2]> = verbs.iter().flat_map(|one| verbs.iter().map(move |other| [one, other])).collect();
    let numbered: Vec<(usize, [&Verb; 2])> = pairs.into_iter().enumerate().collect();
    let played = ground.for_each(&numbered, |(number, pair)| play(ground, *number, *pair))?;
    let mut figures = Figures { groups: played.len(), answers: BTreeMap::new() };
    let mut broken = Vec::new();
    for group in played {
        broken.extend(group.broken);
        for answer in group.heard {
            *figures.answers.entry(answer).or_default() += 1;
        }
    }
    Found::new(&figures, broken)
}

struct Group {
    heard: Vec<String>,
    broken: Vec<String>,
}

fn play(ground: &Ground<'_>, number: usize, pair: [&Verb; 2]) -> Result<Group, NotMeasured> {
    let path = ground.folder.database(&format!("group-{number}"))?;
    let told = |what: String| NotMeasured { what: format!("{}: {what}", path.display()) };
    let mut store = Store::open(&path, &library_limits(&LIMITS)).map_err(|error| told(error.to_string()))?;
    let mut state = State::default();
    let mut broken = Vec::new();
    for verb in prepared() {
        let expected = next(&mut state, &verb);
        compare("alone", &verb, &perform(&mut store, &verb), &expected, &mut broken);
    }

    let opener = admit("opener", "c", "");
    let expected = [&opener, pair[0], pair[1]].map(|verb| next(&mut state, verb));
    let (gate, control) = gate();
    let shared = store.observed_by(gate).shared(QueueOptions::default()).map_err(|error| told(error.to_string()))?;
    let said = together(&shared, &control, [&opener, pair[0], pair[1]]).map_err(told)?;
    let mut heard = Vec::new();
    for ((verb, said), expected) in [&opener, pair[0], pair[1]].into_iter().zip(&said).zip(&expected) {
        compare(&format!("in the group {pair:?}"), verb, said, expected, &mut broken);
        heard.push(match expected {
            Ok(answer) => answer.name().to_owned(),
            Err(error) => error.name().to_owned(),
        });
    }
    if control.early.load(Ordering::SeqCst) {
        broken.push(format!("in the group {pair:?} an answer was heard before the COMMIT"));
    }
    shared.close().map_err(|error| told(error.to_string()))?;

    let found = Connection::open(&path).and_then(|connection| whole_state(&connection));
    match found.map_err(|error| told(error.to_string()))? {
        Ok(found) if found == state => {}
        Ok(found) => broken.push(format!("the group {pair:?} left {found:?}, not {state:?}")),
        Err(sentence) => broken.push(format!("after the group {pair:?} {sentence}")),
    }
    Ok(Group { heard, broken })
}

/// What the model answers; its state goes on.
fn next(state: &mut State, verb: &Verb) -> Result<Answer, Error> {
    let (after, answer) = model::step(&LIMITS, state, verb)?;
    *state = after;
    Ok(answer)
}

fn compare(place: &str, verb: &Verb, said: &Said, expected: &Result<Answer, Error>, broken: &mut Vec<String>) {
    match said {
        Said::Heard(heard) if heard == expected => {}
        other => broken.push(format!("{place}, {verb:?} heard {other:?}, not {expected:?}")),
    }
}

/// The first leads and is held before its COMMIT until the others wait behind it, in their order: they share the next.
fn together<O: Observer + Send>(
    store: &SharedStore<O>,
    control: &Control,
    [opener, one, other]: [&Verb; 3],
) -> Result<[Said; 3], String> {
    thread::scope(|scope| {
        let opener = scope.spawn(move || perform_shared(store, opener));
        let held = control.reached.recv_timeout(PATIENCE).map_err(|_| "nobody came to the first COMMIT".to_owned());
        let heard = &control.heard;
        let ask = |verb| {
            scope.spawn(move || {
                let said = perform_shared(store, verb);
                heard.tell();
                said
            })
        };
        let one = ask(one);
        let first = wait_for(store, 1);
        let other = ask(other);
        let second = wait_for(store, 2);
        // Whatever came of it, nobody is left waiting.
        let opened = control.go.send(()).map_err(|_| "nobody waits for the COMMIT any more".to_owned());
        let joined = [opener.join(), one.join(), other.join()];
        held.and(first).and(second).and(opened)?;
        match joined {
            [Ok(opener), Ok(one), Ok(other)] => Ok([opener, one, other]),
            _ => Err("a caller panicked".to_owned()),
        }
    })
}

/// Holds the first COMMIT until it is told to go on; before each later one it listens for answers.
struct Gate {
    reached: Sender<()>,
    go: Receiver<()>,
    is_open: bool,
    heard: Arc<Heard>,
    early: Arc<AtomicBool>,
}

struct Control {
    reached: Receiver<()>,
    go: Sender<()>,
    heard: Arc<Heard>,
    early: Arc<AtomicBool>,
}

fn gate() -> (Gate, Control) {
    let (reached, reaches) = channel();
    let (goes, go) = channel();
    let (heard, early) = (Arc::<Heard>::default(), Arc::<AtomicBool>::default());
    let gate = Gate { reached, go, is_open: false, heard: Arc::clone(&heard), early: Arc::clone(&early) };
    (gate, Control { reached: reaches, go: goes, heard, early })
}

impl Observer for Gate {
    fn crossed(&mut self, boundary: Boundary) {
        match boundary {
            Boundary::AdmitBeforeCommit | Boundary::ResolveBeforeCommit | Boundary::CancelBeforeCommit => {}
            Boundary::AdmitAfterIntent
            | Boundary::AdmitAfterCommit
            | Boundary::ResolveAfterEffect
            | Boundary::ResolveAfterCommit
            | Boundary::CancelAfterCommit => return,
        }
        if self.is_open {
            if self.heard.listen() {
                self.early.store(true, Ordering::SeqCst);
            }
            return;
        }
        self.is_open = true;
        // Without a listener or a word the store goes on: the other side says what could not be measured.
        let _ = self.reached.send(());
        let _ = self.go.recv_timeout(2 * PATIENCE);
    }
}
