//! A child process that performs mixed verbs, seeded, and tells each of its calls: one line before, one after.

use std::path::PathBuf;
use std::thread;

use clap::{Args, ValueEnum};
use durable_admission::{self as library, Boundary, Observer, Store};
use serde::{Deserialize, Serialize};

use super::perform::{Said, perform};
use crate::clock::now;
use crate::dice::Dice;
use crate::fixture;
use crate::model::{Answer, Error, Request, Token, Verb};
use crate::process;

/// What one worker is told, in argv.
#[derive(Args, Clone, Debug)]
pub struct Work {
    pub parent: u32,
    pub store: PathBuf,
    pub seed: u64,
    /// Which round this is: the ids that all workers of one round share begin with it.
    pub round: usize,
    pub reads: Reads,
    /// How many verbs; without it, until it is killed.
    pub verbs: Option<usize>,
}

/// Which of the reading verbs a worker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reads {
    StatusAndSnapshot,
    /// Where history is long and a snapshot too much to tell.
    StatusOnly,
}

impl Work {
    pub fn arguments(&self) -> Vec<String> {
        let reads = self.reads.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let mut arguments = vec!["child".to_owned(), "work".to_owned(), self.parent.to_string()];
        arguments.push(self.store.to_string_lossy().into_owned());
        arguments.extend([self.seed.to_string(), self.round.to_string(), reads]);
        arguments.extend(self.verbs.map(|verbs| verbs.to_string()));
        arguments
    }
}

/// A line of a worker. Instants are nanoseconds on the system's monotonic clock, which is one for all processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Taken before the verb is called, and told before it is called: what is invoked and never returns is seen.
    Invokes { verb: Verb, at: u64 },
    /// Taken after the verb came back.
    Returns { result: Result<Answer, Error>, at: u64 },
    /// An error that changed nothing: no operation.
    Busy,
    /// An error that no sound store gives here.
    Damaged { error: String },
    /// An error of the machine.
    Failed { error: String },
    /// All verbs are performed.
    Finished,
}

/// In the child.
///
/// # Errors
/// What opening, closing or a first look reports.
pub fn work(work: &Work) -> library::Result<()> {
    process::child_started(work.parent);
    let store = Store::open(&work.store, &fixture::LIMITS)?;
    let mut store = store.observed_by(Dawdler(Dice::new(work.seed)));
    let mut worker = Worker {
        dice: Dice::new(work.seed),
        round: work.round,
        reads: work.reads,
        performed: 0,
        tick: store.snapshot()?.tick,
        claimed: Vec::new(),
        quarantined: Vec::new(),
    };
    process::await_go();
    while work.verbs.is_none_or(|verbs| worker.performed < verbs) {
        // On few cores one process would be through before the next has begun.
        thread::yield_now();
        worker.perform_one(&mut |verb| perform(&mut store, verb));
    }
    tell(&Event::Finished);
    store.close()
}

/// Lets others run while it holds the write lock, now and then: on few cores they would hardly meet otherwise.
struct Dawdler(Dice);

impl Observer for Dawdler {
    fn crossed(&mut self, _: Boundary) {
        for _ in 0..self.0.below(4) {
            thread::yield_now();
        }
    }
}

fn tell(event: &Event) {
    match serde_json::to_string(event) {
        Ok(line) => process::tell_parent(&line),
        Err(error) => process::tell_parent(&format!("error: {event:?} is no JSON: {error}")),
    }
}

struct Worker {
    dice: Dice,
    round: usize,
    reads: Reads,
    performed: usize,
    /// The latest tick that it knows of.
    tick: i64,
    /// From its own claims, and not known to be spent.
    claimed: Vec<Token>,
    quarantined: Vec<Token>,
}

/// Ids that are in play at one time; they are few, so that the processes meet.
const IN_PLAY: usize = 6;

impl Worker {
    fn perform_one(&mut self, perform: &mut impl FnMut(&Verb) -> Said) {
        let verb = self.next_verb();
        tell(&Event::Invokes { verb: verb.clone(), at: now() });
        let said = perform(&verb);
        let at = now();
        self.performed += 1;
        let event = match said {
            Said::Heard(result) => {
                self.learn(&verb, &result);
                Event::Returns { result, at }
            }
            Said::Failed(library::Error::Busy(_)) => Event::Busy,
            Said::Failed(library::Error::Corrupt(error)) => Event::Damaged { error },
            Said::Failed(error) => Event::Failed { error: error.to_string() },
        };
        tell(&event);
    }

    fn next_verb(&mut self) -> Verb {
        match self.dice.below(20) {
            0..7 => Verb::Admit(self.some_request()),
            7..11 => Verb::Claim { tick: self.some_tick() },
            11..14 => Verb::Resolve { token: self.some_token(), tick: self.some_tick() },
            14..15 => Verb::Quarantine { token: self.some_token(), tick: self.some_tick() },
            15..16 => Verb::Redrive { token: self.quarantined.pop().unwrap_or_else(|| self.guessed_token()) },
            16..18 => Verb::CancelUnstarted { request_id: self.some_id().name() },
            18..19 => Verb::Status { request_id: self.some_id().name() },
            _ => match self.reads {
                Reads::StatusAndSnapshot => Verb::Snapshot,
                Reads::StatusOnly => Verb::Status { request_id: self.some_id().name() },
            },
        }
    }

    fn learn(&mut self, verb: &Verb, result: &Result<Answer, Error>) {
        match (verb, result) {
            (_, Err(Error::TickMovedBack { stored, .. })) => self.tick = self.tick.max(*stored),
            (_, Err(Error::Input | Error::GenerationCeiling)) => {}
            (_, Ok(Answer::Claimed { token, .. })) => self.claimed.push(token.clone()),
            (Verb::Quarantine { token, .. }, Ok(Answer::Quarantined)) => self.quarantined.push(token.clone()),
            (_, Ok(Answer::Snapshot(snapshot))) => self.tick = self.tick.max(snapshot.tick),
            (_, Ok(_)) => {}
        }
    }

    /// Mostly the present, sometimes ahead, sometimes late. The others move the clock too, so the present is often late.
    fn some_tick(&mut self) -> i64 {
        match self.dice.below(40) {
            0 => self.tick += 5,
            1..5 => self.tick += 1,
            5..7 => return (self.tick - 1).max(0),
            _ => {}
        }
        self.tick
    }

    fn some_token(&mut self) -> Token {
        let recent = self.claimed.len().saturating_sub(3);
        if self.claimed.is_empty() || self.dice.one_in(6) {
            return self.guessed_token();
        }
        let chosen = recent + self.dice.below(self.claimed.len() - recent);
        // Spent tokens report in vain; a few of them are enough.
        if self.dice.one_in(4) { self.claimed[chosen].clone() } else { self.claimed.remove(chosen) }
    }

    fn guessed_token(&mut self) -> Token {
        Token { request_id: self.some_id().name(), generation: self.dice.one_of(&[1, 1, 1, 2, 2, 3]) }
    }

    fn some_id(&mut self) -> Id {
        if self.round > 0 && self.dice.one_in(12) {
            return Id { round: self.dice.below(self.round), number: self.dice.below(IN_PLAY) };
        }
        Id { round: self.round, number: self.performed / 4 + self.dice.below(IN_PLAY) }
    }

    fn some_request(&mut self) -> std::sync::Arc<Request> {
        let id = self.some_id();
        match self.dice.below(16) {
            0 => Request::new(&id.name(), "d", &id.payload()),
            1 => Request::new(&id.name(), id.tenant(), &format!("{}.", id.payload())),
            2 => Request::new(&id.name(), id.tenant(), &"x".repeat(97)),
            _ => Request::new(&id.name(), id.tenant(), &id.payload()),
        }
    }
}

/// All workers ask for the same under one id, unless they mean to be in conflict.
#[derive(Clone, Copy)]
struct Id {
    round: usize,
    number: usize,
}

impl Id {
    fn name(self) -> String {
        format!("{}-{}", self.round, self.number)
    }

    fn tenant(self) -> &'static str {
        ["a", "b", "c"][self.number % 3]
    }

    fn payload(self) -> String {
        ["", "abc", "é", "門", "😀"][self.number % 5].repeat(1 + self.number * 7 % 23)
    }
}
